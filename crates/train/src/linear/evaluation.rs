//! How good a model is: losses and figures over a whole data set in one pass in the order of its files.

use std::sync::Arc;

use pelton_data::OpenedData;
use pelton_fetch::{FetchOptions, Meters};
use pelton_format::{ClassMap, Dataset};
use pelton_linear::{
    Loss, LossSum, Metrics, Peers, Prediction, Problem, Simd, TargetMetrics, Threshold,
    ThresholdGoal, Weights, positive_class, predict,
};
use pelton_run::{Event, Observer};

use super::budget::Budget;
use super::ranks::Ranks;
use super::task::Task;
use crate::config::LinearConfig;
use crate::error::TrainError;
use crate::summary::{TestFigures, Tested};

/// Points of the ROC curve in a report.
const ROC_POINTS: usize = 200;

/// Losses of a model over a data set.
#[derive(Clone, Debug)]
pub(crate) struct Evaluation {
    /// Sums over the rows.
    pub losses: LossSum,
    /// Meters of the pass.
    pub meters: Meters,
}

/// How well rows are predicted: their classes, or their targets.
pub(crate) enum Scores {
    Classes(Box<Metrics>),
    Targets(TargetMetrics),
}

impl Scores {
    /// Empty scores; of two classes, rows are ranked by the greater label, as in scikit-learn. Also returns the bytes
    /// for the scores of `records` rows: 0 if half of the memory is not enough.
    pub fn new(loss: Loss, classes: &ClassMap, records: u64, memory: u64) -> (Scores, u64) {
        if loss.has_real_targets() {
            return (Scores::Targets(TargetMetrics::new(loss)), 0);
        }
        let bytes = Metrics::bytes(classes.len(), records);
        let room = if bytes <= memory / 2 { bytes } else { 0 };
        let metrics = Metrics::new(loss, classes.len(), positive_class(classes), room);
        (Scores::Classes(Box::new(metrics)), room)
    }

    /// The figures of all rows added.
    pub fn tested(&self, classes: &ClassMap) -> Tested {
        match self {
            Scores::Classes(metrics) => Tested {
                classes: Some(TestFigures::from_metrics(metrics, classes)),
                ..Tested::default()
            },
            Scores::Targets(metrics) => Tested {
                targets: Some(metrics.figures()),
                ..Tested::default()
            },
        }
    }

    /// About `most` points of the ROC curve of two classes; empty without the scores of all rows.
    fn roc(&self, most: usize) -> Vec<(f64, f64)> {
        let ranking = match self {
            Scores::Classes(metrics) => metrics.ranking(),
            Scores::Targets(_) => None,
        };
        ranking.map_or(Vec::new(), |ranking| ranking.roc(most))
    }

    /// Chooses a threshold on the rows added, and counts their classes by it; `None`, with a note, if no threshold
    /// suits.
    fn choose(
        &mut self,
        goal: ThresholdGoal,
        classes: &ClassMap,
        observer: Observer<'_>,
    ) -> Option<Threshold> {
        let Scores::Classes(metrics) = self else {
            return None;
        };
        let score = metrics
            .ranking()
            .and_then(|ranking| ranking.threshold(goal));
        let Some(score) = score else {
            observer(Event::Note(&format!(
                "no threshold on the test data suits {goal}, so the model has none"
            )));
            return None;
        };
        let threshold = Threshold::of_score(classes, score);
        metrics.decide_from(&threshold);
        Some(threshold)
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

/// A prediction with its class by the threshold, if any.
pub(crate) fn decided<'a>(
    prediction: Prediction<'a>,
    threshold: Option<&Threshold>,
) -> Prediction<'a> {
    threshold.map_or(prediction, |threshold| threshold.decide(prediction))
}

/// Sums the losses of `weights` over every record of `dataset` in file order within a budget, and adds the rows to
/// `scores`, with their class by the threshold there. A row counts as right if [`predict`] gives its class.
pub(crate) fn evaluate(
    dataset: &Arc<Dataset>,
    problem: &Problem,
    weights: &Weights,
    feed: &FetchOptions,
    mut scores: Option<(&mut Scores, Option<&Threshold>)>,
) -> Result<Evaluation, TrainError> {
    let mut losses = LossSum::new(problem);
    let mut correct = 0;
    let meters = for_each_batch(dataset, feed, |batch| {
        let added = losses.add(problem, &batch.rows, weights, Simd::best());
        added.map_err(|error| TrainError::from(error).located_in(dataset))?;
        predict(weights, &batch.rows, |i, prediction| {
            let label = batch.rows.label(i);
            correct += u64::from(prediction.class == label);
            if let Some((scores, threshold)) = &mut scores {
                scores.add(label, decided(prediction, *threshold));
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
    observer: Observer<'_>,
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
    let added = Some((&mut scores, None));
    let found = evaluate(&test.dataset, &problem, weights, feed, added)?;
    ranks.check_bad_records(feed, &test.dataset, &found.meters)?;
    if ranks.comm().is_some() {
        ranks.together(|peers| scores.add_up(peers))?;
    }
    let threshold = match task.config.threshold {
        Some(goal) => scores.choose(goal, classes, observer),
        None => None,
    };
    Ok(Tested {
        threshold,
        roc: scores.roc(ROC_POINTS),
        ..scores.tested(classes)
    })
}

/// Refuses to choose a threshold if the test data cannot determine it.
pub(super) fn check_threshold(
    config: &LinearConfig,
    data: &OpenedData,
    test: Option<&OpenedData>,
    ranks: Ranks<'_>,
    budget: &Budget,
) -> Result<(), TrainError> {
    let Some(goal) = config.threshold else {
        return Ok(());
    };
    let wrong = |why: String| Err(TrainError::config(format!("`threshold` {goal} {why}")));
    let classes = data.dataset.labels().len();
    let Some(test) = test else {
        return wrong("is chosen on test data; give `test`".to_string());
    };
    if classes != 2 {
        return wrong(format!(
            "decides between two classes, and there are {classes}; leave it out"
        ));
    }
    if ranks.size() > 1 {
        return wrong("needs the scores of all test records on one rank; train with one, or give `eval` and `predict` a threshold".to_string());
    }
    let (records, memory) = (test.dataset.records(), budget.feed.memory_bytes);
    let bytes = Metrics::bytes(classes, records);
    if bytes > memory / 2 {
        return wrong(format!(
            "needs the scores of all test records, {bytes} bytes, and half of the memory is {}; give more `memory`",
            memory / 2
        ));
    }
    Ok(())
}
