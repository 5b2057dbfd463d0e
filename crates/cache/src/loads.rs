//! The loads of a run: which fit, and where their units lie.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use pelton_format::Dataset;
use pelton_plan::{Plan, Units};

use crate::CacheError;
use crate::load_table::{LoadNumber, LoadTable};
use crate::resident::SUM_BYTES;
use crate::space::Space;

/// Tables kept: two loads in memory, and two that those who deal out work look ahead to.
const TABLES: usize = 4;
/// Standard deviations that a load may be larger than the mean: beyond what will ever be drawn.
const DEVIATIONS: f64 = 8.0;

/// The loads of a plan over the halves of the ranks' memory.
#[derive(Debug)]
pub(crate) struct Loads {
    pub(crate) space: Arc<Space>,
    pub(crate) plan: Arc<Plan>,
    /// Half of each rank's memory.
    pub(crate) halves: Vec<u64>,
    pub(crate) checksums: bool,
    tables: Mutex<VecDeque<(LoadNumber, Arc<LoadTable>)>>,
}

impl Loads {
    pub(crate) fn new(
        space: Arc<Space>,
        plan: Arc<Plan>,
        memory: &[u64],
        checksums: bool,
    ) -> Loads {
        Loads {
            space,
            plan,
            halves: memory.iter().map(|bytes| bytes / 2).collect(),
            checksums,
            tables: Mutex::default(),
        }
    }

    /// Loads of an epoch.
    pub(crate) fn count(&self) -> u64 {
        self.plan.loads().expect("an order of loads")
    }

    /// The table of a load, from those computed last where it is among them.
    pub(crate) fn table(&self, number: LoadNumber) -> Arc<LoadTable> {
        let tables = || self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let known = tables().iter().find(|(kept, _)| *kept == number).cloned();
        if let Some((_, table)) = known {
            return table;
        }
        // Outside the lock: a table takes a while, and two that compute the same one do no harm.
        let table = Arc::new(self.compute(number));
        let mut tables = tables();
        tables.truncate(TABLES - 1);
        tables.push_front((number, Arc::clone(&table)));
        table
    }

    /// An error where one of the loads of an epoch does not fit, so that it is known before anything is
    /// read.
    pub(crate) fn check_epoch(&self, epoch: u64) -> Result<(), CacheError> {
        (0..self.count()).try_for_each(|load| {
            let number = LoadNumber { epoch, load };
            self.check(number, &self.compute(number))
        })
    }

    fn compute(&self, number: LoadNumber) -> LoadTable {
        let (space, plan) = (&self.space, &self.plan);
        LoadTable::new(space, plan, number, &self.halves, self.checksums)
    }

    /// An error where a load does not fit.
    pub(crate) fn check(&self, number: LoadNumber, table: &LoadTable) -> Result<(), CacheError> {
        let ranks = table.needed().iter().zip(&self.halves);
        let Some(rank) = ranks.clone().position(|(needed, half)| needed > half) else {
            return Ok(());
        };
        let memory: u64 = 2 * self.halves.iter().sum::<u64>();
        let units = self.plan.units().expect("an order of loads has units");
        let fitting = loads_for(
            self.space.dataset(),
            units,
            memory,
            self.halves.len(),
            self.checksums,
        );
        Err(CacheError::LoadTooLarge {
            epoch: number.epoch,
            load: number.load,
            rank,
            needed: 2 * table.needed()[rank],
            memory: 2 * self.halves[rank],
            loads: self.count(),
            remedy: match fitting {
                Some(fitting) => format!("use {} loads", fitting.max(self.count() + 1)),
                None => "use more memory or smaller units".to_string(),
            },
        })
    }

    /// The load that serves a step's first record.
    pub(crate) fn load_of_step(&self, (epoch, step): (u64, u64)) -> LoadNumber {
        if step >= self.plan.steps() {
            return LoadNumber {
                epoch: epoch + 1,
                load: 0,
            };
        }
        let position = self.plan.step_positions(epoch, step).start;
        // Few loads: no need to search.
        let load = (0..self.count())
            .find(|&load| self.plan.load_positions(epoch, load).end > position)
            .unwrap_or(0);
        LoadNumber { epoch, load }
    }

    /// The first step that needs nothing of a load or of those before it.
    pub(crate) fn step_after(&self, number: LoadNumber) -> (u64, u64) {
        let LoadNumber { epoch, load } = number;
        let end = self.plan.load_positions(epoch, load).end;
        let (mut low, mut high) = (0, self.plan.steps());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.plan.step_positions(epoch, middle).start < end {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (epoch, low)
    }
}

/// The smallest number of loads an epoch of which two fit in `memory_bytes` of all ranks together, held in
/// equal shares; `None` where not even loads of one unit do.
///
/// A load is the units of a random subset. Its bound is the mean and eight standard deviations of such a
/// sum of unit sizes, or the largest there can be, whichever is less; of that a rank holds its share and
/// one unit at most. With memory for a quarter of the data it gives 9 where units are small.
pub fn loads_for(
    dataset: &Dataset,
    units: &Units,
    memory_bytes: u64,
    ranks: usize,
    checksums: bool,
) -> Option<u64> {
    let count = units.len();
    if count == 0 {
        return Some(1);
    }
    let (mut sum, mut squares, mut longest) = (0.0, 0.0, 0_u64);
    for unit in 0..count {
        let bytes = unit_cost(dataset, units, unit, checksums);
        sum += bytes as f64;
        squares += bytes as f64 * bytes as f64;
        longest = longest.max(bytes);
    }
    let mean = sum / count as f64;
    let deviation = (squares / count as f64 - mean * mean).max(0.0).sqrt();
    let half = memory_bytes as f64 / (2.0 * ranks as f64);
    let fits = |loads: u64| {
        let in_load = count.div_ceil(loads) as f64;
        let most = (in_load * longest as f64)
            .min(in_load * mean + DEVIATIONS * deviation * in_load.sqrt());
        // Rounding to whole checksums and bytes.
        let part = (most / ranks as f64 + longest as f64).min(most) + 16.0;
        part <= half
    };
    if !fits(count) {
        return None;
    }
    let (mut low, mut high) = (1, count);
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
