//! The squared loss of a real target: ξ = ½ (t − u)², d(α) = t α − α²/2C, α without bounds. With C = 1/λ it is ridge
//! regression.

use super::function::{Dual, LossFunction, NewtonTerms, RowTerms, Watch};
use super::{quadratic, tube};
use crate::step::Outcome;
use crate::visit::Visit;

#[derive(Clone, Copy)]
pub(super) struct Squared;

impl LossFunction for Squared {
    fn name(&self) -> &'static str {
        "squared"
    }

    #[inline(always)]
    fn has_real_targets(&self) -> bool {
        true
    }

    fn has_kink(&self) -> bool {
        false
    }

    #[inline(always)]
    fn value(&self, u: f64, target: f64) -> f64 {
        0.5 * (target - u).powi(2)
    }

    fn dual(&self, cost: f64) -> Dual {
        Dual {
            lower: f32::NEG_INFINITY,
            upper: f32::INFINITY,
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
        2.0
    }

    #[inline(always)]
    fn newton_loss(&self, u: f64, target: f64, cost: f64) -> [f64; 2] {
        let off = target - u;
        [
            0.5 * cost * off * off,
            cost * (off.abs() + tube::slack(u, target)),
        ]
    }

    #[inline(always)]
    fn newton(&self, u: f64, target: f64, cost: f64, _: f64, _: [f64; 2]) -> NewtonTerms {
        let [loss, slope] = self.newton_loss(u, target, cost);
        let alpha = cost * (target - u);
        NewtonTerms {
            loss,
            slope,
            alpha,
            curvature: cost,
            path: 0.0,
            smoothing: 0.0,
            term: tube::term(target, 0.0, 0.5 / cost, alpha),
            rounding: tube::term_error(target, 0.0, 0.5 / cost, alpha),
        }
    }
}
