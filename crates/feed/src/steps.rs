//! The records that a rank reads at each step, and the examples that it holds for repeats.
//!
//! The plan is walked ahead of the consumer: it compares this rank's draws of each step with the examples held by
//! then, so a repeat is read again only if its example was never read here: after a run was resumed within a window,
//! or if equal shares leave a repeat to another rank.

use std::collections::HashSet;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use pelton_plan::{Draw, Hint, Place, Plan, Spread, StepBatch, Walk, assign_slots, share_of};

use pelton_fetch::{Holder, Step, Steps};

/// The source of a draw's sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Read now, as the `read`-th of the step's ids, and held afterwards if `keep`.
    Read { read: u32, keep: bool },
    /// Held since an earlier step.
    Held,
}

/// The work of one step on this rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlannedStep {
    pub place: Place,
    pub ends_epoch: bool,
    pub global_examples: u64,
    pub bucket: Option<u32>,
    pub padded_length: Option<u32>,
    /// Pairs: that of their second sides.
    pub second_length: Option<u32>,
    /// This rank's draws in order, each with its origin.
    pub draws: Vec<(Draw, Origin)>,
    /// Packing: the elements of each draw's sample that are packed.
    pub pieces: Vec<std::ops::Range<usize>>,
    /// Packing: how many draws each of this rank's rows holds.
    pub row_draws: Vec<u32>,
    /// Ids that are read for it.
    pub reads: Vec<u64>,
    /// Positions of samples to drop after this step.
    pub drops: Vec<u64>,
    /// Batch echo: the fresh batch of the epoch that this is or repeats.
    pub fresh_batch: u64,
    /// Whether that batch is held and emitted again unchanged.
    pub is_repeat: bool,
    /// Whether the batch is held after this step.
    pub keep_batch: bool,
    /// How often the batch came out before.
    pub batch_copy: u32,
    /// Positions of the epoch's order before this were drawn by now.
    pub drawn: u64,
}

/// Walks a plan and gives the feed the records to read.
pub(crate) struct StepPlanner {
    walk: Walk,
    echoes_batches: bool,
    rank: u32,
    world_size: u32,
    end_epoch: u64,
    /// Which of the steps are made, as [`LoaderOptions::part`](crate::LoaderOptions::part).
    part: (u32, u32),
    /// Steps walked since a hint was taken.
    unhinted: u64,
    hints: Hints,
    held: HashSet<u64>,
    held_batches: HashSet<u64>,
    batch: StepBatch,
    mine: Vec<u32>,
    /// Which rank holds a record, if ranks take those that they hold.
    near: Option<Holder>,
    drawn: u64,
}

/// The hints of the walk, each with its `Place`, in order. The consumer is at the first of them or between the first
/// two.
pub(crate) type Hints = Arc<Mutex<VecDeque<(Place, Hint)>>>;

/// Drops hints that a consumer at this position no longer needs.
pub(crate) fn forget_before(hints: &Hints, at: Place) {
    let mut hints = hints.lock().unwrap_or_else(PoisonError::into_inner);
    while hints.get(1).is_some_and(|(next, _)| *next <= at) {
        hints.pop_front();
    }
}

/// The hint for a `Place`: the first one, if it is of the same epoch and not after it. Expects earlier ones to be
/// forgotten.
pub(crate) fn hint_at(hints: &Hints, at: Place) -> Option<Hint> {
    let hints = hints.lock().unwrap_or_else(PoisonError::into_inner);
    let (taken, hint) = hints.front()?;
    (taken.epoch == at.epoch && *taken <= at).then(|| hint.clone())
}

/// Steps from one hint to the next.
const HINT_STEPS: u64 = 64;

/// Steps that were planned and are not yet begun.
pub(crate) type Queue = Arc<Mutex<VecDeque<PlannedStep>>>;

/// The reads of a planner's steps; each step is queued when planned.
pub(crate) struct QueuedSteps {
    pub planner: StepPlanner,
    pub queue: Queue,
    /// Most ids of a step.
    pub most: u64,
    /// Their distribution over the files.
    pub spread: Spread,
}

impl Steps for QueuedSteps {
    fn next(&mut self, ids: &mut Vec<u64>) -> Option<Step> {
        let step = self.planner.next_step()?;
        ids.extend_from_slice(&step.reads);
        let next = Step {
            place: step.place,
            ends_epoch: step.ends_epoch,
            ends_load: false,
        };
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(step);
        Some(next)
    }

    fn most(&self) -> u64 {
        self.most
    }

    fn spread(&self) -> Spread {
        self.spread
    }
}

impl StepPlanner {
    pub fn new(
        stream: &Plan,
        (rank, world_size): (u32, u32),
        next: Place,
        hint: Option<&Hint>,
        end_epoch: Option<u64>,
    ) -> StepPlanner {
        StepPlanner {
            walk: stream.walk(next, hint),
            echoes_batches: !stream.batch_echo().is_none(),
            rank,
            world_size,
            end_epoch: end_epoch.unwrap_or(u64::MAX),
            part: (0, 1),
            unhinted: HINT_STEPS,
            hints: Hints::default(),
            held: HashSet::new(),
            held_batches: HashSet::new(),
            batch: StepBatch::default(),
            mine: Vec::new(),
            near: None,
            drawn: 0,
        }
    }

    /// Makes this rank take the examples that it holds from each batch, as far as equal shares allow.
    pub fn near(self, holder: Option<Holder>) -> StepPlanner {
        StepPlanner {
            near: holder,
            ..self
        }
    }

    /// Makes only a part of the steps.
    pub fn of_part(self, part: (u32, u32)) -> StepPlanner {
        StepPlanner { part, ..self }
    }

    /// The hints that it takes.
    pub fn hints(&self) -> Hints {
        Arc::clone(&self.hints)
    }

    /// The next step; `None` after the last epoch, and if epochs have no steps.
    pub fn next_step(&mut self) -> Option<PlannedStep> {
        let (part, parts) = self.part;
        let place = loop {
            let place = self.walk.place();
            if place.epoch >= self.end_epoch {
                return None;
            }
            if place.step == 0 {
                self.held.clear();
                self.held_batches.clear();
                self.drawn = 0;
            }
            self.take_hint(place);
            if !self.walk.next(&mut self.batch) {
                return None;
            }
            if place.step % u64::from(parts) == u64::from(part) {
                break place;
            }
        };
        let newest = self.batch.positions.iter().max();
        self.drawn = self.drawn.max(newest.map_or(0, |newest| newest + 1));
        let mut step = PlannedStep {
            drawn: self.drawn,
            place,
            ends_epoch: self.batch.ends_epoch,
            global_examples: self.batch.len() as u64,
            bucket: self.batch.bucket,
            padded_length: self.batch.padded_length,
            second_length: self.batch.second_length,
            ..PlannedStep::default()
        };
        self.take_share(place.epoch);
        self.hold_batch(&mut step);
        self.take_draws(&mut step);
        Some(step)
    }

    /// The draws, or packed rows, that are this rank's. Those that appear more than once have a rank by themselves.
    fn take_share(&mut self, epoch: u64) {
        let batch = &self.batch;
        let once =
            batch.copies.iter().all(|&copy| copy == 0) && batch.lasts.iter().all(|&last| last);
        match &self.near {
            Some(holder) if once && batch.row_draws.is_empty() => {
                let holders: Vec<u32> = batch.ids.iter().map(|&id| holder(epoch, id)).collect();
                let takers = assign_slots(&holders, self.world_size);
                let mine = (0..).zip(takers).filter(|(_, taker)| *taker == self.rank);
                self.mine.clear();
                self.mine.extend(mine.map(|(slot, _)| slot));
            }
            _ => share_of(batch, self.rank, self.world_size, &mut self.mine),
        }
    }

    /// Takes a hint every few steps, if the plan has any.
    fn take_hint(&mut self, place: Place) {
        self.unhinted += 1;
        if self.unhinted > HINT_STEPS
            && let Some(hint) = self.walk.hint()
        {
            self.unhinted = 1;
            let mut hints = self.hints.lock().unwrap_or_else(PoisonError::into_inner);
            hints.push_back((place, hint));
        }
    }

    fn hold_batch(&mut self, step: &mut PlannedStep) {
        let number = self.batch.fresh_batch;
        step.fresh_batch = number;
        step.batch_copy = self.batch.batch_copy;
        step.is_repeat = self.held_batches.contains(&number);
        step.keep_batch = !self.batch.last;
        if self.batch.last {
            self.held_batches.remove(&number);
        } else {
            self.held_batches.insert(number);
        }
    }

    fn take_draws(&mut self, step: &mut PlannedStep) {
        let packed = !self.batch.row_draws.is_empty();
        if packed {
            let mut starts = Vec::with_capacity(self.batch.row_draws.len());
            let mut start = 0;
            for &draws in &self.batch.row_draws {
                starts.push(start);
                start += draws;
            }
            for row in std::mem::take(&mut self.mine) {
                let (start, draws) = (starts[row as usize], self.batch.row_draws[row as usize]);
                step.row_draws.push(draws);
                for i in start..start + draws {
                    self.take(i, step);
                }
            }
        } else {
            for i in 0..self.mine.len() {
                self.take(self.mine[i], step);
            }
        }
        if self.held.is_empty() {
            return;
        }
        // A rank may hold what another one uses last.
        for draw in self.batch.draws().filter(|draw| draw.last) {
            if self.held.remove(&draw.position) {
                step.drops.push(draw.position);
            }
        }
    }

    fn take(&mut self, index: u32, step: &mut PlannedStep) {
        let draw = self.batch.draw(index as usize);
        if let Some(piece) = self.batch.pieces.get(index as usize) {
            let start = piece.start as usize;
            step.pieces.push(start..start + piece.length as usize);
        }
        if step.is_repeat {
            return;
        }
        let origin = if self.held.contains(&draw.position) {
            Origin::Held
        } else {
            let home = draw.position % u64::from(self.world_size) == u64::from(self.rank);
            // Repeated batches are held themselves.
            let keep = !draw.last && !self.echoes_batches && home;
            if keep {
                self.held.insert(draw.position);
            }
            step.reads.push(draw.id);
            Origin::Read {
                read: step.reads.len() as u32 - 1,
                keep,
            }
        };
        step.draws.push((draw, origin));
    }
}
