//! Recognises, opens and decodes CSV and TSV files.

use std::sync::Arc;

use pelton_key::Digest;

use crate::locate::decoder::{Decoded, Decoder};
use crate::locate::format::{Format, Match, Shard, Source};
use crate::locate::places::LINE_ENDS;
use crate::locate::places::line_scan::first_record_from;
use crate::locate::places::located::Located;
use crate::locate::places::scan_chunk::LineShape;
use crate::locate::table::{Cell, Cells, TakeCell};
use crate::record::cells::decimal::cell_text;
use crate::record::cells::label_column::LabelColumn;
use crate::record::error::FormatError;
use crate::record::kind::{Head, Look};
use crate::record::labels::FileLabels;
use crate::record::labels::stored::{Label, LabelForm};
use crate::record::numbering::Numbering;
use crate::record::numbers::parse::Feature;
use crate::record::rows::feature_type::FeatureType;
use crate::record::rows::fields::RecordFields;
use crate::record::rows::{Layout, NewRow};
use crate::text::delimited::preamble::table_start;
use crate::text::delimited::table_columns::{TableColumns, delimiter_in};
use crate::text::delimited::{DelimitedRules, decode_cells, each_cell};

/// Numbers separated by a delimiter.
pub(crate) struct Delimited {
    pub(crate) name: &'static str,
    pub(crate) delimiter: u8,
    pub(crate) look: Look,
}

impl Format for Delimited {
    fn name(&self) -> &'static str {
        self.name
    }

    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        if head.ends_in(&[self.name]) {
            Some(Match::Name)
        } else {
            (head.look == Some(self.look)).then_some(Match::Lines)
        }
    }

    fn has_features(&self) -> bool {
        true
    }

    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Shard, FormatError> {
        let file = source.input()?;
        let begin = table_start(source, notes)?;
        let (delimiter, decimal_comma) = delimiter_in(source, begin, self.delimiter, notes)?;
        let first = first_record_from(&file, begin, source.stamp.size, delimiter)?;
        let Some((start, line)) = first else {
            return Err(FormatError::empty());
        };
        let separators = (delimiter, decimal_comma);
        let table = TableColumns::new(source, begin, &line, separators, notes)?;
        let (label, columns) = (table.label, table.count);
        let from = match table.schema {
            Some(_) => start + line.len() as u64,
            None => start,
        };
        let shape = LineShape::Delimited {
            delimiter,
            decimal_comma,
            // Targets are not classes, so the scan must not list them.
            label: label.filter(|_| !source.options.targets),
            columns,
        };
        let (mut contents, index) = source.lines(shape, from, notes)?;
        note_a_class_each(source, &contents, notes);
        if contents.tallies.first() == Some(&1) {
            notes.push(format!(
                "{}: its text is not UTF-8 and is read as Windows-1252",
                source.path.display()
            ));
        }
        let mut decoder = DelimitedDecoder::new(DelimitedRules {
            delimiter,
            decimal_comma,
            columns,
            label,
            order: table.order,
            extra: table.extra,
            missing: None,
            dtype: source.options.feature_type(),
        });
        decoder.names = table.names;
        decoder.has_text = table.has_text;
        let width = decoder.rules.features();
        let labels = std::mem::take(&mut contents.labels);
        let (records, layout) = (contents.starts.len(), Layout::Dense { width });
        let nonzeros = records.saturating_mul(width as u64);
        let shard = Shard::features(layout, width as u64, records, nonzeros, decoder);
        Ok(Shard {
            // Tables have a label, even if every cell of it is bad.
            labels: FileLabels::Listed(labels),
            nonzeros: shard.nonzeros,
            columns: table.schema,
            ..shard.at(contents, index, LINE_ENDS)
        })
    }
}

/// Lines of cells as rows.
#[derive(Debug)]
struct DelimitedDecoder {
    rules: DelimitedRules,
    fields: RecordFields,
    /// The names of the columns of features, or their positions, in the order of the features.
    names: Vec<String>,
    /// Whether some of their first cells are text.
    has_text: bool,
}

impl DelimitedDecoder {
    fn new(rules: DelimitedRules) -> DelimitedDecoder {
        DelimitedDecoder {
            fields: RecordFields::of_features(rules.dtype, rules.features()),
            rules,
            names: Vec::new(),
            has_text: false,
        }
    }

    fn cells<'b, T: Feature>(&self, bytes: &'b [u8], row: &mut [T]) -> Decoded<'b> {
        let column = self.rules.label.unwrap_or(0);
        let cell = decode_cells(bytes, &self.rules, row)?;
        Ok(cell.map_or(Label::None, |cell| {
            Label::Cell(cell, column, self.rules.decimal_comma)
        }))
    }
}

impl Decoder for DelimitedDecoder {
    #[inline]
    fn decode<'b>(&self, _: u64, bytes: &'b [u8], row: &mut NewRow<'_>) -> Decoded<'b> {
        if self.is_wide() {
            row.wide(self.rules.features(), |wide| self.cells(bytes, wide))
        } else {
            self.cells(bytes, row.dense())
        }
    }

    fn decode_wide<'b>(&self, bytes: &'b [u8], row: &mut Vec<f64>) -> Option<Decoded<'b>> {
        row.clear();
        row.resize(self.rules.features(), 0.0);
        Some(self.cells(bytes, row))
    }

    fn fingerprint(&self) -> [u64; 3] {
        let label = self.rules.label.map_or(u64::MAX, |label| label as u64);
        let decimal = u64::from(self.rules.decimal_comma);
        let digest = Digest::new("delimited").words([decimal, self.rules.delimiter.into()]);
        [digest.value(), label, 0]
    }

    fn fields(&self) -> &RecordFields {
        &self.fields
    }

    fn numbering(&self) -> Numbering {
        match self.rules.order {
            Some(_) => Numbering::FromZero,
            None => Numbering::of_columns(self.rules.label),
        }
    }

    fn is_wide(&self) -> bool {
        self.rules.dtype == FeatureType::F64
    }

    fn parses_text(&self) -> bool {
        true
    }

    fn label_form(&self) -> LabelForm {
        LabelForm::Cells
    }

    fn may_miss(&self) -> Option<usize> {
        Some(self.rules.features())
    }

    fn cells(&self) -> Option<&dyn Cells> {
        Some(self)
    }

    fn filled(&self, missing: Arc<[f32]>) -> Option<Arc<dyn Decoder>> {
        let rules = DelimitedRules {
            missing: Some(missing),
            ..self.rules.clone()
        };
        Some(Arc::new(DelimitedDecoder {
            names: self.names.clone(),
            has_text: self.has_text,
            ..DelimitedDecoder::new(rules)
        }))
    }
}

impl Cells for DelimitedDecoder {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn has_text(&self) -> bool {
        self.has_text
    }

    fn read<'b>(&self, _: u64, bytes: &'b [u8], take: &mut TakeCell<'_>) -> Decoded<'b> {
        let mut label = Label::None;
        each_cell(bytes, &self.rules, &mut |column, cell| {
            if Some(column) == self.rules.label {
                label = Label::Cell(cell, column, self.rules.decimal_comma);
                return Ok(());
            }
            let text = cell_text(cell, self.rules.decimal_comma, column)?;
            take(self.rules.feature(column), Cell::Spelled(text))
        })?;
        Ok(label)
    }
}

/// Warns if the user named no label column and the chosen one has a different text in each record: such texts are
/// hardly classes.
fn note_a_class_each(source: &Source<'_>, contents: &Located, notes: &mut Vec<String>) {
    const FEW: u64 = 4;
    let (records, options) = (contents.starts.len(), source.options);
    let is_named = matches!(options.label, LabelColumn::Name(_)) || options.any_label;
    if contents.names.len() as u64 == records && records > FEW && !is_named {
        notes.push(format!(
            "{}: the column taken for the label holds another text in each of its {records} records, so each is a class of its own; name the column of the classes with `label`",
            source.path.display()
        ));
    }
}
