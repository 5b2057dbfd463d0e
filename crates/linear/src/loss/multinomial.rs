//! The multinomial logistic loss. With two classes, here, it is the logistic loss of w_0 − w_1; with more it couples
//! their vectors, see [`crate::Lbfgs`].

use super::function::{Dual, LossFunction, NewtonTerms, RowTerms, Watch};
use super::logistic::Logistic;
use crate::step::Outcome;
use crate::visit::Visit;

#[derive(Clone, Copy)]
pub(super) struct Multinomial;

impl LossFunction for Multinomial {
    fn name(&self) -> &'static str {
        "multinomial"
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
        Logistic.value(u, target)
    }

    fn dual(&self, cost: f64) -> Dual {
        Logistic.dual(cost)
    }

    fn decode(&self, row: &RowTerms, stored: f32) -> f64 {
        Logistic.decode(row, stored)
    }

    fn dual_term(&self, row: &RowTerms, stored: f32) -> f64 {
        Logistic.dual_term(row, stored)
    }

    fn term_error(&self, row: &RowTerms, stored: f32) -> f64 {
        Logistic.term_error(row, stored)
    }

    fn is_free(&self, row: &RowTerms, stored: f32) -> bool {
        Logistic.is_free(row, stored)
    }

    #[inline(always)]
    fn step(&self, row: &RowTerms, visit: &mut Visit, dot: f32, watch: &mut Watch) -> Outcome {
        Logistic.step(row, visit, dot, watch)
    }

    fn needs_fine_steps(&self) -> bool {
        Logistic.needs_fine_steps()
    }

    #[inline(always)]
    fn fine_step(&self, row: &RowTerms, alpha: f64, u: f64, q: f64) -> f64 {
        Logistic.fine_step(row, alpha, u, q)
    }

    fn newton_passes(&self) -> f64 {
        Logistic.newton_passes()
    }

    #[inline(always)]
    fn prepare(&self, us: &[f64], prepared: &mut [Vec<f64>; 2]) {
        Logistic.prepare(us, prepared);
    }

    #[inline(always)]
    fn prepared(&self, u: f64) -> [f64; 2] {
        Logistic.prepared(u)
    }

    #[inline(always)]
    fn newton_loss(&self, u: f64, target: f64, cost: f64) -> [f64; 2] {
        Logistic.newton_loss(u, target, cost)
    }

    #[inline(always)]
    fn newton(&self, u: f64, target: f64, cost: f64, tau: f64, at: [f64; 2]) -> NewtonTerms {
        Logistic.newton(u, target, cost, tau, at)
    }

    #[inline(always)]
    fn secant(&self, u: f64, target: f64, alpha: f64) -> f64 {
        Logistic.secant(u, target, alpha)
    }

    fn log_probability(&self) -> Option<fn(f64) -> f64> {
        Logistic.log_probability()
    }
}
