//! The bounds of the optimum that a look proves, less all rounding errors.

use super::{Rounding, Sums, View};
use crate::certificate::balance;
use crate::problem::Problem;

/// The largest error of `count` additions, as a share of the magnitudes.
pub(crate) fn gamma(count: f64) -> f64 {
    let off = count * 0.5 * f64::EPSILON;
    off / (1.0 - off)
}

/// The largest relative error of w·x, with at most `count` additions: products are exact, and a single one needs no
/// addition.
pub(crate) fn gamma_of_products<W: Copy + Into<f64>>(w: &[W], count: f64) -> f64 {
    let is_lone = w.iter().filter(|&&w| w.into() != 0.0).nth(1).is_none();
    if is_lone { 0.0 } else { gamma(count) }
}

/// Bounds of one subproblem, and a feasible α.
pub(crate) struct Bounds {
    /// At least P of the rounded weights.
    pub primal: f64,
    /// At most Σ d(α) of a feasible α, less the part of an offset.
    pub terms: f64,
    /// v of these α, of the weights that are regularised.
    pub v: Vec<f64>,
    /// Factor on the error bound of sums.
    pub slack: f64,
}

impl Bounds {
    pub fn new(sums: &Sums, view: &View<'_>, problem: &Problem, rounding: &Rounding) -> Bounds {
        let regularised = problem.regularised();
        let rounded = || view.rounded.iter().map(|&w| f64::from(w));
        let norm = rounded().map(|w| w * w).sum::<f64>().sqrt();
        let products = gamma_of_products(&view.rounded, rounding.longest) * norm * sums.slope;
        let rows = gamma(rounding.rows + 16.0);
        let weights = gamma(problem.length() as f64 + 8.0);
        let counting = rounded().take(regularised).enumerate();
        let counting = counting.filter(|(j, _)| Some(*j) != problem.offset());
        let penalty = problem.penalty().of(counting.map(|(_, w)| w));
        let primal = (penalty * (1.0 + weights) + sums.loss) * (1.0 + rows) + products;
        let shares = match &sums.sides[..] {
            [positive, negative] => {
                let bias = problem.features();
                balance(positive.sum[bias].abs(), negative.sum[bias].abs())
            }
            _ => [1.0; 2],
        };
        let sides = || sums.sides.iter().zip(shares);
        let entry = |j: usize| -> f64 { sides().map(|(side, share)| share * side.sum[j]).sum() };
        let slack = if sums.sides.len() == 2 { 5.0 } else { 1.0 };
        let [terms, magnitudes, off] = [0, 1, 2].map(|figure| -> f64 {
            sides()
                .map(|(side, share)| share * side.terms[figure])
                .sum()
        });
        // Σ α s o of an offset o, which every w has in its margins.
        let offset = problem.offset().map_or(0.0, |offset| {
            entry(offset) + slack * gamma(rounding.additions + 16.0) * sums.size
        });
        Bounds {
            primal,
            terms: terms - slack * (rows * magnitudes + off) - offset,
            v: (0..regularised)
                .map(|j| {
                    if Some(j) == problem.offset() {
                        0.0
                    } else {
                        entry(j)
                    }
                })
                .collect(),
            slack,
        }
    }

    /// At most the optimum with the penalty ½‖w‖².
    ///
    /// Terms are concave and 0 at α = 0, so those of θ α are at least θ times these. This takes the best θ, which
    /// matters far from the optimum, where v is much too long.
    pub fn dual(&self, sums: &Sums, rounding: &Rounding) -> f64 {
        let squares: f64 = self.v.iter().map(|v| v * v).sum();
        let off = self.slack * gamma(rounding.additions + 16.0) * sums.size;
        let norm = (squares.sqrt() + off) * (1.0 + gamma(self.v.len() as f64 + 8.0));
        let share = if norm > 0.0 {
            (self.terms / (norm * norm)).clamp(0.0, 1.0)
        } else {
            1.0
        };
        share * self.terms - 0.5 * (share * norm).powi(2) - 4.0 * f64::EPSILON * self.terms.abs()
    }
}
