//! Poisson regression of a target t ≥ 0 with a logarithmic link, as half the deviance of t from μ = e^u:
//! ξ = e^u − t u + t ln t − t, d(α) = C (μ − t − μ ln(μ/t)) + α ln t, α = C (t − μ), α ≤ C t; of t = 0, ξ = e^u and
//! d(α) = C (μ − μ ln μ).
//!
//! The terms in t alone, added to e^u − t u, make the least ξ of a row 0, as relative gaps and certificates need, and
//! change no optimum. With z = u − ln t it is ξ = t (e^z − 1 − z), which is precise for a good fit.

use super::function::{Dual, LossFunction, NewtonTerms, RowTerms, Watch};
use super::tube;
use crate::step::Outcome;
use crate::visit::Visit;

/// Beyond this u, α is that of this u: large enough, and finite.
const MOST: f64 = 200.0;

#[derive(Clone, Copy)]
pub(super) struct Poisson;

impl LossFunction for Poisson {
    fn name(&self) -> &'static str {
        "poisson"
    }

    #[inline(always)]
    fn has_real_targets(&self) -> bool {
        true
    }

    fn has_kink(&self) -> bool {
        false
    }

    fn accepts(&self, target: f32) -> bool {
        target >= 0.0
    }

    fn prediction(&self, u: f64) -> f64 {
        u.exp()
    }

    #[inline(always)]
    fn value(&self, u: f64, target: f64) -> f64 {
        if target > 0.0 {
            let z = u - target.ln();
            target * (z.exp_m1() - z).max(0.0)
        } else {
            u.exp()
        }
    }

    /// The upper bound depends on the target: see [`dual_term`].
    fn dual(&self, _: f64) -> Dual {
        Dual {
            lower: f32::NEG_INFINITY,
            upper: f32::INFINITY,
            diagonal: 0.0,
        }
    }

    fn dual_term(&self, row: &RowTerms, stored: f32) -> f64 {
        dual_term(row, stored)[0]
    }

    fn term_error(&self, row: &RowTerms, stored: f32) -> f64 {
        dual_term(row, stored)[1]
    }

    fn is_free(&self, _: &RowTerms, _: f32) -> bool {
        true
    }

    /// max over α of d(α) − ½ Q_ii (α − α₀)² − u (α − α₀). With α = C (t − e^v) its slope is 0 at
    /// v + Q C e^v = u + Q (C t − α₀).
    #[inline(always)]
    fn step(&self, row: &RowTerms, visit: &mut Visit, dot: f32, watch: &mut Watch) -> Outcome {
        let before = visit.alpha;
        let new = best(row, before.into(), dot.into(), visit.q.into());
        // Rounded before w is changed, so that w stays the sum of the stored α.
        let new = (new as f32).min(tube::below(row.cost * f64::from(row.target)));
        let mean = f64::from(row.target) - f64::from(before) / row.cost;
        let gradient = (f64::from(dot) - mean.ln()).clamp(-MOST, MOST) as f32;
        visit.alpha = new;
        visit.gradient = gradient;
        watch.largest = watch.largest.max(gradient.abs());
        Outcome {
            scale: new - before,
            settled: false,
        }
    }

    fn needs_fine_steps(&self) -> bool {
        true
    }

    #[inline(always)]
    fn fine_step(&self, row: &RowTerms, alpha: f64, u: f64, q: f64) -> f64 {
        let most = tube::below(row.cost * f64::from(row.target));
        best(row, alpha, u, q).min(most.into())
    }

    fn newton_passes(&self) -> f64 {
        15.0
    }

    /// A loss of t = 0 falls for ever.
    #[inline(always)]
    fn secant(&self, u: f64, target: f64, alpha: f64) -> f64 {
        if target > 0.0 {
            (alpha / (target.ln() - u)).abs()
        } else {
            0.0
        }
    }

    #[inline(always)]
    fn newton_loss(&self, u: f64, target: f64, cost: f64) -> [f64; 2] {
        let (mean, slack) = (u.exp(), tube::slack(u, target));
        let slope = (mean - target).abs() + slack * (mean + target);
        [cost * self.value(u, target), cost * slope]
    }

    #[inline(always)]
    fn newton(&self, u: f64, target: f64, cost: f64, _: f64, _: [f64; 2]) -> NewtonTerms {
        let [loss, slope] = self.newton_loss(u, target, cost);
        let v = u.min(MOST);
        let mean = v.exp();
        let (alpha, term, rounding) = if target > 0.0 {
            let log = target.ln();
            let z = v - log;
            let alpha = -cost * target * z.exp_m1();
            let share = mean / target;
            let term = alpha * log - cost * target * (share * z - z.exp_m1());
            let sizes = cost * target * (1.0 + share) * (1.0 + z.abs());
            (alpha, term, sizes + alpha.abs() * (log.abs() + v.abs()))
        } else {
            let size = cost * mean * (1.0 + v.abs());
            (-cost * mean, cost * mean * (1.0 - v), size)
        };
        NewtonTerms {
            loss,
            slope,
            alpha,
            curvature: cost * mean,
            path: 0.0,
            smoothing: 0.0,
            term,
            rounding: 32.0 * f64::EPSILON * rounding,
        }
    }
}

/// d(α) and its error bound: dividing and subtracting round μ by ε (t + |α| / C), and the slope of d is ln μ.
fn dual_term(row: &RowTerms, stored: f32) -> [f64; 2] {
    let (alpha, cost, target) = (f64::from(stored), row.cost, f64::from(row.target));
    let mean = target - alpha / cost;
    if mean < 0.0 || target == 0.0 && alpha > 0.0 {
        return [f64::NEG_INFINITY, 0.0];
    }
    let log = if mean > 0.0 { mean.ln() } else { 0.0 };
    let rounding = 8.0 * f64::EPSILON * (1.0 + log.abs());
    let (term, sizes) = if target > 0.0 {
        let of_target = target.ln();
        let entropy = if mean > 0.0 {
            mean * (log - of_target)
        } else {
            0.0
        };
        let sizes = cost * (mean + target) * (1.0 + of_target.abs());
        (cost * (mean - target - entropy) + alpha * of_target, sizes)
    } else {
        (cost * mean * (1.0 - log), cost * mean)
    };
    [term, rounding * (sizes + alpha.abs())]
}

/// The best α of a row alone.
#[inline(always)]
fn best(row: &RowTerms, alpha: f64, u: f64, q: f64) -> f64 {
    let (cost, target) = (row.cost, f64::from(row.target));
    cost * (target - solve_exponential(q * cost, u + q * (cost * target - alpha)))
}

/// e^v at the root of v + a e^v − b, a ≥ 0: with s = v + ln a the root of s + e^s − c, by Newton's method from the
/// right, from which it converges monotonically.
#[inline(always)]
fn solve_exponential(a: f64, b: f64) -> f64 {
    if a == 0.0 {
        return b.min(MOST).exp();
    }
    let c = b + a.ln();
    let mut s = if c > 1.0 { c.ln() } else { c };
    for _ in 0..30 {
        let exp = s.exp();
        let step = (s + exp - c) / (1.0 + exp);
        s -= step;
        if step.abs() <= 1e-14 * (1.0 + s.abs()) {
            break;
        }
    }
    s.exp() / a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_of_every_size() {
        for a in [1e-30, 1e-6, 0.5, 1.0, 300.0, 1e20] {
            for b in [-700.0, -3.0, 0.0, 0.7, 40.0, 1e6, 1e25] {
                let exp = solve_exponential(a, b);
                let size = 1.0 + f64::abs(b) + exp.ln().abs();
                assert!((exp.ln() + a * exp - b).abs() <= 1e-13 * size, "{a} {b}");
            }
        }
        assert_eq!(solve_exponential(0.0, 2.0), 2.0_f64.exp());
    }
}
