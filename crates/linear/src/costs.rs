//! How long each solver takes by a model of operations, so that a caller can choose.
//!
//! The figures are rough; `examples/solver_times.rs` prints measured times next to them.

use crate::lbfgs::Lbfgs;
use crate::newton::MOST_NEWTON_FEATURES;
use crate::problem::Problem;

/// The cost of two solvers by a model of the shape: nanoseconds of a visit of coordinate descent, and of all
/// of Newton's method (infinite beyond [`MOST_NEWTON_FEATURES`]).
///
/// Newton: 8 passes (hinge: 24) of 30 ns a row and subproblem, 1 ns a value, and 0.05 ns a product of the d²/2 of
/// the matrix; d³/6 products at 0.25 ns a pass. A visit: 30 ns and 1 ns a value. `values` is the mean number of
/// values of a row.
pub fn modelled_costs(problem: &Problem, records: u64, values: f64) -> (f64, f64) {
    let (n, d) = (records as f64, problem.length() as f64);
    let passes = problem.loss().function().newton_passes();
    let newton = passes * (n * (30.0 + d + 0.05 * d * d / 2.0) + 0.25 * d.powi(3) / 6.0);
    let possible = d <= MOST_NEWTON_FEATURES as f64;
    let newton = newton * problem.subproblems() as f64;
    (30.0 + values, if possible { newton } else { f64::INFINITY })
}

/// Whether Newton's method takes less time than coordinate descent, by [`modelled_costs`] and 100 visits of a
/// row, which coordinate descent needs to reach 1e-3 on overlapping classes, and far too few for smaller
/// targets or features of different sizes.
pub fn newton_pays(problem: &Problem, records: u64, values: f64) -> bool {
    let (visit, newton) = modelled_costs(problem, records, values);
    newton < 100.0 * visit * records as f64 * problem.subproblems() as f64
}

/// Nanoseconds of L-BFGS to a gap of 1e-6, about, comparable with those of [`modelled_costs`]; infinite if it does not
/// apply. `values` is the mean number of values of a row.
///
/// 12 passes (60 without a matrix) of 90 ns a row and subproblem, and 0.7 ns a value; two matrices of d²/2 products at
/// 0.05 ns for each row that they sum, and their factors of d³/6 at 0.25 ns. A step takes 50 d, and d² with a factor.
/// If the matrices sum all rows and the curvature is constant, two passes are enough.
pub fn lbfgs_cost(problem: &Problem, records: u64, values: f64) -> f64 {
    if !Lbfgs::applies(problem) {
        return f64::INFINITY;
    }
    let (n, d) = (records as f64, problem.length() as f64);
    let stride = Lbfgs::stride(problem, records as usize) as f64;
    let pass = n * (90.0 + 0.7 * values) + 50.0 * d;
    let matrix = n / stride * 0.05 * d * d / 2.0 + 0.25 * d.powi(3) / 6.0;
    let whole = if d > MOST_NEWTON_FEATURES as f64 {
        60.0 * pass
    } else if stride == 1.0 && problem.loss().is_quadratic() {
        2.0 * pass + matrix
    } else {
        12.0 * (pass + d * d) + 2.0 * matrix
    };
    problem.subproblems() as f64 * whole
}
