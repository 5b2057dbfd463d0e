//! The file of raw runs.

use pelton_train::TrainError;

use super::trial::{Condition, Trial, smoothed};
use crate::raw_runs::RawRuns;

/// Where every training is written down.
pub(super) struct Raw {
    pub runs: RawRuns,
    pub data: String,
    pub ratio: f64,
    pub step_s: f64,
    pub batch: u64,
    pub target: f64,
}

impl Raw {
    /// Seconds that `fresh` examples used `factor` times take: fresh · max(t_up, e·t_down).
    fn modelled_s(&self, fresh: f64, factor: f64) -> f64 {
        fresh / self.batch as f64 * self.step_s * self.ratio.max(factor)
    }

    pub fn line(
        &mut self,
        phase: &str,
        condition: Condition,
        rate: f32,
        seed: u64,
        trial: &Trial,
    ) -> Result<(), TrainError> {
        let text = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
        let reached = trial.reached;
        let factor = reached.map_or(f64::NAN, |reached| reached.used / reached.fresh);
        let end = smoothed(&trial.looks).last().copied();
        self.runs.line(&[
            &self.data,
            phase,
            &format!("\"{}\"", condition.name()),
            &rate.to_string(),
            &seed.to_string(),
            &format!("{:.4}", self.target),
            &text(reached.map(|reached| reached.fresh)),
            &text(reached.map(|reached| reached.used)),
            &text(reached.map(|reached| reached.wall_s)),
            &text(reached.map(|reached| self.modelled_s(reached.fresh, factor))),
            &text(end),
            &trial.fresh.to_string(),
            &trial.echoed.to_string(),
            &trial.steps.to_string(),
            &trial.late_steps.to_string(),
            &format!("{:.6}", trial.mean_step_s),
            &format!("{:.3}", trial.wall_s),
        ])
    }
}
