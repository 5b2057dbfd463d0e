//! The steps that a fetch executes, and those of a plan.

use std::sync::Arc;

use pelton_plan::{EpochOrder, Place, Plan, Spread, StepBatch, Walk};

use crate::options::FetchOptions;
use crate::share::Share;

/// A sequence of steps: of a plan, of a pipeline, or of any other source.
pub trait Steps: Send {
    /// Appends the ids that the next step reads and returns the step; `None` after the last.
    fn next(&mut self, ids: &mut Vec<u64>) -> Option<Step>;

    /// Most ids of a step.
    fn most(&self) -> u64;

    /// How the records of a step are spread over the files.
    fn spread(&self) -> Spread;

    /// The plan, if every step of it is a step here: then the reads of an epoch are known before it begins, as
    /// [`Access::Scatter`](crate::Access::Scatter) needs it.
    fn plan(&self) -> Option<&Arc<Plan>> {
        None
    }
}

/// The epoch and the step in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its epoch and number.
    pub place: Place,
    /// Whether it is the last of its epoch.
    pub ends_epoch: bool,
    /// Whether reads for it and earlier steps are not needed by later ones.
    pub ends_load: bool,
}

/// Most records that a step of a plan yields, as far as known in advance: an order that reads runs of neighbours may
/// give a rank all records of a batch.
pub(crate) fn most_of_plan(plan: &Plan, options: &FetchOptions) -> u64 {
    let steps = 0..plan.steps(0).min(2);
    let longest = steps.filter_map(|step| plan.step_len(0, step)).max();
    let longest = longest.unwrap_or(0);
    match &options.share {
        None => longest,
        Some(share) if matches!(plan.spread(), Spread::Everywhere | Spread::Blocks) => {
            share.most_of(longest, plan.records())
        }
        Some(share) => longest.div_ceil(u64::from(share.world_size())),
    }
}

/// The steps of a plan, or one rank's share of each.
pub(crate) struct PlanSteps {
    plan: Arc<Plan>,
    walk: Walk,
    end_epoch: u64,
    share: Option<Share>,
    most: u64,
    batch: StepBatch,
    /// The order of the epoch, if it is read in loads, and the load of the last step.
    loads: Option<(EpochOrder, u64)>,
}

impl PlanSteps {
    /// The steps that `options` name.
    pub fn new(plan: Arc<Plan>, options: &FetchOptions) -> PlanSteps {
        PlanSteps {
            walk: plan.walk(options.start, None),
            end_epoch: options.end_epoch.unwrap_or(u64::MAX),
            share: options.share.clone(),
            most: most_of_plan(&plan, options),
            batch: StepBatch::default(),
            loads: None,
            plan,
        }
    }

    /// Whether the epoch's reads so far are not needed by later steps.
    fn ends_load(&mut self, place: Place) -> bool {
        if self.plan.loads().is_none() {
            return false;
        }
        if self
            .loads
            .as_ref()
            .is_none_or(|(order, _)| order.epoch() != place.epoch)
        {
            let order = self.plan.epoch_order(place.epoch);
            self.loads = order.map(|order| (order, 0));
        }
        let Some((order, load)) = &mut self.loads else {
            return true;
        };
        let Some(positions) = order.step_positions(place.step) else {
            return true;
        };
        let end_of = |load| order.load_positions(load).map(|of_load| of_load.end);
        while end_of(*load).is_some_and(|end| end <= positions.start) {
            *load += 1;
        }
        end_of(*load).is_some_and(|end| end <= positions.end)
    }
}

impl Steps for PlanSteps {
    fn next(&mut self, ids: &mut Vec<u64>) -> Option<Step> {
        let place = self.walk.place();
        if place.epoch >= self.end_epoch || !self.walk.next(&mut self.batch) {
            return None;
        }
        let start = ids.len();
        ids.extend_from_slice(&self.batch.ids);
        if let Some(share) = &self.share {
            share.retain(place.epoch, ids, start);
        }
        Some(Step {
            place,
            ends_epoch: self.batch.ends_epoch,
            ends_load: self.ends_load(place),
        })
    }

    fn most(&self) -> u64 {
        self.most
    }

    fn spread(&self) -> Spread {
        self.plan.spread()
    }

    fn plan(&self) -> Option<&Arc<Plan>> {
        Some(&self.plan)
    }
}
