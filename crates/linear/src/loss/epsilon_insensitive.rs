//! The ε-insensitive loss of a real target, the L1 loss of support vector regression: ξ = max(0, |t − u| − ε),
//! d(α) = t α − ε |α|, −C ≤ α ≤ C.
//!
//! It is two hinges, of t − u and of u − t, and Newton's method smooths both as it smooths the hinge.

use super::function::{Bend, Dual, LossFunction, NewtonTerms, RowTerms, Watch};
use super::hinge::Hinge;
use super::tube;
use crate::step::Outcome;
use crate::visit::Visit;

#[derive(Clone, Copy)]
pub(super) struct EpsilonInsensitive {
    pub epsilon: f64,
}

impl LossFunction for EpsilonInsensitive {
    fn name(&self) -> &'static str {
        "epsilon-insensitive"
    }

    fn liblinear(&self) -> &'static [&'static str] {
        &["L2R_L1LOSS_SVR_DUAL"]
    }

    #[inline(always)]
    fn has_real_targets(&self) -> bool {
        true
    }

    fn has_kink(&self) -> bool {
        true
    }

    fn epsilon_is_usable(&self) -> bool {
        self.epsilon >= 0.0 && self.epsilon.is_finite()
    }

    #[inline(always)]
    fn value(&self, u: f64, target: f64) -> f64 {
        ((target - u).abs() - self.epsilon).max(0.0)
    }

    fn dual(&self, cost: f64) -> Dual {
        Dual {
            lower: -cost as f32,
            upper: cost as f32,
            diagonal: 0.0,
        }
    }

    fn dual_term(&self, row: &RowTerms, stored: f32) -> f64 {
        tube::term(row.target.into(), self.epsilon, 0.0, stored.into())
    }

    fn term_error(&self, row: &RowTerms, stored: f32) -> f64 {
        tube::term_error(row.target.into(), self.epsilon, 0.0, stored.into())
    }

    fn is_free(&self, row: &RowTerms, stored: f32) -> bool {
        tube::is_free(row, stored)
    }

    #[inline(always)]
    fn step(&self, row: &RowTerms, visit: &mut Visit, dot: f32, watch: &mut Watch) -> Outcome {
        tube::step(row, self.epsilon, visit, dot, watch)
    }

    fn needs_fine_steps(&self) -> bool {
        true
    }

    #[inline(always)]
    fn fine_step(&self, row: &RowTerms, alpha: f64, u: f64, q: f64) -> f64 {
        tube::fine_step(row, self.epsilon, alpha, u, q)
    }

    fn newton_passes(&self) -> f64 {
        30.0
    }

    fn smoothing(&self) -> Option<u32> {
        Some(0)
    }

    fn narrow(&self, bend: &Bend) -> [f64; 2] {
        Hinge.narrow(bend)
    }

    fn distance(&self, mean: f64) -> f64 {
        mean
    }

    #[inline(always)]
    fn newton_loss(&self, u: f64, target: f64, cost: f64) -> [f64; 2] {
        let inside = self.epsilon - (target - u).abs();
        let is_level = inside > tube::slack(u, target);
        [
            cost * self.value(u, target),
            if is_level { 0.0 } else { cost },
        ]
    }

    #[inline(always)]
    fn newton(&self, u: f64, target: f64, cost: f64, tau: f64, none: [f64; 2]) -> NewtonTerms {
        let [loss, slope] = self.newton_loss(u, target, cost);
        let r = target - u;
        let above = Hinge.newton(self.epsilon - r, 0.0, cost, tau, none);
        let below = Hinge.newton(self.epsilon + r, 0.0, cost, tau, none);
        let alpha = (above.alpha - below.alpha).clamp(-cost, cost);
        NewtonTerms {
            loss,
            slope,
            alpha,
            curvature: above.curvature + below.curvature,
            path: above.path - below.path,
            smoothing: loss - alpha * r + self.epsilon * alpha.abs(),
            term: tube::term(target, self.epsilon, 0.0, alpha),
            rounding: tube::term_error(target, self.epsilon, 0.0, alpha),
        }
    }
}
