//! Runs of whole records of at least a page in a new random order every epoch; the records of a run stay together and
//! in file order (LIRS, page-aware).
//!
//! A batch is a fixed number of runs: the requested examples divided by the mean records of a run, rounded, at least
//! one. The number of examples in a batch then varies a little, but records that are read together are used together.
//! Finding the first record of a step takes a pass over the runs before it.

use std::ops::Range;
use std::sync::Arc;

use pelton_key::{Stage, key};

use super::Page;
use crate::batching::{Batching, Cuts, Last};
use crate::error::PlanError;
use crate::ordering::{EpochWalk, Ids, Kind, Over, OwnSteps, Spread};
use crate::permutation::Permutation;
use crate::randomness::Randomness;
use crate::units::Units;

/// Units looked up at a time.
const CHUNK: usize = 256;

impl Kind for Page {
    fn spread(&self) -> Spread {
        Spread::Neighbours
    }

    fn unit_bytes(&self) -> Option<u64> {
        Some(self.unit_bytes)
    }

    fn randomness(&self, records: u64, units: u64) -> Randomness {
        Randomness::chunks(records, units)
    }

    fn over(&self, over: &Over<'_>) -> Result<Box<dyn Ids>, PlanError> {
        Ok(Box::new(Pages {
            units: Arc::new(over.units(self.unit_bytes)?),
            seed: over.seed,
        }))
    }
}

/// The units of all epochs.
#[derive(Debug, Clone)]
struct Pages {
    units: Arc<Units>,
    seed: u64,
}

impl Pages {
    fn order(&self, epoch: u64) -> Permutation {
        Permutation::new(self.units.len(), key(self.seed, epoch, Stage::Order))
    }

    /// The records of the units at some positions of an epoch's order.
    fn records_at(&self, epoch: u64, places: Range<u64>) -> u64 {
        let order = self.order(epoch);
        let mut chunk = [0; CHUNK];
        let mut records = 0;
        for first in places.clone().step_by(CHUNK) {
            let chunk = &mut chunk[..(places.end - first).min(CHUNK as u64) as usize];
            order.fill(first, chunk);
            let lens = chunk.iter().map(|&unit| self.unit_len(unit));
            records += lens.sum::<u64>();
        }
        records
    }

    fn unit_len(&self, unit: u64) -> u64 {
        let records = self.units.unit_records(unit);
        records.end - records.start
    }
}

impl Ids for Pages {
    fn walk(&self, epoch: u64) -> Box<dyn EpochWalk> {
        Box::new(PageWalk {
            units: Arc::clone(&self.units),
            order: self.order(epoch),
            passed: 0,
            position: 0,
        })
    }

    fn units(&self) -> Option<&Units> {
        Some(&self.units)
    }

    fn memory_bytes(&self) -> u64 {
        self.units.table_bytes()
    }

    fn own_steps(
        &self,
        batching: Batching,
        last: Last,
    ) -> Result<Option<Box<dyn OwnSteps>>, PlanError> {
        let units = &self.units;
        let cuts = Cuts::new(batching, last, units.len(), 1.0 / units.mean_records());
        let cuts = cuts.map_err(|error| match error {
            PlanError::TooManyBatches { batches, .. } => PlanError::TooManyUnitBatches {
                batches,
                units: units.len(),
                unit_bytes: units.unit_bytes(),
                records: units.records(),
            },
            other => other,
        })?;
        let pages = self.clone();
        Ok(Some(Box::new(PageSteps { cuts, pages })))
    }
}

/// Steps of this many units each.
#[derive(Debug)]
struct PageSteps {
    cuts: Cuts,
    pages: Pages,
}

impl OwnSteps for PageSteps {
    fn steps(&self) -> u64 {
        self.cuts.steps()
    }

    fn shortest(&self) -> Option<u64> {
        let units = 0..self.pages.units.len();
        let least = units.map(|unit| self.pages.unit_len(unit)).min()?;
        Some(self.cuts.shortest()? * least)
    }

    fn longest(&self) -> u64 {
        let units = &self.pages.units;
        let longest = (0..units.len()).map(|unit| self.pages.unit_len(unit));
        let longest = longest.max().unwrap_or(0);
        longest
            .saturating_mul(self.cuts.longest())
            .min(units.records())
    }

    fn step_len(&self, epoch: u64, step: u64) -> u64 {
        self.pages.records_at(epoch, self.cuts.range(step))
    }

    fn start(&self, epoch: u64, step: u64) -> u64 {
        self.pages.records_at(epoch, 0..self.cuts.range(step).start)
    }
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

impl EpochWalk for PageWalk {
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
}

impl PageWalk {
    /// Shows the next units, each with the position of its first record, while `passes` accepts them.
    fn each(&mut self, mut passes: impl FnMut(Range<u64>, u64) -> bool) {
        let mut chunk = [0; CHUNK];
        while self.passed < self.units.len() {
            let left = self.units.len() - self.passed;
            let chunk = &mut chunk[..left.min(CHUNK as u64) as usize];
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
