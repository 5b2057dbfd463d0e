//! One pass over the rows for the loss of all classes: the sums that a step and a certificate need.
//!
//! Vectors of all classes are stored feature by feature, the classes of a feature contiguous, so that a value of a row
//! meets those of all classes at once. Dense rows are copied side by side and multiplied in tiles; sparse ones are
//! taken value by value. The rows of a block are dealt to a number of lanes that does not depend on the number of
//! threads, so sums have the same bits on any machine width.

use std::ops::Range;

use pelton_format::{Row, RowTable};

use crate::kernels::gram::{add_products, fused};
use crate::kernels::{Kernel, Simd, run};
use crate::loss::exp_of_negative;
use crate::problem::{Problem, Terms};

/// Rows, or features, and classes of a tile of products.
const TILE: usize = 8;
const TILE_CLASSES: usize = 4;
/// Most rows, and values of dense ones, that are taken at a time.
const MOST_ROWS: usize = 128;
const MOST_VALUES: usize = 1 << 17;
/// Most lanes, and bytes of their sums.
const LANES: usize = 16;
const LANE_BYTES: usize = 64 << 20;
/// The distance of a value from the largest of its row at which the probability stops falling.
const FARTHEST: f64 = 700.0;

/// Number of scalar sums.
pub(super) const FIGURES: usize = 8;
/// Σ of the losses of the weights rounded to f32, and Σ C (1 − p_y) ‖x‖: how far they move with w.
pub(super) const LOSS: usize = 0;
pub(super) const LOSS_SIZE: usize = 1;
/// Of w: Σ of the losses, of the terms of the dual value, of C (1 − p_y), and of C (1 − p_y) ‖x‖.
pub(super) const VALUE: usize = 2;
pub(super) const TERMS: usize = 3;
pub(super) const MASS: usize = 4;
pub(super) const SIZE: usize = 5;
/// Rows that the rounded weights predict right.
pub(super) const CORRECT: usize = 6;

/// Σ C h ‖x‖², the trace of these rows' part of the metric.
pub(super) const TRACE: usize = 7;

/// Sizes of the vectors of a point: of all classes, or of one subproblem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sizes {
    pub classes: usize,
    /// Features and bias.
    pub length: usize,
    /// The same in memory.
    pub columns: usize,
    pub width: usize,
    /// Whether there is a bias that is not regularised: the last feature.
    pub bias_is_free: bool,
    /// The feature with the fixed weight 1.
    pub offset: Option<usize>,
}

impl Sizes {
    pub fn from_problem(problem: &Problem) -> Sizes {
        let (classes, columns) = if problem.is_coupled() {
            let classes = problem.classes();
            (classes, classes.next_multiple_of(TILE_CLASSES))
        } else {
            (1, 1)
        };
        Sizes {
            classes,
            length: problem.length(),
            columns,
            width: problem.length().next_multiple_of(TILE),
            bias_is_free: problem.bias_is_free(),
            offset: problem.offset(),
        }
    }

    /// Numbers of a vector of all classes.
    pub fn vector(&self) -> usize {
        self.width * self.columns
    }

    /// Numbers of a vector that count in its norm.
    pub fn regularised(&self) -> usize {
        (self.length - usize::from(self.bias_is_free)) * self.columns
    }

    fn shifts(&self) -> usize {
        usize::from(self.bias_is_free) * self.vector()
    }

    fn overlaps(&self) -> usize {
        usize::from(self.bias_is_free) * self.classes * self.classes
    }

    /// Length of the sums of a pass, without the metric.
    pub fn sums(&self) -> usize {
        FIGURES + 2 * self.columns + self.vector() + self.shifts() + self.overlaps()
    }

    /// Lanes that the rows of a block are dealt to.
    pub fn lanes(&self, metric: usize) -> usize {
        (LANE_BYTES / (8 * (self.sums() + metric))).clamp(1, LANES)
    }

    /// Rows that are taken at a time.
    fn rows(&self) -> usize {
        let rows = (MOST_VALUES / self.width).clamp(TILE, MOST_ROWS);
        rows / TILE * TILE
    }
}

/// The sums of a pass, stored one after the other.
pub(super) struct Sums<'a> {
    pub figures: &'a mut [f64],
    /// With a free bias, of each class k and its parent l in the tree: Σ C p_k p_l log(p_l / p_k).
    pub energies: &'a mut [f64],
    /// Σ C of the rows of each class.
    pub owns: &'a mut [f64],
    /// Σ α_k x.
    pub pulls: &'a mut [f64],
    /// With a free bias Σ C p_k p_l x, 0 for the root.
    pub shifts: &'a mut [f64],
    /// With a free bias, by the class of the largest probability and the other: Σ C p_k p_l.
    pub overlaps: &'a mut [f64],
    /// If wanted, Σ C h x xᵀ: its lower triangle or its diagonal.
    pub metric: &'a mut [f64],
}

impl Sums<'_> {
    pub fn new<'a>(numbers: &'a mut [f64], sizes: &Sizes) -> Sums<'a> {
        let (figures, rest) = numbers.split_at_mut(FIGURES);
        let (energies, rest) = rest.split_at_mut(sizes.columns);
        let (owns, rest) = rest.split_at_mut(sizes.columns);
        let (pulls, rest) = rest.split_at_mut(sizes.vector());
        let (shifts, rest) = rest.split_at_mut(sizes.shifts());
        let (overlaps, metric) = rest.split_at_mut(sizes.overlaps());
        Sums {
            figures,
            energies,
            owns,
            pulls,
            shifts,
            overlaps,
            metric,
        }
    }
}

/// The sums of one lane.
#[derive(Debug)]
pub(super) struct Lane {
    pub sums: Vec<f64>,
    /// Additions to any of these, at most.
    pub additions: u64,
    pub rows: u64,
    /// The largest ‖x‖.
    pub longest: f64,
    work: Work,
}

impl Lane {
    pub fn new(numbers: usize) -> Lane {
        Lane {
            sums: vec![0.0; numbers],
            additions: MOST_ROWS as u64,
            rows: 0,
            longest: 0.0,
            work: Work::default(),
        }
    }
}

/// Buffers for a chunk of rows.
#[derive(Debug, Default)]
struct Work {
    /// x of dense rows, each padded with zeros.
    x: Vec<f64>,
    norms: Vec<f64>,
    labels: Vec<usize>,
    costs: Vec<f64>,
    /// Of each row and class: w·x, how far it is below the largest, e to the minus that and at last α, and C p_k p_l.
    values: Vec<f64>,
    below: Vec<f64>,
    shares: Vec<f64>,
    moved: Vec<f64>,
    energies: Vec<f64>,
    /// C h, and rows times its root.
    curvatures: Vec<f64>,
    curved: Vec<f64>,
}

/// A running pass.
pub(super) struct Pass<'a> {
    pub problem: &'a Problem,
    pub terms: Terms,
    pub sizes: Sizes,
    pub w: &'a [f64],
    pub rounded: &'a [f64],
    /// Whether these differ.
    pub is_exact: bool,
    /// With a free bias, the class that each exchanges probability with.
    pub parents: &'a [usize],
    /// Whether rows have the largest curvature possible in the metric.
    pub is_first: bool,
    /// The matrix sums the records with ids divisible by `stride`, each times `stride`.
    pub stride: u64,
    pub simd: Simd,
}

impl Pass<'_> {
    /// Adds the rows `range` of a block to a lane.
    pub fn add(&self, rows: &RowTable, range: Range<usize>, lane: &mut Lane) {
        for start in range.clone().step_by(self.sizes.rows()) {
            let range = start..range.end.min(start + self.sizes.rows());
            let is_dense = matches!(rows.row(start), Row::Dense(_));
            let chunk = Chunk {
                pass: self,
                rows,
                range,
                lane,
                is_dense,
            };
            run(self.simd, chunk);
        }
    }
}

/// Some rows, to be added to the sums.
struct Chunk<'a> {
    pass: &'a Pass<'a>,
    rows: &'a RowTable,
    range: Range<usize>,
    lane: &'a mut Lane,
    is_dense: bool,
}

impl Kernel for Chunk<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        if self.pass.simd == Simd::PLAIN {
            self.sum::<false>();
        } else {
            self.sum::<true>();
        }
    }
}

// Plain loops: iterator adapters would be compiled as separate functions, without the processor's features.
impl Chunk<'_> {
    #[inline(always)]
    fn sum<const FUSED: bool>(self) {
        let (pass, count) = (self.pass, self.range.len());
        let (sizes, is_free) = (pass.sizes, pass.sizes.bias_is_free);
        let (classes, columns) = (sizes.classes, sizes.columns);
        let block = Block {
            rows: self.rows,
            start: self.range.start,
            count,
            features: pass.problem.features(),
            bias: pass.problem.bias().unwrap_or(0.0),
            sizes,
            is_dense: self.is_dense,
        };
        let (lane, mut figures) = (self.lane, [0.0; FIGURES]);
        let work = &mut lane.work;
        block.take(&pass.terms, work);
        // The weights as the model will have them.
        block.multiply::<FUSED>(&work.x, pass.rounded, &mut work.values);
        work.share_out(classes, columns);
        for i in 0..count {
            let row = Shares::new(work, i, classes, columns);
            figures[LOSS] += work.costs[i] * row.loss;
            figures[LOSS_SIZE] += work.costs[i] * row.others * work.norms[i];
            figures[CORRECT] += f64::from(u8::from(row.top == work.labels[i]));
        }
        if pass.is_exact {
            block.multiply::<FUSED>(&work.x, pass.w, &mut work.values);
            work.share_out(classes, columns);
        }
        work.moved.clear();
        work.moved
            .resize(if is_free { count * columns } else { 0 }, 0.0);
        work.curvatures.clear();
        let sums = Sums::new(&mut lane.sums, &sizes);
        work.energies.clear();
        work.energies.resize(columns, 0.0);
        for i in 0..count {
            let row = Shares::new(work, i, classes, columns);
            let (own, cost) = (work.labels[i], work.costs[i]);
            let below = &work.below[i * columns..][..classes];
            let shares = &mut work.shares[i * columns..][..columns];
            let (mut entropy, mut curvature) = (row.log, 0.0_f64);
            for k in 0..classes {
                shares[k] *= row.scale;
                entropy += shares[k] * below[k];
                curvature = curvature.max(2.0 * shares[k] * (1.0 - shares[k]));
            }
            if pass.is_first {
                curvature = 0.5;
            }
            work.curvatures.push(cost * curvature);
            figures[TRACE] += cost * curvature * work.norms[i] * work.norms[i];
            figures[VALUE] += cost * row.loss;
            figures[TERMS] += cost * entropy;
            figures[MASS] += cost * row.others;
            figures[SIZE] += cost * row.others * work.norms[i];
            if is_free {
                let moved = &mut work.moved[i * columns..][..classes];
                let overlaps = &mut sums.overlaps[row.top * classes..][..classes];
                // The root stays 0.
                for k in 1..classes {
                    let parent = pass.parents[k];
                    moved[k] = cost * shares[k] * shares[parent];
                    work.energies[k] += moved[k] * (below[k] - below[parent]);
                }
                for k in 0..classes {
                    overlaps[k] += cost * shares[row.top] * shares[k];
                }
            }
            // From here on α.
            for share in &mut shares[..classes] {
                *share *= -cost;
            }
            shares[own] = cost * row.others;
            for share in &mut shares[classes..] {
                *share = 0.0;
            }
        }
        for (sum, figure) in sums.figures.iter_mut().zip(figures) {
            *sum += figure;
        }
        for i in 0..count {
            sums.owns[work.labels[i]] += work.costs[i];
        }
        for (sum, energy) in sums.energies.iter_mut().zip(&work.energies) {
            *sum += energy;
        }
        block.add::<FUSED>(&work.x, &work.shares, sums.pulls);
        if is_free {
            block.add::<FUSED>(&work.x, &work.moved, sums.shifts);
        }
        if sums.metric.len() > sizes.width {
            block.add_matrix::<FUSED>(work, pass.stride, sums.metric);
        } else if !sums.metric.is_empty() {
            block.add_diagonal(work, sums.metric);
        }
        for norm in &work.norms {
            lane.longest = lane.longest.max(*norm);
        }
        lane.rows += count as u64;
        // Sums over sparse rows take them one by one.
        lane.additions += if self.is_dense { 1 } else { count as u64 };
    }
}

impl Work {
    /// The distances of the values, and e to the minus these.
    #[inline(always)]
    fn share_out(&mut self, classes: usize, columns: usize) {
        self.below.clear();
        self.below.resize(self.values.len(), FARTHEST);
        for i in 0..self.values.len() / columns {
            let values = &self.values[i * columns..][..classes];
            let below = &mut self.below[i * columns..][..classes];
            let mut most = f64::NEG_INFINITY;
            for value in values {
                most = most.max(*value);
            }
            for k in 0..classes {
                below[k] = (most - values[k]).min(FARTHEST);
            }
        }
        self.shares.resize(self.values.len(), 0.0);
        for (share, below) in self.shares.iter_mut().zip(&self.below) {
            *share = exp_of_negative(*below);
        }
    }
}

/// Probabilities and loss of a row.
struct Shares {
    /// The class of the largest value, the first of equals.
    top: usize,
    /// log Σ_k e^(z_k) minus the largest z, and minus that of the own class.
    log: f64,
    loss: f64,
    /// Probability of all classes but the own.
    others: f64,
    /// Turns e^(z_k) over the largest into a probability.
    scale: f64,
}

impl Shares {
    #[inline(always)]
    fn new(work: &Work, i: usize, classes: usize, columns: usize) -> Shares {
        let values = &work.values[i * columns..][..classes];
        let shares = &work.shares[i * columns..][..classes];
        let (mut top, own) = (0, work.labels[i]);
        for k in 1..classes {
            if values[k] > values[top] {
                top = k;
            }
        }
        // Each sum leaves out the one large term, in which small ones would vanish.
        let (mut rest, mut others) = (0.0, 0.0);
        for (k, share) in shares[..classes].iter().enumerate() {
            rest += if k == top { 0.0 } else { *share };
            others += if k == own { 0.0 } else { *share };
        }
        let (scale, log) = (1.0 / (1.0 + rest), rest.ln_1p());
        Shares {
            top,
            log,
            loss: log + (values[top] - values[own]),
            others: others * scale,
            scale,
        }
    }
}

/// The location of the rows of a chunk.
struct Block<'a> {
    rows: &'a RowTable,
    start: usize,
    count: usize,
    features: usize,
    bias: f32,
    sizes: Sizes,
    is_dense: bool,
}

impl Block<'_> {
    /// Labels, costs and lengths of the rows, and dense ones side by side.
    #[inline(always)]
    fn take(&self, terms: &Terms, work: &mut Work) {
        let width = self.sizes.width;
        work.labels.clear();
        work.costs.clear();
        work.norms.clear();
        work.x.clear();
        if self.is_dense {
            work.x
                .resize(self.count.next_multiple_of(TILE) * width, 0.0);
        }
        for i in 0..self.count {
            let (label, record) = (
                self.rows.label(self.start + i),
                self.rows.id(self.start + i),
            );
            work.labels.push(label as usize);
            work.costs.push(terms.of(label, record).cost);
            let mut squares = f64::from(self.bias) * f64::from(self.bias);
            match self.rows.row(self.start + i) {
                Row::Dense(values) => {
                    let x = &mut work.x[i * width..][..width];
                    for (x, &value) in x.iter_mut().zip(values) {
                        *x = f64::from(value);
                        squares += *x * *x;
                    }
                    if self.features < self.sizes.length {
                        x[self.features] = f64::from(self.bias);
                    }
                }
                Row::Sparse { values, .. } => {
                    for &value in values {
                        squares += f64::from(value) * f64::from(value);
                    }
                }
                Row::Bytes(_) => {}
            }
            work.norms.push(squares.sqrt());
        }
    }

    /// Values of a sparse row with their features, the bias last.
    #[inline(always)]
    fn each(&self, i: usize, mut each: impl FnMut(usize, f64)) {
        if let Row::Sparse { indices, values } = self.rows.row(self.start + i) {
            for (&index, &value) in indices.iter().zip(values) {
                each(index as usize, f64::from(value));
            }
        }
        if self.features < self.sizes.length {
            each(self.features, f64::from(self.bias));
        }
    }

    /// w·x of every row and class.
    #[inline(always)]
    fn multiply<const FUSED: bool>(&self, x: &[f64], w: &[f64], values: &mut Vec<f64>) {
        let Sizes { width, columns, .. } = self.sizes;
        values.clear();
        values.resize(self.count.next_multiple_of(TILE) * columns, 0.0);
        if !self.is_dense {
            for i in 0..self.count {
                let values = &mut values[i * columns..][..columns];
                self.each(i, |feature, x| {
                    let w = &w[feature * columns..][..columns];
                    for k in 0..columns {
                        values[k] = fused::<FUSED>(x, w[k], values[k]);
                    }
                });
            }
        }
        for i in (0..x.len() / width).step_by(TILE) {
            let x = &x[i * width..][..TILE * width];
            for k in (0..columns).step_by(TILE_CLASSES) {
                let mut tile = [[0.0_f64; TILE_CLASSES]; TILE];
                for j in 0..width {
                    let w = &w[j * columns + k..][..TILE_CLASSES];
                    for r in 0..TILE {
                        let x = x[r * width + j];
                        for c in 0..TILE_CLASSES {
                            tile[r][c] = fused::<FUSED>(x, w[c], tile[r][c]);
                        }
                    }
                }
                for (r, tile) in tile.iter().enumerate() {
                    values[(i + r) * columns + k..][..TILE_CLASSES].copy_from_slice(tile);
                }
            }
        }
    }

    /// sums += Σ x times the coefficients of its row.
    #[inline(always)]
    fn add<const FUSED: bool>(&self, x: &[f64], coefficients: &[f64], sums: &mut [f64]) {
        let Sizes { width, columns, .. } = self.sizes;
        if !self.is_dense {
            for i in 0..self.count {
                let coefficients = &coefficients[i * columns..][..columns];
                self.each(i, |feature, x| {
                    let sums = &mut sums[feature * columns..][..columns];
                    for k in 0..columns {
                        sums[k] = fused::<FUSED>(x, coefficients[k], sums[k]);
                    }
                });
            }
            return;
        }
        for j in (0..width).step_by(TILE) {
            for k in (0..columns).step_by(TILE_CLASSES) {
                let mut tile = [[0.0_f64; TILE_CLASSES]; TILE];
                for i in 0..self.count {
                    let x = &x[i * width + j..][..TILE];
                    let coefficients = &coefficients[i * columns + k..][..TILE_CLASSES];
                    for r in 0..TILE {
                        for c in 0..TILE_CLASSES {
                            tile[r][c] = fused::<FUSED>(x[r], coefficients[c], tile[r][c]);
                        }
                    }
                }
                for r in 0..TILE {
                    let sums = &mut sums[(j + r) * columns + k..][..TILE_CLASSES];
                    for c in 0..TILE_CLASSES {
                        sums[c] += tile[r][c];
                    }
                }
            }
        }
    }

    /// matrix += Σ C h x xᵀ, its lower triangle, by a part of the records.
    #[inline(always)]
    fn add_matrix<const FUSED: bool>(&self, work: &mut Work, stride: u64, matrix: &mut [f64]) {
        let width = self.sizes.width;
        work.curved.clear();
        for i in 0..self.count {
            if !self.rows.id(self.start + i).is_multiple_of(stride) {
                continue;
            }
            let curvature = work.curvatures[i] * stride as f64;
            if self.is_dense {
                let root = curvature.sqrt();
                for x in &work.x[i * width..][..width] {
                    work.curved.push(root * x);
                }
                continue;
            }
            self.each(i, |feature, x| {
                let row = &mut matrix[feature * width..][..width];
                // Indices ascend.
                self.each(i, |other, y| {
                    if other <= feature {
                        row[other] += curvature * x * y;
                    }
                });
            });
        }
        add_products::<FUSED>(&work.curved, width, matrix);
    }

    /// The same for a diagonal, by all records.
    #[inline(always)]
    fn add_diagonal(&self, work: &Work, diagonal: &mut [f64]) {
        for i in 0..self.count {
            let curvature = work.curvatures[i];
            if self.is_dense {
                let x = &work.x[i * self.sizes.width..][..self.sizes.width];
                for (sum, x) in diagonal.iter_mut().zip(x) {
                    *sum += curvature * x * x;
                }
            } else {
                self.each(i, |feature, x| diagonal[feature] += curvature * x * x);
            }
        }
    }
}
