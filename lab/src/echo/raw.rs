//! The raw runs, and saved trainings, so that an interrupted table continues.

use std::path::PathBuf;

use pelton_train::TrainError;

use super::trial::{Look, Run, Trial, best};
use super::workload::Workload;
use crate::kept::{Kept, key_of};
use crate::raw_runs::RawRuns;
use crate::table::ReproduceConfig;

const COLUMNS: &str = "workload,phase,echo,rate,seed,time,target,fresh_to_target,used_to_target,seconds_to_target,\
                       best_at_equal_fresh,best_at_equal_steps,fresh,used,steps,seconds,mean_step_s";

/// The files that record every training.
pub(super) struct Raw {
    runs: RawRuns,
    kept: Kept,
}

/// Key of a training, or of the time of a step.
fn key(workload: &Workload, run: Option<&Run>) -> String {
    let Workload {
        name,
        note,
        ratio,
        budget,
        ..
    } = workload;
    key_of(&format!("{name} {note} {ratio} {budget} {run:?}"))
}

impl Raw {
    pub(super) fn open(config: &ReproduceConfig) -> Result<Raw, TrainError> {
        Ok(Raw {
            runs: RawRuns::create(&config.out.join("echo-runs.csv"), COLUMNS)?,
            kept: Kept::open(&config.out)?,
        })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.runs.path()
    }

    /// The time of a step, measured when the table began, or now if it begins.
    pub(super) fn step_s(&mut self, workload: &Workload) -> Result<f64, TrainError> {
        let key = key(workload, None);
        if let Some(seconds) = self.kept.get(&key) {
            return Ok(seconds);
        }
        self.kept.keep(&key, &workload.step_s)?;
        Ok(workload.step_s)
    }

    /// Trains, unless finished already, and records the training.
    pub(super) fn trained(
        &mut self,
        workload: &Workload,
        phase: &str,
        run: &Run,
    ) -> Result<Trial, TrainError> {
        let trial = match self.finished(workload, run) {
            Some(trial) => trial,
            None => workload.train(run)?,
        };
        self.line(workload, phase, run, &trial)?;
        Ok(trial)
    }

    /// A finished training.
    pub(super) fn finished(&self, workload: &Workload, run: &Run) -> Option<Trial> {
        self.kept.get(&key(workload, Some(run)))
    }

    /// Records a training.
    pub(super) fn line(
        &mut self,
        workload: &Workload,
        phase: &str,
        run: &Run,
        trial: &Trial,
    ) -> Result<(), TrainError> {
        let key = key(workload, Some(run));
        if self.kept.get::<Trial>(&key).is_none() {
            self.kept.keep(&key, trial)?;
        }
        let text = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
        let quality = |value: f64| {
            if value.is_finite() {
                format!("{:.4}", workload.shown(value))
            } else {
                String::new()
            }
        };
        let reached = trial.reached;
        let Look {
            fresh,
            used,
            steps,
            seconds,
            ..
        } = trial.end;
        self.runs.line(&[
            &workload.name,
            phase,
            &run.condition.to_string(),
            &format!("{:.6}", run.rate),
            &run.seed.to_string(),
            if run.paced { "real" } else { "modelled" },
            &quality(run.until.target),
            &text(reached.map(|reached| reached.fresh)),
            &text(reached.map(|reached| reached.used)),
            &text(reached.map(|reached| reached.seconds)),
            &quality(best(&trial.looks, |look| look.fresh <= workload.budget)),
            &quality(best(&trial.looks, |look| look.used <= workload.budget)),
            &fresh.to_string(),
            &used.to_string(),
            &steps.to_string(),
            &format!("{seconds:.3}"),
            &format!("{:.6}", trial.mean_step_s),
        ])
    }
}
