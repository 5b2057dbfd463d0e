//! Records held out of training, for evaluation.
//!
//! The records depend only on the seed, their index and the share, so every rank, and every resumed run, holds out the
//! same. A keyed permutation orders the records and its first ones are held out: the share is exact, and a larger share
//! with the same seed includes the records of a smaller one. Drawing each record independently was rejected: the number
//! held out would be random.
//!
//! Cost: one step of the permutation and two bits per record.

use std::fmt;
use std::str::FromStr;

use pelton_key::{Stage, key};
use pelton_plan::{Permutation, Selection};

use crate::error::DataError;

/// The records of a data set in two parts.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldOut {
    /// Records to train on.
    pub training: Selection,
    /// Records to evaluate on.
    pub validation: Selection,
}

impl HeldOut {
    /// So many of `records` records, drawn at random.
    pub fn sample(records: u64, count: u64, seed: u64) -> Selection {
        let permutation = Permutation::new(records, key(seed, 0, Stage::HeldOut));
        Selection::new(records, |id| permutation.position_of(id) < count)
    }

    /// Holds out the part of `records` records closest to `share`.
    ///
    /// Errors: a share that leaves no records to train on or none to evaluate on.
    pub fn share(records: u64, share: f64, seed: u64) -> Result<HeldOut, DataError> {
        let held = (records as f64 * share).round() as u64;
        if held == 0 || held >= records {
            return Err(DataError::Config(format!(
                "a share of {share} of {records} records holds out {held}; give `validation` a share that holds out at least one record and leaves one"
            )));
        }
        let validation = HeldOut::sample(records, held, seed);
        let training = Selection::new(records, |id| !validation.contains(id));
        Ok(HeldOut {
            training,
            validation,
        })
    }
}

/// Validation data: a share of the training data, or separate data.
///
/// ```
/// use pelton_data::Validation;
/// assert_eq!("0.1".parse(), Ok(Validation::Share(0.1)));
/// assert_eq!("5%".parse(), Ok(Validation::Share(0.05)));
/// assert_eq!("valid.txt".parse(), Ok(Validation::Data("valid.txt".into())));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Validation {
    /// This share of the training records ([`HeldOut::share`]), written `0.1` or `10%`.
    Share(f64),
    /// A file, pattern or `demo:NAME`.
    Data(String),
}

impl fmt::Display for Validation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Validation::Share(share) => write!(f, "{share}"),
            Validation::Data(path) => f.write_str(path),
        }
    }
}

impl FromStr for Validation {
    type Err = String;

    fn from_str(text: &str) -> Result<Validation, String> {
        let (number, unit) = match text.strip_suffix('%') {
            Some(number) => (number, 100.0),
            None => (text, 1.0),
        };
        let Ok(number) = number.parse::<f64>() else {
            return Ok(Validation::Data(text.to_owned()));
        };
        let share = number / unit;
        if share > 0.0 && share < 1.0 {
            return Ok(Validation::Share(share));
        }
        Err(format!(
            "`{text}` is not a share of the training data: give a number between 0 and 1, such as 0.1 or 10%, or name data"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_exact_disjoint_and_keyed() {
        for (records, share, held) in [
            (2, 0.5, 1),
            (10, 0.14, 1),
            (1000, 0.1, 100),
            (4097, 0.999, 4093),
        ] {
            let parts = HeldOut::share(records, share, 5).unwrap();
            assert_eq!(parts.validation.len(), held);
            assert_eq!(parts.training.len(), records - held);
            for id in 0..records {
                assert_ne!(parts.training.contains(id), parts.validation.contains(id));
            }
            assert_eq!(parts, HeldOut::share(records, share, 5).unwrap());
        }
        let of = |share, seed| HeldOut::share(1000, share, seed).unwrap().validation;
        assert_ne!(of(0.1, 5), of(0.1, 6));
        let (few, more) = (of(0.1, 5), of(0.3, 5));
        assert!((0..1000).all(|id| !few.contains(id) || more.contains(id)));
        // Neither the beginning nor the end of the file: a tenth of each half, within five deviations.
        let first_half = (0..500).filter(|&id| few.contains(id)).count();
        assert!((26..=74).contains(&first_half), "{first_half}");
    }

    #[test]
    fn what_leaves_nothing_is_refused() {
        for (records, share) in [(0, 0.5), (1, 0.5), (10, 0.01), (10, 0.99)] {
            let refused = HeldOut::share(records, share, 0).unwrap_err().to_string();
            assert!(refused.contains("at least one record"), "{refused}");
        }
        for text in ["0", "1", "1.5", "-0.1", "100%", "0%", "nan", "inf"] {
            let refused = text.parse::<Validation>().unwrap_err();
            assert!(refused.contains("is not a share"), "{text}: {refused}");
        }
        for text in ["0.25", "valid.txt", "demo:text:100:test"] {
            assert_eq!(text.parse::<Validation>().unwrap().to_string(), text);
        }
    }
}
