//! How large loads are, and what memory for them leaves for what stays.

use pelton_format::Dataset;
use pelton_plan::Units;

use crate::fixed_part::FixedPart;
use crate::resident::SUM_BYTES;
use crate::runs::last_within;

/// Standard deviations that a load may be larger than the mean: beyond what will ever be drawn.
const DEVIATIONS: f64 = 8.0;
/// What stays is worth its pieces from this share of a unit on.
const LEAST_SHARE: u64 = 64;

/// What the units of a data set take in memory, checksums included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnitCosts {
    count: u64,
    sum: u64,
    longest: u64,
    deviation: f64,
}

impl UnitCosts {
    pub(crate) fn new(dataset: &Dataset, units: &Units, checksums: bool) -> UnitCosts {
        let count = units.len();
        let (mut sum, mut squares, mut longest) = (0, 0.0, 0_u64);
        for unit in 0..count {
            let bytes = unit_cost(dataset, units, unit, checksums);
            sum += bytes;
            squares += bytes as f64 * bytes as f64;
            longest = longest.max(bytes);
        }
        let (mean, of) = (sum as f64 / count as f64, count as f64);
        UnitCosts {
            count,
            sum,
            longest,
            deviation: (squares / of - mean * mean).max(0.0).sqrt(),
        }
    }

    fn in_load(&self, loads: u64) -> u64 {
        self.count.div_ceil(loads)
    }

    /// The bound of a load of the units of a random subset: the mean and eight standard deviations of such
    /// a sum of unit sizes, or the largest there can be, whichever is less.
    fn largest_load(&self, loads: u64) -> u64 {
        let units = self.in_load(loads);
        let mean = self.sum as f64 / self.count as f64;
        let drawn = units as f64 * mean + DEVIATIONS * self.deviation * (units as f64).sqrt();
        let largest = units.saturating_mul(self.longest).min(self.sum);
        largest.min(drawn.ceil() as u64)
    }

    /// What stays of every unit beside two loads of `loads` an epoch, in the memory of all ranks.
    pub(crate) fn fixed_part(&self, loads: u64, memory: &[u64], checksums: bool) -> FixedPart {
        let sum_bytes = if checksums { SUM_BYTES } else { 0 };
        let part = |stays| FixedPart::new(stays, self.sum, memory, sum_bytes);
        let total: u128 = memory.iter().map(|&bytes| u128::from(bytes)).sum();
        if self.count == 0 || total == 0 {
            return part(0);
        }
        let largest = u128::from(self.largest_load(loads));
        let whole = u128::from(self.sum);
        // A unit's first part is rounded to a byte, or a checksum; the cut record has one more.
        let over = u128::from(self.in_load(loads) * (1 + 2 * sum_bytes));
        let margin = u128::from(margin(memory.len(), checksums));
        let fits = |stays: u64| {
            let stays = u128::from(stays);
            let load = (largest * (whole - stays)).div_ceil(whole) + over;
            memory.iter().filter(|bytes| **bytes > 0).all(|&bytes| {
                let bytes = u128::from(bytes);
                let share = |of: u128| (of * bytes).div_ceil(total);
                share(stays) + 2 * (share(load) + margin) <= bytes
            })
        };
        let most = last_within(self.sum, fits);
        part(if most > self.sum / LEAST_SHARE {
            most
        } else {
            0
        })
    }
}

/// Memory of a rank beyond its share of a load, for checksums of records that are cut.
fn margin(ranks: usize, checksums: bool) -> u64 {
    if checksums { 16 * ranks as u64 } else { 0 }
}

/// The smallest number of loads an epoch of which two fit in `memory_bytes` of all ranks together, held in
/// equal shares; `None` where not even loads of one unit do.
///
/// A load is the units of a random subset. Its bound is the mean and eight standard deviations of such a
/// sum of unit sizes, or the largest there can be, whichever is less. With memory for a quarter of the data
/// it gives 8 where units are alike and 8 divides their number, 9 where units are small.
/// [More loads](crate::Pipeline::Opportunistic) leave memory for what stays.
pub fn loads_for(
    dataset: &Dataset,
    units: &Units,
    memory_bytes: u64,
    ranks: usize,
    checksums: bool,
) -> Option<u64> {
    let costs = UnitCosts::new(dataset, units, checksums);
    if costs.count == 0 {
        return Some(1);
    }
    let half = memory_bytes / ranks as u64 / 2;
    let part = |loads| costs.largest_load(loads).div_ceil(ranks as u64) + margin(ranks, checksums);
    let fits = |loads| part(loads) <= half;
    if !fits(costs.count) {
        return None;
    }
    let (mut low, mut high) = (1, costs.count);
    while low < high {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(low)
}

/// Bytes of a unit, which may go on from one file to the next.
fn unit_cost(dataset: &Dataset, units: &Units, unit: u64, checksums: bool) -> u64 {
    let ids = units.unit_records(unit);
    let (first, last) = (dataset.locate(ids.start), dataset.locate(ids.end - 1));
    let bytes = if first.file == last.file {
        last.offset + last.length - first.offset
    } else {
        ids.clone().map(|id| dataset.locate(id).length).sum()
    };
    let sums = if checksums { SUM_BYTES } else { 0 };
    bytes + sums * (ids.end - ids.start)
}
