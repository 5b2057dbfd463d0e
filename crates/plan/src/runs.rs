//! Batches of neighbouring appearances.

use crate::batching::{Batching, Cuts, Last};
use crate::error::PlanError;
use crate::ordering::OwnSteps;
use crate::sequence::{Appearances, Sequence};
use crate::step_batch::{Draw, StepBatch};

/// How the appearances of an epoch are cut.
#[derive(Debug)]
pub(crate) enum Runs {
    /// Into runs of this many.
    Places(Cuts),
    /// Into steps of the order's own.
    Own(Box<dyn OwnSteps>),
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
    /// An order's own steps are not those of its echoed examples.
    pub(crate) fn new(
        sequence: &Sequence,
        batching: Batching,
        last: Last,
    ) -> Result<Runs, PlanError> {
        if sequence.echo.echo().is_none()
            && let Some(own) = sequence.examples.ids.own_steps(batching, last)?
        {
            return Ok(Runs::Own(own));
        }
        Cuts::new(batching, last, sequence.len(), 1.0).map(Runs::Places)
    }

    /// Batches of an epoch, the same in every one.
    pub(crate) fn steps(&self) -> u64 {
        match self {
            Runs::Places(cuts) => cuts.steps(),
            Runs::Own(own) => own.steps(),
        }
    }

    /// The most draws of a batch, or a few more. A pass over the units of a `page` order.
    pub(crate) fn largest_batch(&self) -> u64 {
        match self {
            Runs::Places(cuts) => cuts.longest(),
            Runs::Own(own) => own.longest(),
        }
    }

    /// The fewest draws that a batch of any epoch can have. A pass over the units of a `page` order.
    pub(crate) fn smallest_batch(&self) -> Option<u64> {
        match self {
            Runs::Places(cuts) => cuts.shortest(),
            Runs::Own(own) => own.shortest(),
        }
    }

    /// How many of the `appearances` of an epoch are in none of its batches.
    pub(crate) fn left_out(&self, appearances: u64, epoch: u64) -> u64 {
        let end = match (self, self.steps().checked_sub(1)) {
            (Runs::Places(cuts), _) => cuts.end(),
            (Runs::Own(own), Some(last)) => own.start(epoch, last) + own.step_len(epoch, last),
            (Runs::Own(_), None) => 0,
        };
        appearances - end
    }

    /// Draws of a step's batch. Asserts that the epoch has it.
    pub(crate) fn step_len(&self, epoch: u64, step: u64) -> u64 {
        match self {
            Runs::Places(cuts) => cuts.len(step),
            Runs::Own(own) => own.step_len(epoch, step),
        }
    }

    /// The number of appearances of an epoch before a step. A pass over the units before it for a `page` order.
    fn start(&self, epoch: u64, step: u64) -> u64 {
        match self {
            Runs::Places(cuts) => cuts.range(step).start,
            Runs::Own(own) => own.start(epoch, step),
        }
    }

    /// From a step on; `None` if the epoch ends before it.
    pub(crate) fn walk(&self, sequence: &Sequence, epoch: u64, step: u64) -> Option<RunsWalk> {
        (step < self.steps()).then(|| RunsWalk {
            epoch,
            step,
            at: sequence.walk(epoch, self.start(epoch, step)),
            draws: Vec::new(),
            left_out: None,
        })
    }
}

impl RunsWalk {
    /// Puts the next batch into `out`; false after the last.
    pub(crate) fn next(&mut self, runs: &Runs, sequence: &Sequence, out: &mut StepBatch) -> bool {
        if self.step == runs.steps() {
            return false;
        }
        let count = runs.step_len(self.epoch, self.step);
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

    /// Marks draws as last if no appearance after them is before `used`, the end of the last batch.
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
