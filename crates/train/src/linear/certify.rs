//! How good a model is: losses and accuracy over a whole data set in one sequential pass, and the
//! optimum that relative differences refer to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pelton_feed::{Access, Cursor, Feed, FeedOptions, Meters, largest_batch};
use pelton_format::Dataset;
use pelton_linear::{Certificate, InnerPasses, LossSum, OutOfCore, Problem, Simd, Weights};
use pelton_plan::{Batching, Order, Plan};

use super::setup::Setup;
use super::source::Source;
use crate::data::OpenedData;
use crate::error::TrainError;
use crate::event::{Event, Observer};

/// Losses of a model over a data set.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// Sums over the rows.
    pub losses: LossSum,
    /// What the pass cost.
    pub meters: Meters,
}

/// Sums the losses of `weights` over every record of `dataset` in file order within a budget.
pub fn evaluate(
    dataset: &Arc<Dataset>,
    problem: &Problem,
    weights: &Weights,
    feed: &FeedOptions,
) -> Result<Evaluation, TrainError> {
    let mut losses = LossSum::new(problem);
    let meters = for_each_batch(dataset, feed, |batch| {
        Ok(losses.add(problem, &batch.rows, weights, Simd::best())?)
    })?;
    Ok(Evaluation { losses, meters })
}

/// Calls `each` with every batch of the data set in file order. A batch is a pane of its own, so its
/// segments can be taken out of it.
pub(crate) fn for_each_batch(
    dataset: &Arc<Dataset>,
    feed: &FeedOptions,
    mut each: impl FnMut(&mut pelton_feed::Batch) -> Result<(), TrainError>,
) -> Result<Meters, TrainError> {
    let options = FeedOptions {
        access: Access::Window { gap_bytes: None },
        start: Default::default(),
        end_epoch: Some(1),
        // Several batches a pane would share their segments.
        epoch_barrier: true,
        refill: false,
        ..feed.clone()
    };
    let rows = largest_batch(dataset, &options).clamp(1, 1 << 16);
    let plan = Plan::new(
        dataset.records(),
        Order::Sequential,
        Batching::Examples(rows),
        0,
    )?;
    let mut feed = Feed::new(Arc::clone(dataset), Arc::new(plan), &options)?;
    while let Some(batch) = feed.next_batch()? {
        each(batch)?;
    }
    Ok(feed.meters())
}

/// Share of the test examples that the model predicts right.
pub(super) fn accuracy(
    setup: &Setup,
    test: &OpenedData,
    weights: &Weights,
    observer: Observer<'_>,
) -> Result<f64, TrainError> {
    let feed = FeedOptions {
        memory_bytes: setup.memory_bytes,
        ..setup.feed.clone()
    };
    let evaluation = evaluate(&test.dataset, &setup.problem, weights, &feed)?;
    let accuracy = evaluation.losses.accuracy();
    observer(Event::Note(&format!(
        "test accuracy {:.2} % of {} examples",
        100.0 * accuracy,
        evaluation.losses.rows
    )));
    Ok(accuracy)
}

fn certificate(setup: &Setup, solver: &OutOfCore) -> Result<Certificate, TrainError> {
    let weights = solver.weights();
    let feed = setup.evaluation_feed();
    let evaluation = evaluate(&setup.data.dataset, &setup.problem, weights, &feed)?;
    Ok(Certificate {
        primal: evaluation.losses.primal(weights),
        dual: solver.dual(),
    })
}

/// Solves the problem to a relative gap of 1e-6: blocks as large as the budget, many inner passes.
///
/// The value returned is the primal value of the best certificate found; its distance to the
/// optimum is at most its gap.
pub(super) fn optimum(
    setup: &Setup,
    interrupt: &AtomicBool,
    observer: Observer<'_>,
) -> Result<f64, TrainError> {
    const GAP: f64 = 1e-6;
    const MOST_EPOCHS: u64 = 400;
    let mut options = setup.options;
    options.skip = false;
    options.cache_bytes = 0;
    options.inner = InnerPasses::Until {
        epsilon: 1e-4,
        at_most: 50,
    };
    let dataset = &setup.data.dataset;
    let problem = &setup.problem;
    let mut solver = OutOfCore::new(
        problem.clone(),
        dataset.records(),
        dataset.layout(),
        options,
    );
    let mut source = Source::open(setup, Cursor::default(), None)?;
    let mut best: Option<Certificate> = None;
    let mut wanted = 10.0 * GAP;
    for epoch in 0..MOST_EPOCHS {
        solver.begin_epoch(epoch, true)?;
        let mut step = 0;
        loop {
            if interrupt.load(Ordering::Relaxed) {
                return Err(TrainError::Stopped {
                    job: "solving for the optimum, before training began",
                });
            }
            let trained = source.train_next(&mut solver, step, false)?;
            step += 1;
            match trained {
                Some(trained) if !trained.ends_epoch => {}
                _ => break,
            }
        }
        let outcome = solver.end_epoch()?;
        let estimate = (outcome.primal_estimate - outcome.dual) / outcome.dual.abs().max(1e-300);
        observer(Event::Progress {
            what: "optimum",
            done: epoch,
            total: MOST_EPOCHS,
        });
        if estimate > wanted {
            continue;
        }
        let certificate = certificate(setup, &solver)?;
        wanted = estimate * 0.5;
        let gap = certificate.relative_gap();
        if best.is_none_or(|best| certificate.primal < best.primal) {
            best = Some(certificate);
        }
        if gap <= GAP {
            break;
        }
    }
    let best = match best {
        Some(best) => best,
        None => certificate(setup, &solver)?,
    };
    if best.relative_gap() > GAP {
        observer(Event::Note(&format!(
            "the optimum is known to {:.1e} only after {MOST_EPOCHS} epochs",
            best.relative_gap()
        )));
    }
    observer(Event::Note(&format!(
        "optimum {:.9e}, relative gap {:.1e}",
        best.primal,
        best.relative_gap()
    )));
    Ok(best.primal)
}
