//! CSV and TSV: one record a line, features in numbers, one column of which is the label: a number or a name.
//!
//! A first line without a number in any column of features is the header. Cells may stand in double quotes
//! and have blanks around them; empty lines are passed over. Rows are dense: every row must have as many
//! cells as the first line. A cell that is empty or says NA, NaN, null or `?` is missing: a fault, unless
//! something is to stand for it.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Fault, FormatError, bad_number, excerpt};
use crate::feature_type::FeatureType;
use crate::json_label::JsonKey;
use crate::labels::{LABEL_LIMIT, checked_label};
use crate::number::{Feature, NotANumber, is_rounded, parse_f64};

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
#[derive(Clone, Debug)]
pub struct DelimitedRules {
    /// Between cells.
    pub delimiter: u8,
    /// Cells a row.
    pub columns: usize,
    /// Column of the label, from 0; `None` where rows have none.
    pub label: Option<usize>,
    /// What stands for a missing value, one value a feature; missing values are faults where `None`.
    pub missing: Option<Arc<[f32]>>,
    /// What numbers features become.
    pub dtype: FeatureType,
}

impl DelimitedRules {
    /// Features a row.
    pub fn features(&self) -> usize {
        self.columns - usize::from(self.label.is_some())
    }
}

/// What the first line says of the others.
#[derive(Clone, Debug)]
pub(crate) struct Heading {
    pub(crate) columns: usize,
    cells: Vec<Vec<u8>>,
}

impl Heading {
    pub(crate) fn read(line: &[u8], delimiter: u8) -> Heading {
        let cells = line.split(|byte| *byte == delimiter);
        let cells: Vec<Vec<u8>> = cells.map(|cell| bare(cell).to_vec()).collect();
        Heading {
            columns: cells.len(),
            cells,
        }
    }

    /// Whether the line names the columns: one of those of features holds a word, and none a number. A label
    /// found by its name is in a line of names in any case.
    pub(crate) fn is_header(&self, label: Option<usize>, wanted: &LabelColumn) -> bool {
        if label.is_some() && matches!(wanted, LabelColumn::Name(_)) {
            return true;
        }
        let features = || {
            let cells = self.cells.iter().enumerate();
            cells.filter(|(column, _)| Some(*column) != label)
        };
        let is_word = |cell: &[u8]| {
            !is_missing(cell) && matches!(parse_f64(cell), Err(NotANumber::Malformed))
        };
        features().any(|(_, cell)| is_word(cell))
            && features().all(|(_, cell)| is_word(cell) || is_missing(cell))
    }

    /// Whether a column has this name.
    pub(crate) fn names(&self, name: &str) -> bool {
        self.cells.iter().any(|cell| cell == name.as_bytes())
    }

    /// The label's column, from 0.
    pub(crate) fn label(&self, path: &Path, wanted: &LabelColumn) -> Result<usize, FormatError> {
        let found = match wanted {
            LabelColumn::First => Some(0),
            LabelColumn::Last => Some(self.columns - 1),
            LabelColumn::Position(place) => place.checked_sub(1).filter(|at| *at < self.columns),
            LabelColumn::Name(name) => {
                let mut places = (0..self.columns).filter(|&at| self.cells[at] == name.as_bytes());
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
            columns: if self.is_header(None, wanted) {
                excerpt_of_names(&self.cells)
            } else {
                format!("1 to {}, without names", self.columns)
            },
        })
    }
}

fn excerpt_of_names(names: &[Vec<u8>]) -> String {
    const SHOWN: usize = 40;
    let shown = names.iter().take(SHOWN);
    let shown: Vec<_> = shown.map(|name| String::from_utf8_lossy(name)).collect();
    let mut text = shown.join(", ");
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

/// Whether a cell says that there is no value.
pub(crate) fn is_missing(cell: &[u8]) -> bool {
    const WORDS: [&[u8]; 5] = [b"", b"?", b"na", b"nan", b"null"];
    WORDS.iter().any(|word| cell.eq_ignore_ascii_case(word))
}

/// What a label cell says.
#[derive(Debug, PartialEq)]
pub(crate) enum LabelCell<'a> {
    Number(f64),
    Name(&'a str),
    /// Nothing that a class could be called.
    Neither,
}

impl LabelCell<'_> {
    pub(crate) fn of(cell: &[u8]) -> LabelCell<'_> {
        /// Longer text is prose.
        const LONGEST_NAME: usize = 256;
        match parse_f64(cell) {
            Ok(value) if value.abs() < LABEL_LIMIT => LabelCell::Number(value),
            Err(NotANumber::Malformed) if !is_missing(cell) && cell.len() <= LONGEST_NAME => {
                std::str::from_utf8(cell).map_or(LabelCell::Neither, LabelCell::Name)
            }
            _ => LabelCell::Neither,
        }
    }
}

/// The label of a cell in column `column` (from 0) of rows whose labels are numbers.
pub(crate) fn numeric_label(cell: &[u8], column: usize) -> Result<f64, Fault> {
    let column = column as u64 + 1;
    if is_missing(cell) {
        return Err(Fault::MissingLabel { column });
    }
    let named = |found| Fault::NamedLabel { column, found };
    let value = parse_f64(cell).map_err(|why| bad_number(why, column, cell, named))?;
    checked_label(value, || excerpt(cell))
}

/// Writes the features of the first line of `bytes` to `row`, and returns what `read_label` makes of the label's
/// cell, where rows have one.
pub fn decode_delimited_line<L>(
    bytes: &[u8],
    rules: &DelimitedRules,
    row: &mut [f32],
    read_label: impl FnOnce(&[u8]) -> Result<L, Fault>,
) -> Result<Option<L>, Fault> {
    decode_cells(bytes, rules, row, read_label)
}

/// The same of features of any type.
#[inline]
pub(crate) fn decode_cells<T: Feature, L>(
    bytes: &[u8],
    rules: &DelimitedRules,
    row: &mut [T],
    read_label: impl FnOnce(&[u8]) -> Result<L, Fault>,
) -> Result<Option<L>, Fault> {
    assert_eq!(row.len(), rules.features());
    let line = first_line(bytes);
    if line.trim_ascii().is_empty() {
        return Err(Fault::NoRecord);
    }
    let label_at = rules.label.unwrap_or(usize::MAX);
    // What is larger may be a whole number that is rounded.
    let most = match rules.dtype {
        FeatureType::F32 => T::of(f64::INFINITY),
        FeatureType::Checked | FeatureType::F64 => T::of(T::MOST_EXACT),
    };
    let mut label_cell = None;
    let mut at = 0;
    for column in 0..rules.columns {
        if at > line.len() {
            return Err(ragged(line, rules));
        }
        let feature = column - usize::from(column > label_at);
        if column != label_at
            && let Some((value, end)) = T::prefix(line, at)
            && (end == line.len() || line[end] == rules.delimiter)
            && value.is_below(most)
        {
            row[feature] = value;
            at = end + 1;
            continue;
        }
        let length = memchr::memchr(rules.delimiter, &line[at..]).unwrap_or(line.len() - at);
        let cell = bare(&line[at..at + length]);
        if column == label_at {
            label_cell = Some(cell);
        } else {
            row[feature] = unusual_value(line, cell, column, feature, rules)?;
        }
        at += length + 1;
    }
    if at <= line.len() {
        return Err(ragged(line, rules));
    }
    label_cell.map(read_label).transpose()
}

/// The value of a cell that is no plain number.
fn unusual_value<T: Feature>(
    line: &[u8],
    cell: &[u8],
    column: usize,
    feature: usize,
    rules: &DelimitedRules,
) -> Result<T, Fault> {
    let column = column as u64 + 1;
    if !is_missing(cell) {
        let bad = |found| Fault::BadCell { column, found };
        let value = T::parse(cell).map_err(|why| bad_number(why, column, cell, bad))?;
        if rules.dtype != FeatureType::F32 && is_rounded(cell, value) {
            return Err(rounded::<T>(column, excerpt(cell)));
        }
        return Ok(value);
    }
    if let Some(values) = &rules.missing {
        return Ok(T::of(f64::from(values[feature])));
    }
    // A short row that ends in a delimiter is short rather than empty.
    let fault = ragged(line, rules);
    Err(match fault {
        Fault::RaggedRow { expected, found } if expected != found => fault,
        _ if cell.is_empty() => Fault::EmptyCell { column },
        _ => Fault::MissingCell {
            column,
            found: excerpt(cell),
        },
    })
}

/// A whole number that features of this type round.
#[cold]
pub(crate) fn rounded<T: Feature>(column: u64, found: String) -> Fault {
    let remedy = match T::MOST_EXACT == f32::MOST_EXACT {
        true => {
            "features of 32 bits round; read them with `dtype` f64, or with `dtype` f32 as they are rounded"
        }
        false => {
            "features of 64 bits round; store the table as Parquet, whose columns keep their types, or read it with `dtype` f32 as it is rounded"
        }
    };
    Fault::Column {
        column: column.to_string(),
        what: format!("holds {found}, which {remedy}"),
    }
}

#[cold]
fn ragged(line: &[u8], rules: &DelimitedRules) -> Fault {
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
        decode_filled(line, columns, label, None)
    }

    fn decode_filled(
        line: &str,
        columns: usize,
        label: usize,
        missing: Option<&[f32]>,
    ) -> Result<(f64, Vec<f32>), Fault> {
        let mut row = vec![0.0; columns - 1];
        let rules = DelimitedRules {
            delimiter: b',',
            columns,
            label: Some(label),
            missing: missing.map(Arc::from),
            dtype: FeatureType::F32,
        };
        let read = |cell: &[u8]| numeric_label(cell, label);
        let label = decode_delimited_line(line.as_bytes(), &rules, &mut row, read)?;
        Ok((label.expect("it has a column"), row))
    }

    #[test]
    fn whole_numbers_that_features_round() {
        let decode = |line: &str, dtype| {
            let rules = DelimitedRules {
                delimiter: b',',
                columns: 2,
                label: None,
                missing: None,
                dtype,
            };
            let (mut narrow, mut wide) = ([0.0_f32; 2], [0.0_f64; 2]);
            let label = |_: &[u8]| Ok(());
            let decoded = match dtype {
                FeatureType::F64 => decode_cells(line.as_bytes(), &rules, &mut wide, label),
                _ => decode_cells(line.as_bytes(), &rules, &mut narrow, label),
            };
            let [a, b] = narrow.map(f64::from);
            decoded.map(|_| {
                if dtype == FeatureType::F64 {
                    wide
                } else {
                    [a, b]
                }
            })
        };
        let line = "0.5,16777217\n";
        let fault = decode(line, FeatureType::Checked).unwrap_err().to_string();
        assert_eq!(
            fault,
            "column 2 holds 16777217, which features of 32 bits round; read them with `dtype` f64, or with `dtype` f32 as they are rounded"
        );
        assert_eq!(decode(line, FeatureType::F32), Ok([0.5, 16_777_216.0]));
        assert_eq!(decode(line, FeatureType::F64), Ok([0.5, 16_777_217.0]));
        assert!(decode("1, \"123456789\"\n", FeatureType::Checked).is_err());
        let exact = decode("16777216,-33554432\n", FeatureType::Checked);
        assert_eq!(exact, Ok([16_777_216.0, -33_554_432.0]));
        let magnitude = decode("1.23456789e12,123456.789\n", FeatureType::Checked);
        assert!(magnitude.is_ok());
        let fault = decode("0,9007199254740993\n", FeatureType::F64).unwrap_err();
        assert!(fault.to_string().contains("features of 64 bits round"));
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
        refuses("1,2,\n", "column 3, the label, is empty");
        refuses("1,2,NA\n", "column 3, the label");
        refuses(
            "1,,3",
            "column 2 is empty; `missing` zero or `missing` mean",
        );
        refuses("1,", "2 columns");
        refuses("1,\"\",3", "column 2 is empty");
        refuses("1,abc,3", "column 2 holds \"abc\"");
        refuses("1,2,cat", "label \"cat\" in column 3 is no number");
        refuses(
            "1,2,9007199254740993",
            "label 9007199254740993 is not below 2^53",
        );
        refuses("1,2,-1e300", "label -1e300 is not below");
        for word in ["NA", "NaN", "nan", "null", "?", "\"NA\"", " NULL "] {
            let said = format!(
                "column 2 holds {:?}, no value",
                word.trim_matches(&['"', ' '][..])
            );
            refuses(&format!("1,{word},3"), &said);
        }
        refuses("1,inf,3", "not finite");
        refuses("1,1e400,3", "beyond 32-bit");
        refuses("1,\"2,3", "column 2 holds \"\\\"2\"");
        refuses("1,1e99,3", "beyond 32-bit");
    }

    #[test]
    fn missing_cells_are_filled_in() {
        let filled = |line| decode_filled(line, 4, 1, Some(&[0.5, -1.0, 7.0]));
        assert_eq!(filled(",1,2,3"), Ok((1.0, vec![0.5, 2.0, 3.0])));
        assert_eq!(filled("NA,1,\"?\","), Ok((1.0, vec![0.5, -1.0, 7.0])));
        for line in ["1,,2,3", "1,1,x,3", "1,1,2", "1,1,", "1,1,1e400,", ""] {
            assert!(filled(line).is_err(), "{line}");
        }
    }

    #[test]
    fn label_cells() {
        let check = |cell: &str, expected| assert_eq!(LabelCell::of(cell.as_bytes()), expected);
        check("-1.5", LabelCell::Number(-1.5));
        check("Class_1", LabelCell::Name("Class_1"));
        check("true", LabelCell::Name("true"));
        for cell in ["", "NA", "?", "nan", "inf", "1e400", "9007199254740992"] {
            check(cell, LabelCell::Neither);
        }
        check(&"x".repeat(257), LabelCell::Neither);
        assert_eq!(LabelCell::of(b"\xff"), LabelCell::Neither);
    }

    #[test]
    fn headings() {
        let heading = Heading::read(b"a,\"b c\",label", b',');
        assert_eq!(heading.columns, 3);
        let path = Path::new("x.csv");
        let named = |name: &str| LabelColumn::Name(name.into());
        assert_eq!(heading.label(path, &named("b c")).unwrap(), 1);
        assert_eq!(heading.label(path, &LabelColumn::Last).unwrap(), 2);
        assert_eq!(heading.label(path, &LabelColumn::Position(1)).unwrap(), 0);
        let error = heading.label(path, &named("d")).unwrap_err().to_string();
        assert!(
            error.contains("no label column \"d\"; its columns are a, b c, label"),
            "{error}"
        );
        assert!(heading.label(path, &LabelColumn::Position(0)).is_err());
        let twice = Heading::read(b"y,x,y", b',');
        assert!(matches!(
            twice.label(path, &named("y")),
            Err(FormatError::AmbiguousLabelColumn {
                first: 1,
                second: 3,
                ..
            })
        ));
        assert_eq!(twice.label(path, &named("x")).unwrap(), 1);
        assert_eq!(twice.label(path, &LabelColumn::Position(3)).unwrap(), 2);
        let plain = Heading::read(b"1,2.5,\"3\"", b',');
        assert!(plain.label(path, &named("a")).is_err());
    }

    #[test]
    fn headers_have_no_number_among_the_features() {
        for (line, expected) in [
            ("a,b,label", true),
            ("a,,label", true),
            ("a,b,1", true),
            ("1,2,3", false),
            ("1,NA,1", false),
            ("1,2,cat", false),
            ("a,2,3", false),
            ("1e400,a,1", false),
            ("NA,?,1", false),
            ("label", false),
        ] {
            let heading = Heading::read(line.as_bytes(), b',');
            let last = heading.columns - 1;
            let found = heading.is_header(Some(last), &LabelColumn::Last);
            assert_eq!(found, expected, "{line}");
        }
        // Names that are numbers, as pandas gives them.
        let numbered = Heading::read(b"0,1,label", b',');
        assert!(numbered.is_header(Some(2), &LabelColumn::Name("label".into())));
        assert!(Heading::read(b"x", b',').is_header(None, &LabelColumn::Last));
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
            let numbers = numbers.filter(|numbers: &Vec<f64>| {
                numbers.get(label).is_none_or(|label| label.abs() < LABEL_LIMIT)
            });
            let expected = numbers.filter(|numbers| numbers.len() == columns).map(|numbers| {
                let mut row: Vec<f32> = numbers.iter().map(|v| *v as f32).collect();
                row.remove(label);
                (numbers[label], row)
            });
            prop_assert_eq!(decode(&line, columns, label).ok(), expected);
        }
    }
}
