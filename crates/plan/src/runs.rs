//! Batches of neighbouring appearances.

use std::ops::Range;
use std::sync::Arc;

use pelton_key::{Stage, key};

use crate::batching::{Batching, Cuts};
use crate::blocks::Blocks;
use crate::error::PlanError;
use crate::ids::Orders;
use crate::permutation::Permutation;
use crate::sequence::{Appearances, Sequence};
use crate::step_batch::{Draw, StepBatch};
use crate::units::Units;

/// How the appearances of an epoch are cut.
#[derive(Debug)]
pub(crate) enum Runs {
    /// Into runs of so many.
    Places(Cuts),
    /// Into runs of units, which stay whole.
    Units(Cuts, Arc<Units>),
    /// A block a step.
    Blocks(u64, Arc<Blocks>),
}

/// The batches of an epoch from a step on.
#[derive(Debug)]
pub(crate) struct RunsWalk {
    epoch: u64,
    step: u64,
    at: Appearances,
    draws: Vec<Draw>,
    /// The examples in the batch that is left out, once they are needed.
    left_out: Option<Vec<LeftOut>>,
}

/// An example with appearances that no batch holds.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LeftOut {
    position: u64,
    /// The first of its copies that is left out.
    copy: u32,
}

impl Runs {
    /// A batch of a `page` order becomes a fixed number of units: the number of examples asked for divided by the
    /// mean records of a unit, rounded, at least one. The number of examples in a batch then varies a little, but
    /// records that are read together are used together.
    pub(crate) fn new(sequence: &Sequence, batching: Batching) -> Result<Runs, PlanError> {
        let echoed = !sequence.echo.echo().is_none();
        match &sequence.examples.orders {
            Orders::Page(units) if !echoed => {
                let cuts = page_cuts(units, batching)?;
                Ok(Runs::Units(cuts, Arc::clone(units)))
            }
            Orders::Block(blocks) if !echoed => Ok(Runs::Blocks(blocks.len(), Arc::clone(blocks))),
            _ => Cuts::new(batching, sequence.len(), 1.0).map(Runs::Places),
        }
    }

    /// Batches of an epoch, the same in every one.
    pub(crate) fn steps(&self) -> u64 {
        match self {
            Runs::Places(cuts) | Runs::Units(cuts, _) => cuts.steps(),
            Runs::Blocks(blocks, _) => *blocks,
        }
    }

    /// The most draws of a batch, or a few more. A pass over the units of a `page` order.
    pub(crate) fn largest_batch(&self) -> u64 {
        match self {
            Runs::Places(cuts) => cuts.longest(),
            Runs::Units(cuts, units) => {
                let longest = (0..units.len()).map(|unit| len(&units.unit_records(unit)));
                let longest = longest.max().unwrap_or(0).saturating_mul(cuts.longest());
                longest.min(units.records())
            }
            Runs::Blocks(_, blocks) => blocks.longest(),
        }
    }

    /// Draws of a step's batch. Asserts that the epoch has it.
    pub(crate) fn step_len(&self, seed: u64, epoch: u64, step: u64) -> u64 {
        match self {
            Runs::Places(cuts) => len(&cuts.range(step)),
            Runs::Units(cuts, units) => units_len(units, seed, epoch, cuts.range(step)),
            Runs::Blocks(_, blocks) => blocks.step_len(epoch, step),
        }
    }

    /// The places of an epoch before a step. A pass over the units before it for a `page` order.
    fn start(&self, seed: u64, epoch: u64, step: u64) -> u64 {
        match self {
            Runs::Places(cuts) => cuts.range(step).start,
            Runs::Units(cuts, units) => units_len(units, seed, epoch, 0..cuts.range(step).start),
            Runs::Blocks(_, blocks) => blocks.of_epoch(epoch).step_positions(step).start,
        }
    }

    /// From a step on; `None` where the epoch ends before it.
    pub(crate) fn walk(&self, sequence: &Sequence, epoch: u64, step: u64) -> Option<RunsWalk> {
        let seed = sequence.examples.seed;
        (step < self.steps()).then(|| RunsWalk {
            epoch,
            step,
            at: sequence.walk(epoch, self.start(seed, epoch, step)),
            draws: Vec::new(),
            left_out: None,
        })
    }
}

/// The records of the units at some places of an epoch's order.
fn units_len(units: &Units, seed: u64, epoch: u64, places: Range<u64>) -> u64 {
    let order = Permutation::new(units.len(), key(seed, epoch, Stage::Order));
    let mut chunk = [0; 256];
    let mut records = 0;
    for first in places.clone().step_by(chunk.len()) {
        let chunk = &mut chunk[..(places.end - first).min(256) as usize];
        order.fill(first, chunk);
        let lens = chunk.iter().map(|&unit| len(&units.unit_records(unit)));
        records += lens.sum::<u64>();
    }
    records
}

fn page_cuts(units: &Units, batching: Batching) -> Result<Cuts, PlanError> {
    let cuts = Cuts::new(batching, units.len(), 1.0 / units.mean_records());
    cuts.map_err(|error| match error {
        PlanError::TooManyBatches { batches, .. } => PlanError::TooManyUnitBatches {
            batches,
            units: units.len(),
            unit_bytes: units.unit_bytes(),
            records: units.records(),
        },
        other => other,
    })
}

fn len(range: &Range<u64>) -> u64 {
    range.end - range.start
}

impl RunsWalk {
    /// Puts the next batch into `out`; false after the last.
    pub(crate) fn next(&mut self, runs: &Runs, sequence: &Sequence, out: &mut StepBatch) -> bool {
        if self.step == runs.steps() {
            return false;
        }
        let count = runs.step_len(sequence.examples.seed, self.epoch, self.step);
        self.step += 1;
        self.draws.clear();
        self.at.read(sequence, count, &mut self.draws);
        if let Runs::Places(cuts) = runs {
            self.end_before_left_out(cuts.end(), sequence);
        }
        out.extend(&self.draws);
        true
    }

    pub(crate) fn has_more(&self, runs: &Runs) -> bool {
        self.step < runs.steps()
    }

    /// Marks those draws as last whose later appearances are in no batch, which ends at `used`.
    fn end_before_left_out(&mut self, used: u64, sequence: &Sequence) {
        if sequence.echo.echo().is_none() || used == sequence.len() {
            return;
        }
        let first = sequence.echo.first_needed(used);
        for draw in self.draws.iter_mut().filter(|draw| draw.position >= first) {
            let left_out = self
                .left_out
                .get_or_insert_with(|| left_out(sequence, self.epoch, used));
            let found = left_out.binary_search_by_key(&draw.position, |left_out| left_out.position);
            draw.last |= found.is_ok_and(|found| draw.copy + 1 == left_out[found].copy);
        }
    }
}

fn left_out(sequence: &Sequence, epoch: u64, from: u64) -> Vec<LeftOut> {
    let mut draws = Vec::new();
    let count = sequence.len() - from;
    sequence.walk(epoch, from).read(sequence, count, &mut draws);
    let left_out = draws.iter().map(|draw| LeftOut {
        position: draw.position,
        copy: draw.copy,
    });
    let mut left_out: Vec<LeftOut> = left_out.collect();
    left_out.sort_unstable();
    left_out.dedup_by_key(|left_out| left_out.position);
    left_out
}
