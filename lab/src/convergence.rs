//! Trains on a data set in memory by a plan's blocks, with one state an epoch.
//!
//! Rows are in memory and each step's block is listed from the plan, so every method trains on exactly the blocks it
//! would read. Objective and accuracy are evaluated between epochs, outside the timed region.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use pelton_data::plan_of;
use pelton_linear::{
    Certificate, DualBound, InnerPasses, LossSum, OutOfCore, OutOfCoreOptions, Simd, Weights,
};
use pelton_plan::{Batching, Catalog, Order, Plan, PlanSpec, Units};
use pelton_run::Interrupt;
use pelton_train::TrainError;
use serde::{Deserialize, Serialize};

use super::data_in_memory::DataInMemory;
use crate::table::{interrupted, median};

/// The relative duality gap to which optima are solved.
pub(super) const OPTIMUM_GAP: f64 = 1e-6;

/// Settings of training on a data set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Training {
    pub order: Order,
    /// Records of a unit of the order; `None` for units of the order's size in bytes.
    pub unit_records: Option<u64>,
    pub inner: InnerPasses,
    /// Most epochs.
    pub epochs: u64,
    /// The optimum that relative differences refer to.
    pub optimum: f64,
    /// Relative difference at which runs end, except the first seed's, which runs to the end so that its whole
    /// curve can be drawn.
    pub stop_at: f64,
}

/// The state after an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Epoch {
    /// (P(w) − P*) / P*.
    pub difference: f64,
    /// Test accuracy in percent; of the training rows if there is no test set.
    pub accuracy: f64,
    /// Seconds of computing in the epoch.
    pub compute_s: f64,
}

/// One run, epoch by epoch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Run {
    pub seed: u64,
    pub epochs: Vec<Epoch>,
}

impl Run {
    /// The least relative difference of all epochs, within the precision of the optimum.
    pub fn best(&self) -> f64 {
        let differences = self.epochs.iter().map(|epoch| epoch.difference);
        differences.fold(f64::INFINITY, f64::min).max(OPTIMUM_GAP)
    }

    /// Epochs until the relative difference was at most `target`.
    pub fn epochs_to(&self, target: f64) -> Option<u64> {
        let mut epochs = self.epochs.iter();
        let reached = epochs.position(|epoch| epoch.difference <= target)?;
        Some(reached as u64 + 1)
    }

    /// The epochs until the target was reached; all if it was not.
    pub fn until(&self, target: f64) -> &[Epoch] {
        match self.epochs_to(target) {
            Some(epochs) => &self.epochs[..epochs as usize],
            None => &self.epochs,
        }
    }
}

/// Median epochs to `target`; `None` if half of the runs or more did not reach it.
pub(super) fn median_epochs(runs: &[Run], target: f64) -> Option<f64> {
    let epochs = runs.iter().map(|run| match run.epochs_to(target) {
        Some(epochs) => epochs as f64,
        None => f64::INFINITY,
    });
    let middle = median(epochs.collect());
    middle.is_finite().then_some(middle)
}

/// Median epochs at which each run was at its own best.
pub(super) fn median_epochs_to_best(runs: &[Run]) -> f64 {
    let epochs = runs.iter().filter_map(|run| run.epochs_to(run.best()));
    median(epochs.map(|epochs| epochs as f64).collect())
}

/// Runs every training with each of the seeds `0..seeds`, one per core at a time; returns the runs of each training in
/// the order of seeds.
pub(super) fn runs(
    held: &DataInMemory,
    trainings: &[Training],
    seeds: u64,
    interrupt: &Interrupt,
) -> Result<Vec<Vec<Run>>, TrainError> {
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let jobs: Vec<(Training, u64)> = trainings
        .iter()
        .flat_map(|training| (0..seeds).map(|seed| (*training, seed)))
        .collect();
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<Run, TrainError>>>> =
        jobs.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some((training, seed)) = jobs.get(place) else {
                return;
            };
            let what = format!("{training:?} {seed}");
            let result = held.kept(&what, || run(held, *training, *seed, interrupt));
            *results[place]
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Some(result);
        }
    };
    pelton_storage::on_threads(threads.min(jobs.len()), work);
    let mut runs = results.into_iter().map(|result| {
        let result = result.into_inner().unwrap_or_else(PoisonError::into_inner);
        result.expect("every job was run")
    });
    trainings
        .iter()
        .map(|_| runs.by_ref().take(seeds as usize).collect())
        .collect()
}

/// The plan of a training, over positions in the file.
pub(super) fn plan(
    held: &DataInMemory,
    training: &Training,
    batching: Batching,
    seed: u64,
) -> Result<Plan, TrainError> {
    let Some(unit_records) = training.unit_records else {
        return Ok(plan_of(held.dataset(), training.order, batching, seed)?);
    };
    let records = held.dataset().records();
    // The number of records in a unit, counting one byte each.
    let units = Units::fixed(records, 1, unit_records);
    let spec = PlanSpec::new(training.order, batching, seed);
    Ok(Plan::new(&spec, Catalog::of_units(units))?)
}

fn run(
    held: &DataInMemory,
    training: Training,
    seed: u64,
    interrupt: &Interrupt,
) -> Result<Run, TrainError> {
    let batching = Batching::Batches(held.blocks);
    let plan = plan(held, &training, batching, seed)?;
    let mut solver = solver(held, training.inner, seed);
    let mut epochs = Vec::new();
    let mut ids = Vec::new();
    for epoch in 0..training.epochs {
        let mut computing = 0.0;
        solver.begin_epoch(epoch, true)?;
        for step in 0..plan.steps(0) {
            if interrupt.load(Ordering::Relaxed) {
                return Err(interrupted());
            }
            ids.clear();
            ids.extend(plan.step_ids(epoch, step));
            held.arrange(&mut ids);
            let block = held.rows.select(&ids);
            let began = Instant::now();
            solver.train(&block, step)?;
            computing += began.elapsed().as_secs_f64();
        }
        let state = Epoch {
            difference: primal(held, solver.weights())? / training.optimum - 1.0,
            accuracy: accuracy(held, solver.weights())?,
            compute_s: computing,
        };
        epochs.push(state);
        if state.difference <= training.stop_at && seed > 0 {
            break;
        }
    }
    Ok(Run { seed, epochs })
}

fn solver(held: &DataInMemory, inner: InnerPasses, seed: u64) -> OutOfCore {
    let options = OutOfCoreOptions {
        inner,
        tighten: None,
        skip: false,
        coded_rows: 0,
        snapshots: false,
        held: true,
        seed,
    };
    let dataset = held.dataset();
    let problem = Arc::clone(&held.problem);
    OutOfCore::new(problem, dataset.records(), options)
}

fn primal(held: &DataInMemory, weights: &Weights) -> Result<f64, TrainError> {
    let mut losses = LossSum::new(&held.problem);
    losses.add(&held.problem, &held.rows, weights, Simd::best())?;
    Ok(losses.primal(&held.problem, weights))
}

fn accuracy(held: &DataInMemory, weights: &Weights) -> Result<f64, TrainError> {
    let rows = held.test.as_ref().unwrap_or(&held.rows);
    let mut losses = LossSum::new(&held.problem);
    losses.add(&held.problem, rows, weights, Simd::best())?;
    Ok(100.0 * losses.accuracy())
}

/// The optimum to a relative gap of [`OPTIMUM_GAP`], or as near as the allowed sweeps reach.
pub(super) fn optimum(
    held: &DataInMemory,
    interrupt: &Interrupt,
) -> Result<Certificate, TrainError> {
    let solved = || solved(held, interrupt).map(|best| (best.primal, best.dual));
    let (primal, dual) = held.kept("the optimum", solved)?;
    Ok(Certificate { primal, dual })
}

/// Every sweep solves all rows at once.
fn solved(held: &DataInMemory, interrupt: &Interrupt) -> Result<Certificate, TrainError> {
    const MOST_SWEEPS: u64 = 300;
    let inner = InnerPasses::Until {
        epsilon: 1e-5,
        at_most: 40,
    };
    let mut solver = solver(held, inner, 0);
    let mut best = Certificate {
        primal: f64::INFINITY,
        dual: f64::NEG_INFINITY,
    };
    // The gap some sweeps ago; at the limit of f32 it stops falling.
    let mut before = f64::INFINITY;
    for sweep in 0..MOST_SWEEPS {
        if interrupt.load(Ordering::Relaxed) {
            return Err(interrupted());
        }
        solver.begin_epoch(sweep, true)?;
        solver.train(&held.rows, 0)?;
        best.primal = best.primal.min(primal(held, solver.weights())?);
        let mut bound = DualBound::new(&held.problem);
        bound.add(&held.problem, &held.rows, solver.duals(), Simd::best());
        best.dual = best.dual.max(bound.value(&held.problem));
        solver.put_right(&bound);
        let gap = best.relative_gap();
        if gap <= OPTIMUM_GAP {
            break;
        }
        if sweep % 10 == 9 {
            if gap > 0.9 * before {
                break;
            }
            before = gap;
        }
    }
    Ok(best)
}
