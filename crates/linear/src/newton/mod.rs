//! Newton's method for many rows of few features, in memory or streamed.
//!
//! Where features are few, a step of Newton's method needs Σ D x xᵀ and Σ α y x alone: one pass over the rows in any
//! order, from any place, by any number of threads and ranks, whose sums add up. Coordinate descent moves one α at a
//! time, and on overlapping classes or features of different sizes needs hundreds of passes where this needs 5 to 20.
//!
//! | symbol | meaning |
//! |---|---|
//! | m = y w·x | margin of a row |
//! | α(m) = −C ξ'(m) | the dual variable that belongs to it: feasible at any w |
//! | D = C ξ''(m) | curvature |
//! | u = Σ α y x | w − u is the gradient of P, and of nothing else |
//! | μ, a | width and centre of the smoothed hinge |
//!
//! **Certificate.** α(m) is dual feasible at every w, so each pass gives P(w) and the bound Σ term(α) − ½‖u‖², both
//! summed anew from the rows, in f64, rounding taken off (as `DualBound` does). Their difference is ½‖w − u‖², beside
//! what smoothing leaves, and falls quadratically. Far from the optimum a multiple of α gives a better bound.
//!
//! **Hinge.** It has no curvature, so it is smoothed: max over 0 ≤ α ≤ C of α(1 − m) − μ/2C (α − a)², whose maximiser is
//! α = a + C(1 − m)/μ, clipped. Every such α is feasible for the hinge itself. When the smoothed problem is solved
//! well enough, its α become the next centres a (the proximal method of multipliers on the dual; Li, Sun, Toh, SIAM J.
//! Optim. 2018, for the semismooth Newton steps) and μ shrinks: to a quarter while the rows in the bend are many, four
//! times the unknowns, else to a tenth where a step of centres brought little. The exact solution does not need μ → 0.
//!
//! **Steps.** Full ones. Where the value rises, the next pass sums the slope at 24 fractions of the step, and the place
//! between two of them where it is 0 is taken.
//!
//! Cost of a pass, measured at d = 20 on one AVX2 core that other work shared: 110 to 120 ns a row for logistic, 100 to
//! 120 for the squared hinge, 80 to 90 for the hinge. At larger d the n·d²/2 products of the matrix are most of it; solving takes
//! d³/6. Memory: d² numbers a lane of threads ([`Newton::bytes`]); for the hinge 8 bytes a row and subproblem beside.
//!
//! An interior-point method was rejected: it keeps six numbers a row, which cannot be streamed, and takes 20 to 60
//! passes of three times the work.

mod cholesky;
mod pass;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pelton_format::{Layout, RowTable};
use rayon::prelude::*;

use crate::certificate::{Certificate, LossSum};
use crate::error::LinearError;
use crate::kernels::Simd;
use crate::problem::{Loss, Problem};
use crate::ranks::{Exchange, Peers};
use crate::weights::Weights;
use cholesky::dot;
use pass::{Lane, Pass, Sums, TRIALS, additions, lanes, padded};

/// Most features, the bias included, for which the matrix is formed.
pub const MOST_NEWTON_FEATURES: usize = 1024;

/// Width of the bend of the hinge at first: at w = 0 every row is in it.
const FIRST_SMOOTHING: f64 = 2.0;
/// Decrease of the smoothed value still to be had, over what smoothing leaves, below which the centres move on.
const SOLVED: f64 = 0.3;
/// The same for the gradient's part of the gap, which is what the dual value lacks.
const FEASIBLE: f64 = 0.1;
/// Decrease still to be had, over the value, from which on w is not rounded: rounding it moves the value by less.
const FINE: f64 = 1e-9;
/// The same, over what rounding w moves the value by.
const COARSE: f64 = 10.0;
/// Half a unit in the last place of an f32 of 1.
const HALF_A_UNIT: f64 = 0.5 * f32::EPSILON as f64;
/// Looks in a row after which nothing is left to gain.
const MOST_IDLE: u32 = 3;
/// A run of rows that no interruption is looked for in.
const RUN: usize = 1 << 14;

/// Whether Newton's method takes less time than coordinate descent, by a model of both that looks at the shape alone.
///
/// Newton: 8 passes of 30 ns a row and subproblem, 1 ns a value, and 0.05 ns a product of the d²/2 of the matrix (the
/// hinge forms it for few rows after three passes); d³/6 products at 0.25 ns a pass. Coordinate descent: 100 visits of a
/// row of 30 ns and 1 ns a value, which is what it needs to 1e-3 on classes that overlap, and too few by far at smaller
/// targets or for features of different sizes. `values` is the mean number of values of a row.
pub fn newton_pays(problem: &Problem, records: u64, values: f64) -> bool {
    let width = width_of(problem);
    if width > MOST_NEWTON_FEATURES {
        return false;
    }
    let (n, d) = (records as f64, width as f64);
    let matrices = match problem.loss() {
        Loss::Hinge => 3.0,
        _ => 8.0,
    };
    let pass = n * (30.0 + d) + 0.25 * d.powi(3) / 6.0;
    let newton = 8.0 * pass + matrices * n * 0.05 * d * d / 2.0;
    let descent = 100.0 * n * (30.0 + values);
    newton < descent
}

fn width_of(problem: &Problem) -> usize {
    problem.features() + usize::from(problem.bias().is_some())
}

/// One subproblem between two passes.
#[derive(Clone, Debug, PartialEq)]
struct Point {
    /// Where the next pass looks, and the same rounded to f32; all vectors are padded.
    w: Vec<f64>,
    rounded: Vec<f64>,
    /// The step that led here.
    step: Vec<f64>,
    /// Where it began, if the next pass searches along it.
    search: Option<Vec<f64>>,
    /// Smoothed value at the place before and its slope along the step, where the two places can be compared.
    before: Option<(Vec<f64>, f64, f64)>,
    smoothing: f64,
    /// What smoothing left when the centres moved last.
    left: f64,
    best_w: Vec<f64>,
    best_primal: f64,
    best_dual: f64,
    /// Whether steps have come so near that rounding w to f32 would show. Before, passes look at w rounded, which
    /// saves them the losses of the rounded weights beside the others.
    exact: bool,
    /// Looks that brought neither value on by what rounding leaves.
    idle: u32,
    /// Whether the last pass looked at the best w.
    at_best: bool,
    /// Whether it needs no further step.
    done: bool,
}

impl Point {
    fn new(width: usize) -> Point {
        Point {
            w: vec![0.0; width],
            rounded: vec![0.0; width],
            step: vec![0.0; width],
            search: None,
            before: None,
            smoothing: FIRST_SMOOTHING,
            left: f64::INFINITY,
            best_w: vec![0.0; width],
            best_primal: f64::INFINITY,
            // α = 0 is feasible.
            best_dual: 0.0,
            exact: false,
            idle: 0,
            at_best: false,
            done: false,
        }
    }

    fn go_to(&mut self, w: Vec<f64>) {
        self.rounded = w.iter().map(|&w| f64::from(w as f32)).collect();
        self.w = match self.exact {
            true => w,
            false => self.rounded.clone(),
        };
    }
}

/// Newton's method on a problem, between two passes.
#[derive(Debug)]
pub struct Newton {
    problem: Arc<Problem>,
    wanted: f64,
    points: Vec<Point>,
    /// For the hinge: a of each subproblem and record, and α of the last look.
    centres: Vec<Vec<f32>>,
    alphas: Vec<Vec<AtomicU32>>,
    lanes: Vec<Lane>,
    losses: LossSum,
    simd: Simd,
}

/// What a pass found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewtonPass {
    /// The best primal and the best dual value so far: both are exact bounds.
    pub certificate: Certificate,
    /// Whether the relative gap wanted is reached, or nothing is left to gain.
    pub done: bool,
}

/// The state between two passes as plain numbers, for checkpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedNewton<'a> {
    /// Of each subproblem.
    pub points: Vec<Vec<f64>>,
    /// a of each subproblem and record; none but for the hinge.
    pub centres: Vec<Cow<'a, [f32]>>,
}

impl Newton {
    /// A run from w = 0 over `records` rows to the relative gap `wanted`. Panics beyond [`MOST_NEWTON_FEATURES`].
    pub fn new(problem: Arc<Problem>, records: usize, wanted: f64, simd: Simd) -> Newton {
        let width = width_of(&problem);
        assert!(width <= MOST_NEWTON_FEATURES);
        let subproblems = problem.subproblems();
        let tables = match problem.loss() {
            Loss::Hinge => subproblems,
            _ => 0,
        };
        let alphas = || (0..records).map(|_| AtomicU32::new(0)).collect();
        Newton {
            wanted,
            points: vec![Point::new(padded(width)); subproblems],
            centres: vec![vec![0.0; records]; tables],
            alphas: (0..tables).map(|_| alphas()).collect(),
            lanes: Vec::new(),
            losses: LossSum::new(&problem),
            simd,
            problem,
        }
    }

    /// Bytes beside the rows and the weights, for `records` rows of this rank.
    pub fn bytes(problem: &Problem, records: u64) -> u64 {
        let (width, subproblems) = (padded(width_of(problem)), problem.subproblems());
        let matrices = (lanes(width, subproblems) + 1) * subproblems * 8 * width * width;
        let tables = match problem.loss() {
            Loss::Hinge => 8 * records * subproblems as u64,
            _ => 0,
        };
        matrices as u64 + tables
    }

    /// Begins a pass over all rows.
    pub fn begin_pass(&mut self) {
        let width = self.points[0].w.len();
        let sums = |point: &Point| Sums::new(width, !point.done && point.search.is_none());
        let lane = || Lane::new(self.points.iter().map(sums).collect());
        self.lanes = (0..lanes(width, self.points.len()))
            .map(|_| lane())
            .collect();
    }

    /// Adds rows of the pass; `false` where `interrupt` was set meanwhile: the pass must then be begun anew.
    ///
    /// Errors: rows that the problem does not fit.
    pub fn add(&mut self, rows: &RowTable, interrupt: &AtomicBool) -> Result<bool, LinearError> {
        self.check(rows)?;
        let pass = Pass {
            problem: &self.problem,
            points: &self.points,
            centres: &self.centres,
            alphas: &self.alphas,
            simd: self.simd,
        };
        let (count, lanes) = (rows.len(), self.lanes.len());
        let share = count.div_ceil(lanes).max(1);
        self.lanes
            .par_iter_mut()
            .enumerate()
            .for_each(|(number, lane)| {
                let range = (number * share).min(count)..((number + 1) * share).min(count);
                for start in range.clone().step_by(RUN) {
                    if interrupt.load(Ordering::Relaxed) {
                        return;
                    }
                    pass.add(rows, start..range.end.min(start + RUN), lane);
                }
            });
        Ok(!interrupt.load(Ordering::Relaxed))
    }

    fn check(&self, rows: &RowTable) -> Result<(), LinearError> {
        let (features, classes) = (self.problem.features(), self.problem.classes());
        for segment in rows.segments().iter().filter(|rows| !rows.is_empty()) {
            let record = rows.ids().first().copied().unwrap_or(0);
            match segment.layout() {
                Layout::Dense { width } if width != features => {
                    return Err(LinearError::Width {
                        record,
                        found: width,
                        expected: features,
                    });
                }
                Layout::Bytes => return Err(LinearError::NoFeatures { record }),
                Layout::Dense { .. } => {}
                Layout::Sparse => {
                    if let Some(&index) =
                        segment.indices().iter().find(|&&i| i as usize >= features)
                    {
                        return Err(LinearError::FeatureOutOfRange {
                            record,
                            index: index as usize,
                            features,
                        });
                    }
                }
            }
        }
        let records = self.centres.first().map_or(usize::MAX, Vec::len);
        for i in 0..rows.len() {
            let (class, record) = (rows.label(i), rows.id(i));
            if class as usize >= classes {
                return Err(LinearError::UnknownClass { class, classes });
            }
            if record >= records as u64 {
                return Err(LinearError::RecordOutOfRange { record, records });
            }
        }
        Ok(())
    }

    /// Ends a pass in which every row of this rank was added: the certificate, and where the next pass looks.
    pub fn end_pass<E>(&mut self, peers: &mut Peers<'_, E>) -> Result<NewtonPass, E> {
        let lanes_used = self.lanes.len();
        let mut lanes = std::mem::take(&mut self.lanes).into_iter();
        let mut total = lanes.next().expect("a pass was begun");
        for lane in lanes {
            total.rows += lane.rows;
            total.correct += lane.correct;
            total.chunks = total.chunks.max(lane.chunks);
            for (sums, other) in total.sums.iter_mut().zip(lane.sums) {
                sums.add(other);
            }
        }
        for sums in &mut total.sums {
            let mut flat = sums.flat();
            (peers.exchange)(Exchange::SumWide(&mut flat))?;
            sums.set_flat(&flat);
        }
        let most = additions(total.chunks as f64) + lanes_used as f64;
        let mut counts = [total.rows as f64, total.correct as f64, most];
        (peers.exchange)(Exchange::SumWide(&mut counts))?;
        self.losses.rows = counts[0] as u64;
        self.losses.correct = counts[1] as u64;
        for (subproblem, sums) in total.sums.into_iter().enumerate() {
            if self.points[subproblem].search.is_some() {
                self.points[subproblem].end_search(&sums);
            } else {
                self.losses.loss[subproblem] = sums.loss;
                let moves = self.points[subproblem].end_look(sums, counts[2], self.wanted);
                if let (true, Some(centres)) = (moves, self.centres.get_mut(subproblem)) {
                    for (centre, alpha) in centres.iter_mut().zip(&self.alphas[subproblem]) {
                        *centre = f32::from_bits(alpha.load(Ordering::Relaxed));
                    }
                }
            }
        }
        let sum = |of: fn(&Point) -> f64| self.points.iter().map(of).sum();
        let certificate = Certificate {
            primal: sum(|point| point.best_primal),
            dual: sum(|point| point.best_dual),
        };
        let stuck = self.points.iter().all(|point| point.done);
        Ok(NewtonPass {
            certificate,
            done: stuck || certificate.relative_gap() <= self.wanted,
        })
    }

    /// The weights of least primal value, and their losses where the last pass looked at these very weights.
    pub fn best(&self) -> (Weights, Option<LossSum>) {
        let width = width_of(&self.problem);
        let best = |point: &Point| point.best_w[..width].iter().map(|&w| w as f32).collect();
        let vectors = self.points.iter().map(best).collect();
        let weights = Weights::from_vectors(self.problem.features(), self.problem.bias(), vectors);
        let looked = self.points.iter().all(|point| point.at_best);
        (weights, looked.then(|| self.losses.clone()))
    }

    /// The state between two passes.
    pub fn save(&self) -> SavedNewton<'_> {
        SavedNewton {
            points: self.points.iter().map(Point::to_numbers).collect(),
            centres: self.centres.iter().map(Cow::from).collect(),
        }
    }

    /// Goes on from a saved state.
    ///
    /// Errors: a state whose shapes are not those of this run.
    pub fn restore(&mut self, saved: SavedNewton<'_>) -> Result<(), LinearError> {
        let part = |part| LinearError::StateMismatch { part };
        let width = self.points[0].w.len();
        let points: Option<Vec<Point>> = (saved.points.iter())
            .map(|numbers| Point::from_numbers(numbers, width))
            .collect();
        let points = points.ok_or(part("Newton's method"))?;
        if points.len() != self.points.len() {
            return Err(part("Newton's method"));
        }
        let fits = saved.centres.len() == self.centres.len()
            && (saved.centres.iter().zip(&self.centres)).all(|(new, own)| new.len() == own.len());
        if !fits {
            return Err(part("dual variables"));
        }
        self.points = points;
        self.centres = saved.centres.into_iter().map(Cow::into_owned).collect();
        Ok(())
    }
}

impl Point {
    /// Ends a line search: goes where the slope is 0.
    fn end_search(&mut self, sums: &Sums) {
        let from = self.search.take().expect("a search was under way");
        self.at_best = false;
        let (start, length) = (dot(&from, &self.step), dot(&self.step, &self.step));
        let slope = |trial: usize| {
            let t = 0.5_f64.powi(trial as i32);
            (t, start + t * length + sums.slopes[trial])
        };
        // The slope rises with t; at 0 it is negative.
        let t = match (0..TRIALS).map(slope).position(|(_, slope)| slope <= 0.0) {
            None => 0.5_f64.powi(TRIALS as i32),
            Some(0) => 1.0,
            Some(below) => {
                let ((low, down), (high, up)) = (slope(below), slope(below - 1));
                low + (high - low) * down / (down - up)
            }
        };
        let w = from
            .iter()
            .zip(&self.step)
            .map(|(w, s)| w + t * s)
            .collect();
        self.go_to(w);
    }

    /// Ends a look, whose sums are of at most so many additions: bounds, and a step. Returns whether the α found become the centres.
    fn end_look(&mut self, sums: Sums, additions: f64, wanted: f64) -> bool {
        let width = self.w.len();
        let gamma = |count: f64| {
            let off = count * 0.5 * f64::EPSILON;
            off / (1.0 - off)
        };
        let additions = gamma(additions + 16.0);
        let norm = dot(&self.rounded, &self.rounded).sqrt();
        let margins = gamma(width as f64 + 8.0) * norm * sums.loss_slope;
        let primal = (0.5 * norm * norm + sums.loss)
            * (1.0 + additions + gamma(width as f64 + 8.0))
            + margins;
        if primal < self.best_primal {
            self.best_primal = primal;
            self.best_w.copy_from_slice(&self.rounded);
        }
        self.at_best = self.best_w == self.rounded;
        if self.done {
            return false;
        }
        let gradient: Vec<f64> = self.w.iter().zip(&sums.sum).map(|(w, u)| w - u).collect();
        let bound = dot(&sums.sum, &sums.sum).sqrt() + additions * sums.size;
        let bound = bound * (1.0 + gamma(width as f64 + 8.0));
        let terms = sums.terms - additions * sums.magnitudes - sums.rounding;
        // Terms are concave and 0 at α = 0, so those of s α are at least s times these: the best of such bounds, which
        // counts far from the optimum, where u is much too long.
        let share = match bound > 0.0 {
            true => (terms / (bound * bound)).clamp(0.0, 1.0),
            false => 1.0,
        };
        let dual = share * terms - 0.5 * (share * bound).powi(2);
        let dual = dual - 4.0 * f64::EPSILON * terms.abs();
        let rise = dual - self.best_dual;
        self.best_dual = self.best_dual.max(dual);
        let value = 0.5 * dot(&self.w, &self.w) + sums.smooth;
        if let Some((from, before, slope)) = self.before.take()
            && value > before + 1e-4 * slope + 1e-13 * before.abs()
        {
            self.search = Some(from);
            return false;
        }
        // What rounding w to f32 moves the smoothed value by, about: much where the cost is large and the bend narrow.
        let rounding: f64 = (self.w.iter().enumerate())
            .map(|(j, w)| sums.matrix[j * (width + 1)] * (w * HALF_A_UNIT).powi(2))
            .sum();
        let Some(step) = newton_step(sums.matrix, &gradient) else {
            self.done = true;
            return false;
        };
        let slope = dot(&gradient, &step);
        // What the smoothed value can still fall by, about.
        let gain = -0.5 * slope;
        let left = sums.smoothing;
        let gap = self.best_primal - self.best_dual;
        let moves = left > 0.0
            && (gain <= SOLVED * left && left > SOLVED * wanted * primal
                || 0.5 * dot(&gradient, &gradient) <= FEASIBLE * left);
        let ends = !moves && gain <= 1e-15 * value.abs() && rise <= 1e-3 * gap;
        self.idle = if ends { self.idle + 1 } else { 0 };
        // The target over all subproblems follows from that of each.
        self.done = gap <= wanted * self.best_dual || self.idle >= MOST_IDLE;
        if moves {
            if sums.curved > 4.0 * width as f64 {
                self.smoothing *= 0.25;
            } else if left > 0.25 * self.left {
                self.smoothing *= 0.1;
            }
            self.left = left;
        } else {
            self.before = Some((self.w.clone(), value, slope));
        }
        let w = self.w.iter().zip(&step).map(|(w, s)| w + s).collect();
        self.step = step;
        self.exact |= gain <= FINE * value.abs() || gain <= COARSE * rounding;
        if !self.done {
            self.go_to(w);
        }
        moves
    }

    fn to_numbers(&self) -> Vec<f64> {
        let (from, value, slope) = self.before.clone().unwrap_or_default();
        let mut numbers = vec![
            f64::from(u8::from(self.done)),
            f64::from(u8::from(self.search.is_some())),
            f64::from(u8::from(self.before.is_some())),
            self.smoothing,
            self.left,
            self.best_primal,
            self.best_dual,
            value,
            slope,
            f64::from(self.idle),
            f64::from(u8::from(self.exact)),
        ];
        for vector in [&self.w, &self.step, &self.best_w] {
            numbers.extend(vector);
        }
        numbers.extend(self.search.iter().flatten());
        numbers.extend(from);
        numbers
    }

    fn from_numbers(numbers: &[f64], width: usize) -> Option<Point> {
        let (figures, rest) = numbers.split_first_chunk::<11>()?;
        let &[
            done,
            searches,
            compares,
            smoothing,
            left,
            best_primal,
            best_dual,
            value,
            slope,
            idle,
            exact,
        ] = figures;
        let (vectors, rest_len) = (rest.chunks_exact(width), rest.len());
        let count = 3 + usize::from(searches != 0.0) + usize::from(compares != 0.0);
        if rest_len != count * width || smoothing.is_nan() || smoothing <= 0.0 {
            return None;
        }
        let mut vectors = vectors.map(<[f64]>::to_vec);
        let mut point = Point::new(width);
        point.exact = exact != 0.0;
        point.go_to(vectors.next()?);
        point.step = vectors.next()?;
        point.best_w = vectors.next()?;
        point.search = (searches != 0.0).then(|| vectors.next()).flatten();
        point.before = (compares != 0.0)
            .then(|| vectors.next())
            .flatten()
            .map(|from| (from, value, slope));
        Some(Point {
            idle: idle as u32,
            done: done != 0.0,
            smoothing,
            left,
            best_primal,
            best_dual,
            ..point
        })
    }
}

/// −(I + H)⁻¹ g, of the lower triangle of H; `None` where numbers are not finite.
fn newton_step(mut matrix: Vec<f64>, gradient: &[f64]) -> Option<Vec<f64>> {
    let width = gradient.len();
    let diagonal: Vec<f64> = (0..width).map(|j| 1.0 + matrix[j * (width + 1)]).collect();
    // Columns that are nearly the same leave a matrix that rounding makes indefinite; a little more on the
    // diagonal makes it definite, and the step shorter.
    for more in [0.0, 1e-14, 1e-12, 1e-10, 1e-8] {
        let mut factor = matrix.clone();
        for (j, &entry) in diagonal.iter().enumerate() {
            factor[j * (width + 1)] = entry * (1.0 + more);
        }
        if cholesky::factor(&mut factor, width) {
            matrix = factor;
            let mut step: Vec<f64> = gradient.iter().map(|g| -g).collect();
            cholesky::solve(&matrix, &mut step);
            return step.iter().all(|s| s.is_finite()).then_some(step);
        }
    }
    None
}
