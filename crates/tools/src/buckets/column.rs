//! A column of lengths, and its errors.

use std::path::Path;
use std::str::FromStr;

use pelton_data::DataError;

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// By its position, from 1.
    Position(usize),
    /// By its name in the first line.
    Name(String),
}

impl FromStr for Column {
    type Err = String;

    fn from_str(text: &str) -> Result<Column, String> {
        match text.parse::<usize>() {
            Ok(0) => Err("columns are counted from 1: use 1 or a name".to_string()),
            Ok(position) => Ok(Column::Position(position)),
            Err(_) if text.is_empty() => Err("use a position from 1 or a name".to_string()),
            Err(_) => Ok(Column::Name(text.to_string())),
        }
    }
}

/// A number as a length, if it is valid.
pub(super) fn whole(number: f64) -> Option<u32> {
    let fits = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
    fits.then_some(number as u32)
}

pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> DataError {
    wrong(path, &format!("cannot be read ({error}); check the path"))
}

pub(super) fn wrong(path: &Path, problem: &str) -> DataError {
    DataError::Config(format!("{}: {problem}", path.display()))
}
