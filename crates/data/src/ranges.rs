//! Range checks for numbers of a configuration, with their error messages.
//!
//! A setting can come from a flag, a `run.toml` or a program, so it is checked when a job begins, not when it is
//! parsed. NaN is in no range.

use std::fmt::{Display, LowerExp};
use std::ops::RangeInclusive;

use crate::error::DataError;

/// The longest time in a setting: thirty years.
const MOST_SECONDS: f64 = 1e9;

/// Refuses a number outside `range`.
pub fn check_range<T: PartialOrd + Display + LowerExp>(
    setting: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), DataError> {
    if range.contains(&value) {
        Ok(())
    } else {
        Err(DataError::Config(format!(
            "`{setting}` {} is out of range; give a number from {} to {}",
            short(&value),
            short(range.start()),
            short(range.end())
        )))
    }
}

/// Refuses a number that is not above 0 or exceeds `f32`.
pub fn check_positive(setting: &str, value: f64) -> Result<(), DataError> {
    if value > 0.0 && value <= f64::from(f32::MAX) {
        Ok(())
    } else {
        Err(DataError::Config(format!(
            "`{setting}` {} is out of range; give a number above 0 and at most 3.4e38",
            short(&value)
        )))
    }
}

/// Refuses a number that is not a share: above 0 and at most 1.
pub fn check_share(setting: &str, value: f64) -> Result<(), DataError> {
    if value > 0.0 && value <= 1.0 {
        Ok(())
    } else {
        Err(DataError::Config(format!(
            "`{setting}` {} is not a share; give a number above 0 and at most 1",
            short(&value)
        )))
    }
}

/// Refuses an invalid number of seconds; 0 is valid.
pub fn check_seconds(setting: &str, value: f64) -> Result<(), DataError> {
    if (0.0..=MOST_SECONDS).contains(&value) {
        Ok(())
    } else {
        Err(DataError::Config(format!(
            "`{setting}` {} is not a number of seconds; give 0 or more, at most {MOST_SECONDS:e}",
            short(&value)
        )))
    }
}

/// A number in few digits: 1e308 would have 309.
fn short<T: Display + LowerExp>(value: &T) -> String {
    let text = value.to_string();
    if text.len() > 24 {
        format!("{value:e}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_a_number_is_in_no_range() {
        for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e308] {
            assert!(check_positive("rate", wrong).is_err(), "{wrong}");
            assert!(check_share("density", wrong).is_err(), "{wrong}");
            assert!(check_seconds("timeout", wrong).is_err(), "{wrong}");
            assert!(check_range("warmup", wrong, 0.0..=9.0).is_err(), "{wrong}");
        }
        let error = check_range("layers", 0, 1..=9).unwrap_err().to_string();
        assert_eq!(
            error,
            "`layers` 0 is out of range; give a number from 1 to 9"
        );
        let error = check_positive("rate", 1e308).unwrap_err().to_string();
        assert!(error.starts_with("`rate` 1e308 is out of range"), "{error}");
        assert!(check_positive("rate", 0.0).is_err() && check_share("part", 0.0).is_err());
        assert!(check_seconds("every", 0.0).is_ok() && check_share("part", 1.0).is_ok());
    }
}
