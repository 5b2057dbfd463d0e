//! The raw runs, and trainings that are kept, so that an interrupted table continues.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pelton_train::TrainError;
use serde::{Deserialize, Serialize};

use super::trial::{Look, Run, Trial, best};
use super::workload::Workload;
use crate::raw_runs::RawRuns;
use crate::table::ReproduceConfig;
use crate::trainings::key_of;

const COLUMNS: &str = "workload,phase,echo,rate,seed,time,target,fresh_to_target,used_to_target,seconds_to_target,\
                       best_at_equal_fresh,best_at_equal_steps,fresh,used,steps,seconds,mean_step_s";

/// The files in which every training is written down.
pub(super) struct Raw {
    runs: RawRuns,
    kept: RawRuns,
    steps: BTreeMap<String, f64>,
    trials: BTreeMap<String, Trial>,
}

/// A line of what is kept: a training, or the time of a step.
#[derive(Serialize, Deserialize)]
enum Kept {
    Step(String, f64),
    Trial(String, Trial),
}

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
        let path = config.out.join("echo-trainings.jsonl");
        let (mut steps, mut trials) = (BTreeMap::new(), BTreeMap::new());
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        // A line that was cut short is not a finished training.
        for kept in text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
        {
            match kept {
                Kept::Step(key, seconds) => drop(steps.insert(key, seconds)),
                Kept::Trial(key, trial) => drop(trials.insert(key, trial)),
            }
        }
        Ok(Raw {
            runs: RawRuns::create(&config.out.join("echo-runs.csv"), COLUMNS)?,
            kept: RawRuns::append(&path)?,
            steps,
            trials,
        })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.runs.path()
    }

    fn keep(&mut self, kept: &Kept) -> Result<(), TrainError> {
        let line = serde_json::to_string(kept).expect("numbers and text");
        self.kept.line(&[&line])
    }

    /// The time of a step when the table was begun; now, where it begins.
    pub(super) fn step_s(&mut self, workload: &Workload) -> Result<f64, TrainError> {
        let key = key(workload, None);
        if let Some(&seconds) = self.steps.get(&key) {
            return Ok(seconds);
        }
        self.keep(&Kept::Step(key, workload.step_s))?;
        Ok(workload.step_s)
    }

    /// Trains, unless it is finished, and writes it down.
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

    /// A training that is finished.
    pub(super) fn finished(&self, workload: &Workload, run: &Run) -> Option<Trial> {
        self.trials.get(&key(workload, Some(run))).cloned()
    }

    /// Writes a training down.
    pub(super) fn line(
        &mut self,
        workload: &Workload,
        phase: &str,
        run: &Run,
        trial: &Trial,
    ) -> Result<(), TrainError> {
        let key = key(workload, Some(run));
        if !self.trials.contains_key(&key) {
            self.keep(&Kept::Trial(key.clone(), trial.clone()))?;
            self.trials.insert(key, trial.clone());
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
