//! How an epoch's order is cut into batches.

use std::fmt;
use std::ops::Range;

use crate::error::PlanError;
use crate::split::{near_equal_part, near_equal_start};

/// How an epoch is cut into batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Batching {
    /// This many examples a batch; [`Last`] decides how to batch the rest.
    Examples(u64),
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
            Batching::Batches(batches) => write!(f, "batches:{batches}"),
        }
    }
}

pelton_key::names! {
    /// How to batch the examples left at the end of an epoch, or of a bucket, that do not fill a batch. Independent of
    /// the number of ranks, so a run can be resumed on any.
    ///
    /// Written as text: `even`, `short`, `drop`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum Last: "a treatment of the last examples" {
        /// The last two batches differ by at most one example: only a bucket or an epoch shorter than a batch has a batch
        /// of less than half the size.
        #[default]
        Even = "even",
        /// They are a batch of their own, of one example or more.
        Short = "short",
        /// They are left out of the epoch.
        Drop = "drop",
    }
}

/// A batching resolved for a number of items (records, or page units).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cuts {
    /// Runs of `size`; `last` is the border between the last two, and the last one ends at `end`.
    Runs {
        size: u64,
        steps: u64,
        last: u64,
        end: u64,
    },
    /// `steps` near-equal runs.
    Even { items: u64, steps: u64 },
}

impl Cuts {
    /// `items_per_example` below 1 turns a batch of examples into a batch of larger items.
    pub(crate) fn new(
        batching: Batching,
        last: Last,
        items: u64,
        items_per_example: f64,
    ) -> Result<Cuts, PlanError> {
        match batching {
            Batching::Examples(0) | Batching::Batches(0) => Err(PlanError::EmptyBatch),
            Batching::Examples(examples) if items_per_example == 1.0 => {
                Ok(Cuts::runs(items, examples, last))
            }
            Batching::Examples(examples) => {
                let size = (examples as f64 * items_per_example).round() as u64;
                Ok(Cuts::runs(items, size.clamp(1, items.max(1)), last))
            }
            Batching::Batches(batches) if batches > items => Err(PlanError::TooManyBatches {
                batches,
                records: items,
            }),
            Batching::Batches(steps) => Ok(Cuts::Even { items, steps }),
        }
    }

    /// Asserts `size > 0`.
    pub(crate) fn runs(items: u64, size: u64, last: Last) -> Cuts {
        let (steps, end) = match last {
            Last::Drop => (items / size, items / size * size),
            Last::Even | Last::Short => (items.div_ceil(size), items),
        };
        let last = match (last, steps.checked_sub(2)) {
            (Last::Even, Some(before)) => {
                let start = before * size;
                start + (end - start).div_ceil(2)
            }
            _ => steps.saturating_sub(1) * size,
        };
        Cuts::Runs {
            size,
            steps,
            last,
            end,
        }
    }

    pub(crate) fn steps(&self) -> u64 {
        match *self {
            Cuts::Runs { steps, .. } | Cuts::Even { steps, .. } => steps,
        }
    }

    /// Items of the longest run; 0 if there are no runs.
    pub(crate) fn longest(&self) -> u64 {
        match *self {
            Cuts::Even { items, steps } => items.div_ceil(steps),
            Cuts::Runs { .. } if self.steps() == 0 => 0,
            Cuts::Runs { .. } => self.len(0),
        }
    }

    /// Items of the shortest run; `None` if there are no runs.
    pub(crate) fn shortest(&self) -> Option<u64> {
        match *self {
            Cuts::Even { items, steps } => Some(items / steps),
            Cuts::Runs { steps, .. } => steps.checked_sub(1).map(|last| self.len(last)),
        }
    }

    /// End of the last run.
    pub(crate) fn end(&self) -> u64 {
        match *self {
            Cuts::Runs { end, .. } => end,
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
        self.start(step)..self.start(step + 1)
    }

    /// Items of a step. Asserts that the epoch has it.
    pub(crate) fn len(&self, step: u64) -> u64 {
        let range = self.range(step);
        range.end - range.start
    }

    /// First item of a step; `end` for a step past the last.
    pub(crate) fn start(&self, step: u64) -> u64 {
        match *self {
            Cuts::Runs { steps, end, .. } if step >= steps => end,
            Cuts::Runs { steps, last, .. } if step + 1 == steps => last,
            Cuts::Runs { size, .. } => step * size,
            Cuts::Even { items, steps } => near_equal_start(items, steps, step),
        }
    }

    /// Steps of runs that end at an item or before it.
    pub(crate) fn steps_before(&self, item: u64) -> u64 {
        match *self {
            Cuts::Runs { steps, end, .. } if item >= end => steps,
            Cuts::Runs { steps, last, .. } if item >= last => steps - 1,
            Cuts::Runs { size, steps, .. } => (item / size).min(steps - 2),
            Cuts::Even { items, steps } if item >= items => steps,
            Cuts::Even { items, steps } => near_equal_part(items, steps, item),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(batching: Batching, last: Last, items: u64) -> Vec<u64> {
        let cuts = Cuts::new(batching, last, items, 1.0).unwrap();
        let mut next = 0;
        let sizes: Vec<u64> = (0..cuts.steps())
            .map(|step| {
                let range = cuts.range(step);
                assert_eq!(range.start, next);
                for item in range.clone() {
                    assert_eq!(cuts.steps_before(item), step);
                }
                next = range.end;
                cuts.len(step)
            })
            .collect();
        assert_eq!((cuts.end(), cuts.steps_before(next)), (next, cuts.steps()));
        assert_eq!(cuts.longest(), sizes.iter().copied().max().unwrap_or(0));
        assert_eq!(cuts.shortest(), sizes.iter().copied().min());
        sizes
    }

    #[test]
    fn each_batching_cuts_as_it_says() {
        let examples = |size, last, items| sizes(Batching::Examples(size), last, items);
        assert_eq!(examples(4, Last::Short, 10), [4, 4, 2]);
        assert_eq!(examples(4, Last::Drop, 10), [4, 4]);
        assert_eq!(examples(11, Last::Drop, 10), [0; 0]);
        let cases: [(u64, u64, &[u64]); 8] = [
            (4, 10, &[4, 3, 3]),
            (4, 9, &[4, 3, 2]),
            (4, 5, &[3, 2]),
            (5, 10, &[5, 5]),
            (99, 10, &[10]),
            (1, 3, &[1, 1, 1]),
            (4, 0, &[]),
            (1 << 63, 3, &[3]),
        ];
        for (size, items, expected) in cases {
            assert_eq!(examples(size, Last::Even, items), expected);
        }
        let ends = examples(600, Last::Even, 6001);
        assert_eq!(ends[8..], [600, 301, 300]);
        for last in [Last::Even, Last::Short, Last::Drop] {
            assert_eq!(sizes(Batching::Batches(3), last, 10), [3, 3, 4]);
            assert_eq!(sizes(Batching::Batches(10), last, 10), [1; 10]);
        }
    }

    /// A batch that is not full is at least half as large as the others, unless it is the only one.
    #[test]
    fn an_even_end_leaves_no_small_batch() {
        for items in 0..200 {
            for size in 1..70 {
                let cuts = Cuts::runs(items, size, Last::Even);
                assert_eq!(cuts.steps(), items.div_ceil(size));
                let least = if items > size {
                    size.div_ceil(2)
                } else {
                    items
                };
                assert!(cuts.shortest().is_none_or(|shortest| shortest >= least));
            }
        }
    }

    #[test]
    fn impossible_batchings_are_refused() {
        for batching in [Batching::Examples(0), Batching::Batches(0)] {
            let error = Cuts::new(batching, Last::Even, 10, 1.0).unwrap_err();
            assert_eq!(error, PlanError::EmptyBatch);
            assert!(error.to_string().contains("`batch` 1"));
        }
        let error = Cuts::new(Batching::Batches(11), Last::Even, 10, 1.0).unwrap_err();
        assert_eq!(
            error,
            PlanError::TooManyBatches {
                batches: 11,
                records: 10,
            }
        );
    }

    #[test]
    fn text_and_last_agree() {
        for last in [Last::Even, Last::Short, Last::Drop] {
            assert_eq!(last.to_string().parse::<Last>().unwrap(), last);
        }
        let error = "dropped".parse::<Last>().unwrap_err().to_string();
        assert!(error.contains("use even, short or drop"), "{error}");
    }
}
