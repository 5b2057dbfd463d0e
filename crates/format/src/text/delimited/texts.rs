//! Named columns of CSV and TSV files as texts, for tables of prose: `csv:body,title`.
//!
//! Cells are as written, without the quotes around them, in UTF-8; an empty one is an empty text. The label is the column
//! called `label`, or the named one, if there is one.

use std::borrow::Cow;

use pelton_key::Digest;

use crate::locate::decoder::{Decoded, Decoder, FIELDS};
use crate::locate::format::{Format, Shard, Source};
use crate::locate::places::LINE_ENDS;
use crate::locate::places::line_scan::first_record_from;
use crate::locate::places::scan_chunk::LineShape;
use crate::record::cells::encoding::as_utf8;
use crate::record::cells::heading::{Heading, excerpt_of_names};
use crate::record::cells::quoted::unquoted;
use crate::record::error::FormatError;
use crate::record::labels::FileLabels;
use crate::record::labels::stored::{Label, LabelForm};
use crate::record::rows::NewRow;
use crate::record::rows::feature_type::FeatureType;
use crate::record::rows::fields::{RecordFields, label_field, no_column, selection};
use crate::text::delimited::preamble::table_start;
use crate::text::delimited::table_columns::delimiter_in;
use crate::text::delimited::{DelimitedRules, each_cell};

/// Some columns as texts.
pub(crate) struct Texts {
    pub(crate) name: &'static str,
    pub(crate) delimiter: u8,
}

impl Format for Texts {
    fn name(&self) -> &'static str {
        self.name
    }

    fn argument(&self) -> Option<&'static str> {
        Some("COLUMN,…")
    }

    fn check(&self, argument: &str) -> Result<(), String> {
        selection(argument, "columns").map(drop)
    }

    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Shard, FormatError> {
        let file = source.input()?;
        let begin = table_start(source, notes)?;
        let (delimiter, decimal_comma) = delimiter_in(source, begin, self.delimiter, notes)?;
        let first = first_record_from(&file, begin, source.stamp.size, delimiter)?;
        let (start, line) = first.ok_or_else(FormatError::empty)?;
        let heading = Heading::read(line.trim_ascii_end(), delimiter, decimal_comma);
        let names = heading.names();
        let place = |wanted: &&str| {
            let mut found = (0..names.len()).filter(|at| names[*at] == *wanted);
            let (first, second) = (found.next(), found.next());
            if let (Some(first), Some(second)) = (first, second) {
                let (first, second) = (first + 1, second + 1);
                return Err(FormatError::new(format!(
                    "columns {first} and {second} are both named {wanted:?}; rename one of them"
                )));
            }
            first.ok_or_else(|| no_column(wanted, excerpt_of_names(&names)))
        };
        let wanted = selection(source.argument(), "columns").expect("it was checked");
        let columns: Vec<usize> = wanted.iter().map(place).collect::<Result<_, _>>()?;
        let shown: Vec<&str> = names.iter().map(String::as_str).collect();
        let label = label_field(&shown, &source.options.label)?;
        let shape = LineShape::Delimited {
            delimiter,
            decimal_comma,
            label: label.filter(|_| !source.options.targets),
            columns: heading.columns,
        };
        let (mut contents, index) = source.lines(shape, start + line.len() as u64, notes)?;
        let mut fields = RecordFields::default();
        wanted.iter().for_each(|name| fields.push_string(name));
        let decoder = TextDecoder {
            rules: DelimitedRules {
                delimiter,
                decimal_comma,
                columns: heading.columns,
                label,
                order: None,
                extra: 0,
                missing: None,
                dtype: FeatureType::F32,
            },
            columns,
            fields,
        };
        let labels = std::mem::take(&mut contents.labels);
        let shard = Shard::fields(contents.starts.len(), decoder);
        let nonzeros = shard.nonzeros.saturating_add(source.stamp.size);
        let shard = shard.at(contents, index, LINE_ENDS);
        Ok(match label {
            // A table with a label has one even if every cell of it is bad.
            Some(_) => Shard {
                labels: FileLabels::Listed(labels),
                nonzeros,
                ..shard
            },
            None => Shard { nonzeros, ..shard },
        })
    }
}

/// Lines of cells as texts.
#[derive(Debug)]
struct TextDecoder {
    rules: DelimitedRules,
    /// The column of each field.
    columns: Vec<usize>,
    fields: RecordFields,
}

impl Decoder for TextDecoder {
    fn decode<'b>(&self, _: u64, bytes: &'b [u8], row: &mut NewRow<'_>) -> Decoded<'b> {
        let mut label = Label::None;
        let mut texts: Vec<Cow<'b, [u8]>> = vec![Cow::default(); self.columns.len()];
        each_cell(bytes, &self.rules, &mut |column, cell| {
            if Some(column) == self.rules.label {
                label = Label::Cell(cell, column, self.rules.decimal_comma);
            }
            for (text, wanted) in texts.iter_mut().zip(&self.columns) {
                if *wanted == column {
                    *text = as_utf8(unquoted(cell));
                }
            }
            Ok(())
        })?;
        let mut row = row.fields(&self.fields);
        texts.iter().for_each(|text| row.put(&[text.len()], text));
        Ok(label)
    }

    fn fingerprint(&self) -> [u64; 3] {
        let words = self.columns.iter().map(|column| *column as u64);
        let label = self.rules.label.map_or(u64::MAX, |label| label as u64);
        let delimiter = u64::from(self.rules.delimiter);
        let digest = Digest::new("delimited texts").words(words.chain([delimiter, label]));
        [FIELDS, digest.value(), 0]
    }

    fn fields(&self) -> &RecordFields {
        &self.fields
    }

    fn parses_text(&self) -> bool {
        true
    }

    fn label_form(&self) -> LabelForm {
        match self.rules.label {
            Some(_) => LabelForm::Cells,
            None => LabelForm::Codes,
        }
    }
}
