//! Where the units of one load lie: the moving placement of opportunistic order.
//!
//! The units of a load, sorted by place, are cut into one run a rank of near-equal bytes, so that each
//! rank reads ascending places in long reads. A rank's part exceeds its share by one unit at most.
//! Every rank computes the same table from the plan. It takes 16 bytes a unit, 32 with checksums, and
//! units are some thousand times larger.

use std::ops::Range;

use pelton_plan::Plan;

use crate::resident::{SUM_BYTES, Sums};
use crate::runs::{Place, cuts_by_weight};
use crate::space::Space;

/// Number of a load in the run: epochs one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LoadNumber {
    pub(crate) epoch: u64,
    pub(crate) load: u64,
}

impl LoadNumber {
    /// The one after it, where an epoch has `loads`.
    pub(crate) fn next(self, loads: u64) -> LoadNumber {
        let LoadNumber { epoch, load } = self;
        match load + 1 < loads {
            true => LoadNumber {
                epoch,
                load: load + 1,
            },
            false => LoadNumber {
                epoch: epoch + 1,
                load: 0,
            },
        }
    }
}

/// Where each unit of a load lies.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LoadTable {
    /// Where each unit begins in the space, ascending.
    starts: Vec<u64>,
    /// Bytes of the units before each, and of all.
    before: Vec<u64>,
    /// The first unit of each rank, then the number of units.
    first: Vec<usize>,
    /// Where records carry checksums: the first record of each unit, and the records in the load before it.
    records: Vec<(u64, u64)>,
    /// Where each rank keeps its checksums.
    sums_at: Vec<u64>,
    /// Bytes each rank needs.
    needed: Vec<u64>,
}

impl LoadTable {
    /// The table of a load, over ranks with shares in proportion to `weights`.
    pub(crate) fn new(
        space: &Space,
        plan: &Plan,
        number: LoadNumber,
        weights: &[u64],
        checksums: bool,
    ) -> LoadTable {
        let units = plan.units().expect("an order of loads has units");
        let numbers = plan.load_units(number.epoch, number.load);
        let mut starts = Vec::with_capacity(numbers.len());
        let mut before = Vec::with_capacity(numbers.len() + 1);
        let mut records = Vec::with_capacity(if checksums { numbers.len() + 1 } else { 0 });
        let (mut bytes, mut count) = (0, 0);
        for unit in numbers {
            let ids = units.unit_records(unit);
            let range = unit_range(space, &ids);
            starts.push(range.start);
            before.push(bytes);
            bytes += range.end - range.start;
            if checksums {
                records.push((ids.start, count));
                count += ids.end - ids.start;
            }
        }
        before.push(bytes);
        if checksums {
            records.push((0, count));
        }
        let mut table = LoadTable {
            starts,
            before,
            first: Vec::new(),
            records,
            sums_at: Vec::new(),
            needed: Vec::new(),
        };
        table.divide(weights);
        table
    }

    fn divide(&mut self, weights: &[u64]) {
        let units = self.starts.len();
        let total = self.before[units];
        let cuts = cuts_by_weight(total, weights);
        let before = &self.before[..units];
        let ends = cuts[1..weights.len()].iter();
        self.first = [0]
            .into_iter()
            .chain(ends.map(|&cut| before.partition_point(|&bytes| bytes < cut)))
            .chain([units])
            .collect();
        for rank in 0..weights.len() {
            let units = self.units_of(rank);
            let data = self.before[units.end] - self.before[units.start];
            let sums_at = data.next_multiple_of(SUM_BYTES);
            self.sums_at.push(sums_at);
            self.needed.push(match self.records.is_empty() {
                true => data,
                false => {
                    sums_at + SUM_BYTES * (self.records[units.end].1 - self.records[units.start].1)
                }
            });
        }
    }

    /// The units of a rank, as numbers of this table.
    pub(crate) fn units_of(&self, rank: usize) -> Range<usize> {
        self.first[rank]..self.first[rank + 1]
    }

    /// Bytes of its window that each rank needs.
    pub(crate) fn needed(&self) -> &[u64] {
        &self.needed
    }

    /// A unit's part of the space.
    pub(crate) fn range(&self, unit: usize) -> Range<u64> {
        let start = self.starts[unit];
        start..start + (self.before[unit + 1] - self.before[unit])
    }

    /// Where a unit lies in the window of `rank`, which holds it.
    pub(crate) fn offset(&self, rank: usize, unit: usize) -> u64 {
        self.before[unit] - self.before[self.first[rank]]
    }

    /// The unit that holds a byte of the space.
    #[inline]
    fn unit_at(&self, at: u64) -> Option<usize> {
        let unit = self
            .starts
            .partition_point(|&start| start <= at)
            .checked_sub(1)?;
        (at < self.range(unit).end).then_some(unit)
    }

    fn rank_of(&self, unit: usize) -> usize {
        self.first.partition_point(|&first| first <= unit) - 1
    }

    /// Where byte `at` of the space is, if it is in this load.
    #[inline]
    pub(crate) fn place(&self, at: u64) -> Option<Place> {
        let unit = self.unit_at(at)?;
        let rank = self.rank_of(unit);
        let Range { start, end } = self.range(unit);
        Some(Place {
            held: Some((rank as u32, self.offset(rank, unit) + (at - start))),
            until: end,
        })
    }

    /// The checksums of a unit.
    pub(crate) fn sums(&self, rank: usize, unit: usize) -> Sums {
        let (first, before) = self.records[unit];
        let (_, before_rank) = self.records[self.first[rank]];
        Sums {
            range: self.range(unit),
            first,
            at: self.sums_at[rank] + SUM_BYTES * (before - before_rank),
        }
    }

    /// The checksums for byte `at`, which `rank` holds.
    pub(crate) fn sums_at(&self, rank: usize, at: u64) -> Sums {
        let unit = self.unit_at(at).expect("a byte of this load");
        self.sums(rank, unit)
    }
}

/// The part of the space that consecutive records fill.
pub(crate) fn unit_range(space: &Space, ids: &Range<u64>) -> Range<u64> {
    space.record(ids.start).start..space.record(ids.end - 1).end
}
