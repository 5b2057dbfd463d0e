//! A fixed placement: the space cut into one run a rank, of which the rank holds the first bytes.
//!
//! Where memory suffices each rank holds its whole run. Otherwise the rest of every run stays with the
//! backend: the same part all the time, because nothing does better. Every record is used once an
//! epoch, so between two uses of one lies the end of an epoch; at that moment at most the fraction f
//! of the bytes is in memory that memory has room for, and a use in the next epoch is served from
//! memory only of what was there at that moment or was brought back from the backend since, which is a
//! read all the same. So no residency, with whatever knowledge of the future, serves more than f of an
//! epoch's bytes without reading the backend, and a fixed part serves exactly f without moving a byte.
//!
//! Runs are consecutive, not dealt out record by record: loading then is long reads, a lookup is a
//! search among the ranks, and no table grows with the data.

use std::ops::Range;

use crate::space::Space;

/// Which rank holds which bytes of the space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Runs {
    /// Start of each rank's run, by rank; the last entry is the end of the space.
    cuts: Vec<u64>,
    /// End of what a rank holds of its run, by rank.
    held: Vec<u64>,
}

/// Where a byte and those behind it are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The rank that holds them and where in its memory; `None` for the backend.
    pub(crate) held: Option<(u32, u64)>,
    /// How far this goes.
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

/// The largest number up to `end` for which `within` holds; it holds for 0 and, once it does not, never
/// again.
fn last_within(end: u64, within: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = high - (high - low) / 2;
        if within(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

impl Runs {
    /// Runs in proportion to the memory of each rank, of which as much is held as there is memory for.
    /// `sum_bytes` is what a record takes beside its bytes.
    pub(crate) fn new(space: &Space, memory: &[u64], sum_bytes: u64) -> Runs {
        let cost = |at: u64| at + sum_bytes * space.first_record_from(at);
        let total = cost(space.bytes());
        let cuts = cuts_by_weight(total, memory).into_iter().map(|share| {
            let cut = last_within(space.bytes(), |at| cost(at) <= share);
            space.cut_before(cut)
        });
        let cuts: Vec<u64> = cuts.collect();
        let fits = memory.iter().map(|&bytes| u128::from(bytes)).sum::<u128>() >= u128::from(total);
        let held = memory.iter().zip(cuts.windows(2)).map(|(&bytes, run)| {
            // Cuts moved to the backend's units: with memory for all, a run may pass its share by less
            // than a unit, and is held all the same.
            if fits {
                return run[1];
            }
            // The checksums are aligned, and a record that the run begins within has one more.
            let limit = cost(run[0])
                .saturating_add(bytes)
                .saturating_sub(3 * sum_bytes);
            let end = last_within(run[1], |at| cost(at) <= limit);
            // No record is held in part where the rest of it is with the backend.
            let over = space.record_over(end);
            let end = match end < run[1] && over < space.records() {
                true => end.min(space.record(over).start),
                false => end,
            };
            end.max(run[0])
        });
        let held = held.collect();
        Runs { cuts, held }
    }

    /// Whether all is held.
    pub(crate) fn hold_all(&self) -> bool {
        self.held == self.cuts[1..]
    }

    /// Bytes that are held.
    pub(crate) fn held_bytes(&self) -> u64 {
        (0..self.held.len())
            .map(|rank| self.held[rank] - self.cuts[rank])
            .sum()
    }

    /// The part of the space that a rank holds.
    pub(crate) fn held_by(&self, rank: usize) -> Range<u64> {
        self.cuts[rank]..self.held[rank]
    }

    /// Where byte `at` is, which lies in the space.
    #[inline]
    pub(crate) fn place(&self, at: u64) -> Place {
        let rank = self.cuts.partition_point(|&cut| cut <= at) - 1;
        let (start, held) = (self.cuts[rank], self.held[rank]);
        if at < held {
            Place {
                held: Some((rank as u32, at - start)),
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
