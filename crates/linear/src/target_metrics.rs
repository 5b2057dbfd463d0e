//! How well a model predicts real targets: R², mean absolute and root mean squared error, and for a loss with a
//! logarithmic link the mean Poisson deviance. They are scikit-learn's `r2_score`, `mean_absolute_error`,
//! `root_mean_squared_error` and `mean_poisson_deviance`.
//!
//! Sums are in f64 over the rows as they come. The variance of the targets is updated about their running mean
//! (Welford, Technometrics 1962), so that targets far from 0 lose no digits, and those of ranks about the mean of all.

use serde::{Deserialize, Serialize};

use crate::loss::Loss;
use crate::peers::{Exchange, Peers};
use crate::predict::Prediction;

/// Sums over rows.
#[derive(Clone, Debug)]
pub struct TargetMetrics {
    loss: Loss,
    records: u64,
    mean: f64,
    /// Σ (t − mean)².
    spread: f64,
    absolute: f64,
    squared: f64,
    deviance: f64,
}

/// How well a model predicts targets. Absent figures do not exist for this model or data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetFigures {
    /// Rows.
    pub records: u64,
    /// 1 − Σ (t − p)² / Σ (t − mean of t)²; if all targets are equal, 1 for exact predictions, else 0; absent with
    /// fewer than two rows.
    pub r2: Option<f64>,
    /// Mean of |t − p|.
    pub mae: f64,
    /// The square root of the mean of (t − p)².
    pub rmse: f64,
    /// Mean Poisson deviance; of models of loss poisson.
    pub poisson_deviance: Option<f64>,
}

impl TargetMetrics {
    /// No rows yet.
    pub fn new(loss: Loss) -> TargetMetrics {
        TargetMetrics {
            loss,
            records: 0,
            mean: 0.0,
            spread: 0.0,
            absolute: 0.0,
            squared: 0.0,
            deviance: 0.0,
        }
    }

    /// Adds a row of a label that is a target.
    pub fn add(&mut self, label: u32, prediction: Prediction<'_>) {
        let target = f64::from(f32::from_bits(label));
        let value = prediction.values[0];
        let off = target - self.loss.prediction(value);
        self.records += 1;
        let from_mean = target - self.mean;
        self.mean += from_mean / self.records as f64;
        self.spread += from_mean * (target - self.mean);
        self.absolute += off.abs();
        self.squared += off * off;
        if self.loss == Loss::Poisson {
            self.deviance += 2.0 * self.loss.function().value(value, target);
        }
    }

    /// Adds the sums of the other ranks.
    pub fn add_up<E>(&mut self, peers: &mut Peers<'_, E>) -> Result<(), E> {
        let records = self.records as f64;
        let mut sums = [
            records,
            records * self.mean,
            self.absolute,
            self.squared,
            self.deviance,
        ];
        peers(Exchange::Sum(&mut sums))?;
        let mean = sums[1] / sums[0].max(1.0);
        let mut spread = [self.spread + records * (self.mean - mean).powi(2)];
        peers(Exchange::Sum(&mut spread))?;
        [self.absolute, self.squared, self.deviance] = [sums[2], sums[3], sums[4]];
        (self.records, self.mean, self.spread) = (sums[0] as u64, mean, spread[0]);
        Ok(())
    }

    /// The figures of all rows added.
    pub fn figures(&self) -> TargetFigures {
        let records = self.records.max(1) as f64;
        let r2 = if self.spread > 0.0 {
            1.0 - self.squared / self.spread
        } else {
            f64::from(u8::from(self.squared == 0.0))
        };
        TargetFigures {
            records: self.records,
            r2: (self.records > 1).then_some(r2),
            mae: self.absolute / records,
            rmse: (self.squared / records).sqrt(),
            poisson_deviance: (self.loss == Loss::Poisson).then_some(self.deviance / records),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::derive;

    /// Targets about `centre`, and values near them.
    fn rows(count: u64, centre: f32) -> Vec<(f32, f64)> {
        let number =
            |row: u64, at: u64| (derive(derive(5, row), at) >> 40) as f32 / (1 << 24) as f32;
        (0..count)
            .map(|row| {
                let target = centre + number(row, 1);
                (target, f64::from(target) + f64::from(number(row, 2)) - 0.4)
            })
            .collect()
    }

    fn figures(rows: &[(f32, f64)], loss: Loss, ranks: usize) -> TargetFigures {
        let mut parts: Vec<TargetMetrics> = Vec::new();
        for part in rows.chunks(rows.len().div_ceil(ranks)) {
            let mut metrics = TargetMetrics::new(loss);
            for &(target, value) in part {
                let values = &[value][..];
                metrics.add(target.to_bits(), Prediction { class: 0, values });
            }
            parts.push(metrics);
        }
        // Each exchange sums over all parts, as ranks would.
        let mut exchanged: Vec<Vec<f64>> = Vec::new();
        for round in 0..2 {
            let mut sums: Vec<f64> = Vec::new();
            for part in &parts {
                let mut at = 0;
                let mut peers = |what: Exchange<'_>| -> Result<(), ()> {
                    let Exchange::Sum(values) = what else {
                        return Ok(());
                    };
                    if at == round {
                        sums.resize(values.len(), 0.0);
                        sums.iter_mut()
                            .zip(&*values)
                            .for_each(|(sum, value)| *sum += value);
                    } else if let Some(known) = exchanged.get(at) {
                        values.copy_from_slice(known);
                    }
                    at += 1;
                    Ok(())
                };
                part.clone().add_up(&mut peers).unwrap();
            }
            exchanged.push(sums);
        }
        let mut found = exchanged.into_iter();
        let mut all = parts.swap_remove(0);
        let mut peers = |what: Exchange<'_>| -> Result<(), ()> {
            if let (Exchange::Sum(values), Some(known)) = (what, found.next()) {
                values.copy_from_slice(&known);
            }
            Ok(())
        };
        all.add_up(&mut peers).unwrap();
        all.figures()
    }

    #[test]
    fn figures_are_their_definitions_also_far_from_zero_and_over_ranks() {
        for centre in [0.0, 3.0, 1e5] {
            let rows = rows(500, centre);
            let count = rows.len() as f64;
            let mean = rows.iter().map(|row| f64::from(row.0)).sum::<f64>() / count;
            let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
                rows.iter().map(|row| of(row.0.into(), row.1)).sum()
            };
            let squares = sum(&|t, p| (t - p).powi(2));
            let r2 = 1.0 - squares / sum(&|t, _| (t - mean).powi(2));
            for ranks in [1, 3] {
                let found = figures(&rows, Loss::Squared, ranks);
                assert_eq!((found.records, found.poisson_deviance), (500, None));
                let near =
                    |a: f64, b: f64| assert!((a - b).abs() <= 1e-10 * (1.0 + b.abs()), "{a} {b}");
                near(found.r2.unwrap(), r2);
                near(found.mae, sum(&|t, p| (t - p).abs()) / count);
                near(found.rmse, (squares / count).sqrt());
            }
            let logs: Vec<(f32, f64)> = rows
                .iter()
                .map(|row| (row.0, (row.1.abs() + 0.1).ln()))
                .collect();
            let deviance = |&(t, u): &(f32, f64)| {
                let (t, p) = (f64::from(t), u.exp());
                let entropy = if t > 0.0 { t * (t / p).ln() } else { 0.0 };
                2.0 * (entropy - t + p)
            };
            let expected = logs.iter().map(deviance).sum::<f64>() / count;
            let found = figures(&logs, Loss::Poisson, 1).poisson_deviance.unwrap();
            assert!(
                (found - expected).abs() <= 1e-9 * (1.0 + expected),
                "{found} {expected}"
            );
        }
        let equal = [(2.0, 2.0), (2.0, 2.0)];
        assert_eq!(figures(&equal, Loss::Squared, 1).r2, Some(1.0));
        let off = [(2.0, 2.5), (2.0, 2.0)];
        assert_eq!(figures(&off, Loss::Squared, 1).r2, Some(0.0));
        assert_eq!(figures(&off[..1], Loss::Squared, 1).r2, None);
    }
}
