//! How good a solution is: primal and dual value and the gap between them.
//!
//! For any w and any feasible α, dual(α) ≤ optimum ≤ P(w): the gap is a proof, whatever the solver
//! did. The loss of a snapshot of w is summed block by block while a training pass streams the data,
//! so the proof costs dot products and no pass of its own.

use pelton_format::RowTable;

use crate::block::{block_rows, places_clipped};
use crate::duals::{Duals, decode};
use crate::error::LinearError;
use crate::kernels::{self, Simd};
use crate::problem::Problem;
use crate::ranks::{Exchange, Peers};
use crate::visit::Place;
use crate::weights::Weights;

/// Rows whose margins are computed at a time: few enough to stay in the second cache.
const CHUNK: usize = 4096;

/// Losses of a snapshot of the weights, summed over the blocks added so far.
#[derive(Clone, Debug, PartialEq)]
pub struct LossSum {
    /// Σ C_i ξ_i of each subproblem.
    pub loss: Vec<f64>,
    /// Rows added.
    pub rows: u64,
    /// Rows whose class the weights predict.
    pub correct: u64,
}

impl LossSum {
    /// Nothing summed yet.
    pub fn new(problem: &Problem) -> LossSum {
        LossSum {
            loss: vec![0.0; problem.subproblems()],
            rows: 0,
            correct: 0,
        }
    }

    /// Adds the rows of a block under `weights`.
    pub fn add(
        &mut self,
        problem: &Problem,
        block: &RowTable,
        weights: &Weights,
        simd: Simd,
    ) -> Result<(), LinearError> {
        for_each_chunk(weights, block, simd, |start, values, length| {
            for i in 0..length {
                let class = block.label(start + i);
                if class as usize >= problem.classes() {
                    return Err(LinearError::UnknownClass {
                        class,
                        classes: problem.classes(),
                    });
                }
                let cost = problem.cost(class);
                for (subproblem, loss) in self.loss.iter_mut().enumerate() {
                    let value = values[subproblem * length + i];
                    let margin = f64::from(problem.sign(subproblem, class) * value);
                    *loss += cost * problem.loss().at(margin);
                }
                self.correct += u64::from(predicted(values, length, i) == class);
            }
            self.rows += length as u64;
            Ok(())
        })
    }

    /// P(w) = ½‖w‖² + Σ C_i ξ_i over all subproblems, when every row has been added.
    pub fn primal(&self, weights: &Weights) -> f64 {
        (0..weights.subproblems())
            .map(|subproblem| 0.5 * weights.squared_norm(subproblem) + self.loss[subproblem])
            .sum()
    }

    /// Adds what the other ranks have summed.
    pub fn add_up<E>(&mut self, peers: &mut Peers<'_, E>) -> Result<(), E> {
        let mut sums = vec![self.rows as f64, self.correct as f64];
        sums.extend(&self.loss);
        (peers.exchange)(Exchange::SumWide(&mut sums))?;
        [self.rows, self.correct] = [sums[0] as u64, sums[1] as u64];
        self.loss.copy_from_slice(&sums[2..]);
        Ok(())
    }

    /// Share of the rows whose class is predicted.
    pub fn accuracy(&self) -> f64 {
        self.correct as f64 / self.rows.max(1) as f64
    }
}

/// The dual value −½‖w‖² + Σ (α − ½Dα²), or with the entropy of the logistic loss, over all
/// subproblems; `weights` must be the weights that belong to `duals`.
pub fn dual_value(weights: &Weights, duals: &Duals) -> f64 {
    (0..weights.subproblems())
        .map(|subproblem| duals.terms()[subproblem] - 0.5 * weights.squared_norm(subproblem))
        .sum()
}

/// Primal and dual value of a solution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Certificate {
    /// P(w), at least the optimum.
    pub primal: f64,
    /// The dual value, at most the optimum.
    pub dual: f64,
}

impl Certificate {
    /// (primal − dual) / dual, at least the relative difference of `primal` to the optimum;
    /// infinite when the dual value proves nothing.
    pub fn relative_gap(&self) -> f64 {
        if self.dual > 0.0 {
            (self.primal - self.dual) / self.dual
        } else {
            f64::INFINITY
        }
    }
}

/// Adds Σ α_i y_i x_i of the rows of a block to `sums` (one vector a subproblem, as long as those of
/// the weights), in f64: the exact w of the duals, against which the drift of the f32 weights is
/// measured and from which it is removed.
pub fn add_dual_weights(problem: &Problem, block: &RowTable, duals: &Duals, sums: &mut [Vec<f64>]) {
    for (subproblem, sum) in sums.iter_mut().enumerate() {
        let stored = duals.stored(subproblem);
        for i in 0..block.len() {
            let class = block.label(i);
            let alpha = decode(problem, class, stored[block.id(i) as usize]);
            if alpha == 0.0 {
                continue;
            }
            let scale = alpha * f64::from(problem.sign(subproblem, class));
            match block.row(i) {
                pelton_format::Row::Dense(values) => {
                    for (sum, &value) in sum.iter_mut().zip(values) {
                        *sum += scale * f64::from(value);
                    }
                }
                pelton_format::Row::Sparse { indices, values } => {
                    for (&index, &value) in indices.iter().zip(values) {
                        sum[index as usize] += scale * f64::from(value);
                    }
                }
                pelton_format::Row::Bytes(_) => {}
            }
            if let Some(bias) = problem.bias() {
                sum[problem.features()] += scale * f64::from(bias);
            }
        }
    }
}

/// Decision values of every row of `block`, subproblem by subproblem, chunk by chunk: `each` gets the
/// number of the chunk's first row, the values (those of subproblem s at `s * length ..`) and the
/// number of rows. Features that the weights do not know count as absent.
pub(crate) fn for_each_chunk<E>(
    weights: &Weights,
    block: &RowTable,
    simd: Simd,
    mut each: impl FnMut(usize, &[f32], usize) -> Result<(), E>,
) -> Result<(), E> {
    let rows = block_rows(weights.features(), weights.bias(), block);
    let mut places: Vec<Place> = Vec::with_capacity(CHUNK.min(block.len()));
    let mut values = Vec::new();
    for start in (0..block.len()).step_by(CHUNK) {
        let length = CHUNK.min(block.len() - start);
        places.clear();
        places_clipped(
            weights.features(),
            block,
            start..start + length,
            &mut places,
        );
        values.resize(length * weights.subproblems(), 0.0);
        for (subproblem, out) in values.chunks_exact_mut(length).enumerate() {
            kernels::sweep(simd, &rows, weights.vector(subproblem), &places, out);
        }
        each(start, &values, length)?;
    }
    Ok(())
}

/// The class predicted for row `i` of a chunk: the sign with one subproblem, else the largest value,
/// the first of equals.
fn predicted(values: &[f32], length: usize, i: usize) -> u32 {
    if values.len() == length {
        return u32::from(values[i] <= 0.0);
    }
    let mut best = 0;
    for subproblem in 1..values.len() / length {
        if values[subproblem * length + i] > values[best * length + i] {
            best = subproblem;
        }
    }
    best as u32
}
