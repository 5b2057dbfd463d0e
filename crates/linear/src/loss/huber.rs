//! Huber's loss of a real target: ξ = ½ r² for |r| ≤ ε and ε |r| − ½ ε² beyond, r = t − u; d(α) = t α − α²/2C,
//! −Cε ≤ α ≤ Cε.
//!
//! Newton's method smooths it at both ends of the parabola, as it smooths the squared hinge: α = C [r − g(r − ε) + g(−r
//! − ε)], g(s) = ½ (s + √(s² + 4τ²)); its size stays below Cε. A row leaves about ½Cτ², or Cετ if τ is larger than ε.

use super::function::{Bend, Dual, LossFunction, NewtonTerms, RowTerms, Watch};
use super::{quadratic, tube};
use crate::step::Outcome;
use crate::visit::Visit;

#[derive(Clone, Copy)]
pub(super) struct Huber {
    pub epsilon: f64,
}

impl LossFunction for Huber {
    fn name(&self) -> &'static str {
        "huber"
    }

    #[inline(always)]
    fn has_real_targets(&self) -> bool {
        true
    }

    fn has_kink(&self) -> bool {
        false
    }

    fn epsilon_is_usable(&self) -> bool {
        self.epsilon > 0.0 && self.epsilon.is_finite()
    }

    #[inline(always)]
    fn value(&self, u: f64, target: f64) -> f64 {
        let off = (target - u).abs();
        let inner = off.min(self.epsilon);
        inner * (off - 0.5 * inner)
    }

    fn dual(&self, cost: f64) -> Dual {
        let most = tube::below(cost * self.epsilon);
        Dual {
            lower: -most,
            upper: most,
            diagonal: (1.0 / cost) as f32,
        }
    }

    fn dual_term(&self, row: &RowTerms, stored: f32) -> f64 {
        quadratic::dual_term(row, 0.5 / row.cost, stored)
    }

    fn term_error(&self, row: &RowTerms, stored: f32) -> f64 {
        quadratic::term_error(row, 0.5 / row.cost, stored)
    }

    fn is_free(&self, row: &RowTerms, stored: f32) -> bool {
        quadratic::is_free(row, stored)
    }

    #[inline(always)]
    fn step(&self, row: &RowTerms, visit: &mut Visit, dot: f32, watch: &mut Watch) -> Outcome {
        quadratic::step(row, visit, dot, watch)
    }

    fn needs_fine_steps(&self) -> bool {
        true
    }

    #[inline(always)]
    fn fine_step(&self, row: &RowTerms, alpha: f64, u: f64, q: f64) -> f64 {
        quadratic::fine_step(row, alpha, u, q)
    }

    fn newton_passes(&self) -> f64 {
        12.0
    }

    fn smoothing(&self) -> Option<u32> {
        Some(0)
    }

    fn narrow(&self, bend: &Bend) -> [f64; 2] {
        let (tau, width) = (bend.tau, bend.tau.min(self.epsilon));
        let unit = 2.0 * tau * (0.5 * tau * bend.curvature).max(width * bend.largest);
        [unit, bend.over.sqrt() * tau]
    }

    fn distance(&self, mean: f64) -> f64 {
        let inside = (2.0 * mean).sqrt();
        if inside <= self.epsilon {
            inside
        } else {
            mean / self.epsilon + 0.5 * self.epsilon
        }
    }

    #[inline(always)]
    fn newton_loss(&self, u: f64, target: f64, cost: f64) -> [f64; 2] {
        let slope = ((target - u).abs() + tube::slack(u, target)).min(self.epsilon);
        [cost * self.value(u, target), cost * slope]
    }

    #[inline(always)]
    fn newton(&self, u: f64, target: f64, cost: f64, tau: f64, _: [f64; 2]) -> NewtonTerms {
        let [loss, slope] = self.newton_loss(u, target, cost);
        let (r, epsilon) = (target - u, self.epsilon);
        let (above, below) = (r - epsilon, -r - epsilon);
        let root = |s: f64| (s * s + 4.0 * tau * tau).sqrt().max(f64::MIN_POSITIVE);
        let roots = [root(above), root(below)];
        // g(s) minus its value at τ = 0.
        let tail = |s: f64, root: f64| 2.0 * tau * tau / (root + s.abs());
        let smoothed = tail(below, roots[1]) - tail(above, roots[0]);
        let most = cost * epsilon;
        let alpha = (cost * (r.clamp(-epsilon, epsilon) + smoothed)).clamp(-most, most);
        let half = 0.5 / cost;
        NewtonTerms {
            loss,
            slope,
            alpha,
            curvature: (-0.5 * cost * (above / roots[0] + below / roots[1])).max(0.0),
            path: 2.0 * cost * tau * (1.0 / roots[0] - 1.0 / roots[1]),
            smoothing: loss - alpha * r + half * alpha * alpha,
            term: tube::term(target, 0.0, half, alpha),
            rounding: tube::term_error(target, 0.0, half, alpha),
        }
    }
}
