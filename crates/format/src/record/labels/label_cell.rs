//! The labels in cells of tables.

use crate::record::cells::quoted::Cells;
use crate::record::cells::words::{is_missing_label, is_missing_number};
use crate::record::error::{Fault, excerpt};
use crate::record::labels::{LABEL_LIMIT, checked_label};
use crate::record::numbers::bad_number::bad_number;
use crate::record::numbers::parse::{NotANumber, parse_f64};

/// A parsed label cell.
#[derive(Debug, PartialEq)]
pub(crate) enum LabelCell<'a> {
    Number(f64),
    Name(&'a str),
    /// Cannot name a class.
    Neither,
}

impl LabelCell<'_> {
    pub(crate) fn parse(cell: &[u8]) -> LabelCell<'_> {
        /// Longer text is prose.
        const LONGEST_NAME: usize = 256;
        match parse_f64(cell) {
            Ok(value) if value.abs() < LABEL_LIMIT => LabelCell::Number(value),
            Err(NotANumber::Malformed) if !is_missing_label(cell) && cell.len() <= LONGEST_NAME => {
                std::str::from_utf8(cell).map_or(LabelCell::Neither, LabelCell::Name)
            }
            _ => LabelCell::Neither,
        }
    }
}

/// Parses a numeric label from a cell of column `column` (from 0).
pub(crate) fn numeric_label(cell: &[u8], column: usize) -> Result<f64, Fault> {
    let column = column as u64 + 1;
    if is_missing_label(cell) {
        return Err(Fault::missing_label(column));
    }
    let named = |found| {
        Fault::new(format!(
            "label {found:?} in column {column} is not a number, but other labels are; give all classes numbers or all names, or name another column with `label`"
        ))
    };
    let value = parse_f64(cell).map_err(|why| bad_number(why, column, cell, named))?;
    checked_label(value, || excerpt(cell))
}

/// The target in a cell of column `column` (from 0).
pub(crate) fn target(cell: &[u8], column: usize) -> Result<f64, Fault> {
    let column = column as u64 + 1;
    if is_missing_number(cell) {
        return Err(Fault::missing_label(column));
    }
    let named = |found| {
        Fault::new(format!(
            "target {found:?} in column {column} is not a number; correct it, name another column with `label`, or train a classifier with `loss` hinge, squared-hinge or logistic"
        ))
    };
    parse_f64(cell).map_err(|why| bad_number(why, column, cell, named))
}

/// The text of the label's cell of a record: if the label is the last column, the last cell, however many there are.
pub(crate) fn label_cell(
    record: &[u8],
    delimiter: u8,
    label: usize,
    columns: usize,
) -> Option<&[u8]> {
    let mut cells = Cells::new(record, delimiter);
    if label == 0 {
        cells.next()
    } else if label + 1 == columns {
        cells.by_ref().skip(1).last()
    } else {
        // A cell is complete only if another follows.
        cells.nth(label).filter(|_| !cells.is_done())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_cells() {
        let check = |cell: &str, expected| assert_eq!(LabelCell::parse(cell.as_bytes()), expected);
        check("-1.5", LabelCell::Number(-1.5));
        check("Class_1", LabelCell::Name("Class_1"));
        check("true", LabelCell::Name("true"));
        for cell in ["", "NA", "?", "nan", "inf", "1e400", "9007199254740992"] {
            check(cell, LabelCell::Neither);
        }
        check(&"x".repeat(257), LabelCell::Neither);
        assert_eq!(LabelCell::parse(b"\xff"), LabelCell::Neither);
    }
}
