//! One pass over the rows: the sums that a Newton step, a line search and a certificate are made of.
//!
//! Rows are taken some hundred at a time: copied side by side, dense, then multiplied with w, and those with
//! curvature once more, times its root, for the products that make the matrix. The rows of a block are dealt to a
//! number of lanes that does not depend on the number of threads, so sums have the same bits on any machine width.

use pelton_format::{Row, RowTable};

use super::Point;
use crate::kernels::{Kernel, Simd, run};
use crate::problem::{Loss, Problem};

/// Steps that a line search looks at: 1, 1/2, 1/4 …
pub(super) const TRIALS: usize = 24;
/// Columns of a tile of the matrix, and rows.
const TILE: usize = 8;
const TILE_ROWS: usize = 4;
/// Rows that are taken at a time where they are narrow, and else.
const MOST_ROWS: [usize; 2] = [256, 128];
/// Most lanes, and bytes of their matrices.
const LANES: usize = 16;
const LANE_BYTES: usize = 64 << 20;

/// Additions to any number of a lane's sums, at most, after it has been added to `chunks` times.
pub(super) fn additions(chunks: f64) -> f64 {
    MOST_ROWS[0] as f64 + chunks
}

/// Width of a row in memory.
pub(super) fn padded(width: usize) -> usize {
    width.next_multiple_of(TILE)
}

/// Lanes that the rows of a block are dealt to.
pub(super) fn lanes(width: usize, subproblems: usize) -> usize {
    let bytes = 8 * width.pow(2) * subproblems;
    (LANE_BYTES / bytes).clamp(1, LANES)
}

/// What one pass sums for one subproblem.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    /// Σ C ξ of the weights rounded to f32, and how much C ξ moves with a margin, times ‖x‖.
    pub loss: f64,
    pub loss_slope: f64,
    /// Σ of the losses, and of what smoothing leaves between them and the dual.
    pub value: f64,
    pub smoothing: f64,
    /// Σ of the terms of the dual value, their magnitudes, what they can be off by, Σ α ‖x‖.
    pub terms: f64,
    pub magnitudes: f64,
    pub rounding: f64,
    pub size: f64,
    /// Σ of the curvatures.
    pub curvature: f64,
    /// Σ α y x.
    pub sum: Vec<f64>,
    /// −Σ ∂α/∂τ y x: how the gradient moves with τ; none where nothing is smoothed.
    pub path: Vec<f64>,
    /// Σ curvature x xᵀ: the lower triangle in rows of [`padded`] numbers.
    pub matrix: Vec<f64>,
    /// −Σ α y x·step at each trial of a line search.
    pub slopes: [f64; TRIALS],
}

impl Sums {
    /// Zeros; `width` is padded.
    pub fn new(width: usize, has_matrix: bool, has_path: bool) -> Sums {
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
            path: vec![0.0; if has_path { width } else { 0 }],
            matrix: vec![0.0; if has_matrix { width * width } else { 0 }],
            slopes: [0.0; TRIALS],
        }
    }

    fn numbers(&mut self) -> [&mut f64; 9] {
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
        ]
    }

    pub fn add(&mut self, mut other: Sums) {
        for (own, other) in self.numbers().into_iter().zip(other.numbers()) {
            *own += *other;
        }
        add(&mut self.sum, &other.sum);
        add(&mut self.path, &other.path);
        add(&mut self.matrix, &other.matrix);
        add(&mut self.slopes, &other.slopes);
    }

    /// All numbers one after the other, for ranks to add up, and back.
    pub fn flat(&mut self) -> Vec<f64> {
        let mut flat: Vec<f64> = self.numbers().into_iter().map(|number| *number).collect();
        flat.extend(self.slopes);
        flat.extend(&self.sum);
        flat.extend(&self.path);
        flat.extend(&self.matrix);
        flat
    }

    pub fn set_flat(&mut self, flat: &[f64]) {
        let (numbers, rest) = flat.split_at(9);
        for (own, number) in self.numbers().into_iter().zip(numbers) {
            *own = *number;
        }
        let (slopes, rest) = rest.split_at(TRIALS);
        self.slopes.copy_from_slice(slopes);
        let (sum, rest) = rest.split_at(self.sum.len());
        self.sum.copy_from_slice(sum);
        let (path, matrix) = rest.split_at(self.path.len());
        self.path.copy_from_slice(path);
        self.matrix.copy_from_slice(matrix);
    }
}

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

/// Some rows side by side, and what belongs to them.
#[derive(Clone, Debug, Default)]
struct Work {
    /// x, each row padded with zeros.
    x: Vec<f32>,
    norms: Vec<f64>,
    classes: Vec<u32>,
    /// w·x of the rounded weights of each subproblem.
    values: Vec<f64>,
    /// Of one subproblem: signs and costs, margins, e^(−|m|) and ln(1 + e^(−|m|)), and what follows from these.
    signs: Vec<f64>,
    costs: Vec<f64>,
    margins: Vec<f64>,
    small: Vec<f64>,
    logs: Vec<f64>,
    terms: Vec<Terms>,
    /// Rows with curvature, times its root.
    curved: Vec<f64>,
    sum: Vec<f64>,
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

/// A pass under way.
pub(super) struct Pass<'a> {
    pub problem: &'a Problem,
    pub points: &'a [Point],
    /// Curvature times ‖x‖² up to which rows of the hinge stay out of the matrix.
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
            let chunk = Chunk {
                pass: self,
                width,
                lane,
                fused: self.simd != Simd::PLAIN,
            };
            run(self.simd, chunk);
        }
    }

    /// Copies rows side by side.
    fn take(&self, rows: &RowTable, chunk: std::ops::Range<usize>, width: usize, work: &mut Work) {
        let features = self.problem.features();
        work.x.clear();
        work.x.resize(chunk.len() * width, 0.0);
        work.classes.clear();
        for (i, x) in chunk.zip(work.x.chunks_exact_mut(width)) {
            work.classes.push(rows.label(i));
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
    fused: bool,
}

impl Kernel for Chunk<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        match (self.fused, self.pass.problem.loss()) {
            (true, Loss::Hinge) => self.sum::<true, 0>(),
            (true, Loss::SquaredHinge) => self.sum::<true, 1>(),
            (true, Loss::Logistic) => self.sum::<true, 2>(),
            (false, Loss::Hinge) => self.sum::<false, 0>(),
            (false, Loss::SquaredHinge) => self.sum::<false, 1>(),
            (false, Loss::Logistic) => self.sum::<false, 2>(),
        }
    }
}

impl Chunk<'_, '_> {
    #[inline(always)]
    fn sum<const FUSED: bool, const LOSS: u8>(self) {
        let Chunk {
            pass, width, lane, ..
        } = self;
        let (problem, work) = (pass.problem, &mut lane.work);
        let count = work.classes.len();
        // Loops and no iterator adapters, which would be compiled apart, without the processor's features.
        work.norms.clear();
        for x in work.x.chunks_exact(width) {
            work.norms.push(norm(x));
        }
        work.values.clear();
        for (subproblem, point) in pass.points.iter().enumerate() {
            let sums = &mut lane.sums[subproblem];
            work.signs.clear();
            work.costs.clear();
            for &class in &work.classes {
                work.signs.push(f64::from(problem.sign(subproblem, class)));
                work.costs.push(problem.cost(class));
            }
            if let Some(from) = &point.search {
                for i in 0..count {
                    let (x, sign) = (&work.x[i * width..][..width], work.signs[i]);
                    let start = sign * products::<FUSED>(x, from);
                    let moves = sign * products::<FUSED>(x, &point.step);
                    let mut step = 1.0;
                    for slope in &mut sums.slopes {
                        let m = start + step * moves;
                        let at = Terms::of::<LOSS>(m, work.costs[i], point.smoothing);
                        *slope -= at.alpha * moves;
                        step *= 0.5;
                    }
                }
                continue;
            }
            // The weights as the model will have them: their losses, and the classes they predict.
            work.margins.clear();
            for (x, sign) in work.x.chunks_exact(width).zip(&work.signs) {
                let value = products::<FUSED>(x, &point.rounded);
                work.values.push(value);
                work.margins.push(sign * value);
            }
            if point.done || point.w != point.rounded {
                for ((m, cost), norm) in work.margins.iter().zip(&work.costs).zip(&work.norms) {
                    let (loss, slope) = loss_at::<LOSS>(*m, *cost);
                    sums.loss += loss;
                    sums.loss_slope += slope * norm;
                }
                if point.done {
                    continue;
                }
                work.margins.clear();
                for (x, sign) in work.x.chunks_exact(width).zip(&work.signs) {
                    work.margins.push(sign * products::<FUSED>(x, &point.w));
                }
            }
            // Loops of their own, which several rows go through side by side.
            work.small.clear();
            work.small.resize(count, 0.0);
            work.logs.clear();
            work.logs.resize(count, 0.0);
            if LOSS == 2 {
                for (small, m) in work.small.iter_mut().zip(&work.margins) {
                    *small = exp_of_negative(m.abs());
                }
                for (log, small) in work.logs.iter_mut().zip(&work.small) {
                    *log = ln_1p_of_share(*small);
                }
            }
            work.terms.clear();
            for i in 0..count {
                let logistic = [work.small[i], work.logs[i]];
                let (m, cost) = (work.margins[i], work.costs[i]);
                let terms = Terms::with::<LOSS>(m, cost, point.smoothing, logistic);
                work.terms.push(terms);
            }
            if point.w == point.rounded {
                for (terms, norm) in work.terms.iter().zip(&work.norms) {
                    sums.loss += terms.loss;
                    sums.loss_slope += terms.slope * norm;
                }
            }
            work.curved.clear();
            work.sum.clear();
            work.sum.resize(width, 0.0);
            work.path.clear();
            work.path.resize(sums.path.len(), 0.0);
            let rows = work.x.chunks_exact(width).zip(&work.signs);
            for (i, ((x, sign), terms)) in rows.zip(&work.terms).enumerate() {
                sums.value += terms.loss;
                sums.smoothing += terms.smoothing;
                sums.terms += terms.term;
                sums.magnitudes += terms.term.abs();
                sums.rounding += terms.rounding;
                sums.size += terms.alpha * work.norms[i];
                sums.curvature += terms.curvature;
                if terms.alpha != 0.0 {
                    let scale = sign * terms.alpha;
                    for (sum, &x) in work.sum.iter_mut().zip(x) {
                        *sum += scale * f64::from(x);
                    }
                }
                if LOSS != 2 && !work.path.is_empty() {
                    let scale = sign * terms.path;
                    for (sum, &x) in work.path.iter_mut().zip(x) {
                        *sum += scale * f64::from(x);
                    }
                }
                if terms.curvature * work.norms[i] * work.norms[i] > pass.slight {
                    let root = terms.curvature.sqrt();
                    work.curved.extend(x.iter().map(|&x| root * f64::from(x)));
                }
            }
            add(&mut sums.path, &work.path);
            add(&mut sums.sum, &work.sum);
            if !sums.matrix.is_empty() {
                add_products::<FUSED>(&work.curved, width, &mut sums.matrix);
            }
        }
        lane.rows += count as u64;
        lane.chunks += 1;
        if work.values.len() == count * pass.points.len() {
            let classes = work.classes.iter().enumerate();
            let right = classes.filter(|(i, class)| {
                crate::certificate::predicted(&work.values, count, *i) == **class
            });
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

#[inline(always)]
fn fused<const FUSED: bool>(a: f64, b: f64, c: f64) -> f64 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// matrix += ZᵀZ, its lower triangle, of the rows z of Z.
#[inline(always)]
fn add_products<const FUSED: bool>(z: &[f64], width: usize, matrix: &mut [f64]) {
    for j in (0..width).step_by(TILE) {
        for i in (j..width).step_by(TILE_ROWS) {
            let mut tile = [[0.0_f64; TILE]; TILE_ROWS];
            for z in z.chunks_exact(width) {
                let (rows, columns) = (&z[i..i + TILE_ROWS], &z[j..j + TILE]);
                for (tile, &row) in tile.iter_mut().zip(rows) {
                    for (entry, &column) in tile.iter_mut().zip(columns) {
                        *entry = fused::<FUSED>(row, column, *entry);
                    }
                }
            }
            for (r, tile) in tile.iter().enumerate() {
                add(&mut matrix[(i + r) * width + j..][..TILE], tile);
            }
        }
    }
}

/// C ξ(m), and a bound of its slope there.
#[inline(always)]
fn loss_at<const LOSS: u8>(m: f64, cost: f64) -> (f64, f64) {
    let short = (1.0 - m).max(0.0);
    match LOSS {
        0 => (cost * short, cost),
        1 => (cost * short * short, 2.0 * cost * (short + 1e-6)),
        _ => (cost * ((-m.abs()).exp().ln_1p() + (-m).max(0.0)), cost),
    }
}

/// A row at margin m.
#[derive(Clone, Copy, Debug)]
struct Terms {
    /// C ξ(m), and a bound of its slope.
    loss: f64,
    slope: f64,
    alpha: f64,
    curvature: f64,
    /// −∂α/∂τ.
    path: f64,
    smoothing: f64,
    term: f64,
    rounding: f64,
}

impl Terms {
    #[inline(always)]
    fn of<const LOSS: u8>(m: f64, cost: f64, tau: f64) -> Terms {
        let small = if LOSS == 2 {
            exp_of_negative(m.abs())
        } else {
            0.0
        };
        let log = if LOSS == 2 {
            ln_1p_of_share(small)
        } else {
            0.0
        };
        Terms::with::<LOSS>(m, cost, tau, [small, log])
    }

    /// The same, of the logistic loss given e^(−|m|) and ln(1 + e^(−|m|)).
    #[inline(always)]
    fn with<const LOSS: u8>(m: f64, cost: f64, tau: f64, [small, log]: [f64; 2]) -> Terms {
        let short = (1.0 - m).max(0.0);
        match LOSS {
            0 => {
                let s = 1.0 - m;
                let root = (s * s + 4.0 * tau * tau).sqrt();
                let alpha = cost * (0.5 + 0.5 * s / (root + 2.0 * tau));
                let curvature = cost * tau / (root * (root + 2.0 * tau));
                Terms {
                    loss: cost * short,
                    slope: cost,
                    alpha,
                    curvature,
                    // α is a function of s / τ alone.
                    path: s * curvature / tau,
                    smoothing: cost * short - alpha * s,
                    term: alpha,
                    rounding: 0.0,
                }
            }
            1 => {
                let s = 1.0 - m;
                let root = (s * s + 4.0 * tau * tau).sqrt();
                let alpha = match s >= 0.0 {
                    true => cost * (s + root),
                    false => cost * 4.0 * tau * tau / (root - s),
                };
                // Of both 0 / 0.
                let (curvature, path) = match root > 0.0 {
                    true => (alpha / root, -4.0 * cost * tau / root),
                    false => (0.0, 0.0),
                };
                let loss = cost * short * short;
                Terms {
                    loss,
                    slope: 2.0 * cost * (short + 1e-6),
                    alpha,
                    curvature,
                    path,
                    smoothing: loss - alpha * s + 0.25 / cost * alpha * alpha,
                    term: alpha - 0.25 / cost * alpha * alpha,
                    rounding: 4.0 * f64::EPSILON * alpha * (1.0 + short),
                }
            }
            _ => {
                let whole = 1.0 / (1.0 + small);
                let alpha = cost * if m >= 0.0 { small * whole } else { whole };
                let loss = cost * (log + (-m).max(0.0));
                Terms {
                    loss,
                    slope: cost,
                    alpha,
                    curvature: cost * small * whole * whole,
                    path: 0.0,
                    smoothing: 0.0,
                    // The entropy of α, by equality in Fenchel's inequality at α = C σ(−m). Its slope there is m, so
                    // rounding α moves it by a multiple of ε α m.
                    term: loss + alpha * m,
                    rounding: 32.0 * f64::EPSILON * (loss + alpha * m.abs()),
                }
            }
        }
    }
}

/// e^(−a), a ≥ 0, to 4 ε; at e^(−700) it stops falling. Without branches or calls, so that several rows are computed
/// side by side: the library's takes as long as all else that a row needs.
#[inline(always)]
fn exp_of_negative(a: f64) -> f64 {
    // Adding it leaves the nearest whole number in the lowest bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    const LN_2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];
    let x = -a.min(700.0);
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN_2[0]) - n * LN_2[1];
    // Taylor's series at |r| ≤ 0.35: what follows the 13th power is below 1e-17.
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

/// ln(1 + s), 0 ≤ s ≤ 1, to 8 ε: twice the inverse hyperbolic tangent of z = s / (2 + s), or beyond √2 − 1 ln 2 and that of
/// (s − 1) / (s + 3).
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
    fn tiles_of_every_shape_make_the_products() {
        let mut stream = crate::random::Stream::new(8);
        for width in [8, 16, 24, 40, 136] {
            for rows in [0, 1, 5, 33] {
                let z: Vec<f64> = (0..rows * width)
                    .map(|_| (stream.next() >> 40) as f64 / 1e7 - 0.5)
                    .collect();
                for fused in [false, true] {
                    let mut matrix = vec![0.5; width * width];
                    match fused {
                        false => add_products::<false>(&z, width, &mut matrix),
                        true => add_products::<true>(&z, width, &mut matrix),
                    }
                    for i in 0..width {
                        for j in 0..=i {
                            let sum: f64 = z.chunks(width).map(|z| z[i] * z[j]).sum();
                            let found = matrix[i * width + j] - 0.5;
                            assert!((found - sum).abs() < 1e-12, "{width} {rows}");
                        }
                    }
                }
            }
        }
    }

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

    /// The curvature is minus the slope of α, the path minus that over τ, and no dual term lies above the loss.
    #[test]
    fn terms_are_derivatives_and_bounds() {
        fn check<const LOSS: u8>(cost: f64, tau: f64) {
            for step in -60..60 {
                let m = 0.07 * f64::from(step) + 0.013;
                let at = |m, tau| Terms::of::<LOSS>(m, cost, tau);
                let (h, terms) = (1e-6, at(m, tau));
                let bend = -(at(m + h, tau).alpha - at(m - h, tau).alpha) / (2.0 * h);
                assert!(
                    (bend - terms.curvature).abs() < 1e-4 * cost / tau,
                    "{LOSS} {m}: {bend}"
                );
                let path = -(at(m, tau + h).alpha - at(m, tau - h).alpha) / (2.0 * h);
                assert!((path - terms.path).abs() < 1e-4 * cost / tau, "{LOSS} {m}");
                assert!((0.0..=cost).contains(&terms.alpha) || LOSS == 1);
                assert!(terms.smoothing >= -1e-12 * cost);
                // What is left is at most τ on either side of the bend.
                assert!(LOSS != 0 || terms.smoothing <= cost * tau * (1.0 + 1e-12));
                // term ≤ C ξ(m) + α m, with equality up to the smoothing.
                let bound = loss_at::<LOSS>(m, cost).0 + terms.alpha * m - terms.smoothing;
                assert!(
                    (terms.term - bound).abs() < 1e-9 * cost.max(1.0),
                    "{LOSS} {m}"
                );
            }
        }
        for tau in [1.0, 0.05, 1e-3] {
            check::<0>(2.0, tau);
            check::<1>(0.7, tau);
            check::<2>(3.0, 1.0);
        }
    }
}
