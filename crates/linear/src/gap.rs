//! The duality gap row by row.
//!
//! With w = Σ α_i y_i x_i the gap is a sum over rows, P(w) − D(α) = Σ_i [C_i ξ(u_i; t_i) − d(α_i) + α_i u_i], every
//! term at least 0, u_i = s_i w·x_i. A row with its α at the right bound adds exactly 0, so skipped settled rows are
//! not needed.

use pelton_format::RowTable;

use crate::certificate::for_each_chunk;
use crate::duals::Duals;
use crate::error::LinearError;
use crate::kernels::Simd;
use crate::problem::Problem;
use crate::weights::Weights;

/// Sum of the gap's terms over the rows of a block, at the given weights and duals.
///
/// Cost: one w·x a row and subproblem.
pub fn gap_of_rows(
    problem: &Problem,
    block: &RowTable,
    weights: &Weights,
    duals: &Duals,
    simd: Simd,
) -> Result<f64, LinearError> {
    let mut gap = 0.0;
    let add = |_, term| gap += term;
    for_each_gap(problem, block, weights, duals, simd, add)?;
    Ok(gap)
}

/// Calls `each` with the index in the block and the gap's term of every row and subproblem that sees it; in a grid
/// divided by the model's factor on the cost.
pub(crate) fn for_each_gap(
    problem: &Problem,
    block: &RowTable,
    weights: &Weights,
    duals: &Duals,
    simd: Simd,
    mut each: impl FnMut(usize, f64),
) -> Result<(), LinearError> {
    problem.check_separate()?;
    let loss = problem.loss().function();
    let terms: Vec<_> = (0..weights.subproblems())
        .map(|s| problem.terms(s))
        .collect();
    for_each_chunk(weights, block, simd, |start, values, length| {
        for i in 0..length {
            let record = block.id(start + i) as usize;
            for (subproblem, terms) in terms.iter().enumerate() {
                if terms.holds_out(record as u64) {
                    continue;
                }
                let row = terms.of(block.label(start + i), record as u64);
                let u = f64::from(row.sign) * values[subproblem * length + i];
                let stored = duals.stored(subproblem)[record];
                let term = row.cost * loss.value(u, f64::from(row.target))
                    - loss.dual_term(&row, stored)
                    + loss.decode(&row, stored) * u;
                // Rounding may leave a term of a settled row a little below its bound.
                each(start + i, term.max(0.0) / problem.factor(subproblem));
            }
        }
        Ok(())
    })
}
