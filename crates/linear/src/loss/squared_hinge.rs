//! The squared hinge, the L2 loss of a support vector machine: ξ = max(0, t − u)², d(α) = t α − α²/4C, α ≥ 0.
//!
//! Newton's method smooths it after four line searches, which happens on separable classes and features of very
//! different sizes: α = C (s + r), s = t − u, r = √(s² + 4τ²). A row leaves at most 2Cτ².

use super::function::{Bend, Dual, LossFunction, NewtonTerms, RowTerms, Watch};
use super::quadratic;
use crate::step::Outcome;
use crate::visit::Visit;

#[derive(Clone, Copy)]
pub(super) struct SquaredHinge;

impl LossFunction for SquaredHinge {
    fn name(&self) -> &'static str {
        "squared-hinge"
    }

    fn about(&self) -> &'static str {
        "squared-hinge"
    }

    fn liblinear(&self) -> &'static [&'static str] {
        &["L2R_L2LOSS_SVC_DUAL", "L2R_L2LOSS_SVC"]
    }

    #[inline(always)]
    fn has_real_targets(&self) -> bool {
        false
    }

    fn has_kink(&self) -> bool {
        false
    }

    #[inline(always)]
    fn value(&self, u: f64, target: f64) -> f64 {
        (target - u).max(0.0).powi(2)
    }

    fn dual(&self, cost: f64) -> Dual {
        Dual {
            lower: 0.0,
            upper: f32::INFINITY,
            diagonal: (0.5 / cost) as f32,
        }
    }

    fn dual_term(&self, row: &RowTerms, stored: f32) -> f64 {
        quadratic::dual_term(row, 0.25 / row.cost, stored)
    }

    fn term_error(&self, row: &RowTerms, stored: f32) -> f64 {
        quadratic::term_error(row, 0.25 / row.cost, stored)
    }

    fn is_free(&self, row: &RowTerms, stored: f32) -> bool {
        quadratic::is_free(row, stored)
    }

    #[inline(always)]
    fn step(&self, row: &RowTerms, visit: &mut Visit, dot: f32, watch: &mut Watch) -> Outcome {
        quadratic::step(row, visit, dot, watch)
    }

    fn needs_fine_steps(&self) -> bool {
        false
    }

    #[inline(always)]
    fn fine_step(&self, row: &RowTerms, alpha: f64, u: f64, q: f64) -> f64 {
        quadratic::fine_step(row, alpha, u, q)
    }

    fn newton_passes(&self) -> f64 {
        8.0
    }

    fn smoothing(&self) -> Option<u32> {
        Some(4)
    }

    fn narrow(&self, bend: &Bend) -> [f64; 2] {
        let unit = 2.0 * bend.tau * bend.tau * (0.5 * bend.curvature).max(bend.largest);
        [unit, bend.over.sqrt() * bend.tau]
    }

    #[inline(always)]
    fn newton_loss(&self, u: f64, target: f64, cost: f64) -> [f64; 2] {
        let short = (target - u).max(0.0);
        [cost * short * short, 2.0 * cost * (short + 1e-6)]
    }

    #[inline(always)]
    fn newton(&self, u: f64, target: f64, cost: f64, tau: f64, _: [f64; 2]) -> NewtonTerms {
        let [loss, slope] = self.newton_loss(u, target, cost);
        let s = target - u;
        let root = (s * s + 4.0 * tau * tau).sqrt();
        let alpha = if s >= 0.0 {
            cost * (s + root)
        } else {
            cost * 4.0 * tau * tau / (root - s)
        };
        // Of both 0 / 0.
        let (curvature, path) = if root > 0.0 {
            (alpha / root, -4.0 * cost * tau / root)
        } else {
            (0.0, 0.0)
        };
        let squares = 0.25 / cost * alpha * alpha;
        NewtonTerms {
            loss,
            slope,
            alpha,
            curvature,
            path,
            smoothing: loss - alpha * s + squares,
            term: target * alpha - squares,
            rounding: 4.0 * f64::EPSILON * alpha * (target.abs() + s.max(0.0)),
        }
    }
}
