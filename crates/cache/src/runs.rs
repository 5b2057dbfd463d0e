//! A fixed placement: the space is cut into one run a rank, and each rank holds the first bytes of its run.
//!
//! If memory suffices, each rank holds its whole run. Otherwise the rest of every run stays with the backend: the
//! same part all the time, because no policy does better. Every record is used once an epoch, so an epoch ends
//! between two uses of a record. At that moment memory holds at most a fraction f of the bytes, its capacity. In the
//! next epoch memory serves a record only if it was there at that moment or was read from the backend since. So no
//! policy, even one that knows the future, serves more than f of an epoch's bytes without reading the backend, and a
//! fixed part serves exactly f without moving a byte.
//!
//! Runs are consecutive, not dealt out record by record: loading then is long reads, a lookup is a
//! search among the ranks, and no table grows with the data.

use std::ops::Range;

use crate::space::Space;

/// Assigns the bytes of the space to ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Runs {
    /// Start of each rank's run, by rank; the last entry is the end of the space.
    cuts: Vec<u64>,
    /// End of the resident part of each rank's run, by rank.
    held: Vec<u64>,
    /// Start of a rank's run in its memory, by rank.
    begins: Vec<u64>,
}

/// The source of a byte and those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The rank that holds them and the offset in its memory; `None` for the backend.
    pub(crate) held: Option<(u32, u64)>,
    /// The end of that source.
    pub(crate) until: u64,
}

/// Cuts `total` into shares in proportion to `weights`, up to rounding; all shares begin and end at
/// whole numbers. The first entry is 0 and the last is `total`.
pub(crate) fn cuts_by_weight(total: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
    let mut before: u128 = 0;
    let mut cuts = vec![0];
    for (rank, &weight) in weights.iter().enumerate() {
        before += u128::from(weight);
        let cut = if rank + 1 == weights.len() || sum == 0 {
            u128::from(total)
        } else {
            u128::from(total) * before / sum
        };
        cuts.push(cut as u64);
    }
    cuts
}

impl Runs {
    /// Runs in proportion to the memory of each rank; as much of each is resident as memory permits.
    pub(crate) fn new(space: &Space, memory: &[u64]) -> Runs {
        let total = space.bytes();
        let cuts = cuts_by_weight(total, memory).into_iter();
        let cuts: Vec<u64> = cuts.map(|cut| space.cut_before(cut)).collect();
        let fits = memory.iter().map(|&bytes| u128::from(bytes)).sum::<u128>() >= u128::from(total);
        let held = memory.iter().zip(cuts.windows(2)).map(|(&bytes, run)| {
            // Cuts moved to the backend's units: with memory for everything, a run may exceed its share by less than
            // a unit, and is still resident.
            if fits {
                return run[1];
            }
            let end = run[1].min(run[0].saturating_add(bytes));
            // No record is resident in part while the rest of it is in the backend.
            let over = space.record_over(end);
            let end = if end < run[1] && over < space.records() {
                end.min(space.record(over).start)
            } else {
                end
            };
            end.max(run[0])
        });
        let held: Vec<u64> = held.collect();
        let begins = vec![0; held.len()];
        Runs { cuts, held, begins }
    }

    /// The same runs at other offsets of the ranks' memory.
    pub(crate) fn begin_at(self, begins: Vec<u64>) -> Runs {
        Runs { begins, ..self }
    }

    /// Whether everything is resident.
    pub(crate) fn hold_all(&self) -> bool {
        self.held == self.cuts[1..]
    }

    /// Resident bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        (0..self.held.len())
            .map(|rank| self.held[rank] - self.cuts[rank])
            .sum()
    }

    /// A rank's resident part of the space.
    pub(crate) fn held_by(&self, rank: usize) -> Range<u64> {
        self.cuts[rank]..self.held[rank]
    }

    /// The source of byte `at` of the space.
    #[inline]
    pub(crate) fn place(&self, at: u64) -> Place {
        let rank = self.cuts.partition_point(|&cut| cut <= at) - 1;
        let (start, held) = (self.cuts[rank], self.held[rank]);
        if at < held {
            Place {
                held: Some((rank as u32, self.begins[rank] + (at - start))),
                until: held,
            }
        } else {
            Place {
                held: None,
                until: self.cuts[rank + 1],
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::two_files;
    use proptest::prelude::*;

    fn space() -> Space {
        Space::new(&two_files(120, 30, 7)).unwrap()
    }

    #[test]
    fn shares_follow_weights_and_cover_everything() {
        assert_eq!(cuts_by_weight(10, &[1, 1, 1]), [0, 3, 6, 10]);
        assert_eq!(cuts_by_weight(10, &[0, 3, 1, 0]), [0, 0, 7, 10, 10]);
        assert_eq!(cuts_by_weight(10, &[0, 0]), [0, 10, 10]);
        assert_eq!(cuts_by_weight(0, &[5, 5]), [0, 0, 0]);
        let huge = [u64::MAX; 3];
        assert_eq!(
            cuts_by_weight(3 << 50, &huge),
            [0, 1 << 50, 2 << 50, 3 << 50]
        );
    }

    proptest! {
        #[test]
        fn no_rank_holds_more_than_it_has_memory_for(
            memory in prop::collection::vec(0..6000_u64, 1..9),
        ) {
            let space = space();
            let runs = Runs::new(&space, &memory);
            let total: u64 = memory.iter().sum();
            prop_assert_eq!(runs.hold_all(), total >= space.bytes());
            for (rank, &memory) in memory.iter().enumerate() {
                let held = runs.held_by(rank);
                let kept = held.end - held.start;
                // If all is held, a share is rounded to a byte and to the backend's unit.
                let unit = u64::from(space.files()[0].backend.granularity().offset_bytes);
                let over = if runs.hold_all() { unit } else { 0 };
                prop_assert!(kept <= memory + over, "rank {} keeps {} of {}", rank, kept, memory);
            }
            let resident = runs.held_bytes() as f64;
            // A record a rank remains unused.
            let least = (total as f64 * 0.7).min(space.bytes() as f64) - 230.0 * memory.len() as f64;
            prop_assert!(resident >= least, "{} of {}", resident, total);
        }

        #[test]
        fn every_byte_is_in_one_place(memory in prop::collection::vec(0..3000_u64, 1..6)) {
            let space = space();
            let runs = Runs::new(&space, &memory);
            let mut at = 0;
            let mut held = 0;
            while at < space.bytes() {
                let place = runs.place(at);
                prop_assert!(place.until > at);
                if let Some((rank, offset)) = place.held {
                    let own = runs.held_by(rank as usize);
                    prop_assert_eq!(own, at - offset..place.until);
                    held += place.until - at;
                }
                at = place.until;
            }
            prop_assert_eq!(at, space.bytes());
            prop_assert_eq!(held, runs.held_bytes());
        }
    }
}
