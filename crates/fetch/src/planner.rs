//! Turns steps into panes: the ids of the next batches, decided on the consumer's thread at fixed points of its
//! sequence of calls, so that a filter that depends on the consumer's progress sees the same state in every run.

use pelton_format::ContentSum;
use pelton_plan::Place;

use crate::kept_bitmap::KeptBitmap;
use crate::options::FetchOptions;
use crate::share::Share;
use crate::steps::Steps;

/// One batch of a pane.
#[derive(Clone, Debug)]
pub(crate) struct PlannedBatch {
    pub place: Place,
    /// Whether it is the last of its epoch.
    pub ends_epoch: bool,
    /// Rows of the pane before this batch.
    pub start: usize,
    /// Rows of this batch.
    pub len: usize,
    /// Checksum of its rows, if requested.
    pub content: ContentSum,
}

/// The batches of one pane with the ids of all their records in order.
#[derive(Debug, Default)]
pub(crate) struct PlannedPane {
    /// Steps of one epoch, in order.
    pub batches: Vec<PlannedBatch>,
    pub ids: Vec<u64>,
    /// Records of its steps that are this feed's, declined or not.
    pub own: u64,
    /// Whether to compute checksums of rows.
    pub sums: bool,
    /// Which records of its steps were kept, if some were declined or belong to other ranks, for a planner
    /// that tracks them.
    pub kept: Option<KeptBitmap>,
}

/// Whether a consumer wants a record: (batches since the feed began, id).
pub(crate) type Keep<'a, 'f> = &'a mut (dyn FnMut(u64, u64) -> bool + 'f);

pub(crate) struct Planner {
    steps: Box<dyn Steps>,
    share: Option<Share>,
    batches_per_pane: u64,
    /// Most batches of the next pane.
    next_pane: u64,
    batches_planned: u64,
    at_epoch_start: bool,
    /// Whether panes say which records of their steps were kept, and end at multiples of their length.
    tracks: bool,
    sums: bool,
}

impl Planner {
    pub fn new(
        steps: Box<dyn Steps>,
        options: &FetchOptions,
        batches_per_pane: u64,
        tracks: bool,
    ) -> Planner {
        Planner {
            steps,
            share: options.share.clone(),
            batches_per_pane,
            next_pane: batches_per_pane,
            batches_planned: 0,
            at_epoch_start: true,
            tracks,
            sums: options.sums,
        }
    }

    /// Makes the first pane one of `batches`, and each further one twice as long until they are as long as
    /// planned: a batch is available once its pane is complete.
    pub fn begin_with(&mut self, batches: u64) {
        self.next_pane = batches.clamp(1, self.batches_per_pane);
    }

    /// The next pane is one of at most `batches`, those after it are as long as planned.
    pub fn plan_short_pane(
        &mut self,
        batches: u64,
        keep: Option<Keep<'_, '_>>,
    ) -> Option<PlannedPane> {
        self.begin_with(batches);
        let pane = self.plan_pane(keep);
        self.next_pane = self.batches_per_pane;
        pane
    }

    /// Whether the next batch is the first of its epoch.
    pub fn at_epoch_start(&self) -> bool {
        self.at_epoch_start
    }

    /// The next pane: up to `batches_per_pane` batches of one epoch from which `keep` has declined some records.
    /// `None` at the end.
    pub fn plan_pane(&mut self, mut keep: Option<Keep<'_, '_>>) -> Option<PlannedPane> {
        let most = self.next_pane;
        self.next_pane = most.saturating_mul(2).min(self.batches_per_pane);
        let mut pane = PlannedPane {
            sums: self.sums,
            ..PlannedPane::default()
        };
        let mut kept = self.tracks.then(KeptBitmap::default);
        loop {
            let start = pane.ids.len();
            let Some(step) = self.steps.next(&mut pane.ids) else {
                break;
            };
            self.filter(&mut pane, start, kept.as_mut(), keep.as_deref_mut());
            self.batches_planned += 1;
            self.at_epoch_start = step.ends_epoch;
            pane.batches.push(PlannedBatch {
                place: step.place,
                ends_epoch: step.ends_epoch,
                start,
                len: pane.ids.len() - start,
                content: ContentSum::default(),
            });
            // Buckets that were filled by position match panes that end at multiples of their length.
            let ends_bucket =
                self.tracks && (step.place.step + 1).is_multiple_of(self.batches_per_pane);
            let is_full = pane.batches.len() as u64 >= most;
            if step.ends_epoch || step.ends_load || ends_bucket || is_full {
                break;
            }
        }
        if self.share.is_some() {
            // Global batches are longer than the rank's part.
            pane.ids.shrink_to_fit();
        }
        pane.kept = kept.filter(|kept| !kept.all());
        (!pane.batches.is_empty()).then_some(pane)
    }

    /// Keeps, of the ids from `start` on, those that are this feed's and wanted.
    fn filter(
        &self,
        pane: &mut PlannedPane,
        start: usize,
        mut kept: Option<&mut KeptBitmap>,
        mut keep: Option<Keep<'_, '_>>,
    ) {
        if self.share.is_none() && kept.is_none() && keep.is_none() {
            return;
        }
        let number = self.batches_planned;
        let mut end = start;
        for at in start..pane.ids.len() {
            let id = pane.ids[at];
            let mine = self.share.as_ref().is_none_or(|share| share.may_take(id));
            pane.own += u64::from(mine);
            let keeps = mine && keep.as_mut().is_none_or(|keep| keep(number, id));
            if let Some(kept) = &mut kept {
                kept.push(keeps);
            }
            if keeps {
                pane.ids[end] = id;
                end += 1;
            }
        }
        pane.ids.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use pelton_plan::{Catalog, Order, Plan, PlanSpec, Spread};

    use crate::steps::{PlanSteps, Step};

    fn planner(batches_per_pane: u64) -> Planner {
        let spec = PlanSpec::new(Order::Full, 200, 3);
        let plan = Plan::new(&spec, Catalog::new(20_000)).unwrap();
        let options = FetchOptions::with_memory(1 << 20);
        let steps = Box::new(PlanSteps::new(Arc::new(plan), &options));
        Planner::new(steps, &options, batches_per_pane, true)
    }

    fn lengths(panes: &[PlannedPane]) -> Vec<usize> {
        panes.iter().map(|pane| pane.batches.len()).collect()
    }

    #[test]
    fn the_panes_of_named_steps_grow_to_their_size() {
        struct Hundred(std::ops::Range<u64>);
        impl Steps for Hundred {
            fn next(&mut self, ids: &mut Vec<u64>) -> Option<Step> {
                let step = self.0.next()?;
                ids.extend([step; 200]);
                Some(Step {
                    place: Place { epoch: 0, step },
                    ends_epoch: step == 99,
                    ends_load: false,
                })
            }

            fn most(&self) -> u64 {
                200
            }

            fn spread(&self) -> Spread {
                Spread::Everywhere
            }
        }
        let steps = Box::new(Hundred(0..100));
        let mut planner = Planner::new(steps, &FetchOptions::with_memory(1 << 20), 16, false);
        planner.begin_with(2);
        let panes = std::iter::from_fn(|| planner.plan_pane(None));
        let panes: Vec<PlannedPane> = panes.collect();
        assert_eq!(lengths(&panes), [2, 4, 8, 16, 16, 16, 16, 16, 6]);
        let listed = panes.iter().flat_map(|pane| &pane.batches);
        assert!(listed.map(|batch| batch.place.step).eq(0..100));
        assert_eq!(panes[1].ids[200..202], [3, 3]);
    }

    #[test]
    fn panes_that_begin_short_hold_the_same_batches() {
        let ids = |panes: &[PlannedPane]| -> Vec<u64> {
            panes.iter().flat_map(|pane| pane.ids.clone()).collect()
        };
        let planned = |planner: &mut Planner, count: usize| -> Vec<PlannedPane> {
            let panes = std::iter::from_fn(|| planner.plan_pane(None));
            panes.take(count).collect()
        };
        let whole = planned(&mut planner(40), 3);
        assert_eq!(lengths(&whole), [40, 40, 20]);

        let mut growing = planner(40);
        growing.begin_with(3);
        let panes = planned(&mut growing, 6);
        // The third ends at the end of one of 40.
        assert_eq!(lengths(&panes), [3, 6, 12, 19, 40, 20]);
        assert_eq!(ids(&panes), ids(&whole));

        let mut alone = planner(40);
        let mut panes = vec![alone.plan_short_pane(3, None).unwrap()];
        panes.extend(planned(&mut alone, 3));
        assert_eq!(lengths(&panes), [3, 37, 40, 20]);
        assert_eq!(ids(&panes), ids(&whole));
        assert_eq!(panes[1].batches[0].place.step, 3);
    }
}
