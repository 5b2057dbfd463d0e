//! The columns of a CSV or TSV file, from its first line and the known columns.

use std::sync::Arc;

use pelton_batch::Schema;

use crate::locate::format::Source;
use crate::record::cells::heading::{
    Header, Heading, cells, delimiter_of, excerpt_of_names, first_lines, is_word, may_delimit,
};
use crate::record::cells::known_columns::KnownColumns;
use crate::record::cells::label_column::LabelColumn;
use crate::record::cells::label_column::no_label_column;
use crate::record::error::FormatError;

/// The feature of each column, if columns and features differ in order; the label's entry is unused.
type Order = Option<Arc<[u32]>>;

/// The columns of a CSV or TSV file.
pub(crate) struct TableColumns {
    pub(crate) count: usize,
    pub(crate) label: Option<usize>,
    pub(crate) order: Order,
    /// Columns that are neither features nor the label.
    pub(crate) extra: usize,
    /// The names in the order of the features, if the first line is a header.
    pub(crate) schema: Option<Schema>,
    /// The same and those of further columns, or positions from 1 without a header.
    pub(crate) names: Vec<String>,
    /// Whether some of the first cells of features are neither numbers nor missing, or a column has no name, as columns
    /// of row numbers do.
    pub(crate) has_text: bool,
}

/// The delimiter of a table that begins at `start`, and whether its numbers have decimal commas. A delimiter other than
/// `usual` is noted.
pub(crate) fn delimiter_in(
    source: &Source<'_>,
    start: u64,
    usual: u8,
    notes: &mut Vec<String>,
) -> Result<(u8, bool), FormatError> {
    let lines = first_lines_of(source, start, may_delimit);
    let (delimiter, name, decimal_comma) = delimiter_of(&lines, usual, source.options.decimal)?;
    if !name.is_empty() {
        let numbers = if decimal_comma {
            ", and its numbers have decimal commas"
        } else {
            ""
        };
        notes.push(format!(
            "{}: its cells are separated by {name}{numbers}",
            source.path.display()
        ));
    }
    Ok((delimiter, decimal_comma))
}

/// The first lines of a table.
fn first_lines_of<'a>(
    source: &Source<'a>,
    start: u64,
    is_delimiter: impl Fn(u8) -> bool,
) -> Vec<&'a [u8]> {
    let text = source.head.get(start as usize..);
    let is_whole = source.head.len() as u64 >= source.stamp.size;
    first_lines(text.unwrap_or_default(), is_whole, is_delimiter)
}

impl TableColumns {
    /// Reads the columns of a table that begins at `start` and has `line` as its first non-blank line; `decimal_comma`
    /// says whether its numbers have decimal commas.
    pub(crate) fn new(
        source: &Source<'_>,
        start: u64,
        line: &[u8],
        (delimiter, decimal_comma): (u8, bool),
        notes: &mut Vec<String>,
    ) -> Result<TableColumns, FormatError> {
        let (path, options) = (source.path, source.options);
        let lines = first_lines_of(source, start, |byte| byte == delimiter);
        let heading = Heading::read(line.trim_ascii_end(), delimiter, decimal_comma);
        let count = heading.columns;
        let wanted = &options.label;
        let all_features = options.are_all_features(count);
        let is_predicted = options.any_label && options.columns.is_some();
        if count == 1 && !all_features && !is_predicted {
            return Err(FormatError::new(
                "has one column, the label, and no features; check the file, or read its lines with `format` text",
            ));
        }
        let guess = if all_features {
            None
        } else {
            heading.label(wanted, true).ok()
        };
        let others = lines
            .iter()
            .skip(1)
            .map(|line| cells(line, delimiter, decimal_comma));
        let others: Vec<_> = others.collect();
        let is_known = match (&options.columns, wanted) {
            (_, LabelColumn::Name(name)) if heading.has(name) => true,
            (Some(known), _) => known.are_among(&heading.names()),
            (None, _) => false,
        };
        let header = match (options.header, is_known) {
            (Header::Auto, true) => Header::Yes,
            (header, _) => header,
        };
        let named = heading.names_columns(header, guess, &others)?;
        let is_coded = |known: &KnownColumns| !known.schema.codes.is_empty();
        let mut more = Vec::new();
        let (label, order) = match &options.columns {
            Some(known) if named && is_coded(known) => (
                label_among(known, &heading, wanted, options.any_label)?,
                None,
            ),
            Some(known) if named => take(known, source, &heading, &mut more, notes)?,
            known => {
                if let (Some(known), true) = (known.as_ref().filter(|k| !is_coded(k)), count > 1) {
                    notes.push(format!(
                        "{}: its first line names no columns, so they are taken in the order of {}",
                        path.display(),
                        known.of
                    ));
                }
                let is_named = matches!(wanted, LabelColumn::Name(name) if heading.has(name));
                if all_features && !is_named {
                    (None, None)
                } else {
                    (Some(heading.label(wanted, named)?), None)
                }
            }
        };
        let fields = || match &options.columns {
            Some(known) if !is_coded(known) => known.schema.fields.clone(),
            _ => heading.fields(label),
        };
        let schema = named.then(|| Schema {
            fields: fields(),
            label: label.map(|at| heading.names().swap_remove(at)),
            codes: Vec::new(),
            crosses: Vec::new(),
        });
        let names: Vec<String> = match &schema {
            Some(schema) => {
                let names = schema.fields.0.iter();
                let names = names.map(|field| field.name.to_string());
                names.chain(more.iter().cloned()).collect()
            }
            None => {
                let columns = (0..count).filter(|column| Some(*column) != label);
                columns.map(|column| (column + 1).to_string()).collect()
            }
        };
        let mut rows = lines.iter().skip(usize::from(named));
        let is_unnamed = named && names.iter().any(String::is_empty);
        let has_text = is_unnamed
            || rows.any(|line| {
                let row = cells(line, delimiter, decimal_comma);
                let cells = row.iter().enumerate();
                let mut features = cells.filter(|(column, _)| Some(*column) != label);
                features.any(|(_, cell)| is_word(cell))
            });
        Ok(TableColumns {
            count,
            label,
            order,
            extra: more.len(),
            schema,
            names,
            has_text,
        })
    }
}

/// The label's column in a first line that names columns; it may be missing if `any_label`.
fn label_among(
    known: &KnownColumns,
    heading: &Heading,
    wanted: &LabelColumn,
    any_label: bool,
) -> Result<Option<usize>, FormatError> {
    let names = heading.names();
    let meant = known.label(wanted, &names);
    let features = &known.schema.fields;
    let label = match &meant {
        LabelColumn::Name(name) if any_label && !heading.has(name) => None,
        LabelColumn::Name(_) => Some(heading.label(&meant, true)?),
        // A column in the label's usual position is the label only if it is not a feature and is the only other column.
        _ => {
            let label = heading.label(&meant, true)?;
            let is_other = |name: &String| features.get(name).is_none();
            let is_only = names.iter().filter(|name| is_other(name)).count() == 1;
            Some(label).filter(|at| is_only && is_other(&names[*at]))
        }
    };
    if let (None, false) = (label, any_label) {
        let wanted = known.schema.label.as_deref().unwrap_or("label");
        return Err(no_label_column(
            format!("{wanted:?}"),
            excerpt_of_names(&names),
        ));
    }
    Ok(label)
}

/// The label's column and the order of the features in a first line that names columns; a label may be missing if it
/// does not matter. The names of columns that a model does not know are added to `more`.
fn take(
    known: &KnownColumns,
    source: &Source<'_>,
    heading: &Heading,
    more: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> Result<(Option<usize>, Order), FormatError> {
    let names = heading.names();
    let (wanted, any_label) = (&source.options.label, source.options.any_label);
    let label = label_among(known, heading, wanted, any_label)?;
    let fields = heading.fields(label);
    let mut places = known.places(&fields, source.options.features.is_some())?;
    if places.len() < fields.0.len() {
        let mut is_known = vec![false; fields.0.len()];
        places.iter().for_each(|place| is_known[*place] = true);
        let others: Vec<usize> = (0..is_known.len()).filter(|at| !is_known[*at]).collect();
        more.extend(others.iter().map(|at| fields.0[*at].name.to_string()));
        places.extend(others);
    }
    if let (Some(at), Some(name), false) = (label, &known.schema.label, any_label)
        && names[at] != *name
        && !matches!(wanted, LabelColumn::Name(_))
    {
        notes.push(format!(
            "{}: takes the column {:?} for the label, which is {name:?} in {}",
            source.path.display(),
            names[at],
            known.of
        ));
    }
    let mut order = None;
    if !places.is_sorted() || !more.is_empty() {
        let mut features = vec![0; heading.columns];
        for (feature, place) in (0..).zip(places) {
            let column = place + usize::from(label.is_some_and(|label| place >= label));
            features[column] = feature;
        }
        order = Some(features.into());
    }
    Ok((label, order))
}
