//! What one visit does to one dual variable.
//!
//! | symbol | meaning |
//! |---|---|
//! | `alpha` | α_i, the dual variable of the row |
//! | `q` | Q_ii = ‖x_i‖² + D_i, the curvature along α_i |
//! | `g` | G = y_i w·x_i − 1 + D_i α_i, the gradient along α_i |
//! | `pg` | the projected gradient: G without its part that points out of [0, U] |

use crate::visit::Visit;

/// Outcome of a visit.
#[derive(Clone, Copy)]
pub(crate) struct Outcome {
    /// What to add to w is this times x_i.
    pub(crate) scale: f32,
    /// Whether the row may rest.
    pub(crate) settled: bool,
}

/// The rule for one variable; a pass calls it for each active row with w·x_i.
pub(crate) trait Step {
    fn step(&mut self, visit: &mut Visit, dot: f32) -> Outcome;
}

/// Constants of the rows of one class in the subproblem at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassTerms {
    pub(crate) sign: f32,
    pub(crate) upper: f32,
    pub(crate) diagonal: f32,
}

/// Both hinge losses (Hsieh et al., ICML 2008, Alg. 3).
// Differs from Alg. 3: rows are not dropped when their gradient lies beyond the largest and smallest
// projected gradients of the pass before, but rest (see `active`).
pub(crate) struct HingeStep<'a> {
    pub(crate) classes: &'a [ClassTerms],
    /// A row at a bound whose gradient holds it there with more than this is settled.
    pub(crate) settled_above: f32,
    /// Largest and smallest projected gradient seen.
    pub(crate) largest: f32,
    pub(crate) smallest: f32,
}

impl Step for HingeStep<'_> {
    #[inline(always)]
    fn step(&mut self, visit: &mut Visit, dot: f32) -> Outcome {
        let class = self.classes[visit.class as usize];
        let alpha = visit.alpha;
        let g = class.sign * dot - 1.0 + class.diagonal * alpha;
        let (at_zero, at_upper) = (alpha <= 0.0, alpha >= class.upper);
        // A row without features under the L1 loss has Q_ii = 0 and 1/Q_ii = ∞; its gradient is −1,
        // so α goes to U, its optimum, and w stays.
        let alpha_new = (alpha - g * visit.inverse_q).max(0.0).min(class.upper);
        let delta = alpha_new - alpha;
        // Branch-free, because which case a row is in cannot be predicted.
        let mut pg = g;
        pg = if at_zero { pg.min(0.0) } else { pg };
        pg = if at_upper { pg.max(0.0) } else { pg };
        let settled = (at_zero & (g > self.settled_above)) | (at_upper & (g < -self.settled_above));
        self.largest = self.largest.max(pg);
        self.smallest = self.smallest.min(pg);
        visit.alpha = alpha_new;
        // At a bound the gradient after the step says how far the row is from leaving it; inside,
        // where that is 0, the gradient before the step says how unsettled it still is.
        let free = (alpha_new > 0.0) & (alpha_new < class.upper);
        visit.gradient = if free { g } else { g + delta * visit.q };
        Outcome {
            scale: delta * class.sign,
            settled,
        }
    }
}

/// The logistic loss: min over z in (0, C) of
/// z ln z + (C − z) ln(C − z) + ½ Q_ii (z − α)² + (y w·x)(z − α)  (Yu, Huang, Lin, Machine Learning
/// 2011, eq. 18), α stored centred (see `duals`).
// Differs from that paper's Alg. 5: Newton runs on t = ln(z / (C − z)) instead of z or C − z. The
// equation becomes t + Q C σ(t) + (y w·x − Q α) = 0, whose slope is at least 1, so one form serves both
// ends and no step can leave (0, C).
pub(crate) struct LogisticStep<'a> {
    pub(crate) classes: &'a [ClassTerms],
    pub(crate) largest: f32,
}

impl Step for LogisticStep<'_> {
    #[inline(always)]
    fn step(&mut self, visit: &mut Visit, dot: f32) -> Outcome {
        let class = self.classes[visit.class as usize];
        let upper = f64::from(class.upper);
        let stored = f64::from(visit.alpha);
        let alpha = if stored < 0.0 { upper + stored } else { stored };
        let margin = f64::from(class.sign * dot);
        let q = f64::from(visit.q);
        let t = solve_logit(q * upper, margin - q * alpha, logit(stored, upper));
        // The end nearer to z is computed without cancellation, and rounded before w is changed, so
        // that w stays the sum of what is stored.
        let near = upper / (1.0 + t.abs().exp());
        let stored_new = if t > 0.0 { -near as f32 } else { near as f32 };
        let stored_new = if stored_new == 0.0 {
            // Rounded to the very end: the smallest step inside, since 0 means never visited.
            f32::MIN_POSITIVE.copysign(if t > 0.0 { -1.0 } else { 1.0 })
        } else {
            stored_new
        };
        let new = f64::from(stored_new);
        let delta = match (new < 0.0, stored < 0.0) {
            (same_new, same_old) if same_new == same_old => new - stored,
            (true, _) => upper + new - stored,
            (false, _) => new - (upper + stored),
        };
        // The gradient before the step: how far t is from −(y w·x) at the old α.
        let gradient = if stored == 0.0 {
            margin.abs() + 1.0
        } else {
            logit(stored, upper) + margin
        } as f32;
        visit.alpha = stored_new;
        visit.gradient = gradient;
        self.largest = self.largest.max(gradient.abs());
        Outcome {
            scale: delta as f32 * class.sign,
            settled: false,
        }
    }
}

/// ln(α / (C − α)) of a stored α; 0 for a row never visited.
#[inline]
fn logit(stored: f64, upper: f64) -> f64 {
    if stored == 0.0 {
        return 0.0;
    }
    let small = stored.abs();
    let t = (small / (upper - small)).ln();
    if stored < 0.0 { -t } else { t }
}

/// The root of t + a σ(t) + b, a ≥ 0, by Newton's method kept inside the bracket [−b − a, −b].
fn solve_logit(a: f64, b: f64, guess: f64) -> f64 {
    let (mut low, mut high) = (-b - a, -b);
    let mut t = guess.clamp(low, high);
    // Newton alone takes 3 to 6 steps; halving the bracket bounds the rest.
    for _ in 0..60 {
        let sigma = 1.0 / (1.0 + (-t).exp());
        let f = t + a * sigma + b;
        if f > 0.0 {
            high = t;
        } else {
            low = t;
        }
        let step = f / (1.0 + a * sigma * (1.0 - sigma));
        let next = t - step;
        let next = if next >= low && next <= high {
            next
        } else {
            0.5 * (low + high)
        };
        let moved = (next - t).abs();
        t = next;
        if moved <= 1e-10 * (1.0 + t.abs()) {
            break;
        }
    }
    t
}
