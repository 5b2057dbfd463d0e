//! The raw runs.

use std::path::PathBuf;

use pelton_train::TrainError;

use super::trial::{Look, Run, Trial, best};
use super::workload::Workload;
use crate::raw_runs::RawRuns;
use crate::table::ReproduceConfig;

const COLUMNS: &str = "workload,phase,echo,rate,seed,time,target,fresh_to_target,used_to_target,seconds_to_target,\
                       best_at_equal_fresh,best_at_equal_steps,fresh,used,steps,seconds,mean_step_s";

/// The file in which every training is written down.
pub(super) struct Raw(RawRuns);

impl Raw {
    pub(super) fn create(config: &ReproduceConfig) -> Result<Raw, TrainError> {
        let runs = RawRuns::create(&config.out.join("echo-runs.csv"), COLUMNS)?;
        Ok(Raw(runs))
    }

    pub(super) fn path(&self) -> PathBuf {
        self.0.path()
    }

    pub(super) fn line(
        &mut self,
        workload: &Workload,
        phase: &str,
        run: &Run,
        trial: &Trial,
    ) -> Result<(), TrainError> {
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
        self.0.line(&[
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
