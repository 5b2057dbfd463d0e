//! CSV and TSV: one record a line. Features are numbers; one column is the label, a number or a name.
//!
//! `heading.rs` decides whether the first line is the header. Cells may have blanks around them, and may be in double
//! quotes (`quoted.rs`), so that a record may have several lines; empty lines are skipped. Rows are dense: every row
//! must have as many cells as the first. Truth values among features are 1 and 0. A cell that is empty or says NA, NaN,
//! None, `?` or the like is missing: a fault, unless a value replaces missing ones.

pub(crate) mod preamble;
pub(crate) mod table;
pub(crate) mod table_columns;
pub(crate) mod texts;

use crate::record::cells::words::{is_missing_number, is_number_with_comma, truth};
use crate::record::numbers::bad_number::rounded;
use std::sync::Arc;

use crate::record::cells::decimal::cell_text;
use crate::record::cells::quoted::Cells;
use crate::record::error::{Fault, excerpt};
use crate::record::numbers::bad_number::bad_number;
use crate::record::numbers::parse::{Feature, NotANumber, is_rounded, parse_f64};
use crate::record::numbers::written_number::WrittenNumber;
use crate::record::rows::feature_type::FeatureType;

/// How rows are read.
#[derive(Clone, Debug)]
pub struct DelimitedRules {
    /// The delimiter between cells.
    pub delimiter: u8,
    /// Whether numbers have decimal commas.
    pub decimal_comma: bool,
    /// Cells a row.
    pub columns: usize,
    /// Column of the label, from 0; `None` if rows have none.
    pub label: Option<usize>,
    /// The feature of each column, if columns are not in the order of the features.
    pub order: Option<Arc<[u32]>>,
    /// How many columns are neither features nor the label; they come after the features in `order`.
    pub extra: usize,
    /// The replacement for missing values, one a feature; missing values are faults if `None`.
    pub missing: Option<Arc<[f32]>>,
    /// The type of the numbers that features become.
    pub dtype: FeatureType,
}

impl DelimitedRules {
    /// Features a row.
    pub fn features(&self) -> usize {
        self.columns - usize::from(self.label.is_some()) - self.extra
    }

    /// The feature of a column that is not the label.
    #[inline]
    pub(crate) fn feature(&self, column: usize) -> usize {
        match &self.order {
            None => column - usize::from(self.label.is_some_and(|label| column > label)),
            Some(order) => order[column] as usize,
        }
    }
}

/// Writes the features of the first record of `bytes` to `row`; returns the text of the label's cell, if rows have one.
pub fn decode_delimited_line<'b>(
    bytes: &'b [u8],
    rules: &DelimitedRules,
    row: &mut [f32],
) -> Result<Option<&'b [u8]>, Fault> {
    decode_cells(bytes, rules, row)
}

/// The same for features of any type.
#[inline]
pub(crate) fn decode_cells<'b, T: Feature>(
    bytes: &'b [u8],
    rules: &DelimitedRules,
    row: &mut [T],
) -> Result<Option<&'b [u8]>, Fault> {
    assert_eq!(row.len(), rules.features());
    let mut cells = Cells::new(bytes, rules.delimiter);
    if cells.record().trim_ascii().is_empty() {
        return Err(Fault::NO_RECORD);
    }
    let label_at = rules.label.unwrap_or(usize::MAX);
    // A larger whole number may be rounded.
    let most = match rules.dtype {
        FeatureType::F32 => T::of(f64::INFINITY),
        FeatureType::Checked | FeatureType::F64 => T::of(T::MOST_EXACT),
    };
    let mut label_cell = None;
    for column in 0..rules.columns {
        if cells.is_done() {
            return Err(ragged(bytes, rules));
        }
        let feature = match &rules.order {
            None => column - usize::from(column > label_at),
            Some(order) => {
                let feature = order[column] as usize;
                if feature >= row.len() && column != label_at {
                    cells.next();
                    continue;
                }
                feature
            }
        };
        let line = cells.record();
        if column != label_at
            && let Some((value, end)) = T::prefix(line, cells.at)
            && (end == line.len() || line[end] == rules.delimiter)
            && value.is_below(most)
            && !(rules.decimal_comma && line[cells.at..end].contains(&b'.'))
        {
            row[feature] = value;
            cells.at = end + 1;
            continue;
        }
        let cell = cells.next().unwrap_or_default();
        if column == label_at {
            label_cell = Some(cell);
        } else {
            let text = cell_text(cell, rules.decimal_comma, column)?;
            row[feature] = unusual_value(bytes, &text, column, feature, rules)?;
        }
    }
    if !cells.is_done() {
        return Err(ragged(bytes, rules));
    }
    Ok(label_cell)
}

/// Calls `f` with the text of each cell of the first record of `bytes`, and its column.
pub(crate) fn each_cell<'b>(
    bytes: &'b [u8],
    rules: &DelimitedRules,
    f: &mut dyn FnMut(usize, &'b [u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut cells = Cells::new(bytes, rules.delimiter);
    if cells.record().trim_ascii().is_empty() {
        return Err(Fault::NO_RECORD);
    }
    for column in 0..rules.columns {
        let cell = cells.next().ok_or_else(|| ragged(bytes, rules))?;
        f(column, cell)?;
    }
    if !cells.is_done() {
        return Err(ragged(bytes, rules));
    }
    Ok(())
}

/// The value of a cell that is not a plain number.
fn unusual_value<T: Feature>(
    record: &[u8],
    cell: &[u8],
    column: usize,
    feature: usize,
    rules: &DelimitedRules,
) -> Result<T, Fault> {
    let column = column as u64 + 1;
    // In a row that is too short or too long, report its length rather than a wrong cell.
    let or_ragged = |fault| match Cells::new(record, rules.delimiter).count() {
        found if found == rules.columns => fault,
        _ => ragged(record, rules),
    };
    if let Some(value) = truth(cell) {
        return Ok(T::of(value));
    }
    if !is_missing_number(cell) {
        if let (Err(NotANumber::Malformed), Some(written)) =
            (parse_f64(cell), WrittenNumber::parse(cell, false))
        {
            return Ok(T::of(written.value));
        }
        let bad = |found| {
            let remedy = if is_number_with_comma(cell) {
                "if the comma is a decimal one, give `decimal` comma".to_string()
            } else {
                format!(
                    "correct it, name columns of text with `format`, as in csv:NAME,NAME, or for a linear model say what the column is with `column`, as in `column` {column}=category"
                )
            };
            Fault::new(format!(
                "column {column} holds {found:?}, which is not a number; {remedy}"
            ))
        };
        let value = T::parse(cell).map_err(|why| or_ragged(bad_number(why, column, cell, bad)))?;
        if rules.dtype != FeatureType::F32 && is_rounded(cell, value) {
            return Err(rounded::<T>(column, excerpt(cell)));
        }
        return Ok(value);
    }
    if let Some(values) = &rules.missing {
        return Ok(T::of(f64::from(values[feature])));
    }
    Err(or_ragged(if cell.is_empty() {
        Fault::new(format!(
            "column {column} is empty; `missing` zero or `missing` mean fills such cells in"
        ))
    } else {
        Fault::new(format!(
            "column {column} holds {found:?}, no value; `missing` zero or `missing` mean fills such cells in",
            found = excerpt(cell)
        ))
    }))
}

/// A record with more or fewer cells than the first.
#[cold]
fn ragged(record: &[u8], rules: &DelimitedRules) -> Fault {
    let mut cells = Cells::new(record, rules.delimiter);
    let (found, expected) = (cells.by_ref().count(), rules.columns);
    let newlines = memchr::memchr_iter(b'\n', cells.record()).count();
    let lines = match newlines {
        0 => String::new(),
        _ => format!(" and the quotes of a cell span {} lines", newlines + 1),
    };
    Fault::new(format!(
        "{found} columns, but the first row has {expected}{lines}; make all rows alike"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::cells::quoted::bare;
    use crate::record::labels::LABEL_LIMIT;
    use crate::record::labels::label_cell::numeric_label;
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
            decimal_comma: false,
            columns,
            label: Some(label),
            order: None,
            extra: 0,
            missing: missing.map(Arc::from),
            dtype: FeatureType::F32,
        };
        let cell = decode_delimited_line(line.as_bytes(), &rules, &mut row)?;
        let label = numeric_label(&bare(cell.expect("it has a column")), label)?;
        Ok((label, row))
    }

    #[test]
    fn whole_numbers_that_features_round() {
        let decode = |line: &str, dtype| {
            let rules = DelimitedRules {
                delimiter: b',',
                decimal_comma: false,
                columns: 2,
                label: None,
                order: None,
                extra: 0,
                missing: None,
                dtype,
            };
            let (mut narrow, mut wide) = ([0.0_f32; 2], [0.0_f64; 2]);
            let decoded = match dtype {
                FeatureType::F64 => decode_cells(line.as_bytes(), &rules, &mut wide),
                _ => decode_cells(line.as_bytes(), &rules, &mut narrow),
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
        assert_eq!(decode("true,FALSE,3\n", 3, 2), Ok((3.0, vec![1.0, 0.0])));
        assert_eq!(decode("\"True\",false,3", 3, 2), Ok((3.0, vec![1.0, 0.0])));
    }

    #[test]
    fn faults() {
        refuses("", "no record");
        refuses("1,2\n", "2 columns, but the first row has 3");
        refuses("1,2,3,4\n", "4 columns, but the first row has 3");
        refuses("1,2,\n", "column 3, the label, is empty");
        refuses("1,2,NA\n", "column 3, the label");
        refuses(
            "1,,3",
            "column 2 is empty; `missing` zero or `missing` mean",
        );
        refuses("1,", "2 columns");
        refuses("1,\"\",3", "column 2 is empty");
        refuses("1,abc,3", "column 2 holds \"abc\"");
        refuses("1,2,cat", "label \"cat\" in column 3 is not a number");
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
        refuses("1,\"2,3", "2 columns, but the first row has 3");
        refuses(
            "1,\"2\n\"\n4,5,6\n",
            "2 columns, but the first row has 3 and the quotes of a cell span 2 lines; make",
        );
        refuses("1,1e99,3", "beyond 32-bit");
    }

    #[test]
    fn decimal_commas() {
        let decode = |line: &str, decimal_comma| {
            let rules = DelimitedRules {
                delimiter: b';',
                decimal_comma,
                columns: 2,
                label: None,
                order: None,
                extra: 0,
                missing: None,
                dtype: FeatureType::Checked,
            };
            let mut row = [0.0_f32; 2];
            let outcome = decode_cells(line.as_bytes(), &rules, &mut row);
            outcome.map(|_| row).map_err(|fault| fault.to_string())
        };
        assert_eq!(decode("1,5; \"-2,25e1\"\n", true), Ok([1.5, -22.5]));
        assert_eq!(decode("7;,5\r\n", true), Ok([7.0, 0.5]));
        let refuses = |line: &str, decimal_comma, expected: &str| {
            let fault = decode(line, decimal_comma).unwrap_err();
            assert!(fault.starts_with(expected), "{fault}");
        };
        refuses("1;1.234\n", true, "column 2 holds 1.234, with a point");
        assert_eq!(decode("1.234,5;1\n", true), Ok([1234.5, 1.0]));
        refuses("1.23,5;1\n", true, "column 1 holds 1.23,5, with a point");
        refuses(
            "16777217,5;1\n",
            true,
            "column 1 holds 16777217.5, which features",
        );
        let fault = decode("1;many\n", false).unwrap_err();
        assert!(fault.ends_with("as in `column` 2=category"), "{fault}");
        let remedy = "which is not a number; if the comma is a decimal one, give `decimal` comma";
        refuses(
            "1,5;1\n",
            false,
            &format!("column 1 holds \"1,5\", {remedy}"),
        );
    }

    #[test]
    fn each_cell_is_given() {
        let rules = DelimitedRules {
            delimiter: b';',
            decimal_comma: true,
            columns: 3,
            label: None,
            order: None,
            extra: 0,
            missing: None,
            dtype: FeatureType::F32,
        };
        let cells = |record: &str| {
            let mut found = Vec::new();
            let outcome = each_cell(record.as_bytes(), &rules, &mut |column, cell| {
                assert_eq!(column, found.len());
                found.push(String::from_utf8(bare(cell).into_owned()).unwrap());
                Ok(())
            });
            outcome.map(|()| found)
        };
        let record = "7; \"Doe; \"\"J\"\"\n\" ;\r\n\r\n";
        assert_eq!(cells(record).unwrap(), ["7", "Doe; \"J\"", ""]);
        for (record, fault) in [
            ("7;8\n", "2 columns, but the first row has 3; make"),
            ("7;8;9;\n", "4 columns, but"),
            ("\r\n", "holds no record"),
        ] {
            let found = cells(record).unwrap_err().to_string();
            assert!(found.contains(fault), "{found}");
        }
    }

    #[test]
    fn columns_in_another_order_are_put_in_their_places() {
        let rules = DelimitedRules {
            delimiter: b',',
            decimal_comma: false,
            columns: 4,
            label: Some(1),
            order: Some([2, 0, 0, 1].into()),
            extra: 0,
            missing: Some([0.5, 1.5, 2.5].into()),
            dtype: FeatureType::F32,
        };
        let mut row = [0.0; 3];
        let mut decode = |line: &str| {
            let cell = decode_delimited_line(line.as_bytes(), &rules, &mut row).unwrap();
            (cell.map(<[u8]>::to_vec), row)
        };
        assert_eq!(decode("7,9,5,6\n"), (Some(b"9".to_vec()), [5.0, 6.0, 7.0]));
        assert_eq!(decode(",9,5,NA\n"), (Some(b"9".to_vec()), [5.0, 1.5, 2.5]));
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

    proptest! {
        #[test]
        fn agrees_with_the_reference(
            cells in prop::collection::vec(prop_oneof![
                any::<f32>().prop_map(|v| v.to_string()),
                // No blank after a sign: numbers as people write them may have it.
                " ?[-0-9.e\"]{0,6} ?",
            ], 1..6),
            columns in 1usize..6, label in 0usize..6,
        ) {
            let label = label % columns;
            let line = cells.join(",");
            let cells = Cells::new(line.as_bytes(), b',').map(|cell| bare(cell).into_owned());
            let numbers: Option<Vec<f64>> = cells.map(|cell| {
                let number = String::from_utf8(cell).unwrap().parse::<f64>().ok();
                number.filter(|v| v.is_finite() && (*v as f32).is_finite())
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
