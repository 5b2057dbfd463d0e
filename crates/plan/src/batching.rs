//! How an epoch's order is cut into batches.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::error::PlanError;
use crate::split::near_equal_start;

/// How an epoch is cut into batches.
///
/// Written as text: `4096`, `4096:drop-last`, `batches:40`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Batching {
    /// This many examples a batch; the last batch of an epoch may be shorter.
    Examples(u64),
    /// This many examples a batch; a shorter last batch is left out of the epoch.
    DropLast(u64),
    /// This many batches an epoch, with sizes that differ by at most one.
    Batches(u64),
}

impl From<u64> for Batching {
    fn from(examples: u64) -> Batching {
        Batching::Examples(examples)
    }
}

impl fmt::Display for Batching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Batching::Examples(examples) => write!(f, "{examples}"),
            Batching::DropLast(examples) => write!(f, "{examples}:drop-last"),
            Batching::Batches(batches) => write!(f, "batches:{batches}"),
        }
    }
}

impl FromStr for Batching {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Batching, PlanError> {
        let parts: Vec<&str> = text.split(':').collect();
        match parts.as_slice() {
            ["batches", batches] => Ok(Batching::Batches(count(text, batches, "batches:40")?)),
            [examples, "drop-last"] => {
                Ok(Batching::DropLast(count(text, examples, "4096:drop-last")?))
            }
            [examples] if examples.starts_with(|c: char| c.is_ascii_digit()) => {
                Ok(Batching::Examples(count(text, examples, "4096")?))
            }
            _ => Err(PlanError::UnknownBatching {
                text: text.to_owned(),
            }),
        }
    }
}

/// The whole number from 1 to 2^63 that `number`, a part of `text`, must be.
pub(crate) fn count(text: &str, number: &str, example: &'static str) -> Result<u64, PlanError> {
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    match number.parse::<u64>() {
        Ok(count) if digits && (1..=1 << 63).contains(&count) => Ok(count),
        _ => Err(PlanError::BadCount {
            text: text.to_owned(),
            number: number.to_owned(),
            example,
        }),
    }
}

/// A batching resolved for a number of items (records, or page units).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cuts {
    /// Runs of `size`; the last may be shorter unless dropped.
    Runs { items: u64, size: u64, steps: u64 },
    /// `steps` near-equal runs.
    Even { items: u64, steps: u64 },
}

impl Cuts {
    /// `items_per_example` below 1 turns a batch of examples into a batch of larger items.
    pub(crate) fn new(
        batching: Batching,
        items: u64,
        items_per_example: f64,
    ) -> Result<Cuts, PlanError> {
        let size_of = |examples: u64| {
            let size = if items_per_example == 1.0 {
                examples
            } else {
                (examples as f64 * items_per_example).round() as u64
            };
            size.clamp(1, items.max(1))
        };
        match batching {
            Batching::Examples(0) | Batching::DropLast(0) | Batching::Batches(0) => {
                Err(PlanError::EmptyBatch)
            }
            Batching::Examples(examples) => {
                let size = size_of(examples);
                Ok(Cuts::Runs {
                    items,
                    size,
                    steps: items.div_ceil(size),
                })
            }
            // A batch larger than the epoch is never full, so nothing but the last batch exists.
            Batching::DropLast(examples) if items_per_example == 1.0 && examples > items => {
                Ok(Cuts::Runs {
                    items,
                    size: examples,
                    steps: 0,
                })
            }
            Batching::DropLast(examples) => {
                let size = size_of(examples);
                Ok(Cuts::Runs {
                    items,
                    size,
                    steps: items / size,
                })
            }
            Batching::Batches(batches) if batches > items => Err(PlanError::TooManyBatches {
                batches,
                records: items,
            }),
            Batching::Batches(steps) => Ok(Cuts::Even { items, steps }),
        }
    }

    pub(crate) fn steps(&self) -> u64 {
        match *self {
            Cuts::Runs { steps, .. } | Cuts::Even { steps, .. } => steps,
        }
    }

    /// Items of the longest run.
    pub(crate) fn longest(&self) -> u64 {
        match *self {
            Cuts::Runs { items, size, .. } => size.min(items),
            Cuts::Even { items, steps } => items.div_ceil(steps),
        }
    }

    /// Where the last run ends.
    pub(crate) fn end(&self) -> u64 {
        match *self {
            Cuts::Runs { items, size, steps } => items.min(steps.saturating_mul(size)),
            Cuts::Even { items, .. } => items,
        }
    }

    /// The items of a step. Asserts that the epoch has it.
    pub(crate) fn range(&self, step: u64) -> Range<u64> {
        assert!(
            step < self.steps(),
            "step {step} of {} an epoch",
            self.steps()
        );
        match *self {
            Cuts::Runs { items, size, .. } => {
                step * size..items.min((step + 1).saturating_mul(size))
            }
            Cuts::Even { items, steps } => {
                near_equal_start(items, steps, step)..near_equal_start(items, steps, step + 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(batching: Batching, items: u64) -> Vec<u64> {
        let cuts = Cuts::new(batching, items, 1.0).unwrap();
        let mut next = 0;
        (0..cuts.steps())
            .map(|step| {
                let range = cuts.range(step);
                assert_eq!(range.start, next);
                next = range.end;
                range.end - range.start
            })
            .collect()
    }

    #[test]
    fn each_batching_cuts_as_it_says() {
        assert_eq!(sizes(Batching::Examples(4), 10), [4, 4, 2]);
        assert_eq!(sizes(Batching::Examples(5), 10), [5, 5]);
        assert_eq!(sizes(Batching::Examples(99), 10), [10]);
        assert_eq!(sizes(Batching::DropLast(4), 10), [4, 4]);
        assert_eq!(sizes(Batching::DropLast(11), 10), [0; 0]);
        assert_eq!(sizes(Batching::Batches(3), 10), [3, 3, 4]);
        assert_eq!(sizes(Batching::Batches(10), 10), [1; 10]);
        assert_eq!(sizes(Batching::Examples(4), 0), [0; 0]);
        assert_eq!(sizes(Batching::Examples(1 << 63), 3), [3]);
    }

    #[test]
    fn impossible_batchings_are_refused() {
        for batching in [
            Batching::Examples(0),
            Batching::DropLast(0),
            Batching::Batches(0),
        ] {
            let error = Cuts::new(batching, 10, 1.0).unwrap_err();
            assert_eq!(error, PlanError::EmptyBatch);
            assert!(error.to_string().contains("`batch` 1"));
        }
        let error = Cuts::new(Batching::Batches(11), 10, 1.0).unwrap_err();
        assert_eq!(
            error,
            PlanError::TooManyBatches {
                batches: 11,
                records: 10,
            }
        );
    }

    #[test]
    fn text_and_batching_agree() {
        for batching in [
            Batching::Examples(7),
            Batching::DropLast(7),
            Batching::Batches(7),
        ] {
            assert_eq!(batching.to_string().parse::<Batching>().unwrap(), batching);
        }
        for text in ["", "x", "batches", "7:drop", "batches:7:8"] {
            let error = text.parse::<Batching>().unwrap_err();
            assert!(
                matches!(error, PlanError::UnknownBatching { .. }),
                "{text}: {error}"
            );
        }
        for text in ["0", "7k", "batches:", ":drop-last"] {
            let error = text.parse::<Batching>().unwrap_err();
            assert!(
                matches!(error, PlanError::BadCount { .. }),
                "{text}: {error}"
            );
        }
    }
}
