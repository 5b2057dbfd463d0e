//! The target that every condition is to reach, and the learning rate that each reaches it with soonest.
//!
//! The paper's targets are the best that the baseline reliably reaches, and it tunes each condition anew, since
//! repeats change which rate is best. Here: the target is the lowest accuracy over the seeds after a stated number
//! of passes without echo, at the rate whose mean is best. A condition's rate is the one of the grid whose
//! trainings reach it soonest, on other seeds than those that are measured. Fixed factors are tuned without
//! pacing, since their batches do not depend on time; `auto` in real time.

use pelton_train::TrainError;

use super::raw::Raw;
use super::trial::{Condition, Point, Run, Setting, Trial, Until, smoothed};
use crate::table::ReproduceConfig;

/// Added to a seed, so that rates are not chosen on the trainings that are measured.
const OTHER_SEEDS: u64 = 1000;
/// Most seeds for choosing.
const MOST_SEEDS: u64 = 5;

/// A chosen rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tuned {
    pub rate: f32,
    /// Whether it is the smallest or largest that was tried.
    pub at_edge: bool,
}

/// Seeds for choosing.
pub(super) fn seeds(config: &ReproduceConfig) -> u64 {
    config.seeds.min(MOST_SEEDS)
}

/// The accuracy to reach.
pub(super) fn target(
    setting: &Setting,
    config: &ReproduceConfig,
    budget: u64,
    raw: &mut Raw,
) -> Result<f64, TrainError> {
    let until = Until {
        target: f64::INFINITY,
        fresh: budget,
    };
    let once = Condition::Fixed {
        factor: 1.0,
        point: Point::Before,
    };
    let by_rate = grid(setting, config, once, until, "target", raw)?;
    let at_end = |trial: &Trial| smoothed(&trial.looks).last().copied().unwrap_or(0.0);
    let ends = by_rate
        .iter()
        .map(|(_, trials)| trials.iter().map(at_end).collect::<Vec<f64>>());
    let best = ends.max_by(|a, b| a.iter().sum::<f64>().total_cmp(&b.iter().sum()));
    Ok(best.into_iter().flatten().fold(f64::INFINITY, f64::min))
}

/// The best rate of a condition.
pub(super) fn tune(
    setting: &Setting,
    config: &ReproduceConfig,
    condition: Condition,
    until: Until,
    raw: &mut Raw,
) -> Result<Tuned, TrainError> {
    let by_rate = grid(setting, config, condition, until, "tuning", raw)?;
    // A training that fails counts as if it had succeeded at its end.
    let cost = |trial: &Trial| match (trial.reached, condition) {
        (Some(reached), Condition::Auto) => reached.wall_s,
        (Some(reached), _) => reached.fresh,
        (None, Condition::Auto) => trial.wall_s,
        (None, _) => until.fresh as f64,
    };
    let costs: Vec<f64> = by_rate
        .iter()
        .map(|(_, trials)| trials.iter().map(cost).sum())
        .collect();
    let best = (0..costs.len()).min_by(|&a, &b| costs[a].total_cmp(&costs[b]));
    let best = best.expect("the grid is not empty");
    Ok(Tuned {
        rate: by_rate[best].0,
        at_edge: costs.len() > 1 && (best == 0 || best + 1 == costs.len()),
    })
}

/// Trains with every rate and seed.
fn grid(
    setting: &Setting,
    config: &ReproduceConfig,
    condition: Condition,
    until: Until,
    phase: &str,
    raw: &mut Raw,
) -> Result<Vec<(f32, Vec<Trial>)>, TrainError> {
    let seeds: Vec<u64> = (0..seeds(config)).map(|seed| OTHER_SEEDS + seed).collect();
    let mut until = until;
    let mut by_rate = Vec::new();
    for rate in config.experiment.rates.iter().map(|&rate| rate as f32) {
        let run = |&seed: &u64| Run {
            condition,
            rate,
            seed,
            paced: condition == Condition::Auto,
            until,
        };
        let runs: Vec<Run> = seeds.iter().map(run).collect();
        let trials = trials(setting, &runs)?;
        if trials.iter().all(|trial| trial.reached.is_some()) {
            // A rate that needs twice as much will not be the best, and need not be waited for.
            let most = trials.iter().map(|trial| trial.fresh).max();
            until.fresh = until.fresh.min(2 * most.unwrap_or(until.fresh));
        }
        by_rate.push((rate, trials));
    }
    for (rate, trials) in &by_rate {
        for (seed, trial) in seeds.iter().zip(trials) {
            raw.line(phase, condition, *rate, *seed, trial)?;
        }
    }
    Ok(by_rate)
}

/// The trainings of several seeds: side by side, where they do not depend on time.
fn trials(setting: &Setting, runs: &[Run]) -> Result<Vec<Trial>, TrainError> {
    if runs.iter().any(|run| run.paced) {
        return runs.iter().map(|run| setting.train(run)).collect();
    }
    std::thread::scope(|scope| {
        let started: Vec<_> = runs
            .iter()
            .map(|run| scope.spawn(|| setting.train(run)))
            .collect();
        started
            .into_iter()
            .map(|thread| thread.join().expect("a training does not panic"))
            .collect()
    })
}
