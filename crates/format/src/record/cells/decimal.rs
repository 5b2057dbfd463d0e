//! Numbers with decimal commas, as in `1,5`.
//!
//! `1.234,5` has thousands. A number with a point alone is refused among them: `1.234` is a thousand times as large if
//! points separate thousands.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::record::cells::encoding::as_utf8;
use crate::record::cells::quoted::bare;
use crate::record::error::{Fault, excerpt};
use crate::record::numbers::parse::parse_f64;
use crate::record::numbers::written_number::WrittenNumber;

pelton_key::names! {
    /// The decimal mark of numbers in CSV and TSV.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Decimal: "known" {
        /// A comma if semicolons separate cells and numbers have commas, otherwise a point.
        #[default]
        Auto = "auto",
        /// A point.
        #[serde(alias = ".")]
        Point = "point" | ".",
        /// A comma.
        #[serde(alias = ",")]
        Comma = "comma" | ",",
    }
}

/// The bare text of a cell in UTF-8; if `decimal_comma`, numbers get a point for their comma.
///
/// Errors: a number with a point among those with commas, in column `column` (from 0).
#[inline]
pub(crate) fn cell_text(
    cell: &[u8],
    decimal_comma: bool,
    column: usize,
) -> Result<Cow<'_, [u8]>, Fault> {
    let cell = as_utf8(bare(cell));
    if decimal_comma {
        with_point(cell, column)
    } else {
        Ok(cell)
    }
}

fn with_point(cell: Cow<'_, [u8]>, column: usize) -> Result<Cow<'_, [u8]>, Fault> {
    let mut number = cell.to_vec();
    if let Some(comma) = memchr::memchr(b',', &cell) {
        number[comma] = b'.';
        if parse_f64(&number).is_ok() {
            return Ok(Cow::Owned(number));
        }
        number.retain(|byte| *byte != b'.');
    }
    // As 1.234,5 and 12,30 €. A point alone may be a decimal one.
    let points = memchr::memchr_iter(b'.', &cell).count();
    if (cell.contains(&b',') || points != 1)
        && WrittenNumber::parse(&cell, true).is_some_and(|found| !found.is_plain)
    {
        let point = |byte: &u8| if *byte == b',' { b'.' } else { *byte };
        let digits = cell.iter().filter(|byte| **byte != b'.');
        return Ok(Cow::Owned(digits.map(point).collect()));
    }
    if cell.contains(&b'.') && parse_f64(&number).is_ok() {
        return Err(point(&cell, column));
    }
    Ok(cell)
}

#[cold]
fn point(cell: &[u8], column: usize) -> Fault {
    Fault::new(format!(
        "column {} holds {}, with a point that may separate thousands; write decimals with commas and no points, or all with points and `decimal` point",
        column + 1,
        excerpt(cell)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_commas() {
        let check = |cell: &str, expected: &str| {
            let found = cell_text(cell.as_bytes(), true, 0);
            let found = found.map(|text| String::from_utf8(text.into_owned()).unwrap());
            assert_eq!(found.unwrap_or_default(), expected, "{cell}");
        };
        check("1,5", "1.5");
        check(" \"-0,25e3\" ", "-0.25e3");
        check("1.234,5", "1234.5");
        check("-1.234.567", "-1234567");
        check("1.234,50 €", "1234.50 €");
        for other in ["7", "", "NA", "a,b", "1,2,3", "01.02.2020", "1,5 kg", "$5"] {
            check(other, other);
        }
        for point in ["1.5", "1.234", "\"1.5\"", "1.23,5"] {
            check(point, "");
            assert_eq!(
                cell_text(point.as_bytes(), false, 0).as_deref(),
                Ok(&bare(point.as_bytes())[..])
            );
        }
        let fault = cell_text(b"1.234", true, 2).unwrap_err().to_string();
        assert!(
            fault.starts_with("column 3 holds 1.234, with a point that may separate thousands;")
        );
    }

    #[test]
    fn names() {
        for decimal in [Decimal::Auto, Decimal::Point, Decimal::Comma] {
            assert_eq!(decimal.to_string().parse(), Ok(decimal));
        }
        assert_eq!(
            (",".parse(), ".".parse()),
            (Ok(Decimal::Comma), Ok(Decimal::Point))
        );
        assert!(";".parse::<Decimal>().is_err());
    }
}
