//! How good a model is: losses and figures over a whole data set in one pass in the order of its files.

use std::sync::Arc;

use pelton_data::OpenedData;
use pelton_fetch::{FetchOptions, Meters};
use pelton_format::{ClassMap, Dataset};
use pelton_linear::{Loss, LossSum, Metrics, Problem, Simd, Weights, predict};

use super::task::Task;
use crate::error::TrainError;
use crate::summary::TestFigures;

/// Losses of a model over a data set.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// Sums over the rows.
    pub losses: LossSum,
    /// What the pass cost.
    pub meters: Meters,
}

/// Sums the losses of `weights` over every record of `dataset` in file order within a budget, and adds the rows to
/// `metrics`. Rows count as right where [`predict`] gives them their class.
pub fn evaluate(
    dataset: &Arc<Dataset>,
    problem: &Problem,
    weights: &Weights,
    feed: &FetchOptions,
    mut metrics: Option<&mut Metrics>,
) -> Result<Evaluation, TrainError> {
    let mut losses = LossSum::new(problem);
    let mut correct = 0;
    let meters = for_each_batch(dataset, feed, |batch| {
        losses.add(problem, &batch.rows, weights, Simd::best())?;
        predict(weights, &batch.rows, |i, prediction| {
            let class = batch.rows.label(i);
            correct += u64::from(prediction.class == class);
            if let Some(metrics) = &mut metrics {
                metrics.add(class, prediction);
            }
        });
        Ok(())
    })?;
    losses.correct = correct;
    Ok(Evaluation { losses, meters })
}

/// Figures of no rows yet, ranked by the class with the greater label where there are two, as in scikit-learn; and the
/// bytes that the scores of so many rows will take: none where half of the memory is not enough.
pub(crate) fn metrics(loss: Loss, classes: &ClassMap, records: u64, memory: u64) -> (Metrics, u64) {
    let greater = match (classes.names(), classes.values()) {
        ([first, second], _) => second > first,
        (_, [first, second]) => second > first,
        _ => true,
    };
    let bytes = Metrics::bytes(classes.len(), records);
    let room = if bytes <= memory / 2 { bytes } else { 0 };
    let positive = u32::from(greater);
    (Metrics::new(loss, classes.len(), positive, room), room)
}

/// [`pelton_data::for_each_batch`] with this crate's errors.
pub(crate) fn for_each_batch(
    dataset: &Arc<Dataset>,
    feed: &FetchOptions,
    each: impl FnMut(&mut pelton_fetch::RowBatch) -> Result<(), TrainError>,
) -> Result<Meters, TrainError> {
    pelton_data::for_each_batch(dataset, feed, each)
}

/// How well the model predicts the test data.
pub(super) fn test(
    task: &Task<'_>,
    test: &OpenedData,
    weights: &Weights,
) -> Result<TestFigures, TrainError> {
    let (feed, ranks) = (&task.division.budget.feed, task.ranks);
    // Weights are those of the training records.
    let problem = task.problem.without_sample_weights();
    let classes = test.dataset.labels();
    let records = test.dataset.records();
    let (mut metrics, room) = metrics(problem.loss(), classes, records, feed.memory_bytes);
    let feed = &FetchOptions {
        memory_bytes: feed.memory_bytes - room,
        ..feed.clone()
    };
    let found = evaluate(&test.dataset, &problem, weights, feed, Some(&mut metrics))?;
    ranks.check_bad_records(feed, &test.dataset, &found.meters)?;
    if ranks.comm().is_some() {
        ranks.together(|peers| metrics.add_up(peers))?;
    }
    Ok(TestFigures::of(&metrics, classes))
}
