//! Words with a special meaning in cells: missing values, truth values, numbers.

use crate::record::numbers::parse::parse_f64;

/// Whether a cell of any column means a missing value: the words that `pandas.read_csv` reads so.
pub(crate) fn is_missing(cell: &[u8]) -> bool {
    const WORDS: [&str; 14] = [
        "", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "<NA>", "#N/A", "#NA",
        "-NaN", "-nan",
    ];
    is_word_of(cell) && WORDS.iter().any(|word| cell == word.as_bytes())
}

/// Whether a cell means a missing value in columns of numbers or dates; among names, `?` or `-` may be a name.
pub(crate) fn is_missing_number(cell: &[u8]) -> bool {
    const WORDS: [&str; 8] = ["?", "-", ".", "na", "n/a", "nan", "null", "none"];
    let is_one = |word: &&str| cell.eq_ignore_ascii_case(word.as_bytes());
    is_missing(cell) || is_word_of(cell) && WORDS.iter().any(is_one)
}

/// Whether a cell may be one of these words: most cells are numbers.
fn is_word_of(cell: &[u8]) -> bool {
    const LONGEST: usize = 4;
    cell.len() <= LONGEST && !cell.first().is_some_and(u8::is_ascii_digit)
}

/// Whether a cell means a missing label. Other words for missing values may name a class.
pub(crate) fn is_missing_label(cell: &[u8]) -> bool {
    const WORDS: [&str; 5] = ["", "?", "na", "nan", "null"];
    WORDS
        .iter()
        .any(|word| cell.eq_ignore_ascii_case(word.as_bytes()))
}

/// The number of a truth value among numbers.
pub(crate) fn truth(cell: &[u8]) -> Option<f64> {
    const WORDS: [(&[u8], f64); 2] = [(b"true", 1.0), (b"false", 0.0)];
    let mut words = WORDS.iter();
    let found = words.find(|(word, _)| cell.eq_ignore_ascii_case(word));
    found.map(|(_, value)| *value)
}

/// Whether a cell is a number or a truth value.
pub(crate) fn is_number(cell: &[u8]) -> bool {
    parse_f64(cell).is_ok() || truth(cell).is_some()
}

/// A number with a point or a comma.
pub(crate) fn is_number_with_comma(cell: &[u8]) -> bool {
    match memchr::memchr(b',', cell) {
        None => is_number(cell),
        Some(comma) => is_number(&[&cell[..comma], b".", &cell[comma + 1..]].concat()),
    }
}
