//! What memory is divided for and a path is chosen by: the steps that a fetch follows, as far as they are known before.

use pelton_format::Dataset;
use pelton_plan::{Order, Plan};

use crate::options::FetchOptions;

/// The steps that a fetch follows, as far as they are known before.
#[derive(Clone, Copy)]
pub(crate) struct Demand<'a> {
    /// The plan, where the steps are those of one.
    pub plan: Option<&'a Plan>,
    /// Most rows of a batch.
    pub batch_rows: u64,
    /// Batches of an epoch.
    pub steps: u64,
    /// How the records of a step lie.
    pub spread: Spread,
}

/// How the records of a step lie among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Anywhere.
    Everywhere,
    /// Anywhere, and those of a step are together in every epoch.
    Blocks,
    /// In runs of neighbours.
    Neighbours,
    /// One after the other.
    InOrder,
}

impl Spread {
    /// Of the steps of a plan.
    pub fn of_plan(plan: &Plan) -> Spread {
        match plan.order() {
            Order::Full => Spread::Everywhere,
            Order::Block { .. } => Spread::Blocks,
            _ if plan.is_of_list() => Spread::Everywhere,
            Order::Sequential => Spread::InOrder,
            _ => Spread::Neighbours,
        }
    }
}

impl<'a> Demand<'a> {
    /// The part of a plan's steps that a fetch with these options yields.
    pub fn of_plan(plan: &'a Plan, options: &FetchOptions) -> Demand<'a> {
        let steps = plan.steps(0);
        let rows = (0..steps.min(2)).map(|step| options.rows_of(plan, step));
        Demand {
            plan: Some(plan),
            batch_rows: rows.max().unwrap_or(1).max(1),
            steps,
            spread: Spread::of_plan(plan),
        }
    }

    /// Steps of `most` records at most.
    pub fn of_steps(dataset: &Dataset, most: u64, spread: Spread) -> Demand<'a> {
        let batch_rows = most.clamp(1, dataset.records().max(1));
        Demand {
            plan: None,
            batch_rows,
            steps: dataset.records().div_ceil(batch_rows),
            spread,
        }
    }
}
