//! One pass over the rows: the sums that a Newton step, a line search and a certificate need.
//!
//! Rows are processed some hundred at a time: copied to a dense block, multiplied with w, and those with
//! curvature copied again, times its root, for the products that form the matrix. The rows of a block are dealt to a
//! number of lanes that does not depend on the number of threads, so sums have the same bits on any machine width.

use pelton_format::{Row, RowTable};

use super::point::Point;
use crate::kernels::gram::{TILE, add_products, fused};
use crate::kernels::{Kernel, Simd, run};
use crate::loss::{LossFunction, NewtonTerms, WithLoss};
use crate::problem::{Problem, counts};

/// Steps that a line search tries: 1, 1/2, 1/4 …
pub(super) const TRIALS: usize = 24;
/// Rows in a chunk: of narrow rows, and of others.
const MOST_ROWS: [usize; 2] = [256, 128];
/// Number of scalars in [`Sums`].
const NUMBERS: usize = 10;
/// Most lanes, and bytes of their matrices.
const LANES: usize = 16;
const LANE_BYTES: usize = 64 << 20;

/// Additions to any number of a lane's sums, at most, after it has been added to `chunks` times.
pub(super) fn additions(chunks: f64) -> f64 {
    MOST_ROWS[0] as f64 + chunks
}

/// Lanes that the rows of a block are dealt to.
pub(super) fn lanes(width: usize, subproblems: usize) -> usize {
    let bytes = 8 * width.pow(2) * subproblems;
    (LANE_BYTES / bytes).clamp(1, LANES)
}

/// The sums of one pass for one subproblem.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    /// Σ C ξ of the weights rounded to f32, and how much C ξ moves with a margin, times ‖x‖.
    pub loss: f64,
    pub loss_slope: f64,
    /// Σ of the losses, and of the gaps that smoothing leaves between them and the dual.
    pub value: f64,
    pub smoothing: f64,
    /// Σ of the terms of the dual value, their magnitudes, their error bounds, and Σ α ‖x‖.
    pub terms: f64,
    pub magnitudes: f64,
    pub rounding: f64,
    pub size: f64,
    /// Σ of the curvatures.
    pub curvature: f64,
    /// Σ α y x.
    pub sum: Vec<f64>,
    /// The part of the terms, and of Σ α y x, of the rows of positive α y; the vector is empty unless the bias is free.
    pub positive_terms: f64,
    pub positive: Vec<f64>,
    /// −Σ ∂α/∂τ y x: how the gradient moves with τ; empty without smoothing.
    pub path: Vec<f64>,
    /// Σ curvature x xᵀ: the lower triangle in rows of [`padded`] numbers.
    pub matrix: Vec<f64>,
    /// −Σ α y x·step at each trial of a line search.
    pub slopes: [f64; TRIALS],
}

impl Sums {
    /// Zeros; `width` is padded.
    pub fn new(width: usize, has_matrix: bool, has_path: bool, has_sides: bool) -> Sums {
        Sums {
            loss: 0.0,
            loss_slope: 0.0,
            value: 0.0,
            smoothing: 0.0,
            terms: 0.0,
            magnitudes: 0.0,
            rounding: 0.0,
            size: 0.0,
            curvature: 0.0,
            sum: vec![0.0; width],
            positive_terms: 0.0,
            positive: vec![0.0; if has_sides { width } else { 0 }],
            path: vec![0.0; if has_path { width } else { 0 }],
            matrix: vec![0.0; if has_matrix { width * width } else { 0 }],
            slopes: [0.0; TRIALS],
        }
    }

    fn numbers(&mut self) -> [&mut f64; NUMBERS] {
        [
            &mut self.loss,
            &mut self.loss_slope,
            &mut self.value,
            &mut self.smoothing,
            &mut self.terms,
            &mut self.magnitudes,
            &mut self.rounding,
            &mut self.size,
            &mut self.curvature,
            &mut self.positive_terms,
        ]
    }

    pub fn add(&mut self, mut other: Sums) {
        for (own, other) in self.numbers().into_iter().zip(other.numbers()) {
            *own += *other;
        }
        add(&mut self.sum, &other.sum);
        add(&mut self.positive, &other.positive);
        add(&mut self.path, &other.path);
        add(&mut self.matrix, &other.matrix);
        add(&mut self.slopes, &other.slopes);
    }

    /// All numbers one after the other, for ranks to add up, and back.
    pub fn flat(&mut self) -> Vec<f64> {
        let mut flat: Vec<f64> = self.numbers().into_iter().map(|number| *number).collect();
        flat.extend(self.slopes);
        flat.extend(&self.sum);
        flat.extend(&self.positive);
        flat.extend(&self.path);
        flat.extend(&self.matrix);
        flat
    }

    pub fn set_flat(&mut self, flat: &[f64]) {
        let (numbers, rest) = flat.split_at(NUMBERS);
        for (own, number) in self.numbers().into_iter().zip(numbers) {
            *own = *number;
        }
        let (slopes, rest) = rest.split_at(TRIALS);
        self.slopes.copy_from_slice(slopes);
        let (sum, rest) = rest.split_at(self.sum.len());
        self.sum.copy_from_slice(sum);
        let (positive, rest) = rest.split_at(self.positive.len());
        self.positive.copy_from_slice(positive);
        let (path, matrix) = rest.split_at(self.path.len());
        self.path.copy_from_slice(path);
        self.matrix.copy_from_slice(matrix);
    }
}

#[inline(always)]
fn add(sums: &mut [f64], others: &[f64]) {
    for (sum, other) in sums.iter_mut().zip(others) {
        *sum += other;
    }
}

/// The rows that one lane has seen.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub sums: Vec<Sums>,
    pub rows: u64,
    pub correct: u64,
    /// How often some rows were added.
    pub chunks: u64,
    work: Work,
}

/// Buffers for a chunk of rows.
#[derive(Clone, Debug, Default)]
struct Work {
    /// x, each row padded with zeros.
    x: Vec<f32>,
    norms: Vec<f64>,
    labels: Vec<u32>,
    records: Vec<u64>,
    /// w·x of the rounded weights of each subproblem.
    values: Vec<f64>,
    /// Of one subproblem: signs, targets and costs, margins, values that the loss prepares from these, and results.
    signs: Vec<f64>,
    targets: Vec<f64>,
    costs: Vec<f64>,
    margins: Vec<f64>,
    prepared: [Vec<f64>; 2],
    terms: Vec<NewtonTerms>,
    /// Rows with curvature, times its root.
    curved: Vec<f64>,
    sum: Vec<f64>,
    positive: Vec<f64>,
    path: Vec<f64>,
}

impl Lane {
    pub fn new(sums: Vec<Sums>) -> Lane {
        Lane {
            sums,
            rows: 0,
            correct: 0,
            chunks: 0,
            work: Work::default(),
        }
    }
}

/// A running pass.
pub(super) struct Pass<'a> {
    pub problem: &'a Problem,
    pub points: &'a [Point],
    /// Curvature times ‖x‖² up to which rows stay out of the matrix.
    pub slight: f64,
    pub simd: Simd,
}

impl Pass<'_> {
    /// Adds the rows `range` of a block to a lane.
    pub fn add(&self, rows: &RowTable, range: std::ops::Range<usize>, lane: &mut Lane) {
        let width = self.points[0].w.len();
        let most = MOST_ROWS[usize::from(width > 64)];
        for start in range.clone().step_by(most) {
            let chunk = start..range.end.min(start + most);
            self.take(rows, chunk, width, &mut lane.work);
            self.problem.loss().with(Chunk {
                pass: self,
                width,
                lane,
            });
        }
    }

    /// Copies rows side by side.
    fn take(&self, rows: &RowTable, chunk: std::ops::Range<usize>, width: usize, work: &mut Work) {
        let features = self.problem.features();
        work.x.clear();
        work.x.resize(chunk.len() * width, 0.0);
        work.labels.clear();
        work.records.clear();
        for (i, x) in chunk.zip(work.x.chunks_exact_mut(width)) {
            work.labels.push(rows.label(i));
            work.records.push(rows.id(i));
            match rows.row(i) {
                Row::Dense(values) => x[..features].copy_from_slice(values),
                Row::Sparse { indices, values } => {
                    for (&index, &value) in indices.iter().zip(values) {
                        x[index as usize] = value;
                    }
                }
                Row::Bytes(_) => {}
            }
            if let Some(bias) = self.problem.bias() {
                x[features] = bias;
            }
        }
    }
}

/// The rows copied, to be added to the sums.
struct Chunk<'a, 'b> {
    pass: &'a Pass<'b>,
    width: usize,
    lane: &'a mut Lane,
}

impl WithLoss for Chunk<'_, '_> {
    type Output = ();

    fn run<L: LossFunction + Copy>(self, loss: L) {
        run(self.pass.simd, ChunkOf { chunk: self, loss });
    }
}

/// The same for one loss.
struct ChunkOf<'a, 'b, L> {
    chunk: Chunk<'a, 'b>,
    loss: L,
}

impl<L: LossFunction> Kernel for ChunkOf<'_, '_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        if self.chunk.pass.simd == Simd::PLAIN {
            self.sum::<false>();
        } else {
            self.sum::<true>();
        }
    }
}

impl<L: LossFunction> ChunkOf<'_, '_, L> {
    #[inline(always)]
    fn sum<const FUSED: bool>(self) {
        let loss = self.loss;
        let Chunk { pass, width, lane } = self.chunk;
        let (problem, work) = (pass.problem, &mut lane.work);
        let count = work.labels.len();
        // Plain loops: iterator adapters would be compiled as separate functions, without the processor's features.
        work.norms.clear();
        for x in work.x.chunks_exact(width) {
            work.norms.push(norm(x));
        }
        work.values.clear();
        for (subproblem, point) in pass.points.iter().enumerate() {
            let sums = &mut lane.sums[subproblem];
            let label_terms = problem.terms(subproblem);
            work.signs.clear();
            work.targets.clear();
            work.costs.clear();
            for (&label, &record) in work.labels.iter().zip(&work.records) {
                let row = label_terms.of(label, record);
                work.signs.push(f64::from(row.sign));
                work.targets.push(f64::from(row.target));
                work.costs.push(row.cost);
            }
            if let Some(from) = &point.search {
                for i in 0..count {
                    let (x, sign) = (&work.x[i * width..][..width], work.signs[i]);
                    let start = sign * products::<FUSED>(x, from);
                    let moves = sign * products::<FUSED>(x, &point.step);
                    let (target, cost) = (work.targets[i], work.costs[i]);
                    let mut step = 1.0;
                    for slope in &mut sums.slopes {
                        let m = start + step * moves;
                        let prepared = loss.prepared(m);
                        let at = loss.newton(m, target, cost, point.smoothing, prepared);
                        *slope -= at.alpha * moves;
                        step *= 0.5;
                    }
                }
                continue;
            }
            // Sums are first made over a chunk, so that each total has as few additions as in `additions`.
            let mut own = Sums::new(0, false, false, false);
            // The weights as the model will have them: their losses, and the classes they predict.
            work.margins.clear();
            for (x, sign) in work.x.chunks_exact(width).zip(&work.signs) {
                let value = products::<FUSED>(x, &point.rounded);
                work.values.push(value);
                work.margins.push(sign * value);
            }
            if point.done || point.w != point.rounded {
                for i in 0..count {
                    let (m, target, cost) = (work.margins[i], work.targets[i], work.costs[i]);
                    let [value, slope] = loss.newton_loss(m, target, cost);
                    own.loss += value;
                    own.loss_slope += slope * work.norms[i];
                }
                if point.done {
                    sums.add(own);
                    continue;
                }
                work.margins.clear();
                for (x, sign) in work.x.chunks_exact(width).zip(&work.signs) {
                    work.margins.push(sign * products::<FUSED>(x, &point.w));
                }
            }
            // Specialised loops that process several rows at once.
            for prepared in &mut work.prepared {
                prepared.clear();
                prepared.resize(count, 0.0);
            }
            loss.prepare(&work.margins, &mut work.prepared);
            work.terms.clear();
            for i in 0..count {
                let prepared = [work.prepared[0][i], work.prepared[1][i]];
                let (m, target, cost) = (work.margins[i], work.targets[i], work.costs[i]);
                let terms = loss.newton(m, target, cost, point.smoothing, prepared);
                work.terms.push(terms);
            }
            if point.w == point.rounded {
                for (terms, norm) in work.terms.iter().zip(&work.norms) {
                    own.loss += terms.loss;
                    own.loss_slope += terms.slope * norm;
                }
            }
            work.curved.clear();
            work.sum.clear();
            work.sum.resize(width, 0.0);
            work.positive.clear();
            work.positive.resize(sums.positive.len(), 0.0);
            work.path.clear();
            work.path.resize(sums.path.len(), 0.0);
            let rows = work.x.chunks_exact(width).zip(&work.signs);
            for (i, ((x, sign), terms)) in rows.zip(&work.terms).enumerate() {
                own.value += terms.loss;
                own.smoothing += terms.smoothing;
                own.terms += terms.term;
                own.magnitudes += terms.term.abs();
                own.rounding += terms.rounding;
                own.size += terms.alpha.abs() * work.norms[i];
                own.curvature += terms.curvature;
                if terms.alpha != 0.0 {
                    let scale = sign * terms.alpha;
                    for (sum, &x) in work.sum.iter_mut().zip(x) {
                        *sum += scale * f64::from(x);
                    }
                    if scale > 0.0 && !work.positive.is_empty() {
                        own.positive_terms += terms.term;
                        for (sum, &x) in work.positive.iter_mut().zip(x) {
                            *sum += scale * f64::from(x);
                        }
                    }
                }
                if !work.path.is_empty() {
                    let scale = sign * terms.path;
                    for (sum, &x) in work.path.iter_mut().zip(x) {
                        *sum += scale * f64::from(x);
                    }
                }
                let is_curved = terms.curvature * work.norms[i] * work.norms[i] > pass.slight;
                if is_curved && counts(work.costs[i]) {
                    let root = terms.curvature.sqrt();
                    work.curved.extend(x.iter().map(|&x| root * f64::from(x)));
                }
            }
            add(&mut sums.path, &work.path);
            add(&mut sums.sum, &work.sum);
            add(&mut sums.positive, &work.positive);
            if !sums.matrix.is_empty() {
                add_products::<FUSED>(&work.curved, width, &mut sums.matrix);
            }
            sums.add(own);
        }
        lane.rows += count as u64;
        lane.chunks += 1;
        if !problem.has_real_targets() && work.values.len() == count * pass.points.len() {
            let values = &work.values[..count * problem.subproblems_of_model()];
            let classes = work.labels.iter().enumerate();
            let right = classes
                .filter(|(i, class)| crate::certificate::predicted(values, count, *i) == **class);
            lane.correct += right.count() as u64;
        }
    }
}

/// x·w over the padded row.
#[inline(always)]
fn products<const FUSED: bool>(x: &[f32], w: &[f64]) -> f64 {
    let mut sums = [0.0_f64; TILE];
    for (x, w) in x.as_chunks::<TILE>().0.iter().zip(w.as_chunks::<TILE>().0) {
        for ((sum, &x), &w) in sums.iter_mut().zip(x).zip(w) {
            *sum = fused::<FUSED>(f64::from(x), w, *sum);
        }
    }
    sums.iter().sum()
}

/// ‖x‖.
#[inline(always)]
fn norm(x: &[f32]) -> f64 {
    let mut sums = [0.0_f64; TILE];
    for x in x.as_chunks::<TILE>().0 {
        for (sum, &x) in sums.iter_mut().zip(x) {
            *sum += f64::from(x) * f64::from(x);
        }
    }
    sums.iter().sum::<f64>().sqrt()
}
