//! The target for every condition, and the learning rate with which each reaches it soonest.
//!
//! The paper's targets are the best that the baseline reliably reaches, and it tunes each condition separately, since
//! repeats change the best rate. Here: the target is 99 % of the best accuracy, or 101 % of the best perplexity, of a
//! stated number of passes without echo, as a mean over seeds at the best rate. A condition's rate is the one of the
//! grid with which trainings reach the target soonest, on seeds other than the measured ones. Fixed factors are tuned
//! without pacing, since their batches do not depend on time; `auto` in real time.

use pelton_train::TrainError;

use super::raw::Raw;
use super::trial::{Condition, Run, Trial, Until, best};
use super::workload::Workload;

/// Added to a seed, so that rates are not chosen on the measured trainings.
const OTHER_SEEDS: u64 = 1000;
/// Most seeds for choosing.
const MOST_SEEDS: u64 = 2;

/// A chosen rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tuned {
    pub rate: f64,
    /// Whether it is the smallest or largest tried.
    pub at_edge: bool,
}

/// Seeds for choosing.
pub(super) fn seeds(measured: u64) -> u64 {
    measured.min(MOST_SEEDS)
}

/// The quality to reach.
pub(super) fn target(
    workload: &Workload,
    seeds: u64,
    rates: &[f64],
    raw: &mut Raw,
) -> Result<f64, TrainError> {
    let until = Until {
        target: f64::INFINITY,
        least: workload.budget,
        most: workload.budget,
    };
    let by_rate = grid(
        workload,
        seeds,
        Condition(None),
        rates,
        until,
        "target",
        raw,
    )?;
    let means = by_rate.iter().map(|trials| {
        let sum: f64 = trials
            .iter()
            .map(|trial| best(&trial.looks, |_| true))
            .sum();
        sum / trials.len() as f64
    });
    let most = means.fold(f64::NEG_INFINITY, f64::max);
    if most.is_finite() {
        Ok(workload.nearly(most))
    } else {
        Err(TrainError::config(format!(
            "{}: no learning rate gives a target; try smaller `rates` or a larger `scale`",
            workload.name
        )))
    }
}

/// The best rate of a condition.
pub(super) fn tune(
    workload: &Workload,
    seeds: u64,
    condition: Condition,
    rates: &[f64],
    until: Until,
    raw: &mut Raw,
) -> Result<Tuned, TrainError> {
    let by_rate = grid(workload, seeds, condition, rates, until, "tuning", raw)?;
    // A failed training counts as if it had succeeded at the end of the patience.
    let failed = if condition.is_auto() {
        workload.modelled_s(until.most as f64, 0.0)
    } else {
        until.most as f64
    };
    let cost = |trial: &Trial| match trial.reached {
        Some(reached) if condition.is_auto() => reached.seconds,
        Some(reached) => reached.fresh,
        None => failed,
    };
    let costs = by_rate
        .iter()
        .map(|trials| trials.iter().map(cost).sum::<f64>());
    let best = costs.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
    let (best, _) = best.expect("the grid is not empty");
    Ok(Tuned {
        rate: rates[best],
        at_edge: rates.len() > 1 && (best == 0 || best + 1 == rates.len()),
    })
}

/// Trains with every rate and seed; seeds of a rate run in parallel if they do not depend on time.
fn grid(
    workload: &Workload,
    seeds: u64,
    condition: Condition,
    rates: &[f64],
    mut until: Until,
    phase: &str,
    raw: &mut Raw,
) -> Result<Vec<Vec<Trial>>, TrainError> {
    let mut by_rate = Vec::new();
    for &rate in rates {
        let run = |seed: u64| Run {
            condition,
            rate,
            seed: OTHER_SEEDS + seed,
            paced: condition.is_auto(),
            until,
        };
        let runs: Vec<Run> = (0..self::seeds(seeds)).map(run).collect();
        let finished: Option<Vec<Trial>> =
            runs.iter().map(|run| raw.finished(workload, run)).collect();
        let trials: Result<Vec<Trial>, TrainError> = if let Some(trials) = finished {
            Ok(trials)
        } else if runs[0].paced {
            runs.iter().map(|run| workload.train(run)).collect()
        } else {
            std::thread::scope(|scope| {
                // On this thread, one by one, if the system starts no more threads.
                let start = |run| {
                    let thread = std::thread::Builder::new();
                    let started = thread.spawn_scoped(scope, move || workload.train(run));
                    started.map_err(|_| workload.train(run))
                };
                let started: Vec<_> = runs.iter().map(start).collect();
                let trial = |started: Result<std::thread::ScopedJoinHandle<'_, _>, _>| match started
                {
                    Ok(thread) => thread.join().expect("a training does not panic"),
                    Err(trial) => trial,
                };
                started.into_iter().map(trial).collect()
            })
        };
        let trials = trials?;
        for (run, trial) in runs.iter().zip(&trials) {
            raw.line(workload, phase, run, trial)?;
        }
        if trials.iter().all(|trial| trial.reached.is_some()) {
            // A rate that needs twice as much will not be the best, so its trainings may stop.
            let most = trials.iter().map(|trial| trial.end.fresh).max();
            until.most = until.most.min(2 * most.unwrap_or(until.most));
        }
        by_rate.push(trials);
    }
    Ok(by_rate)
}
