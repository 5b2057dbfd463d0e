//! A subproblem between two passes: the weights of the next pass, and the best found.

use super::cholesky::dot;

/// The first factor on τ.
const FIRST_SHRINK: f64 = 0.1;

/// One subproblem between two passes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    /// The entry that does not count in ‖w‖², if there is one.
    pub free_bias: Option<usize>,
    /// The weights of the next pass, and the same rounded to f32; all vectors are padded.
    pub w: Vec<f64>,
    pub rounded: Vec<f64>,
    /// The step that led here.
    pub step: Vec<f64>,
    /// Its start, if the next pass searches along it.
    pub search: Option<Vec<f64>>,
    /// The previous point, and the value and its slope along the step there.
    pub before: Option<(Vec<f64>, f64, f64)>,
    pub smoothing: f64,
    /// The next factor on the smoothing.
    pub shrink: f64,
    /// Line searches that were made.
    pub searches: u32,
    pub best_w: Vec<f64>,
    pub best_primal: f64,
    pub best_dual: f64,
    /// P at w = 0.
    pub first_primal: f64,
    /// Whether steps are so close to the optimum that rounding w to f32 would matter. Before, passes look at w
    /// rounded, which saves them the losses of the rounded weights next to the others.
    pub exact: bool,
    /// Looks in a row that improved neither bound by more than rounding.
    pub idle: u32,
    /// Whether the last pass looked at the best w.
    pub at_best: bool,
    /// Whether it needs no further step.
    pub done: bool,
}

impl Point {
    pub fn new(width: usize, smoothing: f64, free_bias: Option<usize>) -> Point {
        Point {
            free_bias,
            w: vec![0.0; width],
            rounded: vec![0.0; width],
            step: vec![0.0; width],
            search: None,
            before: None,
            smoothing,
            shrink: FIRST_SHRINK,
            searches: 0,
            best_w: vec![0.0; width],
            best_primal: f64::INFINITY,
            // α = 0 is feasible.
            best_dual: 0.0,
            first_primal: 0.0,
            exact: false,
            idle: 0,
            at_best: false,
            done: false,
        }
    }

    /// The product of two vectors over the entries that count in ‖w‖².
    pub fn product(&self, a: &[f64], b: &[f64]) -> f64 {
        // Behind a free bias there is only padding.
        let count = self.free_bias.unwrap_or(a.len());
        dot(&a[..count], &b[..count])
    }

    pub fn go_to(&mut self, w: Vec<f64>) {
        self.rounded = w.iter().map(|&w| f64::from(w as f32)).collect();
        self.w = if self.exact { w } else { self.rounded.clone() };
    }
}
