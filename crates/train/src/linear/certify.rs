//! How good a model is: losses and accuracy over a whole data set in one sequential pass, and the
//! optimum that relative differences refer to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pelton_feed::{Access, Cursor, Feed, FeedOptions, Meters, largest_batch};
use pelton_format::Dataset;
use pelton_linear::{
    Certificate, DualBound, InnerPasses, LossSum, OutOfCore, Problem, Simd, Tightening, Weights,
    predict,
};
use pelton_plan::{Catalog, Order, Plan, PlanSpec};

use super::newton::Passes;
use super::ranks::{Ranks, stripe_records};
use super::setup::{FINEST_TOLERANCE, Setup};
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

/// Sums the losses of `weights` over every record of `dataset` in file order within a budget. Rows count as
/// right where [`predict`] gives them their class.
pub fn evaluate(
    dataset: &Arc<Dataset>,
    problem: &Problem,
    weights: &Weights,
    feed: &FeedOptions,
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
    let mut rows = largest_batch(dataset, &options).clamp(1, 1 << 16);
    if let Some(share) = &options.share {
        // A stripe of each rank, so that no rank gets the rows of one place, which may be of one class.
        let ranks = share.world_size();
        rows = u64::from(ranks) * rows.min(stripe_records(dataset, ranks));
    }
    let spec = PlanSpec::new(Order::Sequential, rows, 0);
    let plan = Plan::new(&spec, Catalog::of(dataset.records()))?;
    let mut feed = Feed::new(Arc::clone(dataset), Arc::new(plan), &options)?;
    while let Some(batch) = feed.next_batch()? {
        each(batch)?;
    }
    let mut meters = feed.meters();
    // Every record is read once, in file order: there is nothing to keep and no better way.
    meters.remedies.memory = false;
    Ok(meters)
}

/// Share of the test examples that the model predicts right.
pub(super) fn accuracy(
    setup: &Setup,
    test: &OpenedData,
    weights: &Weights,
    ranks: Ranks<'_>,
) -> Result<f64, TrainError> {
    let feed = FeedOptions {
        memory_bytes: setup.memory_bytes,
        interrupt: Arc::clone(&setup.interrupt),
        ..setup.feed.clone()
    };
    let found = evaluate(&test.dataset, &setup.problem, weights, &feed)?;
    ranks.check_bad_records(&feed, &test.dataset, &found.meters)?;
    let mut losses = found.losses;
    ranks.sum_losses(&mut losses)?;
    Ok(losses.accuracy())
}

/// Certifies the solver's weights over the rows in memory, or with a pass of its own.
fn certificate(
    setup: &Setup,
    solver: &mut OutOfCore,
    source: &mut Source,
    ranks: Ranks<'_>,
) -> Result<Certificate, TrainError> {
    if let Some(rows) = source.rows() {
        let (found, ..) = ranks.together(|peers| solver.certify(rows, peers))?;
        return Ok(found);
    }
    let feed = FeedOptions {
        interrupt: Arc::clone(&setup.interrupt),
        ..source.room_for_pass(setup)
    };
    let mut losses = LossSum::new(solver.problem());
    let mut bound = DualBound::new(solver.problem());
    for_each_batch(&setup.data.dataset, &feed, |batch| {
        Ok(solver.check_rows(&batch.rows, false, &mut losses, &mut bound)?)
    })?;
    ranks.sum_losses(&mut losses)?;
    ranks.together(|peers| bound.add_up(peers))?;
    Ok(Certificate {
        primal: losses.primal(solver.weights()),
        dual: bound.value(),
    })
}

/// Solves the problem to the relative gap `wanted_gap`: blocks as large as the budget, many inner
/// passes.
///
/// The value returned is the best primal value found; its distance to the optimum is at most the
/// gap to the best dual value.
pub(super) fn optimum(
    setup: &Setup,
    newton: bool,
    wanted_gap: f64,
    ranks: Ranks<'_>,
    interrupt: &AtomicBool,
    observer: Observer<'_>,
) -> Result<f64, TrainError> {
    const MOST_EPOCHS: u64 = 400;
    if newton {
        let mut passes = Passes::new(setup, wanted_gap, ranks);
        for number in 0..MOST_EPOCHS {
            let found = passes.pass(interrupt, "optimum", &mut |_| {})?;
            let found = found.ok_or(TrainError::Stopped {
                job: "solving for the optimum, before training began",
            })?;
            observer(Event::Progress {
                what: "optimum",
                done: number,
                total: MOST_EPOCHS,
            });
            if found.done || number + 1 == MOST_EPOCHS {
                return Ok(found_optimum(found.certificate, wanted_gap, observer));
            }
        }
    }
    let mut options = setup.options;
    let over_ranks = ranks.size() > 1;
    options.tighten = (setup.in_core || over_ranks).then_some(Tightening {
        after: 0,
        to: FINEST_TOLERANCE,
    });
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
    solver.end_when(Arc::clone(&setup.interrupt));
    if let Some(numbering) = &setup.numbering {
        solver.rows_come_renumbered(numbering);
    }
    let mut source = Source::open(setup, Cursor::default(), None, ranks)?;
    source.renumber(&mut solver);
    let mut best: Option<Certificate> = None;
    let mut wanted = 10.0 * wanted_gap;
    for epoch in 0..MOST_EPOCHS {
        match ranks.with_peers(|peers| solver.begin_epoch_share(epoch, true, peers)) {
            Some(begun) => begun?,
            None => solver.begin_epoch(epoch, true)?,
        }
        let mut step = 0;
        loop {
            if ranks.any(interrupt.load(Ordering::Relaxed))? {
                return Err(TrainError::Stopped {
                    job: "solving for the optimum, before training began",
                });
            }
            let trained = source.train_next(&mut solver, step, false, ranks)?;
            step += 1;
            match trained {
                Some(trained) if !trained.ends_epoch => {}
                _ => break,
            }
        }
        let outcome = match ranks.with_peers(|peers| solver.end_epoch_share(peers)) {
            Some(outcome) => outcome?,
            None => solver.end_epoch()?,
        };
        let primal = outcome.certified_primal.unwrap_or(outcome.primal_estimate);
        let estimate = (primal - outcome.dual) / outcome.dual.abs().max(1e-300);
        observer(Event::Progress {
            what: "optimum",
            done: epoch,
            total: MOST_EPOCHS,
        });
        let certificate = match outcome.certified_primal {
            Some(primal) => Certificate {
                primal,
                dual: outcome.dual,
            },
            None if !setup.in_core && estimate > wanted => continue,
            None => {
                wanted = estimate * 0.5;
                certificate(setup, &mut solver, &mut source, ranks)?
            }
        };
        // The best of either side bounds the optimum, whichever epochs they come from.
        let kept = best.get_or_insert(certificate);
        kept.primal = kept.primal.min(certificate.primal);
        kept.dual = kept.dual.max(certificate.dual);
        if kept.relative_gap() <= wanted_gap {
            break;
        }
    }
    let best = match best {
        Some(best) => best,
        None => certificate(setup, &mut solver, &mut source, ranks)?,
    };
    Ok(found_optimum(best, wanted_gap, observer))
}

/// Says how well the optimum is known; returns its upper bound.
fn found_optimum(best: Certificate, wanted: f64, observer: Observer<'_>) -> f64 {
    let gap = best.relative_gap();
    if gap > wanted {
        observer(Event::Note(&format!(
            "the optimum is known to {gap:.1e} only"
        )));
    }
    observer(Event::Note(&format!(
        "optimum {:.9e}, relative gap {gap:.1e}",
        best.primal,
    )));
    best.primal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DataConfig;
    use crate::demo::DemoSpec;

    #[test]
    fn every_row_can_be_held_however_large_the_budget() {
        let folder = tempfile::tempdir().unwrap();
        let never = crate::event::Interrupt::default();
        let spec = DemoSpec::parse("demo:higgs:150000").unwrap();
        let (path, _) = spec
            .ensure(folder.path(), 1, &never, &mut |_, _| {})
            .unwrap();
        let config = DataConfig::default();
        let paths = [path.display().to_string()];
        let opened = crate::data::open(&config, &paths, None, &never, &mut |_| {}).unwrap();
        for memory_bytes in [4 << 20, 64 << 20, 1 << 30] {
            let feed = FeedOptions::with_memory(memory_bytes);
            let (rows, _) = crate::linear::hold_rows(&opened.dataset, &feed).unwrap();
            assert!(rows.ids().iter().copied().eq(0..150_000));
            let last = crate::data::fetch_rows(&opened.dataset, &[149_999]).unwrap();
            assert_eq!(rows.row(149_999), last.row(0));
        }
    }
}
