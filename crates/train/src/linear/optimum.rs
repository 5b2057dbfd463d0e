//! The optimum that relative differences refer to, computed before training.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use pelton_linear::{Certificate, DualBound, InnerPasses, LossSum, OutOfCore};
use pelton_plan::Place;
use pelton_run::{Event, Observer, RunFolder};

use super::evaluation::for_each_batch;
use super::journal::Journal;
use super::passes::PassSession;
use super::reading::{Reading, hold};
use super::resident::in_memory;
use super::task::Task;
use crate::config::{LinearConfig, Target};
use crate::error::TrainError;

/// Most epochs or passes.
const MOST_EPOCHS: u64 = 400;

/// Certifies the solver's weights with a separate pass.
fn certificate(
    task: &Task<'_>,
    solver: &mut OutOfCore,
    reading: &mut Reading,
) -> Result<Certificate, TrainError> {
    let feed = reading.room_for_pass(task);
    let mut losses = LossSum::new(solver.problem());
    let mut bound = DualBound::new(solver.problem());
    for_each_batch(&task.rows.data.dataset, &feed, |batch| {
        Ok(solver.check_rows(&batch.rows, false, &mut losses, &mut bound)?)
    })?;
    Ok(Certificate {
        primal: losses.primal(solver.problem(), solver.weights()),
        dual: bound.value(solver.problem()),
    })
}

/// Solves the problem to the relative gap `wanted_gap`.
///
/// The value returned is the best primal value found; it exceeds the optimum by at most its gap to the best dual value.
pub(super) fn optimum(
    task: &Task<'_>,
    wanted_gap: f64,
    observer: Observer<'_>,
) -> Result<f64, TrainError> {
    let found = if task.is_held() {
        over_rows(task, wanted_gap, observer)?
    } else if task.config.solver.is_by_passes() {
        by_passes(task, wanted_gap, observer)?
    } else {
        by_descent(task, wanted_gap, observer)?
    };
    let gap = found.relative_gap();
    if gap > wanted_gap {
        observer(Event::Note(&format!(
            "the optimum is known only to {gap:.1e}"
        )));
    }
    observer(Event::Note(&format!(
        "optimum {:.9e}, relative gap {gap:.1e}",
        found.primal,
    )));
    Ok(found.primal)
}

fn progress(observer: Observer<'_>, done: u64) {
    observer(Event::Progress {
        what: "optimum",
        done,
        total: MOST_EPOCHS,
    });
}

/// Over rows in memory, as training does, without a trace.
fn over_rows(
    task: &Task<'_>,
    wanted_gap: f64,
    observer: Observer<'_>,
) -> Result<Certificate, TrainError> {
    let config = LinearConfig {
        target: Target::Gap(wanted_gap),
        epochs: MOST_EPOCHS,
        ..task.config.clone()
    };
    let run = in_memory(task, &config);
    let (rows, mut meters, _) = hold(task)?;
    let mut folder = RunFolder::unwritten(Path::new(""));
    let mut epochs = 0;
    let count = &mut |event: Event<'_>| {
        if let Event::Epoch(_) = event {
            progress(observer, epochs);
            epochs += 1;
        }
    };
    let records = task.rows.data.dataset.records();
    let mut journal = Journal::new(&mut folder, count, task.ranks, records, Instant::now());
    let solved = run.train(run.begin(), rows, &mut meters, &mut journal)?;
    Ok(solved.certificate)
}

fn by_passes(
    task: &Task<'_>,
    wanted_gap: f64,
    observer: Observer<'_>,
) -> Result<Certificate, TrainError> {
    let session = PassSession::new(task, Target::Gap(wanted_gap));
    let (found, ..) = session.over(|mut solver, passes| {
        for number in 0.. {
            let found = passes.make(&mut *solver, &mut |_, _| {})?;
            let found = found.ok_or_else(stopped)?;
            progress(observer, number);
            if found.done || number + 1 == MOST_EPOCHS {
                return Ok(found.certificate);
            }
        }
        unreachable!("there is a last pass")
    })?;
    Ok(found)
}

/// Block by block, with blocks as large as the budget and many inner passes.
fn by_descent(
    task: &Task<'_>,
    wanted_gap: f64,
    observer: Observer<'_>,
) -> Result<Certificate, TrainError> {
    let mut options = task.division.options;
    options.skip = false;
    options.inner = InnerPasses::Until {
        epsilon: 1e-4,
        at_most: 50,
    };
    let mut solver = task.descent(options);
    let mut reading = Reading::open(task, Place::default(), None)?;
    let mut best: Option<Certificate> = None;
    let mut wanted = 10.0 * wanted_gap;
    for epoch in 0..MOST_EPOCHS {
        solver.begin_epoch(epoch, true)?;
        loop {
            if task.interrupt.load(Ordering::Relaxed) {
                return Err(stopped());
            }
            match reading.train_next(&mut solver)? {
                Some(trained) if !trained.ends_epoch => {}
                _ => break,
            }
        }
        let outcome = solver.end_epoch();
        let primal = outcome.certified_primal.unwrap_or(outcome.primal_estimate);
        let estimate = (primal - outcome.dual) / outcome.dual.abs().max(1e-300);
        progress(observer, epoch);
        let certificate = match outcome.certified_primal {
            Some(primal) => Certificate {
                primal,
                dual: outcome.dual,
            },
            None if estimate > wanted => continue,
            None => {
                wanted = estimate * 0.5;
                certificate(task, &mut solver, &mut reading)?
            }
        };
        // The best primal and dual values bound the optimum even if they come from different epochs.
        let kept = best.get_or_insert(certificate);
        kept.primal = kept.primal.min(certificate.primal);
        kept.dual = kept.dual.max(certificate.dual);
        if kept.relative_gap() <= wanted_gap {
            break;
        }
    }
    match best {
        Some(best) => Ok(best),
        None => certificate(task, &mut solver, &mut reading),
    }
}

pub(super) fn stopped() -> TrainError {
    TrainError::stopped("solving for the optimum, before training began")
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
