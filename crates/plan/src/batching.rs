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
    /// The epoch in this many batches whose sizes differ by at most one.
    Batches(u64),
}

/// −ln of the chance that a batch of uneven records is larger than planned.
const TAIL: f64 = 25.0;

impl Batching {
    /// The fewest near-equal batches that fit in memory: of `records` records with `total_bytes`
    /// bytes in all, the largest with `largest_bytes`, so that a batch holds no more than
    /// `memory_bytes`.
    ///
    /// Exact when records have one size. Otherwise a batch is taken for a random sample, as it is
    /// in `full` and `block` order. By Bernstein's inequality, which also holds for samples without
    /// replacement, n records of mean m and at most L bytes exceed
    /// n·m + √(2·n·v·t) + (L − m)·t/3 bytes, v = m·(L − m) ≥ their variance, with a chance of at
    /// most exp(−t); t is 25, one batch in 70 thousand million. In file order long records may stand
    /// together; give `largest_bytes × records` for `total_bytes` there.
    pub fn within_memory(
        records: u64,
        total_bytes: u64,
        largest_bytes: u64,
        memory_bytes: u64,
    ) -> Result<Batching, PlanError> {
        if largest_bytes > memory_bytes {
            return Err(PlanError::MemoryTooSmall {
                largest_bytes,
                memory_bytes,
            });
        }
        let surely = memory_bytes.checked_div(largest_bytes).unwrap_or(u64::MAX);
        let mean = total_bytes as f64 / records.max(1) as f64;
        let above_mean = largest_bytes as f64 - mean;
        let free = memory_bytes as f64 - above_mean * TAIL / 3.0;
        let examples = if above_mean > 0.0 && mean > 0.0 && free > 0.0 {
            // The root of m·x² + √(2·v·t)·x = free, x = √n.
            let spread = (2.0 * mean * above_mean * TAIL).sqrt();
            let root = (spread * spread + 4.0 * mean * free).sqrt();
            let likely = ((root - spread) / (2.0 * mean)).powi(2) as u64;
            likely.max(surely)
        } else {
            surely
        };
        Ok(Batching::Batches(records.div_ceil(examples.max(1)).max(1)))
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
            assert!(error.to_string().contains("--batch 1"));
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

    fn check_memory(records: u64, total: u64, largest: u64, memory: u64, expected: u64) {
        let batching = Batching::within_memory(records, total, largest, memory).unwrap();
        assert_eq!(batching, Batching::Batches(expected));
    }

    #[test]
    fn a_batch_fits_in_memory() {
        check_memory(1000, 112_000, 112, 112_000, 1);
        check_memory(1000, 112_000, 112, 111_999, 2);
        check_memory(1000, 112_000, 112, 112, 1000);
        check_memory(1000, 0, 0, 0, 1);
        check_memory(1_000_000, 100_000_000, 200, 10_000_000, 11);
        check_memory(0, 0, 0, 10, 1);
        assert_eq!(
            Batching::within_memory(10, 1000, 101, 100),
            Err(PlanError::MemoryTooSmall {
                largest_bytes: 101,
                memory_bytes: 100
            })
        );
    }

    /// Lengths as uneven as a mean and a largest allow, cut at random: no batch is too large.
    #[test]
    fn uneven_records_fit_too() {
        let records = 50_000;
        let lengths: Vec<u64> = (0..records)
            .map(|id| if id % 50 == 0 { 5000 } else { 1 })
            .collect();
        let total = lengths.iter().sum();
        for memory in [20_000, 60_000, 200_000, 1_000_000] {
            let batching = Batching::within_memory(records, total, 5000, memory).unwrap();
            let plan = crate::Plan::new(records, crate::Order::Full, batching, 3).unwrap();
            for epoch in 0..20 {
                for step in 0..plan.steps() {
                    let mut ids = Vec::new();
                    plan.batch_ids(epoch, step, &mut ids);
                    let bytes: u64 = ids.iter().map(|&id| lengths[id as usize]).sum();
                    assert!(bytes <= memory, "{bytes} bytes of {memory}");
                }
            }
        }
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
