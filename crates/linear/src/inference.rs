//! How sure the weights of maximum likelihood are: standard errors, tests and intervals.
//!
//! The covariance of the weights is φ C H⁻¹, with H the Hessian of P and φ the dispersion: 1 for counts and classes,
//! and for least squares the sum of squares over the records less the weights (McCullagh, Nelder, Generalized Linear
//! Models, 1989, §2.5 and 4.4). Weights of records count as repetitions. Tests are those of Wald, by the normal
//! distribution, or for least squares Student's.

use pelton_format::Scale;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use crate::loss::Loss;
use crate::passes::Precision;
use crate::problem::Problem;

/// Share of samples in which the interval contains the coefficient.
pub const CONFIDENCE: f64 = 0.95;

/// The estimate of one coefficient, of an unscaled feature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coefficient {
    /// The feature; `None` for the intercept.
    pub feature: Option<usize>,
    /// The coefficient.
    pub estimate: f64,
    /// How precise it is; `None` if it is 0 as a combination of features before it, or grew without end.
    pub precise: Option<Precise>,
    /// Whether it grew without end.
    pub is_unbounded: bool,
}

/// How precise a coefficient is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precise {
    /// Its standard error.
    pub error: f64,
    /// The coefficient over that.
    pub statistic: f64,
    /// Probability of one at least as large if the true one is 0.
    pub p: f64,
    /// The interval that holds the true one in 95 % of samples.
    pub interval: [f64; 2],
}

/// The coefficients of a vector, the intercept first.
#[derive(Clone, Debug, PartialEq)]
pub struct Inference {
    /// One each, in the order of the features.
    pub coefficients: Vec<Coefficient>,
    /// Records less weights if `statistic` has Student's distribution; `None` if it is normal.
    pub freedom: Option<f64>,
}

impl Inference {
    /// Coefficients of a vector trained on `records` records with scaled features and centred targets; with the
    /// opposite sign if `is_turned`.
    pub fn new(
        problem: &Problem,
        found: &Precision,
        records: u64,
        scale: Option<&Scale>,
        target_centre: f64,
        is_turned: bool,
    ) -> Inference {
        let features = problem.features();
        let count = found.kept.len();
        let unit = problem.unit_cost(0);
        let records = problem.weight_of_records(records);
        let freedom = (problem.loss() == Loss::Squared).then_some(records - count as f64);
        // P is half the sum of squares.
        let dispersion = freedom.map_or(1.0, |freedom| 2.0 * found.value / unit / freedom);
        let factor = |j: usize| scale.map_or(1.0, |scale| scale.factors()[j]);
        let shift = |j: usize| {
            scale
                .and_then(|scale| scale.shifts().get(j))
                .copied()
                .unwrap_or(0.0)
        };
        let constant = problem.bias().map_or(1.0, f64::from);
        // A coefficient is a combination of the weights: its own, or for the intercept all.
        let of_feature = |j: usize| vec![(j, factor(j))];
        let of_intercept = || {
            let shifted = (0..features).map(|j| (j, -factor(j) * shift(j)));
            let shifted = shifted.filter(|(_, share)| *share != 0.0);
            shifted
                .chain([(features, constant)])
                .collect::<Vec<(usize, f64)>>()
        };
        let mut places = vec![None; problem.length()];
        for (place, &j) in found.kept.iter().enumerate() {
            places[j] = Some(place);
        }
        let sign = if is_turned { -1.0 } else { 1.0 };
        let of = |feature: Option<usize>| {
            let shares = feature.map_or_else(of_intercept, of_feature);
            let sum: f64 = shares
                .iter()
                .map(|(j, share)| share * found.weights[*j])
                .sum();
            let centre = if feature.is_none() {
                target_centre
            } else {
                0.0
            };
            // 0 has no sign.
            let estimate = sign * (sum + centre) + 0.0;
            let kept: Vec<(usize, f64)> = shares
                .iter()
                .filter_map(|(j, share)| Some((places[*j]?, *share)))
                .collect();
            let entry = |i: usize, j: usize| found.inverse[i * count + j];
            let products = kept
                .iter()
                .flat_map(|(i, a)| kept.iter().map(move |(j, b)| (*i, *j, a * b)));
            let variance: f64 = products.map(|(i, j, share)| share * entry(i, j)).sum();
            let error = (dispersion * unit * variance.max(0.0)).sqrt();
            let own = feature.unwrap_or(features);
            let is_unbounded = found.unbounded.contains(&own);
            let is_known = places[own].is_some() && !is_unbounded && error.is_finite();
            Coefficient {
                feature,
                estimate,
                precise: is_known.then(|| precise(estimate, error, freedom)),
                is_unbounded,
            }
        };
        let intercept = problem.bias().is_some().then_some(None);
        let features = (0..features).filter(|j| Some(*j) != problem.offset());
        Inference {
            coefficients: intercept
                .into_iter()
                .chain(features.map(Some))
                .map(of)
                .collect(),
            freedom,
        }
    }
}

fn precise(estimate: f64, error: f64, freedom: Option<f64>) -> Precise {
    let statistic = estimate / error;
    let student = freedom.and_then(|freedom| StudentsT::new(0.0, 1.0, freedom).ok());
    let normal = Normal::standard();
    let (below, quantile) = match &student {
        Some(student) => (
            student.cdf(-statistic.abs()),
            student.inverse_cdf(0.5 + 0.5 * CONFIDENCE),
        ),
        // With as many records as weights there are no degrees of freedom.
        None if freedom.is_some() => (f64::NAN, f64::NAN),
        None => (
            normal.cdf(-statistic.abs()),
            normal.inverse_cdf(0.5 + 0.5 * CONFIDENCE),
        ),
    };
    Precise {
        error,
        statistic,
        p: 2.0 * below,
        interval: [estimate - quantile * error, estimate + quantile * error],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_those_of_tables() {
        // R: 2 * pnorm(-1.5), 2 * pt(-2.5, 7), qt(0.975, 7).
        let normal = precise(3.0, 2.0, None);
        assert!((normal.p - 0.133_614_402_537_716_1).abs() < 1e-10);
        assert!((normal.interval[1] - (3.0 + 2.0 * 1.959_963_984_540_054)).abs() < 1e-9);
        let student = precise(-5.0, 2.0, Some(7.0));
        assert!(
            (student.p - 0.040_992_218_585_752_9).abs() < 1e-9,
            "{}",
            student.p
        );
        assert!((student.interval[0] - (-5.0 - 2.0 * 2.364_624_251_592_785)).abs() < 1e-8);
        assert!(precise(1.0, 1.0, Some(0.0)).p.is_nan());
    }
}
