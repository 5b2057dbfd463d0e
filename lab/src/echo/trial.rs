//! One training: a loader, a net, and the moment it reached the target.
//!
//! **In real time** the source takes R·t_down for a batch, with t_down measured before, and a step takes its actual
//! time. Evaluations stop the clock and the source.
//!
//! **Modelled**, batches come as fast as they can and n steps on f fresh batches take t_down·max(R·f, n). With a fixed
//! echo the sequence of batches, and so the net, is the same in both cases.

use pelton_feed::EchoSetting;
use pelton_plan::Echo;
use pelton_train::TrainError;
use serde::{Deserialize, Serialize};

use super::source::Clock;
use super::workload::{Learner, Workload};

/// Number of evaluations averaged for the quality of a net.
const SMOOTHED: usize = 3;

/// A condition to compare: an echo; `None` uses examples once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Condition(pub Option<EchoSetting>);

impl std::str::FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Condition, String> {
        match text {
            "none" => Ok(Condition(None)),
            text => Ok(Condition(Some(text.parse()?))),
        }
    }
}

impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            None => f.write_str("none"),
            Some(EchoSetting::Examples(echo, point)) => write!(f, "{point}:{}", echo.factor()),
            Some(EchoSetting::Batches(echo)) => write!(f, "batch:{}", echo.factor()),
            Some(EchoSetting::Auto(_)) => f.write_str("auto"),
        }
    }
}

impl Condition {
    pub fn is_auto(self) -> bool {
        matches!(self.0, Some(EchoSetting::Auto(_)))
    }

    /// The echo, with windows of the workload's size.
    fn echo(self, workload: &Workload) -> Result<Option<EchoSetting>, TrainError> {
        let batches = (workload.window / workload.batch as u32).max(1);
        Ok(match self.0 {
            Some(EchoSetting::Examples(echo, point)) => {
                let echo = Echo::new(echo.factor(), workload.window)?;
                Some(EchoSetting::Examples(echo, point))
            }
            Some(EchoSetting::Batches(echo)) => {
                Some(EchoSetting::Batches(Echo::new(echo.factor(), batches)?))
            }
            other => other,
        })
    }
}

/// End of a training: once the target is reached, but not before `least` fresh examples and not after `most`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Until {
    pub target: f64,
    pub least: u64,
    pub most: u64,
}

/// Identifies a training.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub condition: Condition,
    /// The learning rate.
    pub rate: f64,
    pub seed: u64,
    pub paced: bool,
    pub until: Until,
}

/// An evaluation on the held-out data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Look {
    pub fresh: u64,
    pub used: u64,
    pub steps: u64,
    pub seconds: f64,
    pub quality: f64,
}

/// The point at which the target was met, between two evaluations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Reached {
    pub fresh: f64,
    pub used: f64,
    pub seconds: f64,
}

/// Results of a training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Trial {
    pub looks: Vec<Look>,
    pub reached: Option<Reached>,
    /// Over all of the training.
    pub end: Look,
    /// Mean step, as measured.
    pub mean_step_s: f64,
}

/// Quality averaged over the last few evaluations, from the first with that many.
fn smoothed(looks: &[Look]) -> Vec<f64> {
    let mean = |few: &[Look]| few.iter().map(|look| look.quality).sum::<f64>() / SMOOTHED as f64;
    looks.windows(SMOOTHED).map(mean).collect()
}

/// The best smoothed quality of the first evaluations, those for which `counts` is true.
pub(super) fn best(looks: &[Look], counts: impl Fn(&Look) -> bool) -> f64 {
    let number = looks.partition_point(counts);
    let qualities = smoothed(&looks[..number]);
    qualities.into_iter().fold(f64::NEG_INFINITY, f64::max)
}

/// The first point at which the smoothed quality meets `target`, interpolated between two evaluations.
fn reached(looks: &[Look], target: f64) -> Option<Reached> {
    let smoothed = smoothed(looks);
    let at = smoothed.iter().position(|&quality| quality >= target)?;
    let look = &looks[at + SMOOTHED - 1];
    let (before, part) = match at.checked_sub(1) {
        Some(last) => {
            let part = (target - smoothed[last]) / (smoothed[at] - smoothed[last]);
            (looks[last + SMOOTHED - 1], part)
        }
        None => (*look, 1.0),
    };
    let between = |from: f64, to: f64| from + part * (to - from);
    Some(Reached {
        fresh: between(before.fresh as f64, look.fresh as f64),
        used: between(before.used as f64, look.used as f64),
        seconds: between(before.seconds, look.seconds),
    })
}

impl Workload {
    /// Seconds for `used` uses of `fresh` fresh examples: max(t_up·fresh, t_down·uses).
    pub fn modelled_s(&self, fresh: f64, used: f64) -> f64 {
        self.step_s / self.batch as f64 * used.max(self.ratio * fresh)
    }

    /// Trains until the target, or the end.
    pub fn train(&self, run: &Run) -> Result<Trial, TrainError> {
        let mut learner = Learner::new(self, run.rate, run.seed)?;
        let echo = run.condition.echo(self)?;
        let clock = Clock::start();
        let mut loader = self.loader(echo, run.seed, run.paced.then_some(&clock))?;
        let mut trial = Trial::default();
        let mut stepping_s = 0.0;
        let Until {
            target,
            least,
            most,
        } = run.until;
        let goes_on = |trial: &Trial| {
            let fresh = trial.end.fresh;
            fresh < least || (fresh < most && trial.reached.is_none())
        };
        while goes_on(&trial) {
            let Some(batch) = loader.next().transpose()? else {
                break;
            };
            let end = &mut trial.end;
            end.fresh += batch.fresh();
            end.used += batch.len() as u64;
            end.steps += 1;
            let ready = learner.ready(batch)?;
            let began = clock.now();
            let is_finite = learner.step(&ready)?;
            let now = clock.now();
            stepping_s += (now - began).as_secs_f64();
            end.seconds = if run.paced {
                now.as_secs_f64()
            } else {
                self.modelled_s(end.fresh as f64, end.used as f64)
            };
            if !is_finite {
                break;
            }
            if end.steps.is_multiple_of(self.look_every) {
                let mut look = *end;
                look.quality = clock.paused(|| learner.quality())?;
                trial.looks.push(look);
                if trial.reached.is_none() {
                    trial.reached = reached(&trial.looks, target);
                }
            }
        }
        trial.mean_step_s = stepping_s / trial.end.steps.max(1) as f64;
        Ok(trial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(qualities: &[f64]) -> Vec<Look> {
        let look = |(i, &quality): (u64, &f64)| Look {
            fresh: 100 * i,
            used: 300 * i,
            steps: 3 * i,
            seconds: 0.5 * i as f64,
            quality,
        };
        (1..).zip(qualities).map(look).collect()
    }

    #[test]
    fn the_target_is_met_between_two_looks() {
        let looks = looks(&[0.3, 0.3, 0.3, 0.6, 0.6, 0.0]);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        // Means of three: 0.3, 0.4, 0.5, 0.4, at evaluations 3 to 6.
        let found = reached(&looks, 0.45).unwrap();
        assert!(near(found.fresh, 450.0) && near(found.used, 1350.0));
        assert!(near(found.seconds, 2.25));
        assert!(near(reached(&looks, 0.2).unwrap().fresh, 300.0));
        assert_eq!(reached(&looks, 0.51), None);
        assert_eq!(reached(&looks[..2], 0.0), None);
        assert!(near(best(&looks, |look| look.fresh <= 400), 0.4));
        assert!(near(best(&looks, |_| true), 0.5));
    }

    #[test]
    fn conditions_are_spelled_as_echo_is() {
        for text in ["none", "before:5", "after:2", "read:2.5", "batch:3", "auto"] {
            assert_eq!(text.parse::<Condition>().unwrap().to_string(), text);
        }
        assert!("before".parse::<Condition>().is_err());
    }
}
