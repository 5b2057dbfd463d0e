//! Batches of neighbouring appearances.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::batch::{Draw, StreamBatch};
use super::sequence::{Sequence, Source};
use crate::batching::{Batching, Cuts};
use crate::error::PlanError;
use crate::order::Order;
use crate::plan::Plan;
use pelton_key::mix;

/// Batches of neighbouring appearances.
#[derive(Debug)]
pub(super) struct Runs {
    sequence: Sequence,
    cut: Cut,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
enum Cut {
    /// Into runs of appearances.
    Places(Cuts),
    /// As the plan does it, by units or blocks.
    AsPlanned,
}

/// What was found out.
#[derive(Debug, Default)]
struct Kept {
    /// Epoch and step that follow what was asked for, and the place where that step begins.
    next: (u64, u64, u64),
    /// An epoch, and the examples in the batch that is left out of it.
    left_out: Option<(u64, Vec<LeftOut>)>,
}

/// An example with appearances that no batch holds.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LeftOut {
    position: u64,
    /// The first of its copies that is left out.
    copy: u32,
}

impl Runs {
    pub(super) fn new(sequence: Sequence, batching: Batching) -> Result<Runs, PlanError> {
        let has_own = |order| matches!(order, Order::Page { .. } | Order::Block { .. });
        let cut = match sequence.source() {
            Source::Plan(plan) if has_own(plan.order()) && sequence.echo().echo().is_none() => {
                Cut::AsPlanned
            }
            _ => Cut::Places(Cuts::new(batching, sequence.appearances(), 1.0)?),
        };
        Ok(Runs {
            sequence,
            cut,
            kept: Mutex::default(),
        })
    }

    pub(super) fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    /// Batches of an epoch, the same in every one.
    pub(super) fn steps(&self) -> u64 {
        match &self.cut {
            Cut::Places(cuts) => cuts.steps(),
            Cut::AsPlanned => self.plan().steps(),
        }
    }

    /// The most draws of a batch, or a few more.
    pub(super) fn largest_batch(&self) -> u64 {
        match &self.cut {
            Cut::Places(cuts) => cuts.longest(),
            Cut::AsPlanned => self.plan().largest_step(),
        }
    }

    /// Puts the draws of a step into `out`. Asserts that the epoch has it.
    pub(super) fn fill(&self, epoch: u64, step: u64, out: &mut StreamBatch) {
        let places = self.places(epoch, step);
        self.sequence.fill(epoch, places, &mut out.draws);
        self.end_before_left_out(epoch, &mut out.draws);
    }

    pub(super) fn fingerprint(&self) -> u64 {
        match (self.sequence.source(), &self.cut) {
            (Source::Mixture(mixture), Cut::Places(cuts)) => {
                mix(mixture.fingerprint() ^ mix(cuts.longest() ^ cuts.steps().rotate_left(32)))
            }
            (source, _) => source.fingerprint(),
        }
    }

    fn places(&self, epoch: u64, step: u64) -> Range<u64> {
        if let Cut::Places(cuts) = &self.cut {
            return cuts.range(step);
        }
        let plan = self.plan();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let start = match kept.next {
            (known, next, start) if (known, next) == (epoch, step) => start,
            _ => plan.step_positions(epoch, step).start,
        };
        let end = start + plan.step_len(epoch, step);
        kept.next = (epoch, step + 1, end);
        start..end
    }

    /// Marks those draws as last whose later appearances are in no batch.
    fn end_before_left_out(&self, epoch: u64, draws: &mut [Draw]) {
        let Cut::Places(cuts) = &self.cut else {
            return;
        };
        let used = cuts.end();
        if self.sequence.echo().echo().is_none() || used == self.sequence.appearances() {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept
            .left_out
            .as_ref()
            .is_none_or(|left_out| left_out.0 != epoch)
        {
            kept.left_out = Some((epoch, self.left_out(epoch, used)));
        }
        let left_out = kept
            .left_out
            .as_ref()
            .map_or(&[][..], |left_out| &left_out.1);
        for draw in draws {
            let found = left_out.binary_search_by_key(&draw.position, |left_out| left_out.position);
            draw.last |= found.is_ok_and(|found| draw.copy + 1 == left_out[found].copy);
        }
    }

    fn left_out(&self, epoch: u64, from: u64) -> Vec<LeftOut> {
        let mut draws = Vec::new();
        let places = from..self.sequence.appearances();
        self.sequence.fill(epoch, places, &mut draws);
        let left_out = draws.iter().map(|draw| LeftOut {
            position: draw.position,
            copy: draw.copy,
        });
        let mut left_out: Vec<LeftOut> = left_out.collect();
        left_out.sort_unstable();
        left_out.dedup_by_key(|left_out| left_out.position);
        left_out
    }

    fn plan(&self) -> &Plan {
        match self.sequence.source() {
            Source::Plan(plan) => plan,
            Source::Mixture(_) => unreachable!("a mixture is cut by places"),
        }
    }
}
