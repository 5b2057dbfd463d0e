//! The loads of a run: which fit, and the positions of their units.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use pelton_plan::{EpochOrder, Plan};

use crate::CacheError;
use crate::load_size::loads_for;
use crate::load_table::{LoadNumber, LoadTable};
use crate::space::Space;

/// Tables kept: those of two loads in memory, and of two ahead for placements.
const TABLES: usize = 4;

/// The loads of a plan over two halves of the ranks' memory.
#[derive(Debug)]
pub(crate) struct Loads {
    pub(crate) space: Arc<Space>,
    pub(crate) plan: Arc<Plan>,
    memory: Vec<u64>,
    /// The memory of each rank for one load.
    pub(crate) halves: Vec<u64>,
    tables: Mutex<VecDeque<(LoadNumber, Arc<LoadTable>)>>,
    /// The orders of the last requested epochs, even ones at 0 and odd ones at 1.
    orders: Mutex<[Option<Arc<EpochOrder>>; 2]>,
}

impl Loads {
    pub(crate) fn new(space: Arc<Space>, plan: Arc<Plan>, memory: &[u64]) -> Loads {
        Loads {
            halves: memory.iter().map(|bytes| bytes / 2).collect(),
            space,
            plan,
            memory: memory.to_vec(),
            tables: Mutex::default(),
            orders: Mutex::default(),
        }
    }

    /// Loads of an epoch.
    pub(crate) fn count(&self) -> u64 {
        self.plan.loads().expect("an order of loads")
    }

    /// The order of an epoch.
    pub(crate) fn order(&self, epoch: u64) -> Arc<EpochOrder> {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut orders[(epoch % 2) as usize];
        match slot {
            Some(order) if order.epoch() == epoch => Arc::clone(order),
            _ => {
                let order = self.plan.epoch_order(epoch);
                let order = Arc::new(order.expect("an order of loads has an inverse"));
                Arc::clone(slot.insert(order))
            }
        }
    }

    /// The table of a load; the last computed ones are kept.
    pub(crate) fn table(&self, number: LoadNumber) -> Arc<LoadTable> {
        let tables = || self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let known = tables().iter().find(|(kept, _)| *kept == number).cloned();
        if let Some((_, table)) = known {
            return table;
        }
        // Outside the lock: a table takes a while, and computing the same one twice is harmless.
        let table = Arc::new(self.compute(number));
        let mut tables = tables();
        tables.truncate(TABLES - 1);
        tables.push_front((number, Arc::clone(&table)));
        table
    }

    /// An error if one of the loads of an epoch does not fit, before anything is read.
    pub(crate) fn check_epoch(&self, epoch: u64) -> Result<(), CacheError> {
        (0..self.count()).try_for_each(|load| {
            let number = LoadNumber { epoch, load };
            self.check(number, &self.compute(number))
        })
    }

    fn compute(&self, number: LoadNumber) -> LoadTable {
        let load = self.order(number.epoch).load_units(number.load);
        let load = load.expect("the epoch has the load");
        let units = self.plan.units().expect("an order of loads has units");
        LoadTable::new(&self.space, (units, &load), &self.memory)
    }

    /// An error if a load does not fit.
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

    /// The load that serves a position of an epoch's order; after its end, that of the next epoch.
    pub(crate) fn load_of_position(&self, (epoch, position): (u64, u64)) -> LoadNumber {
        let order = self.order(epoch);
        // Few loads: no need to search.
        let serves = |load: &u64| {
            let served = order.load_positions(*load);
            served.is_some_and(|served| served.end > position)
        };
        match (0..self.count()).find(serves) {
            Some(load) => LoadNumber { epoch, load },
            None => LoadNumber {
                epoch: epoch + 1,
                load: 0,
            },
        }
    }

    /// The first position that needs neither a load nor those before it.
    pub(crate) fn position_after(&self, number: LoadNumber) -> (u64, u64) {
        let served = self.order(number.epoch).load_positions(number.load);
        (number.epoch, served.map_or(0, |served| served.end))
    }

    /// Whether the load that serves a record in an epoch ends before a position of its order.
    pub(crate) fn has_passed(&self, (epoch, position): (u64, u64), id: u64) -> bool {
        let order = self.order(epoch);
        let served = order
            .load_of(id)
            .and_then(|load| order.load_positions(load));
        served.is_some_and(|served| served.end <= position)
    }
}
