//! Turns an epoch plan into panes: the ids of the next batches, decided on the consumer's thread at
//! fixed points of its sequence of calls, so that a filter that depends on what the consumer has
//! learnt sees the same state in every run.

use std::ops::Range;
use std::sync::Arc;

use pelton_plan::{EpochOrder, Place, Plan, StepBatch, Walk};

use crate::cursor::Cursor;
use crate::demand::Spread;
use crate::kept::Kept;
use crate::options::FetchOptions;
use crate::share::Share;

/// One batch of a pane.
#[derive(Clone, Debug)]
pub(crate) struct PlannedBatch {
    pub epoch: u64,
    /// Batches before this one in its epoch.
    pub step: u64,
    /// Rows of the pane before this batch.
    pub start: usize,
    /// Rows of this batch.
    pub len: usize,
    /// Where the batch after this one starts.
    pub end: Cursor,
}

/// The batches of one pane with the ids of all their records in order.
#[derive(Debug, Default)]
pub(crate) struct PlannedPane {
    pub batches: Vec<PlannedBatch>,
    pub ids: Vec<u64>,
    /// The positions that the pane was drawn from, for a planner that tracks them.
    pub covered: Range<u64>,
    /// Records there that are this feed's, declined or not.
    pub own: u64,
    /// Which of the positions were kept, where some were declined or are other ranks'.
    pub kept: Option<Kept>,
}

/// Steps that somebody names one by one, for instance of a pipeline.
pub trait Steps: Send {
    /// Appends the ids that the next step reads and says which step it is; `None` after the last.
    fn next(&mut self, ids: &mut Vec<u64>) -> Option<Cursor>;

    /// Most ids of a step.
    fn most(&self) -> u64;

    /// How the records of a step lie.
    fn spread(&self) -> Spread;
}

/// What a planner follows.
pub(crate) enum Followed {
    /// The steps of a plan.
    Plan(Arc<Plan>),
    /// Steps that are named one by one.
    Steps(Box<dyn Steps>),
}

pub(crate) struct Planner {
    followed: Followed,
    /// Where the plan was walked to, the step that came last, and the order of the epoch, where it has an inverse.
    walk: Option<Walk>,
    batch: StepBatch,
    order: Option<EpochOrder>,
    cursor: Cursor,
    end_epoch: u64,
    share: Option<Share>,
    batches_per_pane: u64,
    /// Most batches of the next pane.
    next_pane: u64,
    batches_planned: u64,
    /// Whether panes say which positions they cover.
    tracks: bool,
}

impl Planner {
    pub fn new(
        followed: Followed,
        options: &FetchOptions,
        batches_per_pane: u64,
        tracks: bool,
    ) -> Planner {
        Planner {
            followed,
            walk: None,
            batch: StepBatch::default(),
            order: None,
            cursor: options.start,
            end_epoch: options.end_epoch.unwrap_or(u64::MAX),
            share: options.share.clone(),
            batches_per_pane,
            next_pane: batches_per_pane,
            batches_planned: 0,
            tracks,
        }
    }

    fn plan(&self) -> Option<&Arc<Plan>> {
        match &self.followed {
            Followed::Plan(plan) => Some(plan),
            Followed::Steps(_) => None,
        }
    }

    /// Makes the first pane one of `batches`, and each further one twice as long until they are as long as
    /// planned: nobody gets a batch before the pane is complete that it is in.
    pub fn begin_with(&mut self, batches: u64) {
        self.next_pane = batches.clamp(1, self.batches_per_pane);
    }

    /// The next pane is one of at most `batches`, those after it are as long as planned.
    pub fn plan_short_pane(
        &mut self,
        batches: u64,
        keep: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Option<PlannedPane> {
        self.begin_with(batches);
        let pane = self.plan_pane(keep);
        self.next_pane = self.batches_per_pane;
        pane
    }

    /// Epoch of the next batch, or `None` when there is none.
    pub fn next_epoch(&self) -> Option<u64> {
        let mut epoch = self.cursor.epoch;
        if self.cursor.next >= self.epoch_end() {
            epoch += 1;
        }
        let some = self.plan().is_none_or(|plan| plan.records() > 0);
        (epoch < self.end_epoch && some).then_some(epoch)
    }

    /// Whether the next batch is the first of its epoch.
    pub fn at_epoch_start(&self) -> bool {
        self.cursor.next == 0 || self.cursor.next >= self.epoch_end()
    }

    /// Whether a batch that ends at `end` is the last of its epoch.
    pub fn ends_epoch(&self, end: Cursor) -> bool {
        end.next >= self.epoch_end()
    }

    fn epoch_end(&self) -> u64 {
        // Whoever names steps knows where epochs end.
        self.plan()
            .map_or(u64::MAX, |plan| plan.steps(self.cursor.epoch))
    }

    /// The next pane: up to `batches_per_pane` batches of one epoch from which `keep`
    /// (batch number since the feed began, id) has declined some records. `None` at the end.
    pub fn plan_pane(&mut self, keep: &mut dyn FnMut(u64, u64) -> bool) -> Option<PlannedPane> {
        let most = self.next_pane;
        self.next_pane = most.saturating_mul(2).min(self.batches_per_pane);
        if let Followed::Steps(steps) = &mut self.followed {
            return named_pane(&mut **steps, most);
        }
        let epoch = self.next_epoch()?;
        if epoch != self.cursor.epoch {
            self.cursor = Cursor { epoch, next: 0 };
        }
        let mut pane = PlannedPane::default();
        let mut kept = self.tracks.then(Kept::default);
        let from = self.cursor.next;
        let share = self.share.clone();
        let mut own = 0;
        // Panes end at multiples of their length whatever the start, so that buckets filled by
        // position match them.
        while (pane.batches.is_empty() || !self.ends_pane(pane.batches.len() as u64, most))
            && self.cursor.next < self.epoch_end()
        {
            let start = pane.ids.len();
            let number = self.batches_planned;
            let mut keep = |id| {
                let mine = share.as_ref().is_none_or(|share| share.may_take(id));
                own += u64::from(mine);
                let keep = mine && keep(number, id);
                if let Some(kept) = &mut kept {
                    kept.push(keep);
                }
                keep
            };
            self.take_step(&mut pane.ids, &mut keep);
            self.batches_planned += 1;
            pane.batches.push(PlannedBatch {
                epoch,
                step: self.cursor.next - 1,
                start,
                len: pane.ids.len() - start,
                end: self.cursor,
            });
        }
        if self.share.is_some() {
            // Global batches are longer than what is left of them.
            pane.ids.shrink_to_fit();
        }
        pane.own = own;
        if self.tracks {
            pane.covered = self.positions(epoch, from..self.cursor.next);
            pane.kept = kept.filter(|kept| !kept.all());
        }
        Some(pane)
    }

    /// Whether a pane of so many batches ends before the next step: where it has `most`, and at the end of a
    /// load, since what is read for one load serves no other.
    fn ends_pane(&mut self, batches: u64, most: u64) -> bool {
        if batches >= most {
            return true;
        }
        let (epoch, next) = (self.cursor.epoch, self.cursor.next);
        let Some(loads) = self.plan().and_then(|plan| plan.loads()) else {
            return next.is_multiple_of(self.batches_per_pane);
        };
        if next >= self.epoch_end() {
            return true;
        }
        let order = self.order(epoch);
        let before = order.and_then(|order| Some((order, order.step_positions(next - 1)?)));
        let Some((order, before)) = before else {
            return true;
        };
        let end_of = |load| {
            order
                .load_positions(load)
                .map_or(0, |positions| positions.end)
        };
        let (mut low, mut high) = (0, loads);
        while low < high {
            let middle = low + (high - low) / 2;
            if end_of(middle) <= before.start {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low < loads && end_of(low) <= before.end
    }

    /// The positions between two places of the cursor.
    fn positions(&mut self, epoch: u64, cursor: Range<u64>) -> Range<u64> {
        let order = self.order(epoch);
        let of_step = |step| order.and_then(|order| order.step_positions(step));
        let start = of_step(cursor.start).map_or(0, |positions| positions.start);
        start..of_step(cursor.end - 1).map_or(start, |positions| positions.end)
    }

    /// The order of an epoch, where it has an inverse.
    fn order(&mut self, epoch: u64) -> Option<&EpochOrder> {
        if self
            .order
            .as_ref()
            .is_none_or(|order| order.epoch() != epoch)
        {
            self.order = self.plan().and_then(|plan| plan.epoch_order(epoch));
        }
        self.order.as_ref()
    }

    fn take_step(&mut self, ids: &mut Vec<u64>, keep: &mut impl FnMut(u64) -> bool) {
        let start = ids.len();
        let place = Place {
            epoch: self.cursor.epoch,
            step: self.cursor.next,
        };
        let walk = match self.walk.take().filter(|walk| walk.place() == place) {
            Some(walk) => walk,
            None => match &self.followed {
                Followed::Plan(plan) => plan.walk(place, None),
                Followed::Steps(_) => unreachable!("named steps are taken in panes"),
            },
        };
        self.walk.insert(walk).next(&mut self.batch);
        ids.extend_from_slice(&self.batch.ids);
        if let Some(share) = &self.share {
            share.retain(self.cursor.epoch, ids, start);
        }
        let mut kept = start;
        for i in start..ids.len() {
            if keep(ids[i]) {
                ids[kept] = ids[i];
                kept += 1;
            }
        }
        ids.truncate(kept);
        self.cursor.next += 1;
    }
}

/// The next `batches` steps that are named.
fn named_pane(steps: &mut dyn Steps, batches: u64) -> Option<PlannedPane> {
    let mut pane = PlannedPane::default();
    while (pane.batches.len() as u64) < batches {
        let start = pane.ids.len();
        let Some(place) = steps.next(&mut pane.ids) else {
            break;
        };
        pane.batches.push(PlannedBatch {
            epoch: place.epoch,
            step: place.next,
            start,
            len: pane.ids.len() - start,
            end: Cursor {
                next: place.next + 1,
                ..place
            },
        });
    }
    pane.own = pane.ids.len() as u64;
    (!pane.batches.is_empty()).then_some(pane)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_plan::{Catalog, Order, PlanSpec};

    fn planner(batches_per_pane: u64) -> Planner {
        let spec = PlanSpec::new(Order::Full, 200, 3);
        let plan = Plan::new(&spec, Catalog::of(20_000)).unwrap();
        let options = FetchOptions::with_memory(1 << 20);
        Planner::new(
            Followed::Plan(Arc::new(plan)),
            &options,
            batches_per_pane,
            false,
        )
    }

    fn lengths(panes: &[PlannedPane]) -> Vec<usize> {
        panes.iter().map(|pane| pane.batches.len()).collect()
    }

    #[test]
    fn the_panes_of_named_steps_grow_to_their_size() {
        struct Hundred(std::ops::Range<u64>);
        impl Steps for Hundred {
            fn next(&mut self, ids: &mut Vec<u64>) -> Option<Cursor> {
                let next = self.0.next()?;
                ids.extend([next; 200]);
                Some(Cursor { epoch: 0, next })
            }

            fn most(&self) -> u64 {
                200
            }

            fn spread(&self) -> Spread {
                Spread::Everywhere
            }
        }
        let steps = Followed::Steps(Box::new(Hundred(0..100)));
        let mut planner = Planner::new(steps, &FetchOptions::with_memory(1 << 20), 16, false);
        planner.begin_with(2);
        let panes = std::iter::from_fn(|| planner.plan_pane(&mut |_, _| true));
        let panes: Vec<PlannedPane> = panes.collect();
        assert_eq!(lengths(&panes), [2, 4, 8, 16, 16, 16, 16, 16, 6]);
        let listed = panes.iter().flat_map(|pane| &pane.batches);
        assert!(listed.map(|batch| batch.step).eq(0..100));
        assert_eq!(panes[1].ids[200..202], [3, 3]);
    }

    #[test]
    fn panes_that_begin_short_hold_the_same_batches() {
        let ids = |panes: &[PlannedPane]| -> Vec<u64> {
            panes.iter().flat_map(|pane| pane.ids.clone()).collect()
        };
        let planned = |planner: &mut Planner, count: usize| -> Vec<PlannedPane> {
            let panes = std::iter::from_fn(|| planner.plan_pane(&mut |_, _| true));
            panes.take(count).collect()
        };
        let whole = planned(&mut planner(40), 3);
        assert_eq!(lengths(&whole), [40, 40, 20]);

        let mut growing = planner(40);
        growing.begin_with(3);
        let panes = planned(&mut growing, 6);
        // The third ends where one of 40 would have ended.
        assert_eq!(lengths(&panes), [3, 6, 12, 19, 40, 20]);
        assert_eq!(ids(&panes), ids(&whole));

        let mut alone = planner(40);
        let mut panes = vec![alone.plan_short_pane(3, &mut |_, _| true).unwrap()];
        panes.extend(planned(&mut alone, 3));
        assert_eq!(lengths(&panes), [3, 37, 40, 20]);
        assert_eq!(ids(&panes), ids(&whole));
        assert_eq!(panes[1].batches[0].step, 3);
    }
}
