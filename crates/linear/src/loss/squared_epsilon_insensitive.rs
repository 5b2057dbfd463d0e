//! The squared ε-insensitive loss of a real target, the L2 loss of support vector regression:
//! ξ = max(0, |t − u| − ε)², d(α) = t α − ε |α| − α²/4C, α without bounds.
//!
//! It is two squared hinges, of t − u and of u − t, and Newton's method smooths both as it smooths the squared hinge.

use super::function::{Bend, Dual, LossFunction, NewtonTerms, RowTerms, Watch};
use super::squared_hinge::SquaredHinge;
use super::tube;
use crate::step::Outcome;
use crate::visit::Visit;

#[derive(Clone, Copy)]
pub(super) struct SquaredEpsilonInsensitive {
    pub epsilon: f64,
}

impl LossFunction for SquaredEpsilonInsensitive {
    fn name(&self) -> &'static str {
        "squared-epsilon-insensitive"
    }

    fn liblinear(&self) -> &'static [&'static str] {
        &["L2R_L2LOSS_SVR_DUAL", "L2R_L2LOSS_SVR"]
    }

    #[inline(always)]
    fn has_real_targets(&self) -> bool {
        true
    }

    fn has_kink(&self) -> bool {
        false
    }

    fn epsilon_is_usable(&self) -> bool {
        self.epsilon >= 0.0 && self.epsilon.is_finite()
    }

    #[inline(always)]
    fn value(&self, u: f64, target: f64) -> f64 {
        ((target - u).abs() - self.epsilon).max(0.0).powi(2)
    }

    fn dual(&self, cost: f64) -> Dual {
        Dual {
            lower: f32::NEG_INFINITY,
            upper: f32::INFINITY,
            diagonal: (0.5 / cost) as f32,
        }
    }

    fn dual_term(&self, row: &RowTerms, stored: f32) -> f64 {
        let half = 0.25 / row.cost;
        tube::term(row.target.into(), self.epsilon, half, stored.into())
    }

    fn term_error(&self, row: &RowTerms, stored: f32) -> f64 {
        let half = 0.25 / row.cost;
        tube::term_error(row.target.into(), self.epsilon, half, stored.into())
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
        8.0
    }

    fn smoothing(&self) -> Option<u32> {
        Some(4)
    }

    fn narrow(&self, bend: &Bend) -> [f64; 2] {
        SquaredHinge.narrow(bend)
    }

    fn distance(&self, mean: f64) -> f64 {
        mean.sqrt()
    }

    #[inline(always)]
    fn newton_loss(&self, u: f64, target: f64, cost: f64) -> [f64; 2] {
        let over = ((target - u).abs() - self.epsilon).max(0.0);
        let slope = 2.0 * cost * (over + tube::slack(u, target));
        [cost * over * over, slope]
    }

    #[inline(always)]
    fn newton(&self, u: f64, target: f64, cost: f64, tau: f64, none: [f64; 2]) -> NewtonTerms {
        let [loss, slope] = self.newton_loss(u, target, cost);
        let r = target - u;
        let above = SquaredHinge.newton(self.epsilon - r, 0.0, cost, tau, none);
        let below = SquaredHinge.newton(self.epsilon + r, 0.0, cost, tau, none);
        let (alpha, half) = (above.alpha - below.alpha, 0.25 / cost);
        NewtonTerms {
            loss,
            slope,
            alpha,
            curvature: above.curvature + below.curvature,
            path: above.path - below.path,
            smoothing: loss - alpha * r + self.epsilon * alpha.abs() + half * alpha * alpha,
            term: tube::term(target, self.epsilon, half, alpha),
            rounding: tube::term_error(target, self.epsilon, half, alpha),
        }
    }
}
