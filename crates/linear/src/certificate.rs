//! How good a solution is: primal and dual value and the gap between them.
//!
//! For any w and any feasible α, dual(α) ≤ optimum ≤ P(w): the gap is a proof for any solver. The loss of a snapshot of
//! w is summed block by block while a training pass streams the data, so the proof costs dot products but no extra
//! pass.

use pelton_format::RowTable;

use crate::block::{block_rows, places_clipped};
use crate::duals::Duals;
use crate::error::LinearError;
use crate::kernels::{self, Simd};
use crate::peers::{Exchange, Peers};
use crate::penalty::Penalty;
use crate::problem::Problem;
use crate::visit::RowAddress;
use crate::weights::Weights;

/// Rows in a chunk of margins: few enough to stay in the second-level cache.
const CHUNK: usize = 4096;

/// Losses of a snapshot of the weights, summed over the blocks added so far.
#[derive(Clone, Debug, PartialEq)]
pub struct LossSum {
    /// Σ C_i ξ_i of each subproblem; of a loss of all classes the first has the whole.
    pub loss: Vec<f64>,
    /// Rows added.
    pub rows: u64,
    /// Rows that the weights of the first model classify correctly; 0 with real targets.
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
        let function = problem.loss().function();
        let terms: Vec<_> = (0..problem.subproblems())
            .map(|s| problem.terms(s))
            .collect();
        let has_classes = !problem.has_real_targets();
        let of_first_model = problem.subproblems_of_model();
        for_each_chunk(weights, block, simd, |start, values, length| {
            for i in 0..length {
                let label = block.label(start + i);
                problem.check_label(label, block.id(start + i))?;
                if problem.is_coupled() {
                    for first in (0..terms.len()).step_by(of_first_model) {
                        let of = |class: usize| values[(first + class) * length + i];
                        let cost = terms[first].of(label, block.id(start + i)).cost;
                        self.loss[first] += cost * joint_loss(of_first_model, label as usize, of);
                    }
                    let values = &values[..of_first_model * length];
                    self.correct += u64::from(predicted(values, length, i) == label);
                    continue;
                }
                for (subproblem, loss) in self.loss.iter_mut().enumerate() {
                    let row = terms[subproblem].of(label, block.id(start + i));
                    let u = f64::from(row.sign) * values[subproblem * length + i];
                    *loss += row.cost * function.value(u, f64::from(row.target));
                }
                let values = &values[..of_first_model * length];
                let is_right = has_classes && predicted(values, length, i) == label;
                self.correct += u64::from(is_right);
            }
            self.rows += length as u64;
            Ok(())
        })
    }

    /// P(w) = R(w) + Σ C_i ξ_i over all subproblems, when every row has been added; in a grid that of each model over
    /// its factor on the cost.
    pub fn primal(&self, problem: &Problem, weights: &Weights) -> f64 {
        let entries = problem.regularised();
        (0..weights.subproblems())
            .map(|subproblem| {
                let penalty = match problem.penalty() {
                    Penalty::L2 => {
                        // An offset has the weight 1.
                        let offset = f64::from(u8::from(problem.offset().is_some()));
                        0.5 * (weights.squared_norm(subproblem, entries) - offset)
                    }
                    other => {
                        let vector = &weights.vector(subproblem)[..entries];
                        other.of(vector.iter().map(|&w| f64::from(w)))
                    }
                };
                (penalty + self.loss[subproblem]) / problem.factor(subproblem)
            })
            .sum()
    }

    /// Adds the sums of the other ranks.
    pub fn add_up<E>(&mut self, peers: &mut Peers<'_, E>) -> Result<(), E> {
        let mut sums = vec![self.rows as f64, self.correct as f64];
        sums.extend(&self.loss);
        peers(Exchange::Sum(&mut sums))?;
        [self.rows, self.correct] = [sums[0] as u64, sums[1] as u64];
        self.loss.copy_from_slice(&sums[2..]);
        Ok(())
    }

    /// Share of the rows classified correctly, 0 to 1.
    pub fn accuracy(&self) -> f64 {
        self.correct as f64 / self.rows.max(1) as f64
    }
}

/// The dual value Σ d(α) − ½‖w‖² over all subproblems, as far as
/// `weights` are those that belong to `duals`: w that was updated in f32 has drifted from them, so this is an
/// estimate. [`DualBound`] is the proof.
pub fn dual_value(problem: &Problem, weights: &Weights, duals: &Duals) -> f64 {
    let entries = problem.regularised();
    (0..weights.subproblems())
        .map(|subproblem| {
            let value = duals.terms()[subproblem] - 0.5 * weights.squared_norm(subproblem, entries);
            value / problem.factor(subproblem)
        })
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
    /// (primal − dual) / dual, at least the relative difference of `primal` to the optimum; 0 if both are 0, infinite
    /// if the dual value proves nothing.
    pub fn relative_gap(&self) -> f64 {
        if self.primal == 0.0 && self.dual == 0.0 {
            0.0
        } else if self.dual > 0.0 {
            ((self.primal - self.dual) / self.dual).max(0.0)
        } else {
            f64::INFINITY
        }
    }
}

/// A lower bound of the optimum from the α of all rows, from any solver.
///
/// Any feasible α bounds the optimum by Σ d(α) − ½‖Σ α s x‖². Both sums are recomputed here from rows and α, in f64,
/// never from a w that was updated many times in f32; the bound subtracts the largest possible rounding error.
///
/// With ε = 2^-53, n additions err by at most γ = nε / (1 − nε) of the sum of magnitudes (Higham, Accuracy and
/// Stability of Numerical Algorithms, 2002, §4.2): of Σ |d(α)|, and of Σ |α| ‖x‖ in the norm of Σ α s x.
///
/// With a free bias, α is feasible only if Σ α s = 0. Then rows of positive and of negative α s are summed apart, and
/// the α of the heavier side are scaled down until both weigh the same: since d is concave and 0 at 0, the terms of r α
/// are at least r times those of α.
///
/// Memory: 8 bytes a feature and subproblem, twice that with a free bias. Cost: one addition of each row. Panics for a
/// loss of all classes, which has other dual variables.
#[derive(Clone, Debug, PartialEq)]
pub struct DualBound {
    /// Σ α_i s_i x_i of each subproblem; with a free bias of its positive, then of its negative α_i s_i.
    pub sums: Vec<Vec<f64>>,
    /// For each of these: the terms of α, their magnitudes, Σ |α_i| ‖x_i‖.
    pub figures: Vec<[f64; 3]>,
    /// Rows added, for the rounding error of the sums.
    pub additions: u64,
}

impl DualBound {
    /// Of α = 0.
    pub fn new(problem: &Problem) -> DualBound {
        assert!(!problem.is_coupled());
        let count = problem.subproblems() * sides(problem);
        DualBound {
            sums: vec![vec![0.0; problem.length()]; count],
            figures: vec![[0.0; 3]; count],
            additions: 0,
        }
    }

    /// Whether it is one of the problem.
    pub(crate) fn fits(&self, problem: &Problem) -> bool {
        let count = problem.subproblems() * sides(problem);
        let fits = |sum: &Vec<f64>| sum.len() == problem.length();
        self.sums.len() == count && self.figures.len() == count && self.sums.iter().all(fits)
    }

    /// Adds rows under their present α.
    pub fn add(&mut self, problem: &Problem, block: &RowTable, duals: &Duals, simd: Simd) {
        let rows = block_rows(problem.features(), problem.bias(), block);
        let (mut places, mut scales) = (Vec::new(), Vec::new());
        let loss = problem.loss().function();
        let label_terms: Vec<_> = (0..problem.subproblems())
            .map(|s| problem.terms(s))
            .collect();
        self.additions += block.len() as u64;
        let sides = sides(problem);
        for start in (0..block.len()).step_by(CHUNK) {
            let chunk = start..block.len().min(start + CHUNK);
            places.clear();
            places_clipped(problem.features(), block, chunk.clone(), &mut places);
            for (place, sum) in self.sums.iter_mut().enumerate() {
                let (subproblem, side) = (place / sides, place % sides);
                let [terms, magnitudes, size] = &mut self.figures[place];
                let mut added = 0.0;
                scales.clear();
                for i in chunk.clone() {
                    let row = label_terms[subproblem].of(block.label(i), block.id(i));
                    let stored = duals.stored(subproblem)[block.id(i) as usize];
                    let scale = f64::from(row.sign) * loss.decode(&row, stored);
                    if sides == 2 && side != usize::from(scale < 0.0) {
                        scales.push(0.0);
                        continue;
                    }
                    let term = loss.dual_term(&row, stored);
                    added += term - loss.term_error(&row, stored);
                    *magnitudes += term.abs();
                    scales.push(scale);
                }
                *terms += added;
                *size += kernels::add_rows(simd, &rows, &places, &scales, sum);
            }
        }
    }

    /// The bound, over all subproblems, once every row has been added, less its rounding error.
    pub fn value(&self, problem: &Problem) -> f64 {
        let gamma = |count: usize| {
            let off = count as f64 * 0.5 * f64::EPSILON;
            off / (1.0 - off)
        };
        // Those of the terms, and a few that make them up.
        let additions = gamma(self.additions as usize + 8);
        let (sides, entries) = (sides(problem), problem.regularised());
        let places = self.sums.chunks(sides).zip(self.figures.chunks(sides));
        let bounds = places.enumerate().map(|(subproblem, (sums, figures))| {
            let weights: Vec<f64> = sums
                .iter()
                .map(|sum| sum.last().map_or(0.0, |b| b.abs()))
                .collect();
            let shares = match weights[..] {
                // The weight of a side is known to a relative error of `additions`, as all of its terms have one sign.
                [positive, negative] => balance(positive, negative),
                _ => [1.0; 2],
            };
            let additions = if sides == 2 {
                5.0 * additions
            } else {
                additions
            };
            let of = |figure: usize| -> f64 {
                figures
                    .iter()
                    .zip(shares)
                    .map(|(figures, share)| share * figures[figure])
                    .sum()
            };
            let entry = |j: usize| -> f64 {
                sums.iter()
                    .zip(shares)
                    .map(|(sum, share)| share * sum[j])
                    .sum()
            };
            let norm = (0..entries).map(entry).map(|v| v * v).sum::<f64>().sqrt();
            let norm = (norm + additions * of(2)) * (1.0 + gamma(entries + 8));
            (of(0) - additions * of(1) - 0.5 * norm * norm) / problem.factor(subproblem)
        });
        let bounds: Vec<f64> = bounds.collect();
        let magnitude: f64 = bounds.iter().map(|bound| bound.abs()).sum();
        bounds.iter().sum::<f64>() - gamma(bounds.len() + 2) * magnitude
    }

    /// Makes `weights` the sums, rounded once; a free bias weighs its centre more.
    pub(crate) fn round_into(&self, problem: &Problem, centres: &[f64], weights: &mut Weights) {
        for (subproblem, sums) in self.sums.chunks(sides(problem)).enumerate() {
            let w = weights.vector_mut(subproblem);
            for (j, w) in w.iter_mut().enumerate() {
                *w = sums.iter().map(|sum| sum[j]).sum::<f64>() as f32;
            }
            if let (Some(centre), Some(bias)) = (centres.get(subproblem), w.last_mut()) {
                let sum: f64 = sums.iter().filter_map(|sum| sum.last()).sum();
                *bias = (centre + sum) as f32;
            }
        }
    }

    /// The terms of each subproblem.
    pub(crate) fn terms(&self, problem: &Problem) -> impl Iterator<Item = f64> {
        let figures = self.figures.chunks(sides(problem));
        figures.map(|figures| figures.iter().map(|figures| figures[0]).sum())
    }
}

/// Parts of the sums of a subproblem.
fn sides(problem: &Problem) -> usize {
    1 + usize::from(problem.bias_is_free())
}

/// Factors on two sides after which both weigh the same.
pub(crate) fn balance(positive: f64, negative: f64) -> [f64; 2] {
    if positive > negative {
        [negative / positive, 1.0]
    } else if negative > positive {
        [1.0, positive / negative]
    } else {
        [1.0; 2]
    }
}

/// Decision values of every row of `block`, subproblem by subproblem, chunk by chunk: `each` gets the index of the
/// chunk's first row, the values (those of subproblem s at `s * length ..`) and the number of rows. Features beyond the
/// weights count as absent.
pub(crate) fn for_each_chunk<E>(
    weights: &Weights,
    block: &RowTable,
    simd: Simd,
    mut each: impl FnMut(usize, &[f64], usize) -> Result<(), E>,
) -> Result<(), E> {
    let rows = block_rows(weights.features(), weights.bias(), block);
    let mut places: Vec<RowAddress> = Vec::with_capacity(CHUNK.min(block.len()));
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

/// log Σ_k e^(z_k) − z_y of the values z of all classes.
pub(crate) fn joint_loss(classes: usize, own: usize, value: impl Fn(usize) -> f64) -> f64 {
    let best = (1..classes).fold(0, |best, class| {
        if value(class) > value(best) {
            class
        } else {
            best
        }
    });
    let others = (0..classes).filter(|class| *class != best);
    let rest: f64 = others.map(|class| (value(class) - value(best)).exp()).sum();
    rest.ln_1p() + (value(best) - value(own))
}

/// The class predicted for row `i` of a chunk: the sign with one subproblem, else the largest value,
/// the first of equals.
pub(crate) fn predicted(values: &[f64], length: usize, i: usize) -> u32 {
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
