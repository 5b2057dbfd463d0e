//! The size of loads, and how many fit in memory.

use pelton_format::Dataset;
use pelton_plan::Units;

/// A load may exceed the mean by this many standard deviations; larger ones are practically never drawn.
const DEVIATIONS: f64 = 8.0;

/// The sizes of a data set's units in memory.
#[derive(Clone, Copy, Debug)]
struct UnitCosts {
    count: u64,
    sum: u64,
    longest: u64,
    deviation: f64,
}

impl UnitCosts {
    fn new(dataset: &Dataset, units: &Units) -> UnitCosts {
        let count = units.len();
        let (mut sum, mut squares, mut longest) = (0, 0.0, 0_u64);
        for unit in 0..count {
            let bytes = unit_cost(dataset, units, unit);
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

    /// The bound of a load of the units of a random subset: the mean plus eight standard deviations of such a sum of
    /// unit sizes, at most the largest possible sum.
    fn largest_load(&self, loads: u64) -> u64 {
        let units = self.count.div_ceil(loads);
        let mean = self.sum as f64 / self.count as f64;
        let drawn = units as f64 * mean + DEVIATIONS * self.deviation * (units as f64).sqrt();
        let largest = units.saturating_mul(self.longest).min(self.sum);
        largest.min(drawn.ceil() as u64)
    }
}

/// The smallest number of loads an epoch so that two loads fit in `memory_bytes` of all ranks together, held in equal
/// shares; `None` if not even loads of one unit do.
///
/// A load is the units of a random subset. Its bound is the mean plus eight standard deviations of such a sum of unit
/// sizes, at most the largest possible sum. With memory for a quarter of the data it gives 8 for equal units if 8
/// divides their number, 9 for small units.
pub fn loads_for(dataset: &Dataset, units: &Units, memory_bytes: u64, ranks: usize) -> Option<u64> {
    let costs = UnitCosts::new(dataset, units);
    if costs.count == 0 {
        return Some(1);
    }
    let half = memory_bytes / ranks as u64 / 2;
    let fits = |loads| costs.largest_load(loads).div_ceil(ranks as u64) <= half;
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

/// Bytes of a unit, which may continue from one file to the next.
fn unit_cost(dataset: &Dataset, units: &Units, unit: u64) -> u64 {
    let ids = units.unit_records(unit);
    let (first, last) = (dataset.locate(ids.start), dataset.locate(ids.end - 1));
    if first.file == last.file {
        last.offset + last.length - first.offset
    } else {
        ids.map(|id| dataset.locate(id).length).sum()
    }
}
