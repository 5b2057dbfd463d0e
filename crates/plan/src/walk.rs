//! One step after another, from any `Place`.

use std::ops::Range;
use std::sync::Arc;

use crate::bucketed::BucketedWalk;
use crate::echo::{EchoPlan, Echoes};
use crate::hint::{Hint, Standing};
use crate::packed::PackedWalk;
use crate::plan_parts::{Groups, PlanParts};
use crate::runs::RunsWalk;
use crate::step_batch::StepBatch;

/// A position in the endless sequence of steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Step within the epoch, from 0.
    pub step: u64,
}

/// The steps of a plan from a `Place` on, through all epochs.
#[derive(Debug)]
pub struct Walk {
    plan: Arc<PlanParts>,
    next: Place,
    /// `None` at the start of an epoch.
    of_epoch: Option<EpochWalk>,
}

/// The steps of one epoch.
#[derive(Debug)]
struct EpochWalk {
    fresh: FreshWalk,
    echoed: Option<Echoed>,
}

/// Repeated batches.
#[derive(Debug)]
struct Echoed {
    plan: EchoPlan,
    batches: Echoes<StepBatch>,
    /// The position of fresh batches before each of the two windows held.
    stood: [Option<Standing>; 2],
}

/// The batches of an epoch before they are echoed.
#[derive(Debug)]
enum FreshWalk {
    Runs(RunsWalk),
    Bucketed(BucketedWalk),
    Packed(PackedWalk),
}

impl Walk {
    pub(crate) fn new(plan: Arc<PlanParts>, place: Place, hint: Option<&Hint>) -> Walk {
        let mut walk = Walk {
            plan,
            next: place,
            of_epoch: None,
        };
        if place.step > 0 {
            let standing = hint.and_then(|hint| hint.standing(walk.plan.fingerprint, place.epoch));
            walk.of_epoch = EpochWalk::new(&walk.plan, place, standing.as_ref());
            if walk.of_epoch.is_none() {
                walk.next = after(place.epoch);
            }
        }
        walk
    }

    /// The next step; after the last step of an epoch, the first of the next epoch.
    pub fn place(&self) -> Place {
        self.next
    }

    /// Replaces `batch` by the next step; false if epochs have no steps.
    ///
    /// Cost: the ids taken from the order, and for the first step of an epoch the cost of entering it.
    pub fn next(&mut self, batch: &mut StepBatch) -> bool {
        let plan = &*self.plan;
        if self.of_epoch.is_none() {
            self.of_epoch = EpochWalk::new(plan, self.next, None);
        }
        let Some(of_epoch) = &mut self.of_epoch else {
            return false;
        };
        of_epoch.next(plan, self.next, batch);
        plan.numbering.to_records(&mut batch.ids);
        (batch.epoch, batch.step) = (self.next.epoch, self.next.step);
        self.next.step += 1;
        if batch.ends_epoch {
            self.of_epoch = None;
            self.next = after(self.next.epoch);
        }
        true
    }

    /// A hint by which another walk of this plan gets to [`place`](Self::place), or to any later step of its epoch, in
    /// little time; `None` if a hint is not needed or possible.
    pub fn hint(&self) -> Option<Hint> {
        let plan = &*self.plan;
        let of_epoch = self.of_epoch.as_ref();
        let of_epoch = of_epoch.filter(|_| plan.sequence.examples.ids.is_sought())?;
        let standing = match &of_epoch.echoed {
            Some(echoed) => echoed.stood[0].clone(),
            None => of_epoch.fresh.standing(plan),
        };
        Hint::new(plan.fingerprint, self.next.epoch, &standing?)
    }
}

fn after(epoch: u64) -> Place {
    Place {
        epoch: epoch.wrapping_add(1),
        step: 0,
    }
}

impl EpochWalk {
    /// `None` if the epoch ends before the step.
    fn new(plan: &PlanParts, place: Place, hint: Option<&Standing>) -> Option<EpochWalk> {
        if plan.batch_echo.is_none() {
            let fresh = FreshWalk::new(plan, place, hint)?;
            let echoed = None;
            return Some(EpochWalk { fresh, echoed });
        }
        let echo = plan.batch_echo_of(place.epoch);
        if place.step >= echo.appearances() {
            return None;
        }
        let step = Echoes::<StepBatch>::first_made(&echo, place.step);
        let mut fresh = FreshWalk::new(plan, Place { step, ..place }, hint)?;
        let mut stood = [None, None];
        let mut make = |batches: Range<u64>, into: &mut Vec<StepBatch>| {
            fresh.make(plan, batches, into, &mut stood);
        };
        let batches = Echoes::at(&echo, place.epoch, place.step, &mut make);
        Some(EpochWalk {
            fresh,
            echoed: Some(Echoed {
                plan: echo,
                batches,
                stood,
            }),
        })
    }

    /// The batch of a step. Asserts that the epoch has it.
    fn next(&mut self, plan: &PlanParts, place: Place, batch: &mut StepBatch) {
        let Some(Echoed {
            plan: echo,
            batches,
            stood,
        }) = &mut self.echoed
        else {
            batch.clear();
            let found = self.fresh.next(plan, batch);
            assert!(found, "the epoch has a step {}", place.step);
            (batch.fresh_batch, batch.batch_copy, batch.last) = (place.step, 0, true);
            batch.ends_epoch = !self.fresh.has_more(plan);
            return;
        };
        let fresh = &mut self.fresh;
        let mut make = |batches: Range<u64>, into: &mut Vec<StepBatch>| {
            fresh.make(plan, batches, into, stood);
        };
        let (echoed, made) = batches.next(echo, place.epoch, &mut make);
        batch.copy_from(made);
        (batch.fresh_batch, batch.batch_copy) = (echoed.position, echoed.copy);
        batch.last = echoed.copy + 1 == echo.times_of(echoed.position);
        batch.ends_epoch = place.step + 1 == echo.appearances();
        // Examples appear once if batches are echoed.
        batch
            .copies
            .iter_mut()
            .for_each(|copy| *copy += echoed.copy);
        let last = batch.last;
        batch.lasts.iter_mut().for_each(|of_draw| *of_draw &= last);
    }
}

impl FreshWalk {
    /// `None` if the epoch ends before the step.
    fn new(plan: &PlanParts, place: Place, hint: Option<&Standing>) -> Option<FreshWalk> {
        let (sequence, Place { epoch, step }) = (&plan.sequence, place);
        let hint = hint.filter(|hint| hint.step <= step);
        Some(match &plan.groups {
            Groups::Runs(runs) => FreshWalk::Runs(runs.walk(sequence, epoch, step)?),
            Groups::Bucketed(bucketed) => {
                FreshWalk::Bucketed(bucketed.walk(sequence, epoch, step, hint)?)
            }
            Groups::Packed(packed) => FreshWalk::Packed(packed.walk(sequence, epoch, step, hint)?),
        })
    }

    /// Adds the next batch to an empty one; false after the last.
    fn next(&mut self, plan: &PlanParts, out: &mut StepBatch) -> bool {
        let sequence = &plan.sequence;
        match (self, &plan.groups) {
            (FreshWalk::Runs(walk), Groups::Runs(runs)) => walk.next(runs, sequence, out),
            (FreshWalk::Bucketed(walk), Groups::Bucketed(of)) => walk.next(of, sequence, out),
            (FreshWalk::Packed(walk), Groups::Packed(of)) => walk.next(of, sequence, out),
            _ => false,
        }
    }

    fn has_more(&self, plan: &PlanParts) -> bool {
        match (self, &plan.groups) {
            (FreshWalk::Runs(walk), Groups::Runs(runs)) => walk.has_more(runs),
            (FreshWalk::Bucketed(walk), _) => walk.has_more(&plan.sequence),
            (FreshWalk::Packed(walk), _) => walk.has_more(&plan.sequence),
            _ => false,
        }
    }

    fn standing(&self, plan: &PlanParts) -> Option<Standing> {
        match (self, &plan.groups) {
            (FreshWalk::Bucketed(walk), _) => Some(walk.standing()),
            (FreshWalk::Packed(walk), _) => walk.standing(),
            _ => None,
        }
    }

    /// Makes the batches of a window, which come next.
    fn make(
        &mut self,
        plan: &PlanParts,
        batches: Range<u64>,
        into: &mut Vec<StepBatch>,
        stood: &mut [Option<Standing>; 2],
    ) {
        stood.swap(0, 1);
        stood[1] = self.standing(plan);
        for _ in batches {
            let mut batch = StepBatch::default();
            self.next(plan, &mut batch);
            into.push(batch);
        }
    }
}
