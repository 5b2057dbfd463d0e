//! The examples of an epoch in their order, by number: what every other part of a plan is made of.
//!
//! | order | one id | from a position on |
//! |---|---|---|
//! | sequential, full | one permutation evaluation | O(1) |
//! | block, mixture | one or two evaluations | O(1), once tables of the blocks or parts are made |
//! | opportunistic | two evaluations | O(log loads); one pass over the units an epoch where they are uneven |
//! | page | one evaluation a unit | one pass over the units before |
//! | draws by weight | a binary search | O(1) |
//! | queue | one draw | replay of the epoch |
//!
//! Rejected: a stored shuffled index (8 bytes a record and a shuffle before the first batch).

use std::sync::Arc;

use pelton_key::{Stage, key};

use crate::blocks::{Blocks, EpochBlocks};
use crate::mixture::{MixedEpoch, Mixture};
use crate::opportunistic::{EpochLoads, LastLoad, Opportunistic};
use crate::permutation::Permutation;
use crate::queue::{Buffer, Queue};
use crate::sampler::{Weighted, WeightedEpoch};
use crate::units::Units;

/// What an order needs beyond its parameters.
#[derive(Debug)]
pub(crate) enum Orders {
    Sequential,
    Full,
    Page(Arc<Units>),
    Queue(Arc<Queue>),
    Block(Arc<Blocks>),
    Loads(Arc<Opportunistic>),
    Mixture(Arc<Mixture>),
    Weighted(Arc<Weighted>),
}

/// The order of the examples of every epoch, which go by their numbers: the records that are kept, counted.
#[derive(Debug)]
pub(crate) struct Examples {
    pub(crate) orders: Orders,
    /// Examples of an epoch.
    pub(crate) len: u64,
    pub(crate) seed: u64,
}

/// The order of one epoch, where it has an inverse.
#[derive(Debug)]
pub(crate) enum EpochIds {
    Sequential,
    Full(Permutation),
    Block(EpochBlocks),
    Loads(EpochLoads),
}

/// The examples of an epoch from a position on.
#[derive(Debug)]
pub(crate) struct IdWalk {
    position: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Inverted(EpochIds, LastLoad),
    Mixture(MixedEpoch),
    Weighted(WeightedEpoch),
    Page(PageWalk),
    Queue(Buffer, u64),
}

/// The units of an epoch from one of them on.
#[derive(Debug)]
struct PageWalk {
    units: Arc<Units>,
    order: Permutation,
    /// Units passed, and the records in them.
    passed: u64,
    position: u64,
}

/// Units looked up at a time.
const UNIT_CHUNK: usize = 256;

impl Examples {
    /// The order of an epoch, where it has an inverse.
    pub(crate) fn inverted(&self, epoch: u64) -> Option<EpochIds> {
        Some(match &self.orders {
            Orders::Sequential => EpochIds::Sequential,
            Orders::Full => {
                let key = key(self.seed, epoch, Stage::Order);
                EpochIds::Full(Permutation::new(self.len, key))
            }
            Orders::Block(blocks) => EpochIds::Block(blocks.of_epoch(epoch)),
            Orders::Loads(loads) => EpochIds::Loads(loads.of_epoch(epoch)),
            Orders::Page(_) | Orders::Queue(_) => return None,
            Orders::Mixture(_) | Orders::Weighted(_) => return None,
        })
    }

    /// The examples of an epoch from a position on.
    pub(crate) fn walk(&self, epoch: u64, position: u64) -> IdWalk {
        let state = match (&self.orders, self.inverted(epoch)) {
            (_, Some(ids)) => State::Inverted(ids, None),
            (Orders::Mixture(mixture), _) => State::Mixture(mixture.of_epoch(epoch)),
            (Orders::Weighted(weighted), _) => State::Weighted(weighted.of_epoch(epoch)),
            (Orders::Queue(queue), _) => State::Queue(queue.of_epoch(epoch), epoch),
            (Orders::Page(units), _) => State::Page(PageWalk::new(units, self.seed, epoch)),
            _ => State::Inverted(EpochIds::Sequential, None),
        };
        let mut walk = IdWalk { position: 0, state };
        walk.seek(position);
        walk
    }

    /// Whether a position is found without a replay of the epoch.
    pub(crate) fn is_sought(&self) -> bool {
        !matches!(self.orders, Orders::Queue(_))
    }

    pub(crate) fn units(&self) -> Option<&Units> {
        match &self.orders {
            Orders::Page(units) => Some(units),
            Orders::Loads(loads) => Some(loads.units()),
            _ => None,
        }
    }

    pub(crate) fn mixture(&self) -> Option<&Mixture> {
        match &self.orders {
            Orders::Mixture(mixture) => Some(mixture),
            _ => None,
        }
    }

    /// Where some examples may come more often than others: the numbers that come at all, and how often a mean
    /// epoch draws each.
    pub(crate) fn expected(&self) -> Option<Box<dyn Iterator<Item = (u64, f64)> + '_>> {
        match &self.orders {
            Orders::Mixture(mixture) => Some(Box::new(mixture.expected())),
            Orders::Weighted(weighted) => {
                let draws = weighted.shares().map(|share| share * self.len as f64);
                Some(Box::new((0..).zip(draws).filter(|(_, draws)| *draws > 0.0)))
            }
            _ => None,
        }
    }

    /// Memory that the order and a walk along it take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match &self.orders {
            Orders::Sequential | Orders::Full => 0,
            Orders::Page(units) => units.table_bytes(),
            Orders::Queue(queue) => queue.memory_bytes(),
            Orders::Block(blocks) => blocks.memory_bytes(),
            Orders::Loads(loads) => loads.memory_bytes(),
            Orders::Mixture(mixture) => mixture.memory_bytes(),
            Orders::Weighted(weighted) => weighted.memory_bytes(),
        }
    }
}

impl EpochIds {
    pub(crate) fn fill(&self, start: u64, out: &mut [u64], last: &mut LastLoad) {
        match self {
            _ if out.is_empty() => {}
            EpochIds::Sequential => {
                for (slot, id) in out.iter_mut().zip(start..) {
                    *slot = id;
                }
            }
            EpochIds::Full(order) => order.fill(start, out),
            EpochIds::Block(blocks) => blocks.fill(start, out),
            EpochIds::Loads(loads) => loads.fill(start, out, last),
        }
    }

    /// Replaces each position by the id there.
    pub(crate) fn ids_of_each(&self, places: &mut [u64]) {
        match self {
            EpochIds::Sequential => {}
            EpochIds::Full(order) => order.get_each(places),
            EpochIds::Block(blocks) => blocks.ids_of_each(places),
            EpochIds::Loads(loads) => loads.ids_of_each(places),
        }
    }

    /// Replaces each id by its position.
    pub(crate) fn positions_of_each(&self, places: &mut [u64]) {
        match self {
            EpochIds::Sequential => {}
            EpochIds::Full(order) => order.positions_of_each(places),
            EpochIds::Block(blocks) => blocks.positions_of_each(places),
            EpochIds::Loads(loads) => loads.positions_of_each(places),
        }
    }
}

impl IdWalk {
    /// The position of the next example.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Goes to a position.
    pub(crate) fn seek(&mut self, position: u64) {
        match &mut self.state {
            State::Inverted(..) | State::Mixture(_) | State::Weighted(_) => {}
            State::Page(units) => units.seek(position),
            State::Queue(buffer, epoch) => {
                if buffer.position() > position {
                    *buffer = buffer.restarted(*epoch);
                }
                buffer.skip_to(position);
            }
        }
        self.position = position;
    }

    /// The next examples. Asserts that the epoch has them.
    pub(crate) fn fill(&mut self, out: &mut [u64]) {
        match &mut self.state {
            State::Inverted(ids, last) => ids.fill(self.position, out, last),
            State::Mixture(mixture) => mixture.fill(self.position, out),
            State::Weighted(weighted) => weighted.fill(self.position, out),
            State::Page(units) => units.fill(self.position, out),
            State::Queue(buffer, _) => buffer.fill(out),
        }
        self.position += out.len() as u64;
    }
}

impl PageWalk {
    fn new(units: &Arc<Units>, seed: u64, epoch: u64) -> PageWalk {
        PageWalk {
            units: Arc::clone(units),
            order: Permutation::new(units.len(), key(seed, epoch, Stage::Order)),
            passed: 0,
            position: 0,
        }
    }

    /// Passes the units that end at a position or before it.
    fn seek(&mut self, position: u64) {
        if position < self.position {
            (self.passed, self.position) = (0, 0);
        }
        self.each(|records, start| start + (records.end - records.start) <= position);
    }

    fn fill(&mut self, from: u64, out: &mut [u64]) {
        let mut filled = 0;
        self.each(|mut records, start| {
            let end = start + (records.end - records.start);
            records.start += (from + filled as u64).saturating_sub(start);
            let ends = end <= from + out.len() as u64;
            for (slot, id) in out[filled..].iter_mut().zip(records) {
                *slot = id;
                filled += 1;
            }
            ends
        });
    }

    /// Shows the units that come next, each with the position where it begins, while they are passed.
    fn each(&mut self, mut passes: impl FnMut(std::ops::Range<u64>, u64) -> bool) {
        let mut chunk = [0; UNIT_CHUNK];
        while self.passed < self.units.len() {
            let left = self.units.len() - self.passed;
            let chunk = &mut chunk[..left.min(UNIT_CHUNK as u64) as usize];
            self.order.fill(self.passed, chunk);
            for &unit in &*chunk {
                let records = self.units.unit_records(unit);
                let len = records.end - records.start;
                if !passes(records, self.position) {
                    return;
                }
                self.passed += 1;
                self.position += len;
            }
        }
    }
}
