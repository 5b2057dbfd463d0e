//! The certificate of a pass.
//!
//! α_ik = C_i (1[y_i = k] − p_ik) is dual feasible for any probabilities p_i: with H their entropy and v_k = Σ_i α_ik
//! x_i,
//!
//! D(α) = Σ_i C_i H(p_i) − ½ Σ_k ‖v_k‖² ≤ optimum.
//!
//! **A free bias** makes Σ_i α_ik = 0 a condition for each class k, which the p_i of a pass miss by r_k. So each row
//! moves probability along the edges (k, l) of a tree over the classes: s_kl p_ik p_il from l to k, such that s_kl Σ_i
//! C_i p_ik p_il is the sum of r over the classes behind the edge. If all |s_kl| ≤ 1, the results p'_i are
//! probabilities. As log(1 + a) ≤ a, their entropy is at least −Σ_k p'_k log p_k minus the χ² distance of p' and p, and
//! that is at most 2 Σ s_kl² p_k p_l: it is Σ_k p_k (Σ_l ±s_kl p_l)², and the p_l of the neighbours of k add up to at
//! most 1. All of it follows from sums of the pass, and the loss in the bound falls with the square of r.
//!
//! Farther from the optimum, D(s α) at the best share s: H is concave and 0 at α = 0, so its terms are at least s times
//! those of α.
//!
//! **Rounding.** With ε = 2^-53, n additions err by at most γ = nε / (1 − nε) of the sum of magnitudes (Higham,
//! Accuracy and Stability of Numerical Algorithms, 2002, §4.2). Each p_ik is computed to some ε of itself, from the
//! distances between the values of its row, and 1 − p_iy without the p_iy; so α_ik errs by some ε of itself, Σ_k |α_ik|
//! is 2 C_i (1 − p_iy), and v by γ 2 Σ C (1 − p_y) ‖x‖. All parts of H are positive.

use super::pass::{LOSS, LOSS_SIZE, MASS, SIZE, Sizes, Sums, TERMS};
use super::tree::Tree;
use crate::newton::cholesky::dot;

/// Roundings that make up a number of a row, in addition to one a class.
const ROUNDINGS: f64 = 48.0;
/// The largest distance of two values of a row in its entropy.
const FARTHEST: f64 = 700.0;

/// The largest relative error of n roundings.
fn gamma(count: f64) -> f64 {
    let off = count * 0.5 * f64::EPSILON;
    off / (1.0 - off)
}

/// Figures of a pass for its rounding errors, over all ranks.
pub(super) struct Precision {
    /// Additions to any sum, at most.
    pub additions: f64,
    /// The largest ‖x‖.
    pub longest: f64,
}

/// At least P of the weights `rounded`, which are numbers of f32.
///
/// A loss moves by at most (1 − p_y) (e^(2η) − 1) if the values of its row move by η, and these are known to γ ‖w_k‖
/// ‖x‖.
pub(super) fn primal(sums: &Sums<'_>, rounded: &[f64], sizes: &Sizes, known: &Precision) -> f64 {
    let additions = gamma(known.additions + sizes.classes as f64 + ROUNDINGS);
    let counting = &rounded[..sizes.regularised()];
    let norm = |k| {
        let own = rounded.iter().skip(k).step_by(sizes.columns);
        own.map(|w| w * w).sum::<f64>().sqrt()
    };
    let longest = (0..sizes.classes).map(norm).fold(0.0, f64::max);
    let off = gamma(sizes.length as f64 + 8.0) * longest;
    let most = off * known.longest;
    let off = if most > 0.0 {
        off * (2.0 * most).exp_m1() / most
    } else {
        0.0
    };
    let squares = dot(counting, counting) * (1.0 + gamma((sizes.vector() + 8) as f64));
    let loss = sums.figures[LOSS] * (1.0 + additions) + off * sums.figures[LOSS_SIZE];
    0.5 * squares + loss
}

/// At most the optimum; `None` if the α of the pass do not lead to feasible ones. `bias` is the value of the constant
/// feature.
pub(super) fn dual(
    sums: &Sums<'_>,
    sizes: &Sizes,
    tree: &Tree,
    bias: f64,
    known: &Precision,
) -> Option<f64> {
    let figures = &sums.figures;
    let additions = gamma(known.additions + sizes.classes as f64 + ROUNDINGS);
    let (mut terms, mut terms_off) = (figures[TERMS], additions * figures[TERMS]);
    let mut norm_off = 2.0 * additions * figures[SIZE];
    let squares = if sizes.bias_is_free {
        // The total error of the sums of residuals, and of their products with their divisors.
        let residual = 6.0 * sizes.classes as f64 * additions * figures[MASS];
        let last = (sizes.length - 1) * sizes.columns;
        let mut behind = sums.pulls[last..][..sizes.classes].to_vec();
        let mut shares = vec![0.0; sizes.classes];
        for &(k, parent) in tree.edges().iter().rev() {
            let mass = sums.shifts[last + k];
            shares[k] = behind[k] / mass;
            let moved = shares[k].abs() + residual * bias / mass;
            if moved.is_nan() || moved > 1.0 {
                return None;
            }
            behind[parent] += behind[k];
            terms += shares[k] * (sums.energies[k] - 2.0 * shares[k] * mass / bias);
        }
        // Σ p_k p_l |log p_k / p_l| and 2 Σ p_k p_l are at most 2 H and H, and Σ p_k p_l is at most 2 (1 − p_y).
        terms_off += 5.0 * additions * figures[TERMS] + (FARTHEST + 4.0) * residual;
        norm_off += 4.0 * additions * figures[SIZE] + 2.0 * residual * known.longest;
        moved(sums, sizes, tree, &shares)
    } else {
        dot(sums.pulls, sums.pulls)
    };
    let norm = (squares.sqrt() + norm_off) * (1.0 + gamma((sizes.vector() + 16) as f64));
    let terms = terms - terms_off;
    let share = if norm > 0.0 {
        (terms / (norm * norm)).clamp(0.0, 1.0)
    } else {
        1.0
    };
    Some(share * terms - 0.5 * (share * norm).powi(2) - 4.0 * f64::EPSILON * terms.abs())
}

/// Σ_k ‖v_k‖² of the α that a free bias allows.
fn moved(sums: &Sums<'_>, sizes: &Sizes, tree: &Tree, shares: &[f64]) -> f64 {
    let last = (sizes.length - 1) * sizes.columns;
    let pulls = sums.pulls[..last].chunks_exact(sizes.columns);
    let features = pulls.zip(sums.shifts.chunks_exact(sizes.columns));
    let mut moved = vec![0.0; sizes.columns];
    let of_feature = |(pulls, shifts): (&[f64], &[f64])| {
        moved.copy_from_slice(pulls);
        for &(k, parent) in tree.edges() {
            let shift = shares[k] * shifts[k];
            moved[k] -= shift;
            moved[parent] += shift;
        }
        dot(&moved, &moved)
    };
    features.map(of_feature).sum()
}
