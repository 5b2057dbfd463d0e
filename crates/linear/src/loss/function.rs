//! The interface of a loss for solvers, certificates, models and commands.
//!
//! A row has the value z = w·x and u = s z. A class has the sign s = ±1, by the subproblem, and the target t = 1;
//! a real target t, an f32, has s = 1. The loss of the row is C ξ(u; t). The dual is
//!
//! max over α of Σ d(α_i) − ½‖w‖², w = Σ s_i α_i x_i, d(α) = −C ξ*(−α / C), α between two bounds.
//!
//! | symbol | meaning |
//! |---|---|
//! | ξ* | the convex conjugate of ξ( · ; t) |
//! | `alpha` | α, the dual variable of a row, in its stored form: see [`LossFunction::decode`] |
//! | τ | width of the bend of a smoothed loss, for Newton's method |
//!
//! For any w and any α within its bounds, d(α) ≤ C ξ(u; t) + α u: so Σ d(α_i) − ½‖Σ s_i α_i x_i‖² is at most the
//! optimum, for any sign of α.

use crate::step::Outcome;
use crate::visit::Visit;

/// Target and cost of a row in one subproblem.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowTerms {
    /// s and t.
    pub sign: f32,
    pub target: f32,
    /// C, rounded to f32.
    pub cost: f64,
    pub dual: Dual,
}

/// The bounds of α, and the curvature of −d if that is a constant: D, the loss's term in the diagonal of the dual's
/// matrix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dual {
    pub lower: f32,
    pub upper: f32,
    pub diagonal: f32,
}

/// The gradients that a pass of coordinate descent records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    /// A row at a bound is settled if its gradient holds it there with more than this.
    pub settled_above: f32,
    /// The largest and the smallest of the projected gradients, or of 0.
    pub largest: f32,
    pub smallest: f32,
}

/// The rule of one loss. Methods that inner loops call are inlined always.
pub(crate) trait LossFunction: Sync {
    /// As on a command line, in configurations and in models.
    fn name(&self) -> &'static str;

    /// The same with its common name, for a help text.
    fn about(&self) -> &'static str {
        self.name()
    }

    /// LIBLINEAR's solver types for it; the first is the one written.
    fn liblinear(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether rows have a real target; else they have a class.
    fn has_real_targets(&self) -> bool;

    /// Whether its slope jumps somewhere.
    fn has_kink(&self) -> bool;

    /// Whether a row may have this target, which is finite.
    fn accepts(&self, _target: f32) -> bool {
        true
    }

    /// The prediction of a model at u.
    fn prediction(&self, u: f64) -> f64 {
        u
    }

    /// Whether the loss's ε is valid; true without an ε.
    fn epsilon_is_usable(&self) -> bool {
        true
    }

    /// ξ(u; t), at least 0: so d(0) is at least 0, and certificates may shrink α.
    fn value(&self, u: f64, target: f64) -> f64;

    /// The dual of a row of cost C.
    fn dual(&self, cost: f64) -> Dual;

    /// α from its stored form.
    fn decode(&self, _row: &RowTerms, stored: f32) -> f64 {
        f64::from(stored)
    }

    /// d(α).
    fn dual_term(&self, row: &RowTerms, stored: f32) -> f64;

    /// How far [`LossFunction::dual_term`] can be from d of the decoded α, in addition to a few roundings in proportion
    /// to the term.
    fn term_error(&self, row: &RowTerms, stored: f32) -> f64;

    /// Whether α is off both bounds, so that the row must not be skipped.
    fn is_free(&self, row: &RowTerms, stored: f32) -> bool;

    /// A step of coordinate descent: the α that is best for this row, given w·x.
    fn step(&self, row: &RowTerms, visit: &mut Visit, dot: f32, watch: &mut Watch) -> Outcome;

    /// Whether steps in f32 end too far from the optimum: for a kink, or for targets far larger than their residuals.
    fn needs_fine_steps(&self) -> bool;

    /// The same step in f64: the best α given the α before, u, and Q = ‖x‖².
    fn fine_step(&self, row: &RowTerms, alpha: f64, u: f64, q: f64) -> f64;

    /// Approximate number of passes of Newton's method.
    fn newton_passes(&self) -> f64;

    /// Line searches after which Newton's method smooths it, 0 for immediately; `None` for a loss that needs no
    /// smoothing.
    fn smoothing(&self) -> Option<u32> {
        None
    }

    /// The unit of the squared length of a step of Newton's method, and the least τ, while the loss is smoothed.
    fn narrow(&self, bend: &Bend) -> [f64; 2] {
        [1.0, bend.tau]
    }

    /// The unit of τ: about how far u is from t if the mean of ξ is `mean`. Margins of classes have the unit 1.
    fn distance(&self, _mean: f64) -> f64 {
        1.0
    }

    /// [`LossFunction::newton`] for many rows, with loops that process several rows at once.
    #[inline(always)]
    fn prepare(&self, _us: &[f64], _prepared: &mut [Vec<f64>; 2]) {}

    /// The same for one row.
    #[inline(always)]
    fn prepared(&self, _u: f64) -> [f64; 2] {
        [0.0; 2]
    }

    /// C ξ(u; t), and a bound of its slope.
    fn newton_loss(&self, u: f64, target: f64, cost: f64) -> [f64; 2];

    /// All terms of a row for Newton's method.
    fn newton(&self, u: f64, target: f64, cost: f64, tau: f64, prepared: [f64; 2]) -> NewtonTerms;

    /// The curvature of the parabola with slope −α at u and the same minimiser as the loss, for a model of a loss that
    /// is straight or bends later: 0 or NaN if there is none.
    #[inline(always)]
    fn secant(&self, u: f64, target: f64, alpha: f64) -> f64 {
        if self.has_real_targets() || u < 0.0 {
            (alpha / (target - u)).abs()
        } else {
            0.0
        }
    }

    /// The logarithm of the probability of a class by its value; `None` if values are not log-odds.
    fn log_probability(&self) -> Option<fn(f64) -> f64> {
        None
    }
}

/// A row at u, for Newton's method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewtonTerms {
    /// C ξ(u; t), and a bound of its slope.
    pub loss: f64,
    pub slope: f64,
    /// The α that belongs to u: feasible at any w.
    pub alpha: f64,
    /// −∂α/∂u.
    pub curvature: f64,
    /// −∂α/∂τ.
    pub path: f64,
    /// The gap that smoothing leaves between the loss and the dual: C ξ(u; t) + α u − d(α).
    pub smoothing: f64,
    /// d(α), and its error bound.
    pub term: f64,
    pub rounding: f64,
}

/// The rows in the bend of a smoothed loss.
pub(crate) struct Bend {
    pub tau: f64,
    /// Σ of the gaps that smoothing leaves, and the part of it that may stay, over it.
    pub smoothing: f64,
    pub over: f64,
    /// Σ of the curvatures, and the trace of the matrix.
    pub curvature: f64,
    pub trace: f64,
    /// About the largest product of w and x in the margin of a row.
    pub margin: f64,
    /// The largest cost of a row.
    pub largest: f64,
}
