//! How good a model is: losses and accuracy over a whole data set in one sequential pass, and the
//! optimum that relative differences refer to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pelton_fetch::FetchOptions;
use pelton_linear::{Certificate, DualBound, InnerPasses, LossSum, OutOfCore, Tightening};
use pelton_plan::Place;
use pelton_run::{Event, Observer};

use super::evaluation::for_each_batch;
use super::newton::Passes;
use super::ranks::Ranks;
use super::setup::{FINEST_TOLERANCE, Setup};
use super::source::Source;
use crate::error::TrainError;

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
    let feed = FetchOptions {
        interrupt: Arc::clone(&setup.interrupt),
        ..source.room_for_pass(setup)
    };
    let mut losses = LossSum::new(solver.problem());
    let mut bound = DualBound::new(solver.problem());
    for_each_batch(&setup.data.dataset, &feed, |batch| {
        Ok(solver.check_rows(&batch.rows, false, &mut losses, &mut bound)?)
    })?;
    ranks.together(|peers| losses.add_up(peers))?;
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
            let found = found.ok_or(TrainError::stopped(
                "solving for the optimum, before training began",
            ))?;
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
    options.inner = InnerPasses::Until {
        epsilon: 1e-4,
        at_most: 50,
    };
    let dataset = &setup.data.dataset;
    let problem = &setup.problem;
    let mut solver = OutOfCore::new(problem.clone(), dataset.records(), options);
    solver.end_when(Arc::clone(&setup.interrupt));
    if let Some(numbering) = &setup.numbering {
        solver.rows_come_renumbered(numbering);
    }
    let mut source = Source::open(setup, Place::default(), None, ranks)?;
    source.renumber(&mut solver);
    let mut best: Option<Certificate> = None;
    let mut wanted = 10.0 * wanted_gap;
    for epoch in 0..MOST_EPOCHS {
        ranks.together(|peers| solver.begin_epoch(epoch, true, peers))?;
        loop {
            if ranks.any(interrupt.load(Ordering::Relaxed))? {
                return Err(TrainError::stopped(
                    "solving for the optimum, before training began",
                ));
            }
            match source.train_next(&mut solver, ranks)? {
                Some(trained) if !trained.ends_epoch => {}
                _ => break,
            }
        }
        let outcome = ranks.together(|peers| solver.end_epoch(peers))?;
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
    use pelton_data::DataConfig;
    use pelton_data::DemoSpec;

    #[test]
    fn every_row_can_be_held_however_large_the_budget() {
        let folder = tempfile::tempdir().unwrap();
        let never = pelton_run::Interrupt::default();
        let spec = DemoSpec::parse("demo:higgs:150000").unwrap();
        let (path, _) = spec
            .ensure(folder.path(), 1, &never, &mut |_, _| {})
            .unwrap();
        let config = DataConfig::default();
        let paths = [path.display().to_string()];
        let opened = pelton_data::open(
            &config,
            &paths,
            None,
            &mut pelton_run::RunContext::new(&pelton_comm::Comm::alone(), &never, &mut |_| {}),
        )
        .unwrap();
        for memory_bytes in [4 << 20, 64 << 20, 1 << 30] {
            let feed = FetchOptions::with_memory(memory_bytes);
            let (rows, _) = pelton_data::hold_rows(&opened.dataset, &feed).unwrap();
            assert!(rows.ids().iter().copied().eq(0..150_000));
            let last = pelton_data::fetch_rows(&opened.dataset, &[149_999]).unwrap();
            assert_eq!(rows.row(149_999), last.row(0));
        }
    }
}
