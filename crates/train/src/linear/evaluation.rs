//! How good a model is: losses and accuracy over a whole data set in one pass in the order of its files.

use std::sync::Arc;

use pelton_data::OpenedData;
use pelton_fetch::{FetchOptions, Meters};
use pelton_format::Dataset;
use pelton_linear::{LossSum, Problem, Simd, Weights, predict};

use super::task::Task;
use crate::error::TrainError;

/// Losses of a model over a data set.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// Sums over the rows.
    pub losses: LossSum,
    /// What the pass cost.
    pub meters: Meters,
}

/// Sums the losses of `weights` over every record of `dataset` in file order within a budget. Rows count as
/// right where [`predict`] gives them their class.
pub fn evaluate(
    dataset: &Arc<Dataset>,
    problem: &Problem,
    weights: &Weights,
    feed: &FetchOptions,
) -> Result<Evaluation, TrainError> {
    let mut losses = LossSum::new(problem);
    let mut correct = 0;
    let meters = for_each_batch(dataset, feed, |batch| {
        losses.add(problem, &batch.rows, weights, Simd::best())?;
        predict(weights, &batch.rows, |i, prediction| {
            correct += u64::from(prediction.class == batch.rows.label(i));
        });
        Ok(())
    })?;
    losses.correct = correct;
    Ok(Evaluation { losses, meters })
}

/// [`pelton_data::for_each_batch`] with this crate's errors.
pub(crate) fn for_each_batch(
    dataset: &Arc<Dataset>,
    feed: &FetchOptions,
    each: impl FnMut(&mut pelton_fetch::RowBatch) -> Result<(), TrainError>,
) -> Result<Meters, TrainError> {
    pelton_data::for_each_batch(dataset, feed, each)
}

/// Share of the test examples that the model predicts right.
pub(super) fn accuracy(
    task: &Task<'_>,
    test: &OpenedData,
    weights: &Weights,
) -> Result<f64, TrainError> {
    let (feed, ranks) = (&task.division.budget.feed, task.ranks);
    // Weights are those of the training records.
    let problem = task.problem.without_sample_weights();
    let found = evaluate(&test.dataset, &problem, weights, feed)?;
    ranks.check_bad_records(feed, &test.dataset, &found.meters)?;
    let mut losses = found.losses;
    ranks.together(|peers| losses.add_up(peers))?;
    Ok(losses.accuracy())
}
