//! L-BFGS for the multinomial logistic loss, whose classes' vectors are tied together, in memory, streamed or on ranks.
//!
//! P(W) = ½ Σ_k ‖w_k‖² + Σ_i C_i [log Σ_k e^(w_k·x_i) − w_y·x_i]
//!
//! | symbol | meaning |
//! |---|---|
//! | p_k | e^(w_k·x) over the sum of all: the probability of class k |
//! | α_k = C (1[y = k] − p_k) | dual variables of a row |
//! | v_k = Σ α_k x | w_k − v_k is the gradient of P |
//! | M | the metric that steps begin from |
//!
//! **Steps.** A pass over the rows, in any order, gives loss and gradient; the step is that of L-BFGS (Nocedal, Wright,
//! Numerical Optimization, 2006, alg. 7.4) from ten pairs. Newton's method would need (K d)² products a row. The metric is
//! M = I + Σ C h x xᵀ for each class, at first with h = ½, which is at least the Hessian (Böhning, Annals of the Institute
//! of Statistical Mathematics 1992): so how features are scaled and correlated hardly counts. Rows that are classified well
//! have less curvature; where the sum of the curvatures has fallen to a half, and every ten passes, M is made again,
//! with h = 2 max_k p_k (1 − p_k). Between, M is divided by sᵀy / yᵀM⁻¹y of the last pair (eq. 7.20, in the metric). Beyond
//! [`crate::MOST_NEWTON_FEATURES`] features it is its diagonal, and where features are many for the classes it is summed
//! over a part of the rows.
//!
//! A step that decreases the value too little is cut short, where the slopes at both ends say that the slope is 0.
//!
//! **Certificate**: see [`bound`]. Every pass gives one, of the weights rounded to f32.
//!
//! Cost of a pass: 2 K products a value, 3 K with a free bias, 3 K and 4 K near the optimum, where rounding w would
//! matter; where M is made d²/2 a row more. Memory: 24 vectors of K d numbers, and one or two and in the first
//! pass d² a lane of threads ([`Lbfgs::bytes`]).

mod bound;
mod history;
mod pass;
mod tree;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_format::RowTable;

use crate::certificate::{Certificate, LossSum};
use crate::error::LinearError;
use crate::kernels::Simd;
use crate::newton::MOST_NEWTON_FEATURES;
use crate::newton::cholesky::dot;
use crate::passes::{PassFigures, PassSolver, check_rows, deal};
use crate::peers::{Exchange, Peers};
use crate::problem::Problem;
use crate::weights::Weights;
use bound::Precision;
use history::{History, Metric, PAIRS};
use pass::{CORRECT, LOSS, Lane, Pass, Sizes, Sums, TRACE, VALUE};
use tree::Tree;

/// Passes of the cost of which the matrix may be.
const MATRIX_PASSES: usize = 4;
/// Rows a feature that it is summed over at least.
const MATRIX_ROWS: usize = 16;
/// Share of the decrease that the slope promises which a step must bring.
const ENOUGH: f64 = 1e-4;
/// Shortest and longest part of a step that is left of it when it is cut short.
const CUT: [f64; 2] = [0.05, 0.7];
/// Parts of a step that are tried before the pairs are dropped.
const MOST_CUTS: u32 = 12;
/// Remaining decrease, over the value, below which w is not rounded: rounding would change the value by more.
const FINE: f64 = 1e-9;
/// The same, over what rounding w moves the value by.
const COARSE: f64 = 10.0;
/// Half a unit in the last place of an f32 of 1.
const HALF_A_UNIT: f64 = 0.5 * f32::EPSILON as f64;
/// Passes in a row after which nothing is left to gain.
const MOST_IDLE: u32 = 3;
/// Share of the cost of all rows below which a class has none, for a free bias.
const NONE: f64 = 1e-12;
/// Part of its trace, and passes after it was made, at which the metric is made again.
const FALLEN: f64 = 0.5;
const OLD: u32 = 10;
/// A run of rows without a check for interruption.
const RUN: usize = 1 << 12;
/// Numbers of a point that are no vectors, in a saved state.
const FIGURES: usize = 12;

/// Where the next pass looks, and the best that was found.
#[derive(Clone, Debug)]
struct Point {
    w: Vec<f64>,
    /// The same in f32.
    rounded: Vec<f64>,
    best_w: Vec<f64>,
    best_primal: f64,
    best_dual: f64,
    /// The place before, the step from it that led here, and how often that was cut short.
    before: Option<Before>,
    cuts: u32,
    history: History,
    /// Σ C h ‖x‖² of the rows in the metric, and whether the next pass sums it.
    trace: f64,
    wants_metric: bool,
    /// Passes since that was done.
    age: u32,
    /// The classes that exchange probability where a bias is free.
    tree: Tree,
    /// Whether w is not rounded to f32.
    exact: bool,
    /// Passes that brought neither value on by what rounding leaves.
    idle: u32,
    /// Whether the last pass looked at the best w.
    at_best: bool,
    done: bool,
}

/// A place, with the value, its slope along the step from there, and its gradient.
#[derive(Clone, Debug, Default)]
struct Before {
    value: f64,
    slope: f64,
    w: Vec<f64>,
    step: Vec<f64>,
    gradient: Vec<f64>,
}

/// L-BFGS on a problem of more than two classes, between two passes.
#[derive(Debug)]
pub struct Lbfgs {
    problem: Arc<Problem>,
    wanted: f64,
    sizes: Sizes,
    /// The matrix is summed over each so many records.
    stride: u64,
    point: Point,
    lanes: Vec<Lane>,
    losses: LossSum,
    simd: Simd,
}

impl Lbfgs {
    /// A run from w = 0 over `records` rows to the relative gap `wanted`. Panics where the classes have separate losses.
    pub fn new(problem: Arc<Problem>, records: usize, wanted: f64, simd: Simd) -> Lbfgs {
        assert!(problem.is_coupled());
        let sizes = Sizes::of(&problem);
        let dear = sizes.length / (4 * MATRIX_PASSES * sizes.classes);
        let enough = records / (MATRIX_ROWS * sizes.length);
        Lbfgs {
            wanted,
            stride: dear.min(enough).max(1) as u64,
            point: Point {
                w: vec![0.0; sizes.vector()],
                rounded: vec![0.0; sizes.vector()],
                best_w: vec![0.0; sizes.vector()],
                best_primal: f64::INFINITY,
                // α = C (1[y = k] − 1[y = k]) is feasible.
                best_dual: 0.0,
                before: None,
                cuts: 0,
                history: History::from(Metric::default()),
                trace: 0.0,
                wants_metric: true,
                age: 0,
                tree: Tree::star(sizes.classes),
                exact: false,
                idle: 0,
                at_best: false,
                done: false,
            },
            sizes,
            lanes: Vec::new(),
            losses: LossSum::new(&problem),
            simd,
            problem,
        }
    }

    /// Bytes next to the rows.
    pub fn bytes(problem: &Problem) -> u64 {
        let sizes = Sizes::of(problem);
        let metric = metric_of(&sizes);
        let lanes = sizes.lanes(metric) as u64 + 1;
        let vectors = 2 * PAIRS as u64 + 8;
        let numbers = lanes * (sizes.sums() + metric) as u64 + vectors * sizes.vector() as u64;
        8 * numbers * problem.models() as u64
    }

    /// Ends a pass by its sums: bounds, and a step.
    fn end_look(&mut self, sums: &Sums<'_>, known: &Precision) {
        let (sizes, point) = (&self.sizes, &mut self.point);
        let primal = bound::primal(sums, &point.rounded, sizes, known);
        if primal < point.best_primal {
            point.best_primal = primal;
            point.best_w.copy_from_slice(&point.rounded);
        }
        point.at_best = point.best_w == point.rounded;
        let bias = self.problem.bias().map_or(1.0, f64::from);
        let dual = bound::dual(sums, sizes, &point.tree, bias, known).unwrap_or(0.0);
        let rise = dual - point.best_dual;
        point.best_dual = point.best_dual.max(dual);
        if sizes.bias_is_free {
            point.tree = Tree::of_overlaps(sizes.classes, sums.overlaps);
        }
        if !sums.metric.is_empty() {
            point
                .history
                .use_metric(Metric::of(sums.metric, sizes), sizes);
            point.trace = sums.figures[TRACE];
            point.age = 0;
        }
        point.age += 1;
        let has_fallen = sums.figures[TRACE] < FALLEN * point.trace;
        point.wants_metric = has_fallen || point.age >= OLD;
        // w − v; a free bias is not in w.
        let mut gradient: Vec<f64> = sums.pulls.iter().map(|v| -v).collect();
        let counting = &point.w[..sizes.regularised()];
        for (gradient, w) in gradient.iter_mut().zip(counting) {
            *gradient += w;
        }
        let value = 0.5 * dot(counting, counting) + sums.figures[VALUE];
        let mut failed = false;
        if let Some(before) = point.before.take() {
            let most = before.value + ENOUGH * before.slope + 1e-13 * before.value.abs();
            failed = value.is_nan() || value > most;
            if failed && point.cuts < MOST_CUTS {
                let slope = dot(&before.step, &gradient);
                return point.cut_short(before, slope);
            }
            if failed {
                point.history.forget();
            } else {
                let change = gradient.iter().zip(&before.gradient).map(|(a, b)| a - b);
                point.history.push(before.step, change.collect(), sizes);
            }
        }
        let step = point.history.step(&gradient, sizes);
        // The approximate remaining decrease of the value.
        let gain = -0.5 * dot(&step, &gradient);
        let gap = point.best_primal - point.best_dual;
        let ends = failed || gain <= 1e-15 * primal && rise <= 1e-3 * gap;
        point.idle = if ends { point.idle + 1 } else { 0 };
        let is_usable = gain > 0.0 && step.iter().all(|step| step.is_finite());
        point.done = gap <= self.wanted * point.best_dual || point.idle >= MOST_IDLE || !is_usable;
        let squares = point.history.diagonal_product(&point.w, sizes);
        let rounding = squares * HALF_A_UNIT.powi(2);
        point.exact |= gain <= FINE * primal || gain <= COARSE * rounding;
        point.cuts = 0;
        if !point.done {
            let from = Before {
                value,
                slope: 0.0,
                w: point.w.clone(),
                step,
                gradient,
            };
            point.go_from(from);
        }
    }
}

impl Point {
    /// Goes a step from a place.
    fn go_from(&mut self, mut from: Before) {
        let w = from.w.iter().zip(&from.step).map(|(w, step)| w + step);
        self.w = w.collect();
        self.rounded = self.w.iter().map(|&w| f64::from(w as f32)).collect();
        if !self.exact {
            self.w.clone_from(&self.rounded);
        }
        // The step that is made, with the rounding.
        for (step, (w, before)) in from.step.iter_mut().zip(self.w.iter().zip(&from.w)) {
            *step = w - before;
        }
        from.slope = dot(&from.step, &from.gradient);
        self.before = Some(from);
    }

    /// Goes a part of the step that led here, at the end of which the slope along it is this.
    fn cut_short(&mut self, mut before: Before, slope: f64) {
        let part = before.slope / (before.slope - slope);
        let part = if part > 0.0 { part } else { CUT[1] };
        let part = part.clamp(CUT[0], CUT[1]);
        before.step.iter_mut().for_each(|step| *step *= part);
        self.cuts += 1;
        self.go_from(before);
    }

    fn to_numbers(&self) -> Vec<Vec<f64>> {
        let (scale, vectors) = self.history.to_numbers();
        let flag = |is_so: bool| f64::from(u8::from(is_so));
        let edges = self.tree.edges().iter();
        let tree = edges.flat_map(|&(class, parent)| [class as f64, parent as f64]);
        let mut all = vec![
            vec![
                flag(self.done),
                flag(self.exact),
                flag(self.before.is_some()),
                f64::from(self.cuts),
                f64::from(self.idle),
                self.best_primal,
                self.best_dual,
                self.before.as_ref().map_or(0.0, |before| before.value),
                scale,
                self.trace,
                flag(self.wants_metric),
                f64::from(self.age),
            ],
            tree.collect(),
            self.w.clone(),
            self.best_w.clone(),
        ];
        if let Some(before) = &self.before {
            all.extend([
                before.w.clone(),
                before.step.clone(),
                before.gradient.clone(),
            ]);
        }
        all.extend(vectors);
        all
    }

    fn from_numbers(numbers: &[Vec<f64>], sizes: &Sizes) -> Option<Point> {
        let (figures, vectors) = numbers.split_first()?;
        let (edges, vectors) = vectors.split_first()?;
        let edges = edges.as_chunks::<2>().0.iter();
        let edges = edges.map(|&[class, parent]| (class as usize, parent as usize));
        let tree = Tree::of(sizes.classes, edges.collect())?;
        let &[
            done,
            exact,
            moves,
            cuts,
            idle,
            best_primal,
            best_dual,
            value,
            scale,
            trace,
            wants,
            age,
        ] = figures.first_chunk::<FIGURES>()?;
        let (own, history) = vectors.split_at_checked(if moves != 0.0 { 5 } else { 2 })?;
        if own.iter().any(|vector| vector.len() != sizes.vector()) {
            return None;
        }
        let before = (moves != 0.0).then(|| Before {
            value,
            slope: dot(&own[3], &own[4]),
            w: own[2].clone(),
            step: own[3].clone(),
            gradient: own[4].clone(),
        });
        Some(Point {
            rounded: own[0].iter().map(|&w| f64::from(w as f32)).collect(),
            w: own[0].clone(),
            best_w: own[1].clone(),
            best_primal,
            best_dual,
            before,
            cuts: cuts as u32,
            history: History::from_numbers(scale, history, sizes)?,
            trace,
            wants_metric: wants != 0.0,
            age: age as u32,
            tree,
            exact: exact != 0.0,
            idle: idle as u32,
            at_best: false,
            done: done != 0.0,
        })
    }
}

/// Numbers that a pass sums for the metric.
fn metric_of(sizes: &Sizes) -> usize {
    if sizes.length <= MOST_NEWTON_FEATURES {
        sizes.width * sizes.width
    } else {
        sizes.width
    }
}

impl PassSolver for Lbfgs {
    fn begin_pass(&mut self) {
        let metric = if self.point.wants_metric {
            metric_of(&self.sizes)
        } else {
            0
        };
        let numbers = self.sizes.sums() + metric;
        let lanes = self.sizes.lanes(metric_of(&self.sizes));
        self.lanes = (0..lanes).map(|_| Lane::new(numbers)).collect();
    }

    fn add(&mut self, rows: &RowTable, interrupt: &AtomicBool) -> Result<bool, LinearError> {
        check_rows(&self.problem, rows)?;
        let point = &self.point;
        let pass = Pass {
            problem: &self.problem,
            terms: self.problem.terms(0),
            sizes: self.sizes,
            w: &point.w,
            rounded: &point.rounded,
            is_exact: point.w != point.rounded,
            parents: point.tree.parents(),
            is_first: !point.history.has_metric(),
            stride: self.stride,
            simd: self.simd,
        };
        let add = |range, lane: &mut Lane| pass.add(rows, range, lane);
        Ok(deal(&mut self.lanes, rows.len(), RUN, interrupt, add))
    }

    fn end_pass(&mut self, peers: &mut Peers<'_, LinearError>) -> Result<PassFigures, LinearError> {
        let lanes_used = self.lanes.len() as u64;
        let mut lanes = std::mem::take(&mut self.lanes).into_iter();
        let mut total = lanes.next().expect("a pass was begun");
        for lane in lanes {
            total.rows += lane.rows;
            total.additions = total.additions.max(lane.additions);
            total.longest = total.longest.max(lane.longest);
            for (sum, other) in total.sums.iter_mut().zip(lane.sums) {
                *sum += other;
            }
        }
        peers(Exchange::Sum(&mut total.sums))?;
        let mut counts = [total.rows as f64, (total.additions + lanes_used) as f64];
        peers(Exchange::Sum(&mut counts))?;
        let mut longest = [total.longest];
        peers(Exchange::Largest(&mut longest))?;
        let known = Precision {
            additions: counts[1],
            longest: longest[0],
        };
        let sizes = self.sizes;
        let sums = Sums::of(&mut total.sums, &sizes);
        let (owns, all) = (&sums.owns[..sizes.classes], sums.owns.iter().sum::<f64>());
        let absent = owns.iter().position(|own| *own <= NONE * all);
        if let Some(class) = absent.filter(|_| sizes.bias_is_free) {
            return Err(LinearError::AbsentClass { class });
        }
        self.losses.loss[0] = sums.figures[LOSS];
        self.losses.rows = counts[0] as u64;
        self.losses.correct = sums.figures[CORRECT] as u64;
        self.end_look(&sums, &known);
        let certificate = Certificate {
            primal: self.point.best_primal,
            dual: self.point.best_dual,
        };
        Ok(PassFigures {
            certificate,
            done: self.point.done,
        })
    }

    fn best(&self) -> (Weights, Option<LossSum>) {
        let Sizes {
            classes,
            length,
            columns,
            ..
        } = self.sizes;
        let of_class = |k: usize| {
            let own = self.point.best_w.iter().skip(k).step_by(columns);
            own.take(length).map(|&w| w as f32).collect()
        };
        let vectors = (0..classes).map(of_class).collect();
        let weights = Weights::from_vectors(self.problem.features(), self.problem.bias(), vectors);
        (weights, self.point.at_best.then(|| self.losses.clone()))
    }

    fn save(&self) -> Vec<Vec<f64>> {
        self.point.to_numbers()
    }

    fn restore(&mut self, saved: &[Vec<f64>]) -> Result<(), LinearError> {
        let mut point = Point::from_numbers(saved, &self.sizes)
            .ok_or(LinearError::StateMismatch { part: "L-BFGS" })?;
        // The run before may have wanted less.
        let gap = point.best_primal - point.best_dual;
        point.done &= gap <= self.wanted * point.best_dual || point.idle >= MOST_IDLE;
        self.point = point;
        Ok(())
    }
}
