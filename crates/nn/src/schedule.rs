//! How the learning rate and the batch change over a run.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

/// The course of the learning rate after the warm-up, as a factor of the base rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Course {
    /// 1.
    Constant,
    /// Times `factor` at each of these epochs.
    Step {
        /// Epochs, ascending; fractions of the run if below 1.
        at: Vec<f64>,
        /// The factor.
        factor: f64,
    },
    /// ½(1 + cos πτ), τ from 0 after the warm-up to 1 at the end.
    Cosine,
}

/// How the batch grows (FCCS; Song et al., KDD 2020).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Growth {
    /// B₀ + ½(B_max − B₀)(1 − cos πτ).
    Cosine,
    /// B₀ / ½(1 + cos πτ), at most B_max.
    Inverse,
}

/// A batch that grows: fast continuous convergence, FCCS.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GrowingBatch {
    /// The rule.
    pub growth: Growth,
    /// B_max / B₀.
    pub most: f64,
    /// Part of the run before it grows: T_ini / T_end.
    pub from: f64,
    /// Whether it grows only at the start of each epoch, as in the paper, and not at every step.
    #[serde(default)]
    pub by_epoch: bool,
}

/// Learning rate and batch by step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The base learning rate.
    pub rate: f64,
    /// Epochs over which the rate rises from near 0, in a line.
    pub warmup_epochs: f64,
    /// The course after the warm-up.
    pub course: Course,
    /// Whether the batch grows.
    pub batch: Option<GrowingBatch>,
}

impl Schedule {
    /// The learning rate of the step that begins `epoch` epochs (a fraction) into a run of `epochs`, with
    /// `steps` steps in each.
    pub fn rate(&self, epoch: f64, epochs: f64, steps: u64) -> f64 {
        if epoch < self.warmup_epochs {
            // The first step already moves.
            let step = 1.0 / steps.max(1) as f64;
            return self.rate * ((epoch + step) / self.warmup_epochs).min(1.0);
        }
        self.rate
            * match &self.course {
                Course::Constant => 1.0,
                Course::Step { at, factor } => {
                    let at = at.iter().map(|&at| if at < 1.0 { at * epochs } else { at });
                    factor.powi(at.filter(|&at| epoch >= at).count() as i32)
                }
                Course::Cosine => {
                    let rest = (epochs - self.warmup_epochs).max(f64::MIN_POSITIVE);
                    0.5 * (1.0 + (PI * ((epoch - self.warmup_epochs) / rest).min(1.0)).cos())
                }
            }
    }

    /// Number of batches accumulated for one step there: B_t / B₀, rounded.
    pub fn batches(&self, epoch: f64, epochs: f64) -> u64 {
        let Some(batch) = self.batch else { return 1 };
        let epoch = if batch.by_epoch { epoch.floor() } else { epoch };
        let tau = (epoch / epochs - batch.from) / (1.0 - batch.from).max(f64::MIN_POSITIVE);
        let tau = tau.clamp(0.0, 1.0);
        let grown = match batch.growth {
            Growth::Cosine => 1.0 + 0.5 * (batch.most - 1.0) * (1.0 - (PI * tau).cos()),
            Growth::Inverse => (1.0 / (0.5 * (1.0 + (PI * tau).cos()))).min(batch.most),
        };
        (grown.round() as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(course: Course) -> Schedule {
        Schedule {
            rate: 2.0,
            warmup_epochs: 2.0,
            course,
            batch: None,
        }
    }

    #[test]
    fn rates_rise_then_follow_their_course() {
        let constant = schedule(Course::Constant);
        assert_eq!(constant.rate(0.0, 10.0, 4), 0.25);
        assert_eq!(constant.rate(1.75, 10.0, 4), 2.0);
        assert_eq!(constant.rate(9.0, 10.0, 4), 2.0);
        let steps = schedule(Course::Step {
            at: vec![0.5, 8.0],
            factor: 0.1,
        });
        assert_eq!(steps.rate(4.9, 10.0, 4), 2.0);
        assert_eq!(steps.rate(5.0, 10.0, 4), 0.2);
        assert!((steps.rate(8.0, 10.0, 4) - 0.02).abs() < 1e-15);
        let cosine = schedule(Course::Cosine);
        assert_eq!(cosine.rate(2.0, 10.0, 4), 2.0);
        assert!((cosine.rate(6.0, 10.0, 4) - 1.0).abs() < 1e-12);
        assert!(cosine.rate(10.0, 10.0, 4).abs() < 1e-12);
    }

    #[test]
    fn batches_grow_from_their_stage_on_to_the_most() {
        for growth in [Growth::Cosine, Growth::Inverse] {
            let mut of = schedule(Course::Constant);
            let (most, from) = (8.0, 0.25);
            let by_epoch = false;
            let batch = GrowingBatch {
                growth,
                most,
                from,
                by_epoch,
            };
            of.batch = Some(batch);
            let batches: Vec<u64> = (0..=16).map(|e| of.batches(f64::from(e), 16.0)).collect();
            assert!(batches[..5].iter().all(|&n| n == 1), "{batches:?}");
            assert!(batches.is_sorted(), "{batches:?}");
            assert_eq!(batches[16], 8);
            // Halfway through the growth: 1 + ½·7 = 4.5, or 1 / ½ = 2.
            assert_eq!(batches[10], if growth == Growth::Cosine { 5 } else { 2 });
            of.batch = Some(GrowingBatch {
                by_epoch: true,
                ..batch
            });
            assert_eq!(of.batches(10.9, 16.0), batches[10]);
        }
    }
}
