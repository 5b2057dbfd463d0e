//! The loads of a run: which fit, and where their units lie.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use pelton_plan::Plan;

use crate::CacheError;
use crate::load_size::loads_for;
use crate::load_table::{LoadNumber, LoadTable};
use crate::space::Space;

/// Tables kept: two loads in memory, and two that those who deal out work look ahead to.
const TABLES: usize = 4;

/// The loads of a plan over two halves of the ranks' memory.
#[derive(Debug)]
pub(crate) struct Loads {
    pub(crate) space: Arc<Space>,
    pub(crate) plan: Arc<Plan>,
    memory: Vec<u64>,
    /// What each rank has for one load.
    pub(crate) halves: Vec<u64>,
    tables: Mutex<VecDeque<(LoadNumber, Arc<LoadTable>)>>,
}

impl Loads {
    pub(crate) fn new(space: Arc<Space>, plan: Arc<Plan>, memory: &[u64]) -> Loads {
        Loads {
            halves: memory.iter().map(|bytes| bytes / 2).collect(),
            space,
            plan,
            memory: memory.to_vec(),
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
        LoadTable::new(&self.space, &self.plan, number, &self.memory)
    }

    /// An error where a load does not fit.
    pub(crate) fn check(&self, number: LoadNumber, table: &LoadTable) -> Result<(), CacheError> {
        let ranks = table.needed().iter().zip(&self.halves);
        let Some(rank) = ranks.clone().position(|(needed, half)| needed > half) else {
            return Ok(());
        };
        let units = self.plan.units().expect("an order of loads has units");
        let fitting = loads_for(
            self.space.dataset(),
            units,
            self.memory.iter().sum(),
            self.memory.len(),
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
