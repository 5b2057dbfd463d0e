//! The optimum that relative differences refer to, solved for before training.

use std::sync::atomic::Ordering;

use pelton_fetch::Cursor;
use pelton_linear::{Certificate, DualBound, InnerPasses, LossSum, OutOfCore};
use pelton_run::{Event, Observer};

use super::division::FINEST_TOLERANCE;
use super::evaluation::for_each_batch;
use super::newton::Passes;
use super::source::Source;
use super::task::Task;
use crate::config::Solver;
use crate::error::TrainError;

/// Certifies the solver's weights over the rows in memory, or with a pass of its own.
fn certificate(
    task: &Task<'_>,
    solver: &mut OutOfCore,
    source: &mut Source,
) -> Result<Certificate, TrainError> {
    if let Some(rows) = source.rows() {
        let (found, ..) = solver.certify(rows)?;
        return Ok(found);
    }
    let feed = source.room_for_pass(task);
    let mut losses = LossSum::new(solver.problem());
    let mut bound = DualBound::new(solver.problem());
    for_each_batch(&task.rows.data.dataset, &feed, |batch| {
        Ok(solver.check_rows(&batch.rows, false, &mut losses, &mut bound)?)
    })?;
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
    task: &Task<'_>,
    wanted_gap: f64,
    observer: Observer<'_>,
) -> Result<f64, TrainError> {
    const MOST_EPOCHS: u64 = 400;
    let division = &task.division;
    if task.config.solver == Solver::Newton {
        let mut passes = Passes::new(task, wanted_gap);
        for number in 0..MOST_EPOCHS {
            let found = passes.pass(&mut |_, _| {})?.ok_or_else(stopped)?;
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
    let (mut options, in_core) = (division.options, division.budget.in_core);
    options.tighten = in_core.then_some(FINEST_TOLERANCE);
    options.skip = false;
    options.inner = InnerPasses::Until {
        epsilon: 1e-4,
        at_most: 50,
    };
    let mut solver = task.descent(options);
    let mut source = Source::open(task, Cursor::default(), None)?;
    source.renumber(&mut solver);
    let mut best: Option<Certificate> = None;
    let mut wanted = 10.0 * wanted_gap;
    for epoch in 0..MOST_EPOCHS {
        solver.begin_epoch(epoch, true)?;
        loop {
            if task.interrupt.load(Ordering::Relaxed) {
                return Err(stopped());
            }
            match source.train_next(&mut solver)? {
                Some(trained) if !trained.ends_epoch => {}
                _ => break,
            }
        }
        let outcome = solver.end_epoch();
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
            None if !in_core && estimate > wanted => continue,
            None => {
                wanted = estimate * 0.5;
                certificate(task, &mut solver, &mut source)?
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
        None => certificate(task, &mut solver, &mut source)?,
    };
    Ok(found_optimum(best, wanted_gap, observer))
}

pub(super) fn stopped() -> TrainError {
    TrainError::stopped("solving for the optimum, before training began")
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
    use pelton_data::{DataConfig, DemoSpec};
    use pelton_fetch::FetchOptions;

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
