//! How good a model is: losses and figures over a whole data set in one pass in the order of its files.

use std::sync::Arc;

use pelton_data::OpenedData;
use pelton_fetch::{FetchOptions, Meters};
use pelton_format::{ClassMap, Dataset};
use pelton_linear::{
    Loss, LossSum, Metrics, Peers, Prediction, Problem, Simd, TargetMetrics, Weights, predict,
};

use super::task::Task;
use crate::error::TrainError;
use crate::summary::{TestFigures, Tested};

/// Losses of a model over a data set.
#[derive(Clone, Debug)]
pub(crate) struct Evaluation {
    /// Sums over the rows.
    pub losses: LossSum,
    /// What the pass cost.
    pub meters: Meters,
}

/// How well rows are predicted: their classes, or their targets.
pub(crate) enum Scores {
    Classes(Box<Metrics>),
    Targets(TargetMetrics),
}

impl Scores {
    /// None of any row yet: classes are ranked by the greater label where there are two, as in scikit-learn. Also returns
    /// the bytes that scores of so many rows will take: none where half of the memory is not enough.
    pub fn new(loss: Loss, classes: &ClassMap, records: u64, memory: u64) -> (Scores, u64) {
        if loss.has_real_targets() {
            return (Scores::Targets(TargetMetrics::new(loss)), 0);
        }
        let greater = match (classes.names(), classes.values()) {
            ([first, second], _) => second > first,
            (_, [first, second]) => second > first,
            _ => true,
        };
        let bytes = Metrics::bytes(classes.len(), records);
        let room = if bytes <= memory / 2 { bytes } else { 0 };
        let metrics = Metrics::new(loss, classes.len(), u32::from(greater), room);
        (Scores::Classes(Box::new(metrics)), room)
    }

    /// The figures of all rows added.
    pub fn tested(&self, classes: &ClassMap) -> Tested {
        match self {
            Scores::Classes(metrics) => Tested {
                classes: Some(TestFigures::of(metrics, classes)),
                targets: None,
            },
            Scores::Targets(metrics) => Tested {
                classes: None,
                targets: Some(metrics.figures()),
            },
        }
    }

    pub fn add(&mut self, label: u32, prediction: Prediction<'_>) {
        match self {
            Scores::Classes(metrics) => metrics.add(label, prediction),
            Scores::Targets(metrics) => metrics.add(label, prediction),
        }
    }

    /// Adds the sums of the other ranks.
    pub fn add_up(&mut self, peers: &mut Peers<'_, TrainError>) -> Result<(), TrainError> {
        match self {
            Scores::Classes(metrics) => metrics.add_up(peers),
            Scores::Targets(metrics) => metrics.add_up(peers),
        }
    }
}

/// Sums the losses of `weights` over every record of `dataset` in file order within a budget, and adds the rows to
/// `scores`. Rows count as right where [`predict`] gives them their class.
pub(crate) fn evaluate(
    dataset: &Arc<Dataset>,
    problem: &Problem,
    weights: &Weights,
    feed: &FetchOptions,
    mut scores: Option<&mut Scores>,
) -> Result<Evaluation, TrainError> {
    let mut losses = LossSum::new(problem);
    let mut correct = 0;
    let meters = for_each_batch(dataset, feed, |batch| {
        losses.add(problem, &batch.rows, weights, Simd::best())?;
        predict(weights, &batch.rows, |i, prediction| {
            let label = batch.rows.label(i);
            correct += u64::from(prediction.class == label);
            if let Some(scores) = &mut scores {
                scores.add(label, prediction);
            }
        });
        Ok(())
    })?;
    if !problem.loss().has_real_targets() {
        losses.correct = correct;
    }
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

/// How well the model predicts the test data.
pub(super) fn test(
    task: &Task<'_>,
    test: &OpenedData,
    weights: &Weights,
) -> Result<Tested, TrainError> {
    let (feed, ranks) = (&task.division.budget.feed, task.ranks);
    // Weights are those of the training records.
    let problem = task.problem.without_sample_weights();
    let classes = test.dataset.labels();
    let records = test.dataset.records();
    let (mut scores, room) = Scores::new(problem.loss(), classes, records, feed.memory_bytes);
    let feed = &FetchOptions {
        memory_bytes: feed.memory_bytes - room,
        ..feed.clone()
    };
    let found = evaluate(&test.dataset, &problem, weights, feed, Some(&mut scores))?;
    ranks.check_bad_records(feed, &test.dataset, &found.meters)?;
    if ranks.comm().is_some() {
        ranks.together(|peers| scores.add_up(peers))?;
    }
    Ok(scores.tested(classes))
}
