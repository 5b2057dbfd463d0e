//! CSV and TSV: one record a line, numbers only, one column of which is the label.
//!
//! A first line with any cell that is no number is the header. Cells may stand in double quotes and
//! have blanks around them; empty lines are passed over. Rows are dense: every row must have as many
//! cells as the first line.

use std::path::Path;

use crate::error::{Fault, FormatError, bad_number};
use crate::json_label::JsonKey;
use crate::number::{f32_prefix, parse_f32, parse_f64};

/// Which column of a table is the label, or which key of samples' members `json`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LabelColumn {
    /// The first.
    First,
    /// The last.
    #[default]
    Last,
    /// By place, the first being 1, as messages count.
    Position(usize),
    /// By the name in the header.
    Name(String),
    /// No column: of samples of a tar file, a key of their members `json`.
    Json(JsonKey),
}

impl LabelColumn {
    /// How a message calls it.
    pub(crate) fn describe(&self) -> String {
        match self {
            LabelColumn::Name(name) => format!("{name:?}"),
            LabelColumn::Position(place) => place.to_string(),
            LabelColumn::First | LabelColumn::Last => "at its end".into(),
            LabelColumn::Json(key) => format!("json:{key}"),
        }
    }
}

/// How rows are read.
#[derive(Clone, Copy, Debug)]
pub struct DelimitedRules {
    /// Between cells.
    pub delimiter: u8,
    /// Cells a row.
    pub columns: usize,
    /// Column of the label, from 0.
    pub label: usize,
}

/// What the first line says of the others.
#[derive(Clone, Debug)]
pub(crate) struct Heading {
    pub(crate) columns: usize,
    /// The names, where the line is a header.
    pub(crate) names: Option<Vec<String>>,
}

impl Heading {
    pub(crate) fn read(line: &[u8], delimiter: u8) -> Heading {
        let cells: Vec<&[u8]> = line.split(|byte| *byte == delimiter).map(bare).collect();
        let is_header = cells
            .iter()
            .any(|cell| !cell.is_empty() && parse_f64(cell).is_err());
        let names = cells
            .iter()
            .map(|cell| String::from_utf8_lossy(cell).into_owned());
        Heading {
            columns: cells.len(),
            names: is_header.then(|| names.collect()),
        }
    }

    /// The label's column, from 0.
    pub(crate) fn label(&self, path: &Path, wanted: &LabelColumn) -> Result<usize, FormatError> {
        let found = match wanted {
            LabelColumn::First => Some(0),
            LabelColumn::Last => Some(self.columns - 1),
            LabelColumn::Position(place) => place.checked_sub(1).filter(|at| *at < self.columns),
            LabelColumn::Name(name) => {
                let names = self.names.as_deref().unwrap_or_default();
                let mut places = (0..names.len()).filter(|&at| names[at] == *name);
                let found = places.next();
                if let (Some(first), Some(second)) = (found, places.next()) {
                    return Err(FormatError::AmbiguousLabelColumn {
                        path: path.to_path_buf(),
                        name: name.clone(),
                        first: first + 1,
                        second: second + 1,
                    });
                }
                found
            }
            LabelColumn::Json(_) => None,
        };
        found.ok_or_else(|| FormatError::NoLabelColumn {
            path: path.to_path_buf(),
            wanted: wanted.describe(),
            columns: match &self.names {
                Some(names) => excerpt_of_names(names),
                None => format!("1 to {}, without names", self.columns),
            },
        })
    }
}

fn excerpt_of_names(names: &[String]) -> String {
    const SHOWN: usize = 40;
    let mut text = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN {
        text += &format!(" and {} more", names.len() - SHOWN);
    }
    text
}

/// A cell without the blanks and quotes around it.
pub(crate) fn bare(cell: &[u8]) -> &[u8] {
    let cell = cell.trim_ascii();
    match cell {
        [b'"', inner @ .., b'"'] => inner.trim_ascii(),
        _ => cell,
    }
}

fn first_line(bytes: &[u8]) -> &[u8] {
    let end = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
    let line = &bytes[..end];
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Writes the features of the first line of `bytes` to `row`, which holds one cell fewer than the
/// columns, and returns the label.
pub fn decode_delimited_line(
    bytes: &[u8],
    rules: DelimitedRules,
    row: &mut [f32],
) -> Result<f64, Fault> {
    assert_eq!(row.len() + 1, rules.columns);
    let line = first_line(bytes);
    if line.trim_ascii().is_empty() {
        return Err(Fault::NoRecord);
    }
    let mut label = None;
    let mut at = 0;
    for column in 0..rules.columns {
        if at > line.len() {
            return Err(ragged(line, rules));
        }
        if column != rules.label
            && let Some((value, end)) = f32_prefix(line, at)
            && (end == line.len() || line[end] == rules.delimiter)
        {
            row[column - usize::from(column > rules.label)] = value;
            at = end + 1;
            continue;
        }
        let length = memchr::memchr(rules.delimiter, &line[at..]).unwrap_or(line.len() - at);
        let cell = bare(&line[at..at + length]);
        let place = column as u64 + 1;
        if cell.is_empty() {
            // A short row that ends in a delimiter is short rather than empty.
            let fault = ragged(line, rules);
            let is_ragged =
                matches!(fault, Fault::RaggedRow { expected, found } if expected != found);
            return Err(if is_ragged {
                fault
            } else {
                Fault::EmptyCell { column: place }
            });
        }
        let bad = |found| Fault::BadCell {
            column: place,
            found,
        };
        if column == rules.label {
            let value = parse_f64(cell).map_err(|why| bad_number(why, place, cell, bad))?;
            label = Some(value);
        } else {
            row[column - usize::from(column > rules.label)] =
                parse_f32(cell).map_err(|why| bad_number(why, place, cell, bad))?;
        }
        at += length + 1;
    }
    if at <= line.len() {
        return Err(ragged(line, rules));
    }
    label.ok_or(Fault::NoRecord)
}

#[cold]
fn ragged(line: &[u8], rules: DelimitedRules) -> Fault {
    Fault::RaggedRow {
        expected: rules.columns as u64,
        found: memchr::memchr_iter(rules.delimiter, line).count() as u64 + 1,
    }
}

/// The label cell of a line: the last one where the label comes last, however many there are.
pub(crate) fn label_cell(
    line: &[u8],
    delimiter: u8,
    label: usize,
    columns: usize,
) -> Option<&[u8]> {
    let mut cells = line.split(|byte| *byte == delimiter);
    let cell = if label == 0 {
        cells.next()
    } else if label + 1 == columns {
        cells.next_back().filter(|last| last.len() < line.len())
    } else {
        // Only a cell that another follows is complete.
        cells.nth(label).filter(|_| cells.next().is_some())
    };
    cell.map(bare)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(line: &str, columns: usize, label: usize) -> Result<(f64, Vec<f32>), Fault> {
        let mut row = vec![0.0; columns - 1];
        let rules = DelimitedRules {
            delimiter: b',',
            columns,
            label,
        };
        decode_delimited_line(line.as_bytes(), rules, &mut row).map(|label| (label, row))
    }

    fn refuses(line: &str, message: &str) {
        let fault = decode(line, 3, 2).expect_err(line).to_string();
        assert!(fault.contains(message), "{line}: {fault}");
    }

    #[test]
    fn lines() {
        assert_eq!(decode("1,2.5,3\n", 3, 2), Ok((3.0, vec![1.0, 2.5])));
        assert_eq!(decode("1,2.5,3\r\n", 3, 0), Ok((1.0, vec![2.5, 3.0])));
        assert_eq!(
            decode("\"1\", \"-2\" , 3", 3, 1),
            Ok((-2.0, vec![1.0, 3.0]))
        );
        assert_eq!(decode("7", 1, 0), Ok((7.0, vec![])));
    }

    #[test]
    fn faults() {
        refuses("", "no record");
        refuses("1,2\n", "2 columns where the first row has 3");
        refuses("1,2,3,4\n", "4 columns where the first row has 3");
        refuses("1,2,\n", "column 3 is empty");
        refuses("1,,3", "column 2 is empty");
        refuses("1,", "2 columns");
        refuses("1,\"\",3", "column 2 is empty");
        refuses("1,abc,3", "column 2 holds \"abc\"");
        refuses("1,2,cat", "column 3 holds \"cat\"");
        refuses("1,\"2,3", "column 2 holds \"\\\"2\"");
        refuses("1,nan,3", "not finite");
        refuses("1,1e99,3", "beyond 32-bit");
    }

    #[test]
    fn headings() {
        let heading = Heading::read(b"a,\"b c\",label", b',');
        assert_eq!(heading.columns, 3);
        assert_eq!(
            heading.names.as_deref(),
            Some(&["a".into(), "b c".into(), "label".into()][..])
        );
        let path = Path::new("x.csv");
        assert_eq!(
            heading
                .label(path, &LabelColumn::Name("b c".into()))
                .unwrap(),
            1
        );
        assert_eq!(heading.label(path, &LabelColumn::Last).unwrap(), 2);
        assert_eq!(heading.label(path, &LabelColumn::Position(1)).unwrap(), 0);
        let error = heading
            .label(path, &LabelColumn::Name("d".into()))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("no label column \"d\"; its columns are a, b c, label"),
            "{error}"
        );
        assert!(heading.label(path, &LabelColumn::Position(0)).is_err());
        let twice = Heading::read(b"y,x,y", b',');
        let error = twice.label(path, &LabelColumn::Name("y".into()));
        assert!(matches!(
            error,
            Err(FormatError::AmbiguousLabelColumn {
                first: 1,
                second: 3,
                ..
            })
        ));
        assert_eq!(
            twice.label(path, &LabelColumn::Name("x".into())).unwrap(),
            1
        );
        assert_eq!(twice.label(path, &LabelColumn::Position(3)).unwrap(), 2);
        let plain = Heading::read(b"1,2.5,\"3\"", b',');
        assert!(plain.names.is_none());
        assert!(plain.label(path, &LabelColumn::Name("a".into())).is_err());
    }

    proptest! {
        #[test]
        fn agrees_with_the_reference(
            cells in prop::collection::vec(prop_oneof![
                any::<f32>().prop_map(|v| v.to_string()),
                "[-0-9.e\" ]{0,6}",
            ], 1..6),
            columns in 1usize..6, label in 0usize..6,
        ) {
            let label = label % columns;
            let line = cells.join(",");
            let numbers: Option<Vec<f64>> = cells.iter().map(|cell| {
                let cell = cell.trim();
                let cell = if cell.len() >= 2 && cell.starts_with('"') && cell.ends_with('"') {
                    cell[1..cell.len() - 1].trim()
                } else {
                    cell
                };
                cell.parse::<f64>().ok().filter(|v| v.is_finite() && (*v as f32).is_finite())
            }).collect();
            let expected = numbers.filter(|numbers| numbers.len() == columns).map(|numbers| {
                let mut row: Vec<f32> = numbers.iter().map(|v| *v as f32).collect();
                row.remove(label);
                (numbers[label], row)
            });
            prop_assert_eq!(decode(&line, columns, label).ok(), expected);
        }
    }
}
