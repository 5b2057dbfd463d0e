//! The logistic loss: ξ = log(1 + e^(−u)), d(α) = −[α ln α + (C − α) ln(C − α) − C ln C], 0 < α < C.
//!
//! α is often within rounding of either end, and both ln α and ln(C − α) matter. So it is stored *centred*: α itself up
//! to C/2, else α − C, a negative number; f32 is then as precise at one end as at the other. 0 means a row never
//! visited: it adds nothing to w or to the dual value. (LIBLINEAR keeps α and C − α in two f64 and must add every row
//! to w before the first pass, another pass over the data out of core.)

use super::function::{Dual, LossFunction, NewtonTerms, RowTerms, Watch};
use super::tube;
use crate::step::Outcome;
use crate::visit::Visit;

#[derive(Clone, Copy)]
pub(super) struct Logistic;

impl LossFunction for Logistic {
    fn name(&self) -> &'static str {
        "logistic"
    }

    fn liblinear(&self) -> &'static [&'static str] {
        &["L2R_LR_DUAL", "L2R_LR"]
    }

    #[inline(always)]
    fn has_real_targets(&self) -> bool {
        false
    }

    fn has_kink(&self) -> bool {
        false
    }

    #[inline(always)]
    fn value(&self, u: f64, _: f64) -> f64 {
        (-u.abs()).exp().ln_1p() + (-u).max(0.0)
    }

    fn dual(&self, cost: f64) -> Dual {
        Dual {
            lower: 0.0,
            upper: cost as f32,
            diagonal: 0.0,
        }
    }

    fn decode(&self, row: &RowTerms, stored: f32) -> f64 {
        let stored = f64::from(stored);
        if stored < 0.0 {
            row.cost + stored
        } else {
            stored
        }
    }

    /// The same for α and C − α.
    fn dual_term(&self, row: &RowTerms, stored: f32) -> f64 {
        let small = f64::from(stored).abs();
        if small == 0.0 {
            return 0.0;
        }
        let share = small / row.cost;
        -(small * share.ln() + (row.cost - small) * (-share).ln_1p())
    }

    /// Decoding rounds α by ε C at most, and the slope of the entropy |ln(α / (C − α))| stays below 256 for
    /// numbers that f32 can hold.
    fn term_error(&self, row: &RowTerms, _: f32) -> f64 {
        256.0 * f64::EPSILON * row.cost
    }

    fn is_free(&self, _: &RowTerms, _: f32) -> bool {
        true
    }

    /// min over z in (0, C) of z ln z + (C − z) ln(C − z) + ½ Q_ii (z − α)² + u (z − α)  (Yu, Huang, Lin, Machine
    /// Learning 2011, eq. 18).
    // Differs from that paper's Alg. 5: Newton runs on t = ln(z / (C − z)) instead of z or C − z. The equation becomes
    // t + Q C σ(t) + (u − Q α) = 0, with a slope of at least 1, so one form works at both ends and no step can leave
    // (0, C).
    #[inline(always)]
    fn step(&self, row: &RowTerms, visit: &mut Visit, dot: f32, watch: &mut Watch) -> Outcome {
        let upper = row.cost;
        let stored = f64::from(visit.alpha);
        let alpha = if stored < 0.0 { upper + stored } else { stored };
        let u = f64::from(row.sign * dot);
        let q = f64::from(visit.q);
        let t = solve_logit(q * upper, u - q * alpha, logit(stored, upper));
        // The end nearer to z is computed without cancellation, and rounded before w is changed, so that w stays the
        // sum of the stored α.
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
        // The gradient before the step: how far t is from −u at the old α.
        let gradient = if stored == 0.0 {
            u.abs() + 1.0
        } else {
            logit(stored, upper) + u
        } as f32;
        visit.alpha = stored_new;
        visit.gradient = gradient;
        watch.largest = watch.largest.max(gradient.abs());
        Outcome {
            scale: delta as f32 * row.sign,
            settled: false,
        }
    }

    fn needs_fine_steps(&self) -> bool {
        false
    }

    #[inline(always)]
    fn fine_step(&self, row: &RowTerms, alpha: f64, u: f64, q: f64) -> f64 {
        let t = solve_logit(q * row.cost, u - q * alpha, 0.0);
        row.cost / (1.0 + (-t).exp())
    }

    fn newton_passes(&self) -> f64 {
        8.0
    }

    /// e^(−|u|) and ln(1 + e^(−|u|)).
    #[inline(always)]
    fn prepare(&self, us: &[f64], [small, logs]: &mut [Vec<f64>; 2]) {
        for (small, u) in small.iter_mut().zip(us) {
            *small = exp_of_negative(u.abs());
        }
        for (log, small) in logs.iter_mut().zip(&*small) {
            *log = ln_1p_of_share(*small);
        }
    }

    #[inline(always)]
    fn prepared(&self, u: f64) -> [f64; 2] {
        let small = exp_of_negative(u.abs());
        [small, ln_1p_of_share(small)]
    }

    #[inline(always)]
    fn newton_loss(&self, u: f64, target: f64, cost: f64) -> [f64; 2] {
        let small = (-u.abs()).exp();
        let share = if u >= 0.0 { small } else { 1.0 } / (1.0 + small);
        let loss = cost * (small.ln_1p() + (-u).max(0.0));
        [loss, slope(u, target, cost, cost * share)]
    }

    #[inline(always)]
    fn newton(&self, u: f64, t: f64, cost: f64, _: f64, [small, log]: [f64; 2]) -> NewtonTerms {
        let whole = 1.0 / (1.0 + small);
        let alpha = cost * if u >= 0.0 { small * whole } else { whole };
        let loss = cost * (log + (-u).max(0.0));
        NewtonTerms {
            loss,
            slope: slope(u, t, cost, alpha),
            alpha,
            curvature: cost * small * whole * whole,
            path: 0.0,
            smoothing: 0.0,
            // The entropy of α, by equality in Fenchel's inequality at α = C σ(−u). Its slope there is u, so
            // rounding α moves it by a multiple of ε α u.
            term: loss + alpha * u,
            rounding: 32.0 * f64::EPSILON * (loss + alpha * u.abs()),
        }
    }

    fn log_probability(&self) -> Option<fn(f64) -> f64> {
        Some(|value| value.min(0.0) - (-value.abs()).exp().ln_1p())
    }
}

/// A bound of the slope near u; at u the slope is α. Over a distance η it grows by at most e^η, which is at most 1 + 2η
/// up to η = 1.
#[inline(always)]
fn slope(u: f64, target: f64, cost: f64, alpha: f64) -> f64 {
    (alpha * (1.0 + 2.0 * tube::slack(u, target).min(1.0))).min(cost)
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

/// e^(−a), a ≥ 0, to 4 ε; at e^(−700) it stops falling. Without branches or calls, so that several rows are computed
/// side by side: the library's takes as long as all else that a row needs.
#[inline(always)]
pub(crate) fn exp_of_negative(a: f64) -> f64 {
    // Adding it leaves the nearest whole number in the lowest bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    const LN_2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];
    let x = -a.min(700.0);
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN_2[0]) - n * LN_2[1];
    // Taylor's series at |r| ≤ 0.35: the terms after the 13th power are below 1e-17.
    let mut sum = 1.0 / 6_227_020_800.0;
    for factorial in [
        479_001_600.0,
        39_916_800.0,
        3_628_800.0,
        362_880.0,
        40_320.0,
        5_040.0,
        720.0,
        120.0,
        24.0,
        6.0,
        2.0,
        1.0,
        1.0,
    ] {
        sum = sum * r + 1.0 / factorial;
    }
    f64::from_bits(sum.to_bits().wrapping_add(shifted.to_bits() << 52))
}

/// ln(1 + s), 0 ≤ s ≤ 1, to 8 ε: twice the inverse hyperbolic tangent of z = s / (2 + s), or beyond √2 − 1 ln 2
/// and that of (s − 1) / (s + 3).
#[inline(always)]
fn ln_1p_of_share(s: f64) -> f64 {
    let upper = s > std::f64::consts::SQRT_2 - 1.0;
    let (over, under) = (
        if upper { s - 1.0 } else { s },
        if upper { s + 3.0 } else { s + 2.0 },
    );
    let z = over / under;
    let square = z * z;
    // |z| ≤ 0.172: what follows the 23rd power is below 1e-18.
    let mut sum = 1.0 / 23.0;
    for odd in [21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        sum = sum * square + 1.0 / odd;
    }
    let above = if upper { std::f64::consts::LN_2 } else { 0.0 };
    above + 2.0 * z * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_and_logarithms_are_those_of_the_library() {
        for i in 0..200_000 {
            let a = f64::from(i) * 0.0035;
            let (found, expected) = (exp_of_negative(a), (-a).exp());
            let off = (found / expected - 1.0).abs();
            assert!(off <= 4.0 * f64::EPSILON || a > 699.0, "{a}: {off}");
            let s = f64::from(i) / 199_999.0;
            for s in [s, expected, s * s * s * s] {
                let (found, expected) = (ln_1p_of_share(s), s.ln_1p());
                let off = (found - expected).abs();
                assert!(off <= 8.0 * f64::EPSILON * expected, "{s}: {off}");
            }
        }
        assert!(exp_of_negative(1e9) <= 1e-300 && exp_of_negative(f64::INFINITY) > 0.0);
        assert_eq!((exp_of_negative(0.0), ln_1p_of_share(0.0)), (1.0, 0.0));
    }
}
