//! A look at weights: the sums of one pass over the rows, in any order, for each subproblem of a smooth loss. These are
//! the losses, the terms of the α that belong to the margins, and v = Σ α s x; a gradient and a certificate follow from
//! them.
//!
//! | symbol | meaning |
//! |---|---|
//! | m = s w·x | margin of a row; of one with a real target, its value |
//! | α(m) = −C ξ'(m) | the dual variable that belongs to it: feasible at any w |
//! | v = Σ α s x | minus the gradient of the losses |
//! | h | curvature of the loss of a row, as the metric of L-BFGS has it |
//!
//! Rows are read in place, a chunk that fits the second-level cache at a time: products with w, α, sums. The rows of a
//! block are dealt to a number of lanes that does not depend on the number of threads, so sums have the same bits on
//! any machine.
//!
//! Cost: two visits of each value, three if w is not rounded to f32, and one more for the lengths of rows.

mod bound;

use std::ops::Range;

use pelton_format::{Layout, Row, RowTable};

use crate::block::{block_rows, places_clipped};
use crate::certificate::predicted;
use crate::error::LinearError;
use crate::kernels::gram::{add_products_by, padded};
use crate::kernels::{self, BlockRows, Kernel, Simd, run};
use crate::loss::{LossFunction, WithLoss};
use crate::peers::{Exchange, Peers};
use crate::problem::{Problem, Terms};
use crate::visit::RowAddress;
pub(crate) use bound::{Bounds, gamma, gamma_of_products};

/// Most and fewest rows that are taken at a time, and values of dense ones.
pub(crate) const CHUNK: usize = 2048;
const LEAST_ROWS: usize = 16;
const CHUNK_VALUES: usize = 1 << 15;
/// Most features for separate sums of a chunk, which reduce the additions to a coordinate.
const NARROW: usize = 1 << 14;
/// Most lanes, and bytes of their sums.
const LANES: usize = 8;
const LANE_BYTES: usize = 256 << 20;

/// The weights of one subproblem.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    /// The weights for α and v; empty if only the losses of the rounded weights are wanted.
    pub w: &'a [f64],
    pub rounded: Vec<f32>,
}

impl<'a> View<'a> {
    pub fn new(w: &'a [f64]) -> View<'a> {
        View {
            w,
            rounded: w.iter().map(|&w| w as f32).collect(),
        }
    }

    fn is_rounded(&self) -> bool {
        let pairs = self.w.iter().zip(&self.rounded);
        pairs.fold(true, |all, (&w, &rounded)| all & (w == f64::from(rounded)))
    }
}

/// The sums of a look for one subproblem.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    /// Σ C ξ of the rounded weights, and Σ of a bound of its slope, times ‖x‖.
    pub loss: f64,
    pub slope: f64,
    /// Σ C ξ of the weights themselves.
    pub value: f64,
    /// Σ abs(α) ‖x‖ and Σ α².
    pub size: f64,
    pub alphas: f64,
    /// With a free bias, one for each sign of α s.
    pub sides: Vec<Side>,
    /// If wanted, Σ h x xᵀ: its lower triangle in rows of [`padded`] numbers, or its diagonal.
    pub metric: Vec<f64>,
    /// Σ h ‖x‖².
    pub trace: f64,
}

/// The rows of one sign.
#[derive(Clone, Debug, Default)]
pub(crate) struct Side {
    /// Σ of the terms, of their magnitudes and of their error bounds.
    pub terms: [f64; 3],
    /// v.
    pub sum: Vec<f64>,
}

impl Sums {
    /// Zeros, with `metric` numbers of a metric.
    pub fn new(problem: &Problem, metric: usize) -> Sums {
        let side = Side {
            terms: [0.0; 3],
            sum: vec![0.0; problem.length()],
        };
        Sums {
            sides: vec![side; sides(problem)],
            metric: vec![0.0; metric],
            ..Sums::default()
        }
    }

    fn figures(&mut self) -> [&mut f64; 6] {
        [
            &mut self.loss,
            &mut self.slope,
            &mut self.value,
            &mut self.size,
            &mut self.alphas,
            &mut self.trace,
        ]
    }

    fn add(&mut self, other: &mut Sums) {
        for (own, other) in self.figures().into_iter().zip(other.figures()) {
            *own += *other;
        }
        for (own, other) in self.sides.iter_mut().zip(&other.sides) {
            add(&mut own.terms, &other.terms);
            add(&mut own.sum, &other.sum);
        }
        add(&mut self.metric, &other.metric);
    }

    /// Adds up those of all ranks.
    fn exchange(&mut self, peers: &mut Peers<'_, LinearError>) -> Result<(), LinearError> {
        let mut figures = self.figures().map(|figure| *figure);
        peers(Exchange::Sum(&mut figures))?;
        for (own, figure) in self.figures().into_iter().zip(figures) {
            *own = figure;
        }
        for side in &mut self.sides {
            peers(Exchange::Sum(&mut side.terms))?;
            peers(Exchange::Sum(&mut side.sum))?;
        }
        peers(Exchange::Sum(&mut self.metric))
    }

    /// v, all sides together.
    pub fn pull(&self) -> Vec<f64> {
        let (first, others) = self.sides.split_first().expect("there is a side");
        let mut pull = first.sum.clone();
        others.iter().for_each(|side| add(&mut pull, &side.sum));
        pull
    }
}

fn add(sums: &mut [f64], others: &[f64]) {
    for (sum, other) in sums.iter_mut().zip(others) {
        *sum += other;
    }
}

/// Parts of the sums of a subproblem.
pub(crate) fn sides(problem: &Problem) -> usize {
    1 + usize::from(problem.bias_is_free())
}

/// Lanes for looks with `metrics` numbers of metrics in total.
pub(crate) fn lanes(problem: &Problem, metrics: usize) -> usize {
    let vectors = problem.length() * problem.subproblems() * sides(problem);
    (LANE_BYTES / (8 * (vectors + metrics)).max(1)).clamp(1, LANES)
}

/// The rows that one lane has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    pub sums: Vec<Sums>,
    rows: f64,
    correct: f64,
    /// Additions to a coordinate of a sum, at most, and values of a row.
    additions: f64,
    longest: f64,
    /// Rows of a chunk, at most.
    chunk: f64,
    work: Work,
}

impl Lane {
    pub fn new(sums: Vec<Sums>) -> Lane {
        Lane {
            sums,
            ..Lane::default()
        }
    }
}

/// All lanes of all ranks.
#[derive(Debug)]
pub(crate) struct Total {
    pub sums: Vec<Sums>,
    pub rows: u64,
    pub correct: u64,
    pub rounding: Rounding,
}

/// Most additions: to a coordinate of v, to a figure, and in a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounding {
    pub additions: f64,
    pub rows: f64,
    pub longest: f64,
}

impl Total {
    /// Adds lanes up, over ranks too.
    ///
    /// Errors: those of `peers`.
    pub fn new(
        lanes: impl IntoIterator<Item = Lane>,
        peers: &mut Peers<'_, LinearError>,
    ) -> Result<Total, LinearError> {
        let mut lanes = lanes.into_iter();
        let mut total = lanes.next().unwrap_or_default();
        let mut count = 1.0;
        for mut lane in lanes {
            total.rows += lane.rows;
            total.correct += lane.correct;
            total.additions = total.additions.max(lane.additions);
            total.longest = total.longest.max(lane.longest);
            total.chunk = total.chunk.max(lane.chunk);
            for (own, other) in total.sums.iter_mut().zip(&mut lane.sums) {
                own.add(other);
            }
            count += 1.0;
        }
        let mut most = [total.additions, total.longest, count, total.chunk];
        peers(Exchange::Largest(&mut most))?;
        let mut counts = [total.rows, total.correct, 1.0];
        peers(Exchange::Sum(&mut counts))?;
        for sums in &mut total.sums {
            sums.exchange(peers)?;
        }
        let others = most[2] + counts[2];
        Ok(Total {
            sums: total.sums,
            rows: counts[0] as u64,
            correct: counts[1] as u64,
            rounding: Rounding {
                additions: most[0] + others + most[3],
                rows: counts[0] + others,
                longest: most[1] + 20.0,
            },
        })
    }
}

/// Buffers for a chunk of rows.
#[derive(Clone, Debug, Default)]
struct Work {
    places: Vec<RowAddress>,
    norms: Vec<f64>,
    /// w·x of the rounded weights of each subproblem.
    values: Vec<f64>,
    /// Of one subproblem: signs, targets and costs; w·x and margins; values that the loss prepares from these, and
    /// results.
    signs: Vec<f64>,
    targets: Vec<f64>,
    costs: Vec<f64>,
    exact: Vec<f64>,
    margins: Vec<f64>,
    prepared: [Vec<f64>; 2],
    scales: [Vec<f64>; 2],
    curvatures: Vec<f64>,
    /// Rows times the roots of their curvatures, and the sum of a chunk.
    curved: Vec<f64>,
    sum: Vec<f64>,
}

/// A running look.
pub(crate) struct Look<'a> {
    pub problem: &'a Problem,
    /// Of each subproblem.
    pub views: Vec<View<'a>>,
    /// Metrics sum the records with ids divisible by `stride`, each times `stride`.
    pub stride: u64,
    /// Whether h is at least the curvature of a step to the row's least loss.
    pub is_first: bool,
    pub simd: Simd,
}

impl Look<'_> {
    /// Adds the rows `range` of a block to a lane.
    pub fn add(&self, rows: &RowTable, range: Range<usize>, lane: &mut Lane) {
        let problem = self.problem;
        let block = block_rows(problem.features(), problem.bias(), rows);
        let terms: Vec<Terms> = (0..self.views.len()).map(|s| problem.terms(s)).collect();
        let is_rounded: Vec<bool> = self.views.iter().map(View::is_rounded).collect();
        let at_once = match block.layout {
            Layout::Dense { width } => (CHUNK_VALUES / width.max(1)).clamp(LEAST_ROWS, CHUNK),
            Layout::Sparse | Layout::Bytes => CHUNK,
        };
        for start in range.clone().step_by(at_once) {
            let range = start..range.end.min(start + at_once);
            let length = range.len();
            let work = &mut lane.work;
            work.places.clear();
            places_clipped(problem.features(), rows, range.clone(), &mut work.places);
            work.norms.resize(length, 0.0);
            kernels::norms(self.simd, &block, &work.places, &mut work.norms);
            work.values.resize(length * self.views.len(), 0.0);
            for (s, sums) in lane.sums.iter_mut().enumerate() {
                let chunk = Chunk {
                    look: self,
                    rows,
                    block: &block,
                    range: range.clone(),
                    view: &self.views[s],
                    is_rounded: is_rounded[s],
                    number: s,
                };
                chunk.add(&terms[s], &mut lane.work, sums);
            }
            let work = &lane.work;
            lane.rows += length as f64;
            lane.chunk = lane.chunk.max(length as f64);
            lane.additions += if problem.length() <= NARROW {
                1.0
            } else {
                length as f64
            };
            for place in &work.places {
                lane.longest = lane.longest.max(f64::from(place.length));
            }
            if !problem.has_real_targets() {
                let values = &work.values[..length * problem.subproblems_of_model()];
                let right = |i: &usize| predicted(values, length, *i) == rows.label(start + i);
                lane.correct += (0..length).filter(right).count() as f64;
            }
        }
    }
}

/// Some rows of one subproblem.
struct Chunk<'a, 'b> {
    look: &'a Look<'b>,
    rows: &'a RowTable,
    block: &'a BlockRows<'a>,
    range: Range<usize>,
    view: &'a View<'b>,
    is_rounded: bool,
    number: usize,
}

impl Chunk<'_, '_> {
    fn add(self, terms: &Terms, work: &mut Work, sums: &mut Sums) {
        let (simd, length) = (self.look.simd, self.range.len());
        let values = &mut work.values[self.number * length..][..length];
        kernels::sweep(simd, self.block, &self.view.rounded, &work.places, values);
        work.signs.clear();
        work.targets.clear();
        work.costs.clear();
        for i in self.range.clone() {
            let row = terms.of(self.rows.label(i), self.rows.id(i));
            work.signs.push(f64::from(row.sign));
            work.targets.push(f64::from(row.target));
            work.costs.push(row.cost);
        }
        work.exact.clear();
        if !self.is_rounded {
            work.exact.resize(length, 0.0);
            let (places, exact) = (&work.places, &mut work.exact);
            kernels::sweep(simd, self.block, self.view.w, places, exact);
        }
        let slopes = Slopes {
            simd,
            number: self.number,
            is_first: self.look.is_first,
            losses_only: self.view.w.is_empty(),
            work,
            sums,
        };
        self.look.problem.loss().with(slopes);
        if self.view.w.is_empty() {
            return;
        }
        for (side, scales) in sums.sides.iter_mut().zip(&work.scales) {
            let sum = if side.sum.len() <= NARROW {
                work.sum.clear();
                work.sum.resize(side.sum.len(), 0.0);
                &mut work.sum
            } else {
                &mut side.sum
            };
            sums.size += kernels::add_rows(simd, self.block, &work.places, scales, sum);
            if side.sum.len() <= NARROW {
                add(&mut side.sum, &work.sum);
            }
        }
        self.add_metric(work, &mut sums.metric);
    }

    /// metric += Σ h x xᵀ, by a part of the records, or its diagonal, by all.
    fn add_metric(&self, work: &mut Work, metric: &mut [f64]) {
        let (features, bias) = (self.look.problem.features(), self.look.problem.bias());
        let (width, stride) = (padded(self.look.problem.length()), self.look.stride);
        let constant = bias.map(|bias| (features as u32, bias));
        if metric.len() <= width {
            if metric.is_empty() {
                return;
            }
            for (i, h) in self.range.clone().zip(&work.curvatures) {
                for_each_value(self.rows.row(i), constant, |j, x| {
                    metric[j] += h * f64::from(x).powi(2);
                });
            }
            return;
        }
        work.curved.clear();
        for (i, h) in self.range.clone().zip(&work.curvatures) {
            if !self.rows.id(i).is_multiple_of(stride) || *h == 0.0 {
                continue;
            }
            let h = h * stride as f64;
            match self.rows.row(i) {
                Row::Dense(values) => {
                    let (root, end) = (h.sqrt(), work.curved.len() + width);
                    work.curved
                        .extend(values.iter().map(|&x| root * f64::from(x)));
                    work.curved.extend(bias.map(|bias| root * f64::from(bias)));
                    work.curved.resize(end, 0.0);
                }
                row => for_each_value(row, constant, |j, x| {
                    let products = &mut metric[j * width..][..width];
                    // Indices ascend.
                    for_each_value(row, constant, |k, y| {
                        if k <= j {
                            products[k] += h * f64::from(x) * f64::from(y);
                        }
                    });
                }),
            }
        }
        add_products_by(self.look.simd, &work.curved, width, metric);
    }
}

/// Calls `each` with the features of a row that are not 0, and their values; `constant` is the last.
#[inline(always)]
pub(crate) fn for_each_value(
    row: Row<'_>,
    constant: Option<(u32, f32)>,
    mut each: impl FnMut(usize, f32),
) {
    match row {
        Row::Dense(values) => {
            for (feature, &value) in values.iter().enumerate() {
                if value != 0.0 {
                    each(feature, value);
                }
            }
        }
        Row::Sparse { indices, values } => {
            for (&feature, &value) in indices.iter().zip(values) {
                if value != 0.0 {
                    each(feature as usize, value);
                }
            }
        }
        Row::Bytes(_) => {}
    }
    if let Some((feature, value)) = constant {
        each(feature as usize, value);
    }
}

/// The losses of some rows, and their slopes.
struct Slopes<'a> {
    simd: Simd,
    number: usize,
    is_first: bool,
    losses_only: bool,
    work: &'a mut Work,
    sums: &'a mut Sums,
}

impl WithLoss for Slopes<'_> {
    type Output = ();

    fn run<L: LossFunction + Copy>(self, loss: L) {
        run(self.simd, SlopesOf { slopes: self, loss });
    }
}

/// The same for one loss.
struct SlopesOf<'a, L> {
    slopes: Slopes<'a>,
    loss: L,
}

// Plain loops: iterator adapters would be compiled as separate functions, without the processor's features.
impl<L: LossFunction> Kernel for SlopesOf<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let loss = self.loss;
        let Slopes {
            number,
            is_first,
            losses_only,
            work,
            sums,
            ..
        } = self.slopes;
        let count = work.signs.len();
        let values = &work.values[number * count..][..count];
        let is_rounded = work.exact.is_empty();
        let (mut value, mut slope) = (0.0, 0.0);
        if losses_only || !is_rounded {
            for (i, product) in values.iter().enumerate() {
                let m = work.signs[i] * product;
                let [own, steep] = loss.newton_loss(m, work.targets[i], work.costs[i]);
                value += own;
                slope += steep * work.norms[i];
            }
            sums.loss += value;
            sums.slope += slope;
            if losses_only {
                return;
            }
        }
        let values = if is_rounded { values } else { &work.exact };
        work.margins.clear();
        for (value, sign) in values.iter().zip(&work.signs) {
            work.margins.push(sign * value);
        }
        for prepared in &mut work.prepared {
            prepared.clear();
            prepared.resize(count, 0.0);
        }
        loss.prepare(&work.margins, &mut work.prepared);
        let wants_metric = !sums.metric.is_empty();
        work.curvatures.clear();
        for scales in &mut work.scales {
            scales.clear();
            scales.resize(count, 0.0);
        }
        let has_sides = sums.sides.len() == 2;
        let (mut value, mut slope, mut alphas, mut trace) = (0.0, 0.0, 0.0, 0.0);
        let mut figures = [[0.0; 3]; 2];
        for i in 0..count {
            let prepared = [work.prepared[0][i], work.prepared[1][i]];
            let (m, target, cost) = (work.margins[i], work.targets[i], work.costs[i]);
            let row = loss.newton(m, target, cost, 0.0, prepared);
            let scale = work.signs[i] * row.alpha;
            let side = usize::from(has_sides && scale < 0.0);
            work.scales[side][i] = scale;
            figures[side][0] += row.term;
            figures[side][1] += row.term.abs();
            figures[side][2] += row.rounding;
            value += row.loss;
            slope += row.slope * work.norms[i];
            alphas += scale * scale;
            let mut h = row.curvature;
            if is_first {
                h = h.max(loss.secant(m, target, row.alpha));
            }
            trace += h * work.norms[i] * work.norms[i];
            if wants_metric {
                work.curvatures.push(h);
            }
        }
        sums.value += value;
        sums.alphas += alphas;
        sums.trace += trace;
        if is_rounded {
            sums.loss += value;
            sums.slope += slope;
        }
        for (side, figures) in sums.sides.iter_mut().zip(figures) {
            for (sum, figure) in side.terms.iter_mut().zip(figures) {
                *sum += figure;
            }
        }
    }
}
