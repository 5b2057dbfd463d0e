//! Coordinate steps for losses with a quadratic dual within bounds: d(α) = t α − ½ D α², lower ≤ α ≤ upper.
//!
//! | symbol | meaning |
//! |---|---|
//! | `q` | Q_ii = ‖x_i‖² + D, the curvature along α_i |
//! | `g` | G = u − t + D α, the gradient along α_i |
//! | `pg` | the projected gradient: G without its part that points out of the bounds |

use super::function::{RowTerms, Watch};
use crate::step::Outcome;
use crate::visit::Visit;

/// Hsieh et al., ICML 2008, Alg. 3, for any bounds.
// Differs from Alg. 3: rows rest (see `active`) instead of being dropped when their gradient exceeds the range of
// projected gradients of the pass before.
#[inline(always)]
pub(super) fn step(row: &RowTerms, visit: &mut Visit, dot: f32, watch: &mut Watch) -> Outcome {
    let (alpha, dual) = (visit.alpha, row.dual);
    let g = row.sign * dot - row.target + dual.diagonal * alpha;
    let (at_lower, at_upper) = (alpha <= dual.lower, alpha >= dual.upper);
    // A row without features and D has Q_ii = 0 and 1/Q_ii = ∞; its gradient is −t, so α goes to a bound, its
    // optimum, and w stays.
    let alpha_new = (alpha - g * visit.inverse_q)
        .max(dual.lower)
        .min(dual.upper);
    let delta = alpha_new - alpha;
    // Branch-free, because which case a row is in cannot be predicted.
    let mut pg = g;
    pg = if at_lower { pg.min(0.0) } else { pg };
    pg = if at_upper { pg.max(0.0) } else { pg };
    let settled = (at_lower & (g > watch.settled_above)) | (at_upper & (g < -watch.settled_above));
    watch.largest = watch.largest.max(pg);
    watch.smallest = watch.smallest.min(pg);
    visit.alpha = alpha_new;
    // At a bound the gradient after the step is the row's distance from leaving it; inside the bounds that is 0, and
    // the gradient before the step measures how unsettled it is.
    let free = is_free(row, alpha_new);
    visit.gradient = if free { g } else { g + delta * visit.q };
    Outcome {
        scale: delta * row.sign,
        settled,
    }
}

/// The same in f64.
#[inline(always)]
pub(super) fn fine_step(row: &RowTerms, alpha: f64, u: f64, q: f64) -> f64 {
    let diagonal = f64::from(row.dual.diagonal);
    let g = u - f64::from(row.target) + diagonal * alpha;
    let best = alpha - g / (q + diagonal);
    best.max(f64::from(row.dual.lower))
        .min(f64::from(row.dual.upper))
}

#[inline(always)]
pub(super) fn is_free(row: &RowTerms, alpha: f32) -> bool {
    (alpha > row.dual.lower) & (alpha < row.dual.upper)
}

/// d(α), with half of D not rounded as in the solver.
pub(super) fn dual_term(row: &RowTerms, half: f64, alpha: f32) -> f64 {
    let alpha = f64::from(alpha);
    f64::from(row.target) * alpha - half * alpha * alpha
}

/// The error bound of [`dual_term`]: its two parts may be much larger than their difference.
pub(super) fn term_error(row: &RowTerms, half: f64, alpha: f32) -> f64 {
    let alpha = f64::from(alpha);
    2.0 * f64::EPSILON * ((f64::from(row.target) * alpha).abs() + half * alpha * alpha)
}
