//! The steps that a fetch executes, as far as known beforehand, for dividing memory and choosing an access path.

use pelton_format::Dataset;
use pelton_plan::{Plan, Spread};

use crate::options::FetchOptions;
use crate::steps::{Steps, most_of_plan};

/// The steps that a fetch executes, as far as known beforehand.
#[derive(Clone, Copy)]
pub(crate) struct Demand<'a> {
    /// The plan, if the steps are those of one.
    pub plan: Option<&'a Plan>,
    /// Most rows of a batch.
    pub batch_rows: u64,
    /// Batches of an epoch.
    pub steps: u64,
    /// How the records of a step are spread over the files.
    pub spread: Spread,
}

impl<'a> Demand<'a> {
    /// Of some steps.
    pub fn from_parts(dataset: &Dataset, steps: &'a dyn Steps) -> Demand<'a> {
        let plan = steps.plan().map(|plan| &**plan);
        Demand::new(dataset, plan, steps.most(), steps.spread())
    }

    /// The demand of a fetch of a plan's steps with these options.
    pub fn of_plan(dataset: &Dataset, plan: &'a Plan, options: &FetchOptions) -> Demand<'a> {
        let most = most_of_plan(plan, options);
        Demand::new(dataset, Some(plan), most, plan.spread())
    }

    /// For steps of at most `most` records, spread like this.
    pub fn new(dataset: &Dataset, plan: Option<&'a Plan>, most: u64, spread: Spread) -> Demand<'a> {
        let batch_rows = most.max(1);
        let steps = plan.map(|plan| plan.steps(0));
        Demand {
            plan,
            batch_rows,
            steps: steps.unwrap_or_else(|| dataset.records().div_ceil(batch_rows)),
            spread,
        }
    }
}
