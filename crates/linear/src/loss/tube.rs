//! Coordinate steps for losses that are 0 within ε of a real target: d(α) = t α − ε |α| − ½ D α², |α| ≤ upper; and
//! functions shared by losses of real targets.
//!
//! | symbol | meaning |
//! |---|---|
//! | `q` | Q_ii = ‖x_i‖² + D, the curvature along α_i |
//! | `up`, `down` | u − t + D α ± ε, the slopes along α_i to either side of its kink at 0 |

use super::function::{RowTerms, Watch};
use crate::step::Outcome;
use crate::visit::Visit;

/// Ho and Lin, Large-scale linear support vector regression, JMLR 2012, Alg. 4.
// Differs from it as `quadratic::step` differs from Hsieh et al.: rows rest and are not dropped.
#[inline(always)]
pub(super) fn step(
    row: &RowTerms,
    epsilon: f64,
    visit: &mut Visit,
    dot: f32,
    watch: &mut Watch,
) -> Outcome {
    let (alpha, dual, epsilon) = (visit.alpha, row.dual, epsilon as f32);
    let g = dot - row.target + dual.diagonal * alpha;
    let (up, down) = (g + epsilon, g - epsilon);
    let (at_lower, at_upper) = (alpha <= dual.lower, alpha >= dual.upper);
    // With 1/Q_ii = ∞ these are bounds or 0, as they should be: NaN, of 0 · ∞, counts as 0.
    let positive = (alpha - up * visit.inverse_q).max(0.0);
    let negative = (alpha - down * visit.inverse_q).min(0.0);
    let alpha_new = (positive + negative).max(dual.lower).min(dual.upper);
    let delta = alpha_new - alpha;
    let mut pg = if alpha > 0.0 {
        up
    } else if alpha < 0.0 {
        down
    } else {
        up.min(0.0) + down.max(0.0)
    };
    pg = if at_lower { pg.min(0.0) } else { pg };
    pg = if at_upper { pg.max(0.0) } else { pg };
    let firm = watch.settled_above;
    let settled = (alpha == 0.0) & (up > firm) & (down < -firm)
        | at_upper & (up < -firm)
        | at_lower & (down > firm);
    watch.largest = watch.largest.max(pg);
    watch.smallest = watch.smallest.min(pg);
    visit.alpha = alpha_new;
    let moved = delta * visit.q;
    visit.gradient = if is_free(row, alpha_new) {
        pg
    } else if alpha_new == 0.0 {
        (up + moved).min(-(down + moved)).max(0.0)
    } else if alpha_new > 0.0 {
        up + moved
    } else {
        down + moved
    };
    Outcome {
        scale: delta,
        settled,
    }
}

/// The same in f64.
#[inline(always)]
pub(super) fn fine_step(row: &RowTerms, epsilon: f64, alpha: f64, u: f64, q: f64) -> f64 {
    let diagonal = f64::from(row.dual.diagonal);
    let g = u - f64::from(row.target) + diagonal * alpha;
    let positive = (alpha - (g + epsilon) / (q + diagonal)).max(0.0);
    let negative = (alpha - (g - epsilon) / (q + diagonal)).min(0.0);
    (positive + negative)
        .max(f64::from(row.dual.lower))
        .min(f64::from(row.dual.upper))
}

/// Whether α is off its bounds and the kink.
#[inline(always)]
pub(super) fn is_free(row: &RowTerms, alpha: f32) -> bool {
    (alpha > row.dual.lower) & (alpha < row.dual.upper) & (alpha != 0.0)
}

/// d(α), with half of D not rounded as in the solver.
#[inline(always)]
pub(super) fn term(target: f64, epsilon: f64, half: f64, alpha: f64) -> f64 {
    target * alpha - epsilon * alpha.abs() - half * alpha * alpha
}

/// The error bound of [`term`]: its parts may be much larger than their sum.
#[inline(always)]
pub(super) fn term_error(target: f64, epsilon: f64, half: f64, alpha: f64) -> f64 {
    let alpha = alpha.abs();
    4.0 * f64::EPSILON * (alpha * (target.abs() + epsilon) + half * alpha * alpha)
}

/// More than the change of u by another order of summation.
#[inline(always)]
pub(super) fn slack(u: f64, target: f64) -> f64 {
    1e-6 * (1.0 + u.abs() + target.abs())
}

/// The largest f32 below a number.
pub(super) fn below(number: f64) -> f32 {
    let rounded = number as f32;
    if f64::from(rounded) < number {
        rounded
    } else {
        rounded.next_down()
    }
}
