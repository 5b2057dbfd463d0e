//! The traits of orders. Each one is a file in `orders/` that implements these traits.

use std::fmt::Debug;
use std::ops::Range;

use crate::batching::{Batching, Cuts, Last};
use crate::error::PlanError;
use crate::randomness::Randomness;
use crate::selection::Selection;
use crate::units::Units;

/// An order before it is put over records: its parameters.
pub(crate) trait Kind {
    /// How the records of a step are spread over the files.
    fn spread(&self) -> Spread;

    /// The least size of the runs of neighbours that it keeps together.
    fn unit_bytes(&self) -> Option<u64> {
        None
    }

    /// Whether every epoch has the same order.
    fn is_fixed(&self) -> bool {
        false
    }

    /// Whether the order defines its own steps, whatever the batching.
    fn ignores_batching(&self) -> bool {
        false
    }

    /// How well it shuffles some records, two or more, and their units.
    fn randomness(&self, records: u64, units: u64) -> Randomness;

    /// The order over some records.
    fn over(&self, over: &Over<'_>) -> Result<Box<dyn Ids>, PlanError>;
}

/// How the records of a step are spread over all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Anywhere.
    Everywhere,
    /// Anywhere, and those of a step are together in every epoch.
    Blocks,
    /// In runs of neighbours.
    Neighbours,
    /// One after the other.
    InOrder,
}

/// The records that an order is put over, by number: those that are kept, counted.
pub(crate) struct Over<'a> {
    /// The order's text.
    pub(crate) order: String,
    pub(crate) records: u64,
    pub(crate) seed: u64,
    pub(crate) batching: Batching,
    pub(crate) last: Last,
    /// Records of the data set, and which of them are kept.
    pub(crate) all_records: u64,
    pub(crate) selection: Option<&'a Selection>,
    /// The units of all records, if known.
    pub(crate) units: Option<&'a Units>,
}

impl Over<'_> {
    /// Units of at least `unit_bytes`; a record each if they are unknown.
    pub(crate) fn units(&self, unit_bytes: u64) -> Result<Units, PlanError> {
        if unit_bytes == 0 {
            return Err(PlanError::EmptyUnit);
        }
        let Some(units) = self.units else {
            return Ok(Units::single(self.records, unit_bytes));
        };
        if (units.records(), units.unit_bytes()) != (self.all_records, unit_bytes) {
            return Err(PlanError::UnitsMismatch {
                expected_records: self.all_records,
                expected_unit_bytes: unit_bytes,
                found_records: units.records(),
                found_unit_bytes: units.unit_bytes(),
            });
        }
        // The limits of batches of records apply to batches of units, too.
        Cuts::new(self.batching, self.last, self.records, 1.0)?;
        Ok(self
            .selection
            .map_or_else(|| units.clone(), |selection| units.kept(selection)))
    }

    /// Refuses a table that would take too much memory.
    pub(crate) fn check_table(&self, entries: u64, limit: u64) -> Result<(), PlanError> {
        if entries > limit {
            return Err(PlanError::TableTooLarge {
                order: self.order.clone(),
                entries,
                limit,
            });
        }
        Ok(())
    }
}

/// The order of the examples of every epoch.
pub(crate) trait Ids: Debug + Send + Sync {
    /// The examples of an epoch.
    fn walk(&self, epoch: u64) -> Box<dyn EpochWalk>;

    /// The order of an epoch there and back, if it has an inverse.
    fn inverse(&self, _epoch: u64) -> Option<Box<dyn Inverse>> {
        None
    }

    /// Whether a position is found without a replay of the epoch.
    fn is_sought(&self) -> bool {
        true
    }

    /// The runs of neighbours that it keeps together.
    fn units(&self) -> Option<&Units> {
        None
    }

    /// Groups of units that an epoch is read in.
    fn loads(&self) -> Option<u64> {
        None
    }

    /// Memory that the order and a walk along it take.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// Its own steps, if they are not runs of a fixed number of examples.
    fn own_steps(
        &self,
        _batching: Batching,
        _last: Last,
    ) -> Result<Option<Box<dyn OwnSteps>>, PlanError> {
        Ok(None)
    }
}

/// The examples of an epoch from a position on.
pub(crate) trait EpochWalk: Debug + Send {
    /// Goes to a position.
    fn seek(&mut self, _position: u64) {}

    /// The next examples, from `position` on. Asserts that the epoch has them.
    fn fill(&mut self, position: u64, out: &mut [u64]);
}

/// The order of one epoch, there and back.
pub(crate) trait Inverse: Debug + Send + Sync {
    /// The examples from a position on.
    fn fill(&self, start: u64, out: &mut [u64]);

    /// Replaces each position by the id there.
    fn ids_of_each(&self, positions: &mut [u64]);

    /// Replaces each id by its position.
    fn positions_of_each(&self, ids: &mut [u64]);

    /// The positions of neighbouring ids from `first` on.
    fn fill_positions(&self, first: u64, out: &mut [u64]) {
        count_from(first, out);
        self.positions_of_each(out);
    }

    /// The positions of a step of its own.
    fn step_positions(&self, _step: u64) -> Option<Range<u64>> {
        None
    }

    /// The units that a load reads, sorted.
    fn load_units(&self, _load: u64) -> Option<Vec<u64>> {
        None
    }

    /// The positions that a load serves.
    fn load_positions(&self, _load: u64) -> Option<Range<u64>> {
        None
    }

    /// The load that reads an id.
    fn load_of(&self, _id: u64) -> Option<u64> {
        None
    }
}

impl<T: Inverse> EpochWalk for T {
    fn fill(&mut self, position: u64, out: &mut [u64]) {
        Inverse::fill(self, position, out);
    }
}

/// Steps that an order has by itself.
pub(crate) trait OwnSteps: Debug + Send + Sync {
    /// Steps of an epoch, the same in every one.
    fn steps(&self) -> u64;

    /// The most examples of a step, or a few more.
    fn longest(&self) -> u64;

    /// The fewest examples that a step of any epoch can have; `None` without steps.
    fn shortest(&self) -> Option<u64>;

    /// Examples of a step. Asserts that the epoch has it.
    fn step_len(&self, epoch: u64, step: u64) -> u64;

    /// The positions of an epoch before a step.
    fn start(&self, epoch: u64, step: u64) -> u64;
}

/// The numbers from `first` on.
pub(crate) fn count_from(first: u64, out: &mut [u64]) {
    for (slot, number) in out.iter_mut().zip(first..) {
        *slot = number;
    }
}
