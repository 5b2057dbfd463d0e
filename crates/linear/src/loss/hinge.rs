//! The hinge, the L1 loss of a support vector machine: ξ = max(0, t − u), d(α) = t α, 0 ≤ α ≤ C.
//!
//! It has no curvature, so Newton's method smooths it by a barrier that keeps α inside (0, C): max over α of α(t − u) +
//! Cτ ln(α (C − α)), with the maximiser α = C/2 (1 + s / (r + 2τ)), s = t − u, r = √(s² + 4τ²). Smoothing leaves
//! between 0 and Cτ a row.

use super::function::{Bend, Dual, LossFunction, NewtonTerms, RowTerms, Watch};
use super::{quadratic, tube};
use crate::step::Outcome;
use crate::visit::Visit;

#[derive(Clone, Copy)]
pub(super) struct Hinge;

impl LossFunction for Hinge {
    fn name(&self) -> &'static str {
        "hinge"
    }

    fn about(&self) -> &'static str {
        "hinge"
    }

    fn liblinear(&self) -> &'static [&'static str] {
        &["L2R_L1LOSS_SVC_DUAL"]
    }

    #[inline(always)]
    fn has_real_targets(&self) -> bool {
        false
    }

    fn has_kink(&self) -> bool {
        true
    }

    #[inline(always)]
    fn value(&self, u: f64, target: f64) -> f64 {
        (target - u).max(0.0)
    }

    fn dual(&self, cost: f64) -> Dual {
        Dual {
            lower: 0.0,
            upper: cost as f32,
            diagonal: 0.0,
        }
    }

    fn dual_term(&self, row: &RowTerms, stored: f32) -> f64 {
        quadratic::dual_term(row, 0.0, stored)
    }

    fn term_error(&self, _: &RowTerms, _: f32) -> f64 {
        0.0
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
        24.0
    }

    fn smoothing(&self) -> Option<u32> {
        Some(0)
    }

    /// The loss in the dual value by rounding margins to f64 falls with τ², and the gap of smoothing rises with τ.
    fn narrow(&self, bend: &Bend) -> [f64; 2] {
        let (tau, largest) = (bend.tau, bend.largest);
        let noise = 0.5 * (f64::EPSILON * bend.margin).powi(2) * largest / (8.0 * tau) * bend.trace;
        let finest = (noise * tau.powi(3) / bend.smoothing).cbrt();
        let unit = tau * (8.0 * tau * bend.curvature).max(largest);
        [unit, (bend.over * tau).max(finest)]
    }

    #[inline(always)]
    fn newton_loss(&self, u: f64, target: f64, cost: f64) -> [f64; 2] {
        let is_level = u - target > tube::slack(u, target);
        [
            cost * self.value(u, target),
            if is_level { 0.0 } else { cost },
        ]
    }

    #[inline(always)]
    fn newton(&self, u: f64, target: f64, cost: f64, tau: f64, _: [f64; 2]) -> NewtonTerms {
        let [loss, slope] = self.newton_loss(u, target, cost);
        let s = target - u;
        let root = (s * s + 4.0 * tau * tau).sqrt();
        let alpha = cost * (0.5 + 0.5 * s / (root + 2.0 * tau));
        let curvature = cost * tau / (root * (root + 2.0 * tau));
        NewtonTerms {
            loss,
            slope,
            alpha,
            curvature,
            // α is a function of s / τ alone.
            path: s * curvature / tau,
            smoothing: loss - alpha * s,
            term: target * alpha,
            rounding: 0.0,
        }
    }
}
