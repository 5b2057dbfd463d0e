//! The part of every unit that stays in memory for the whole run.
//!
//! Two halves of the memory need only hold the loads; where these are smaller, the rest of the memory
//! serves every epoch without being read again. With memory for the part M of the data and L loads an epoch,
//! the part r may stay where r + 2(1 − r)/L ≤ M, and the backend gives 1 − r of the data an epoch: for
//! M = 1/4, 0.857 of it with 16 loads and 0.8 with 32. So who takes more loads, and with them less
//! randomness, reads less.
//!
//! What stays is the first r of the bytes of each unit, not r of the units: whatever units a load draws, it
//! finds exactly r of its bytes, so that the halves can be cut to size once for all epochs. Whole units
//! would have to be chosen so that every load of every epoch draws about as many of them: a load of 20 units
//! has 3 ± 1.5 of 0.15, and the halves would have to hold those that have none. The price is that a load
//! still makes one read a unit, if a shorter one. A record in which a unit's first part ends takes two
//! reads of memory.
//!
//! Of the memory for what stays, a unit has the share that it has of all units before and itself, so that
//! where it lies follows from its place in the space; nothing is stored a unit. Behind each unit's first part
//! stand its checksums.

use std::ops::Range;

use crate::cost::fitting;
use crate::load_table::Piece;
use crate::runs::cuts_by_weight;
use crate::space::Space;

/// What stays of every unit, over all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FixedPart {
    /// Memory that the whole space would take.
    whole: u64,
    /// First place of each rank in the memory of what stays, counted through all ranks; then its end.
    cuts: Vec<u64>,
    sum_bytes: u64,
}

impl FixedPart {
    /// `stays` bytes over ranks with memory in proportion to `weights`; `whole` is what all units take.
    pub(crate) fn new(stays: u64, whole: u64, weights: &[u64], sum_bytes: u64) -> FixedPart {
        FixedPart {
            whole,
            cuts: cuts_by_weight(stays, weights),
            sum_bytes,
        }
    }

    fn stays(&self) -> u64 {
        *self.cuts.last().expect("there is a rank")
    }

    /// Whether nothing stays.
    pub(crate) fn is_empty(&self) -> bool {
        self.stays() == 0
    }

    /// Memory that `rank` has for it.
    pub(crate) fn of_rank(&self, rank: usize) -> u64 {
        self.cuts[rank + 1] - self.cuts[rank]
    }

    /// Adds what stays of the unit of the records `ids`, which fill `range`, and returns where the rest of the
    /// unit begins. It lies on one rank, or on two where the first one's memory ends within it.
    pub(crate) fn split(
        &self,
        space: &Space,
        ids: &Range<u64>,
        range: &Range<u64>,
        pieces: &mut Vec<Piece>,
    ) -> u64 {
        let mut rest = range.clone();
        let (mut at, end) = (
            self.place(range.start + self.sum_bytes * ids.start),
            self.place(range.end + self.sum_bytes * ids.end),
        );
        let mut rank = self.cuts.partition_point(|&cut| cut <= at) - 1;
        while at < end && !rest.is_empty() {
            let until = end.min(self.cuts[rank + 1]);
            let fits = fitting(space, &rest, until - at, self.sum_bytes);
            if fits > rest.start {
                pieces.push(Piece {
                    range: rest.start..fits,
                    rank: rank as u32,
                    fixed: true,
                    offset: at - self.cuts[rank],
                });
                rest.start = fits;
            }
            (at, rank) = (until, rank + 1);
        }
        rest.start
    }

    /// Where in the memory of what stays that of a unit begins, before which all units take `before`.
    fn place(&self, before: u64) -> u64 {
        match self.whole {
            0 => 0,
            whole => (u128::from(before) * u128::from(self.stays()) / u128::from(whole)) as u64,
        }
    }
}
