//! Newton's method without a penalty, for maximum likelihood: the least P(w) = Σ C_i ξ_i, and from the curvature there
//! the precision of the weights.
//!
//! | symbol | meaning |
//! |---|---|
//! | v = Σ α s x | minus the gradient, see [`crate::look`] |
//! | H = Σ C ξ'' x xᵀ | the Hessian |
//! | δ = ½ vᵀ H⁻¹ v | the Newton decrement, about the remaining decrease of P |
//!
//! **No certificate.** A dual value needs α with v = 0, which hardly occur except at the optimum. P − δ estimates the
//! optimum, as well as a parabola fits P: w is about √(2δ / C) standard errors from the optimum, and training ends when
//! the square of that is at most [`NEAR`].
//!
//! **Combinations.** A feature that is a combination of those before it keeps the weight 0, as in R's `glm`. The bias
//! is the first, and features of 0 and 1 come last in reverse, so that the first value of a category is the reference
//! for the others.
//!
//! **No optimum.** If a hyperplane separates the classes, ever longer w are ever better. A value below that of any w
//! with a row on the wrong side is an error. If a feature alone separates some rows, its weight grows until its
//! curvature vanishes, which [`Precision::unbounded`] reports.
//!
//! Cost of a pass: that of a look with a matrix, n d²/2, and d³/6. Memory: d² numbers a lane.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_format::RowTable;

use crate::certificate::{Certificate, LossSum};
use crate::error::LinearError;
use crate::kernels::Simd;
use crate::kernels::gram::padded;
use crate::look::{self, Look, Sums, Total, View};
use crate::loss::Loss;
use crate::newton::MOST_NEWTON_FEATURES;
use crate::newton::cholesky::{self, dot};
use crate::passes::{PassFigures, PassSolver, Precision, check_rows, deal};
use crate::peers::Peers;
use crate::problem::Problem;
use crate::weights::Weights;

/// Squared distance from the optimum in standard errors at which training ends.
const NEAR: f64 = 1e-16;
/// Share of the first value below which the remaining decrease is negligible.
const NOTHING: f64 = 1e-15;
/// Share of its own curvature that a feature must have left when those before it are known. Features in f32 that are a
/// combination of others have about 1e-14.
const INDEPENDENT: f64 = 1e-11;
/// Share of its own curvature that rounding leaves.
const ROUNDING: f64 = 1e-15;
/// Share of its first precision below which a weight has no bound.
const UNBOUNDED: f64 = 1e-7;
/// Share of the decrease that the slope promises which a step must bring.
const ENOUGH: f64 = 1e-4;
/// Shortest and longest part of a step that is left of it when it is cut short.
const CUT: [f64; 2] = [0.05, 0.7];
/// Looks in a row that gained nothing, after which training ends.
const MOST_IDLE: u32 = 8;
/// A run of rows without a check for interruption.
const RUN: usize = 1 << 12;
/// Scalars of a point in a saved state.
const FIGURES: usize = 5;

/// Newton's method on a problem without a penalty, between two passes.
#[derive(Debug)]
pub struct Unpenalised {
    problem: Arc<Problem>,
    simd: Simd,
    points: Vec<Point>,
    lanes: Vec<look::Lane>,
    losses: LossSum,
}

/// One vector: the weights of the next pass.
#[derive(Clone, Debug, Default)]
struct Point {
    w: Vec<f64>,
    /// Entries that are not a combination of those before them, in the order of elimination, and the precision of each
    /// in the first look: the inverse of its entry of H⁻¹.
    kept: Vec<usize>,
    curvatures: Vec<f64>,
    /// The previous point, and the step from it that led here.
    before: Option<Before>,
    /// The value at w, after the look that training ended with, and in the first look.
    value: f64,
    first_value: f64,
    decrement: f64,
    idle: u32,
    /// The Cholesky factor of H over `kept`.
    factor: Vec<f64>,
    /// Whether the last pass looked at w.
    at_best: bool,
    done: bool,
}

#[derive(Clone, Debug, Default)]
struct Before {
    w: Vec<f64>,
    step: Vec<f64>,
    value: f64,
    slope: f64,
}

impl Unpenalised {
    /// A run from w = 0. Panics beyond [`MOST_NEWTON_FEATURES`] and for a loss of all classes.
    pub fn new(problem: Arc<Problem>, simd: Simd) -> Unpenalised {
        let length = problem.length();
        assert!(length <= MOST_NEWTON_FEATURES && !problem.is_coupled());
        let mut w = vec![0.0; length];
        if let Some(offset) = problem.offset() {
            w[offset] = 1.0;
        }
        let point = Point {
            w,
            value: f64::INFINITY,
            decrement: f64::INFINITY,
            ..Point::default()
        };
        Unpenalised {
            simd,
            points: vec![point; problem.subproblems()],
            lanes: Vec::new(),
            losses: LossSum::new(&problem),
            problem,
        }
    }

    fn metric(&self) -> usize {
        padded(self.problem.length()).pow(2)
    }
}

impl PassSolver for Unpenalised {
    fn begin_pass(&mut self) {
        let metric = self.metric();
        let of = |point: &Point| Sums::new(&self.problem, if point.done { 0 } else { metric });
        let lane = look::Lane::new(self.points.iter().map(of).collect());
        self.lanes = vec![lane; look::lanes(&self.problem, metric * self.points.len())];
    }

    fn add(&mut self, rows: &RowTable, interrupt: &AtomicBool) -> Result<bool, LinearError> {
        check_rows(&self.problem, rows)?;
        let look = Look {
            problem: &self.problem,
            views: self
                .points
                .iter()
                .map(|point| View::new(&point.w))
                .collect(),
            stride: 1,
            is_first: false,
            simd: self.simd,
        };
        let add = |range: Range<usize>, lane: &mut look::Lane| look.add(rows, range, lane);
        Ok(deal(&mut self.lanes, rows.len(), RUN, interrupt, add))
    }

    fn end_pass(&mut self, peers: &mut Peers<'_, LinearError>) -> Result<PassFigures, LinearError> {
        let total = Total::new(std::mem::take(&mut self.lanes), peers)?;
        self.losses.rows = total.rows;
        self.losses.correct = total.correct;
        for (s, (point, sums)) in self.points.iter_mut().zip(&total.sums).enumerate() {
            self.losses.loss[s] = sums.loss;
            if point.done {
                point.at_best = true;
            } else {
                point.end_look(sums, &self.problem, s)?;
            }
        }
        let sum = |of: &dyn Fn(&Point) -> f64| -> f64 {
            let points = self.points.iter().enumerate();
            points
                .map(|(s, point)| of(point) / self.problem.factor(s))
                .sum()
        };
        Ok(PassFigures {
            certificate: Certificate {
                primal: sum(&|point| point.value),
                dual: sum(&|point| point.value - point.decrement),
            },
            is_proved: false,
            done: self.points.iter().all(|point| point.done),
        })
    }

    fn start(&mut self, weights: &Weights) {
        for (s, point) in self.points.iter_mut().enumerate() {
            let own = weights.vector(s).iter();
            point.w = own.map(|&w| f64::from(w)).collect();
            if let Some(offset) = self.problem.offset() {
                point.w[offset] = 1.0;
            }
        }
    }

    fn best(&self) -> (Weights, Option<LossSum>) {
        let of = |point: &Point| {
            // Ignore a step that no pass has looked at.
            let w = match &point.before {
                Some(before) => &before.w,
                None => &point.w,
            };
            w.iter().map(|&w| w as f32).collect()
        };
        let vectors = self.points.iter().map(of).collect();
        let weights = Weights::from_vectors(self.problem.features(), self.problem.bias(), vectors);
        let looked = self.points.iter().all(|point| point.done && point.at_best);
        (weights, looked.then(|| self.losses.clone()))
    }

    fn precision(&self) -> Option<Vec<Precision>> {
        self.points.iter().map(Point::precision).collect()
    }

    fn save(&self) -> Vec<Vec<f64>> {
        self.points.iter().map(Point::to_numbers).collect()
    }

    fn restore(&mut self, saved: &[Vec<f64>]) -> Result<(), LinearError> {
        let length = self.problem.length();
        let points = saved.iter().map(|saved| Point::from_numbers(saved, length));
        let points: Option<Vec<Point>> = points.collect();
        self.points = points
            .filter(|points| points.len() == self.points.len())
            .ok_or(LinearError::StateMismatch {
                part: "Newton's method without a penalty",
            })?;
        Ok(())
    }
}

impl Point {
    /// Takes the results of a look, and makes a step.
    ///
    /// Errors: classes that are separable.
    fn end_look(&mut self, sums: &Sums, problem: &Problem, s: usize) -> Result<(), LinearError> {
        let (value, v) = (sums.value, sums.pull());
        let width = padded(v.len());
        let bias = problem.bias().map(|_| v.len() - 1);
        let own = |j: usize| sums.metric[j * (width + 1)];
        if self.kept.is_empty() {
            self.first_value = value;
            let own_features = (0..problem.features()).filter(|j| Some(*j) != problem.offset());
            // A feature of 0 and 1 is its square, and those of a category add up to the constant feature.
            let constant = problem.bias().map_or(0.0, f64::from);
            let product = |j: usize| bias.map_or(0.0, |bias| entry(&sums.metric, width, j, bias));
            let is_indicator =
                |j: &usize| (own(*j) * constant - product(*j)).abs() <= 1e-9 * own(*j) * constant;
            let (indicators, numbers): (Vec<usize>, Vec<usize>) =
                own_features.partition(|j| bias.is_some() && is_indicator(j));
            let order = bias.into_iter().chain(numbers);
            let order = order.chain(indicators.into_iter().rev()).collect();
            self.keep_independent(order, &sums.metric, width);
            let mut others = self.w.iter().enumerate();
            let is_cold = others.all(|(j, w)| *w == 0.0 || Some(j) == problem.offset());
            if let (true, Some(bias)) = (is_cold, bias) {
                // The curvature at the optimum over the bias alone.
                let constant = problem.bias().map_or(1.0, f64::from);
                let ratio = v[bias] * constant / own(bias);
                let curvature = match problem.loss() {
                    Loss::Squared => 1.0,
                    Loss::Poisson => 1.0 + ratio,
                    Loss::Logistic | Loss::Multinomial => 1.0 - 0.25 * ratio * ratio,
                    // No likelihood: refused before.
                    Loss::Hinge
                    | Loss::SquaredHinge
                    | Loss::EpsilonInsensitive(_)
                    | Loss::SquaredEpsilonInsensitive(_)
                    | Loss::Huber(_) => 1.0,
                };
                let first = self.curvatures.iter_mut();
                first.for_each(|first| *first *= curvature.max(f64::MIN_POSITIVE));
                if problem.loss() == Loss::Poisson {
                    // From the mean on steps of full length are good; from 1 they end far beyond it.
                    if curvature <= 0.0 {
                        return Err(LinearError::NoCounts);
                    }
                    self.w[bias] = curvature.ln() / constant;
                    self.value = value;
                    return Ok(());
                }
            }
        }
        if !problem.has_real_targets() && value < problem.least_loss_of_a_wrong_row(s) {
            return Err(LinearError::Separable);
        }
        if let Some(before) = self.before.take() {
            let most = before.value + ENOUGH * before.slope + 1e-13 * before.value.abs();
            if value.is_nan() || value > most {
                return self.cut_short(before, &v);
            }
        }
        self.value = value;
        let kept_v: Vec<f64> = self.kept.iter().map(|&j| v[j]).collect();
        // If the curvature has vanished, only rounding remains.
        let floor = |_, all: f64, left: f64| Some(left.max(ROUNDING * all).max(f64::MIN_POSITIVE));
        self.factor = eliminate(&self.kept, &sums.metric, width, floor);
        let mut own_step = kept_v.clone();
        cholesky::solve(&self.factor, &mut own_step);
        let decrement = 0.5 * dot(&own_step, &kept_v);
        self.idle = if decrement < 0.9 * self.decrement {
            0
        } else {
            self.idle + 1
        };
        self.decrement = decrement;
        let is_near = 2.0 * decrement <= NEAR * problem.unit_cost(s);
        if is_near || decrement <= NOTHING * self.first_value || self.idle >= MOST_IDLE {
            if decrement <= NOTHING * self.first_value {
                self.decrement = 0.0;
            }
            (self.done, self.at_best) = (true, true);
            return Ok(());
        }
        let mut step = vec![0.0; v.len()];
        for (&j, own) in self.kept.iter().zip(own_step) {
            step[j] = own;
        }
        let slope = -2.0 * decrement;
        self.go(Before {
            w: self.w.clone(),
            step,
            value,
            slope,
        });
        Ok(())
    }

    fn go(&mut self, before: Before) {
        let w = before.w.iter().zip(&before.step).map(|(w, step)| w + step);
        self.w = w.collect();
        self.before = Some(before);
    }

    /// Takes a part of the step that led here; `v` is minus the gradient.
    fn cut_short(&mut self, mut before: Before, v: &[f64]) -> Result<(), LinearError> {
        let slope = -dot(&before.step, v);
        let part = before.slope / (before.slope - slope);
        let part = if part > 0.0 {
            part.clamp(CUT[0], CUT[1])
        } else {
            CUT[0]
        };
        before.step.iter_mut().for_each(|step| *step *= part);
        before.slope *= part;
        self.idle += 1;
        if self.idle >= 4 * MOST_IDLE {
            self.w = before.w;
            self.at_best = false;
            self.done = true;
            return Ok(());
        }
        self.go(before);
        Ok(())
    }

    /// Finds the entries that are not a combination of those before them in an order.
    fn keep_independent(&mut self, order: Vec<usize>, metric: &[f64], width: usize) {
        let largest = (0..width)
            .map(|j| metric[j * (width + 1)])
            .fold(0.0, f64::max);
        let mut kept = Vec::new();
        self.factor = eliminate(&order, metric, width, |j, all, left| {
            // Rows of weight 0 still have a tiny cost.
            let is_own = left > INDEPENDENT * all && all > 1e-25 * largest;
            is_own.then(|| {
                kept.push(j);
                left
            })
        });
        self.kept = kept;
        let (inverse, count) = (self.inverse(), self.kept.len());
        self.curvatures = (0..count)
            .map(|at| 1.0 / inverse[at * (count + 1)])
            .collect();
    }

    /// H⁻¹ over the entries kept.
    fn inverse(&self) -> Vec<f64> {
        let count = self.kept.len();
        let mut inverse = vec![0.0; count * count];
        for (at, column) in inverse.chunks_exact_mut(count.max(1)).enumerate() {
            column[at] = 1.0;
            cholesky::solve(&self.factor, column);
        }
        inverse
    }

    fn precision(&self) -> Option<Precision> {
        let count = self.kept.len();
        if !self.done || self.factor.len() != count * count {
            return None;
        }
        let inverse = self.inverse();
        let is_unbounded = |at: &usize| {
            let share = inverse[at * (count + 1)] * self.curvatures[*at];
            share.is_nan() || share * UNBOUNDED > 1.0
        };
        Some(Precision {
            weights: self.w.clone(),
            value: self.value,
            unbounded: (0..count)
                .filter(is_unbounded)
                .map(|at| self.kept[at])
                .collect(),
            kept: self.kept.clone(),
            inverse,
        })
    }

    fn to_numbers(&self) -> Vec<f64> {
        let before = self.before.as_ref();
        let mut numbers = vec![
            self.first_value,
            self.decrement,
            f64::from(self.idle),
            self.kept.len() as f64,
            before.map_or(f64::NAN, |before| before.value),
        ];
        numbers.extend(self.kept.iter().map(|&j| j as f64));
        numbers.extend(&self.curvatures);
        numbers.extend(&self.w);
        if let Some(before) = before {
            numbers.extend(&before.w);
            numbers.extend(&before.step);
            numbers.push(before.slope);
        }
        numbers
    }

    /// One that was done looks once more, and so has its matrix again.
    fn from_numbers(numbers: &[f64], length: usize) -> Option<Point> {
        let (figures, rest) = numbers.split_first_chunk::<FIGURES>()?;
        let &[first_value, decrement, idle, count, value] = figures;
        let count = count as usize;
        let (kept, rest) = rest.split_at_checked(count)?;
        let (curvatures, rest) = rest.split_at_checked(count)?;
        let (w, rest) = rest.split_at_checked(length)?;
        let kept: Vec<usize> = kept.iter().map(|&j| j as usize).collect();
        let before = match rest {
            [] => None,
            _ => {
                let (own, rest) = rest.split_at_checked(length)?;
                let (step, rest) = rest.split_at_checked(length)?;
                let [slope] = rest else { return None };
                Some(Before {
                    w: own.to_vec(),
                    step: step.to_vec(),
                    value,
                    slope: *slope,
                })
            }
        };
        kept.iter().all(|&j| j < length).then(|| Point {
            w: w.to_vec(),
            kept,
            curvatures: curvatures.to_vec(),
            before,
            value: f64::INFINITY,
            first_value,
            decrement,
            idle: idle as u32,
            ..Point::default()
        })
    }
}

/// The Cholesky factor of a symmetric matrix, given by its lower triangle, over some entries in this order. `keep` gets
/// an entry's diagonal value and its remainder after eliminating those before, and returns its pivot, or `None` to drop
/// it.
fn eliminate(
    order: &[usize],
    matrix: &[f64],
    width: usize,
    mut keep: impl FnMut(usize, f64, f64) -> Option<f64>,
) -> Vec<f64> {
    let mut kept: Vec<usize> = Vec::new();
    let mut rows: Vec<Vec<f64>> = Vec::new();
    for &j in order {
        let mut row: Vec<f64> = Vec::with_capacity(order.len());
        for (k, other) in rows.iter().enumerate() {
            let product = entry(matrix, width, j, kept[k]);
            row.push((product - dot(&row, &other[..k])) / other[k]);
        }
        let all = entry(matrix, width, j, j);
        if let Some(pivot) = keep(j, all, all - dot(&row, &row)) {
            row.push(pivot.sqrt());
            rows.push(row);
            kept.push(j);
        }
    }
    let count = rows.len();
    rows.iter_mut().for_each(|row| row.resize(count, 0.0));
    rows.concat()
}

/// An entry of a symmetric matrix given by its lower triangle.
fn entry(matrix: &[f64], width: usize, j: usize, k: usize) -> f64 {
    matrix[j.max(k) * width + j.min(k)]
}
