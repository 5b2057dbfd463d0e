//! Numbers as people write them: 1,234.5 and 1 234, 45 %, $12.30 and 12.30 EUR, (3.1) for −3.1.
//!
//! Thousands are groups of exactly three digits. A number does not begin with a needless 0, as codes do. The unit is
//! returned, because numbers of several units are not one column.

use std::str;

use crate::record::numbers::parse::parse_f64;

/// A number as it is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WrittenNumber {
    pub(crate) value: f64,
    /// A currency or a percent sign.
    pub(crate) unit: Option<&'static str>,
    /// Whether it is digits, a sign and a decimal mark, and nothing else.
    pub(crate) is_plain: bool,
}

const UNITS: [&str; 12] = [
    "%", "$", "€", "£", "¥", "₹", "USD", "EUR", "GBP", "JPY", "CHF", "kr",
];

/// The longest text that is examined.
const LONGEST: usize = 48;

impl WrittenNumber {
    /// The number that `text` spells. Its decimal mark is a point, or a comma if `decimal_comma`.
    pub(crate) fn parse(text: &[u8], decimal_comma: bool) -> Option<WrittenNumber> {
        if text.len() > LONGEST || !text.iter().any(u8::is_ascii_digit) {
            return None;
        }
        let text = str::from_utf8(text).ok()?;
        let (inner, in_brackets) = match text.strip_prefix('(').and_then(|t| t.strip_suffix(')')) {
            Some(inner) => (inner.trim(), true),
            None => (text, false),
        };
        let (inner, minus) = without_sign(inner);
        let (inner, unit) = without_unit(inner);
        // As in $-5.
        let (inner, inner_minus) = match unit {
            Some(_) if minus.is_none() => without_sign(inner),
            _ => (inner, None),
        };
        let (digits, is_grouped) = ungrouped(inner, decimal_comma)?;
        let minus = minus.or(inner_minus);
        if in_brackets && minus.is_some() {
            return None;
        }
        let value = parse_f64(digits.as_bytes()).ok()?;
        let is_negative = in_brackets || minus == Some(true);
        Some(WrittenNumber {
            value: if is_negative { -value } else { value },
            unit,
            is_plain: !in_brackets && !is_grouped && unit.is_none(),
        })
    }
}

/// The rest after a sign, and whether it is a minus.
fn without_sign(text: &str) -> (&str, Option<bool>) {
    match text.strip_prefix(['-', '\u{2212}']) {
        Some(rest) => (rest.trim_start(), Some(true)),
        None => match text.strip_prefix('+') {
            Some(rest) => (rest, Some(false)),
            None => (text, None),
        },
    }
}

fn without_unit(text: &str) -> (&str, Option<&'static str>) {
    for unit in UNITS {
        let before = text.strip_prefix(unit).map(str::trim_start);
        let rest = before.or_else(|| text.strip_suffix(unit).map(str::trim_end));
        if let Some(rest) = rest {
            return (rest, Some(unit));
        }
    }
    (text, None)
}

/// The digits with a point for the decimal mark, and whether they were in groups.
fn ungrouped(text: &str, decimal_comma: bool) -> Option<(String, bool)> {
    let (group, mark) = if decimal_comma {
        ('.', ',')
    } else {
        (',', '.')
    };
    let is_blank = |letter: char| matches!(letter, ' ' | '\u{a0}' | '\u{2009}' | '\u{202f}');
    let (whole, fraction) = text.split_once(mark).unwrap_or((text, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let separator = whole.chars().find(|letter| !letter.is_ascii_digit());
    let mut groups = match separator {
        Some(letter) if letter == group || is_blank(letter) => whole.split(letter),
        Some(_) => return None,
        // A letter that is not there.
        None => whole.split(group),
    };
    let first = groups.next()?;
    let is_grouped = separator.is_some();
    let is_code = first.len() > 1 && first.starts_with('0') || is_grouped && first == "0";
    if is_code || !are_digits(first) || !are_digits(fraction) {
        return None;
    }
    if is_grouped && !(1..=3).contains(&first.len()) {
        return None;
    }
    let mut digits = first.to_string();
    for group in groups {
        if group.len() != 3 || !are_digits(group) {
            return None;
        }
        digits.push_str(group);
    }
    if digits.is_empty() && fraction.is_empty() {
        return None;
    }
    digits.push('.');
    digits.push_str(fraction);
    Some((digits, is_grouped))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<(f64, Option<&str>)>) {
        let found = WrittenNumber::parse(text.as_bytes(), false);
        assert_eq!(
            found.map(|found| (found.value, found.unit)),
            expected,
            "{text}"
        );
    }

    #[test]
    fn numbers_as_people_write_them() {
        for (text, value) in [
            ("1,234.5", 1234.5),
            ("-12,345,678", -12_345_678.0),
            ("1 234", 1234.0),
            ("1\u{202f}234\u{202f}567.25", 1_234_567.25),
            ("(3.1)", -3.1),
            ("(1,200)", -1200.0),
            ("\u{2212}5", -5.0),
            ("0.5", 0.5),
            (".5", 0.5),
            ("7", 7.0),
        ] {
            check(text, Some((value, None)));
        }
        for (text, value, unit) in [
            ("45%", 45.0, "%"),
            ("4.5 %", 4.5, "%"),
            ("$1,234.50", 1234.5, "$"),
            ("-$5", -5.0, "$"),
            ("$-5", -5.0, "$"),
            ("($5.00)", -5.0, "$"),
            ("€ 12.30", 12.3, "€"),
            ("12.30 EUR", 12.3, "EUR"),
        ] {
            check(text, Some((value, Some(unit))));
        }
    }

    #[test]
    fn codes_and_other_text() {
        for text in [
            "",
            "$",
            "(",
            "()",
            "%",
            "1,23",
            "1,2345",
            "12,34,567",
            "1234,567",
            "0,125",
            "007",
            "$007",
            "0x1f",
            "a3f1",
            "1e5",
            "1.2.3",
            "1,234 567",
            "2020-01-01",
            "5'7",
            "555-1234",
            "(-3)",
            "1,",
            ",123",
            "1.5.",
            "12 Main St",
            "$$5",
            "%5%",
            "--5",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn decimal_commas() {
        let value =
            |text: &str| WrittenNumber::parse(text.as_bytes(), true).map(|found| found.value);
        assert_eq!(value("1.234,5"), Some(1234.5));
        assert_eq!(value("12,30 €"), Some(12.3));
        assert_eq!(value("1.234.567"), Some(1_234_567.0));
        assert_eq!(value("1,234.5"), None);
    }
}
