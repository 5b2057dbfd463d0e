//! L-BFGS for smooth losses, in memory, streamed or on ranks: with one vector a subproblem, or the multinomial logistic
//! loss, which couples the vectors of all classes.
//!
//! P(W) = ½ Σ_k ‖w_k‖² + Σ_i C_i [log Σ_k e^(w_k·x_i) − w_y·x_i], or P(w) = ½‖w‖² + Σ_i C_i ξ(s_i w·x_i; t_i)
//!
//! | symbol | meaning |
//! |---|---|
//! | p_k | e^(w_k·x) over the sum of all: the probability of class k |
//! | α_k = C (1[y = k] − p_k) | dual variables of a row; of a vector alone, α = −C ξ' |
//! | v_k = Σ α_k x | w_k − v_k is the gradient of P |
//! | M | the metric that steps begin from |
//!
//! **Steps.** A pass over the rows, in any order, gives loss and gradient; the step is that of L-BFGS (Nocedal, Wright,
//! Numerical Optimization, 2006, alg. 7.4) from ten pairs. Newton's method would need (K d)² products a row. The metric
//! is M = I + Σ C h x xᵀ for each class, at first with h = ½, which is at least the Hessian (Böhning, Annals of the
//! Institute of Statistical Mathematics 1992): so scaling and correlation of features hardly matter. Rows that are
//! classified well have less curvature; when the sum of the curvatures has halved or doubled, or changed in ten passes,
//! a pass recomputes M with h = 2 max_k p_k (1 − p_k). For a single vector h is the curvature of the loss, at first at
//! least the slope over the distance to the least loss. In between, M is divided by sᵀy / yᵀM⁻¹y of the last pair (eq.
//! 7.20, in the metric). Beyond [`crate::MOST_NEWTON_FEATURES`] features M is diagonal, and if features are many for
//! the classes, M sums only a part of the rows.
//!
//! A step that decreases the value too little is cut short at the point of slope 0, interpolated from the slopes at
//! both ends. Nearly all steps have their full length, so one pass a step is enough. No margins are kept: streamed rows
//! have no room for them.
//!
//! **Certificate**: see [`bound`], for a single vector [`crate::look`]. Every pass gives one, of the weights rounded to
//! f32.
//!
//! Cost of a pass: 2 K products a value, 3 K with a free bias of all classes, 3 K and 4 K near the optimum, where
//! rounding w would matter; d²/2 a row more when M is computed. Memory: 24 vectors of K d numbers, and one or two and
//! in the first pass d² a lane of threads ([`Lbfgs::bytes`]).

mod bound;
mod history;
mod pass;
mod point;
mod tree;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_format::RowTable;

use crate::certificate::{Certificate, LossSum};
use crate::error::LinearError;
use crate::kernels::Simd;
use crate::look::{self, Bounds, Look, Total, View};
use crate::newton::MOST_NEWTON_FEATURES;
use crate::newton::cholesky::dot;
use crate::passes::{PassFigures, PassSolver, check_rows, deal};
use crate::peers::{Exchange, Peers};
use crate::penalty::Penalty;
use crate::problem::Problem;
use crate::weights::Weights;
use bound::Precision;
use history::PAIRS;
use pass::{CORRECT, LOSS, Lane, Pass, Sizes, Sums, TRACE, VALUE};
use point::{Found, Point};
use tree::Tree;

/// Most passes that computing the matrix may cost.
const MATRIX_PASSES: usize = 4;
/// Rows a feature that are enough for it, and the fewest for the matrix of a single vector.
const MATRIX_ROWS: usize = 16;
const LEAST_MATRIX_ROWS: usize = 4;
/// Share of the cost of all rows below which a class counts as empty, for a free bias.
const NONE: f64 = 1e-12;
/// A run of rows without a check for interruption.
const RUN: usize = 1 << 12;

/// L-BFGS on a problem with a smooth loss, between two passes.
#[derive(Debug)]
pub struct Lbfgs {
    problem: Arc<Problem>,
    wanted: f64,
    sizes: Sizes,
    /// The matrix sums every `stride`-th record.
    stride: u64,
    /// One of all classes, or one a subproblem.
    points: Vec<Point>,
    lanes: Lanes,
    losses: LossSum,
    simd: Simd,
}

/// The lanes of a running pass.
#[derive(Debug)]
enum Lanes {
    None,
    Joint(Vec<Lane>),
    Separate(Vec<look::Lane>),
}

impl Lbfgs {
    /// A run from w = 0 over `records` rows to the relative gap `wanted`. Panics for a loss or penalty with kinks, and
    /// for several models with coupled classes: see [`crate::SideBySide`].
    pub fn new(problem: Arc<Problem>, records: usize, wanted: f64, simd: Simd) -> Lbfgs {
        assert!(Lbfgs::applies(&problem));
        assert!(!problem.is_coupled() || problem.models() == 1);
        let sizes = Sizes::from_problem(&problem);
        Lbfgs {
            wanted,
            stride: Lbfgs::stride(&problem, records),
            points: vec![Point::new(&sizes); points_of(&problem)],
            sizes,
            lanes: Lanes::None,
            losses: LossSum::new(&problem),
            simd,
            problem,
        }
    }

    /// The matrix sums every `stride`-th record.
    pub(crate) fn stride(problem: &Problem, records: usize) -> u64 {
        let sizes = Sizes::from_problem(problem);
        let enough = records / (MATRIX_ROWS * sizes.length);
        let stride = if problem.is_coupled() {
            enough.min(sizes.length / (4 * MATRIX_PASSES * sizes.classes))
        } else {
            // A product of a pass, which waits for memory, takes as long as four of the matrix.
            let dear = sizes.length / (16 * MATRIX_PASSES);
            let least = records / (LEAST_MATRIX_ROWS * sizes.length);
            enough.max(dear).min(least)
        };
        stride.max(1) as u64
    }

    /// Whether loss and penalty are smooth.
    pub fn applies(problem: &Problem) -> bool {
        problem.loss().is_smooth() && problem.penalty() == Penalty::L2
    }

    /// Bytes next to the rows.
    pub fn bytes(problem: &Problem) -> u64 {
        let sizes = Sizes::from_problem(problem);
        let (metric, count) = (metric_of(&sizes), points_of(problem));
        let vectors = (2 * PAIRS + 8) * sizes.vector();
        let (lanes, sums, models) = if problem.is_coupled() {
            (sizes.lanes(metric), sizes.sums(), problem.models())
        } else {
            let lanes = look::lanes(problem, metric * count);
            (lanes, look::sides(problem) * sizes.length, 1)
        };
        let numbers = (lanes + 1) * (sums + metric) + vectors;
        8 * (numbers * count * models) as u64
    }

    /// Ends a pass over the loss of all classes.
    fn end_joint(
        &mut self,
        lanes: Vec<Lane>,
        peers: &mut Peers<'_, LinearError>,
    ) -> Result<(), LinearError> {
        let lanes_used = lanes.len() as u64;
        let mut lanes = lanes.into_iter();
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
        let sizes = &self.sizes;
        let sums = Sums::new(&mut total.sums, sizes);
        let (owns, all) = (&sums.owns[..sizes.classes], sums.owns.iter().sum::<f64>());
        let absent = owns.iter().position(|own| *own <= NONE * all);
        if let Some(class) = absent.filter(|_| sizes.bias_is_free) {
            return Err(LinearError::AbsentClass { class });
        }
        self.losses.loss[0] = sums.figures[LOSS];
        self.losses.rows = counts[0] as u64;
        self.losses.correct = sums.figures[CORRECT] as u64;
        let point = &mut self.points[0];
        let bias = self.problem.bias().map_or(1.0, f64::from);
        let (value, gradient) = point.value(sums.figures[VALUE], sums.pulls, sizes);
        let found = Found {
            primal: bound::primal(&sums, &point.rounded, sizes, &known),
            dual: bound::dual(&sums, sizes, &point.tree, bias, &known).unwrap_or(0.0),
            value,
            gradient,
            metric: sums.metric.to_vec(),
            trace: sums.figures[TRACE],
        };
        if sizes.bias_is_free {
            point.tree = Tree::of_overlaps(sizes.classes, sums.overlaps);
        }
        point.end_look(found, self.wanted, sizes);
        Ok(())
    }

    /// Ends a pass over the losses of vectors alone.
    fn end_separate(
        &mut self,
        lanes: Vec<look::Lane>,
        peers: &mut Peers<'_, LinearError>,
    ) -> Result<(), LinearError> {
        let total = Total::new(lanes, peers)?;
        self.losses.rows = total.rows;
        self.losses.correct = total.correct;
        let sizes = &self.sizes;
        for (s, (point, sums)) in self.points.iter_mut().zip(total.sums).enumerate() {
            self.losses.loss[s] = sums.loss;
            if point.done {
                point.at_best = true;
                continue;
            }
            let view = View::new(&point.w[..sizes.length]);
            let bounds = Bounds::new(&sums, &view, &self.problem, &total.rounding);
            let (value, mut gradient) = point.value(sums.value, &sums.pull(), sizes);
            if let Some(offset) = sizes.offset {
                gradient[offset] = 0.0;
            }
            let found = Found {
                primal: bounds.primal,
                dual: bounds.dual(&sums, &total.rounding),
                value,
                gradient,
                metric: sums.metric,
                trace: sums.trace,
            };
            point.end_look(found, self.wanted, sizes);
        }
        Ok(())
    }

    /// The weights that a pass looks at: the best weights of points that are done.
    fn views(&self) -> Vec<View<'_>> {
        let points = self.points.iter();
        points.map(|point| point.view(self.sizes.length)).collect()
    }
}

impl Point {
    fn view(&self, length: usize) -> View<'_> {
        if !self.done {
            return View::new(&self.w[..length]);
        }
        let best = self.best_w[..length].iter();
        View {
            w: &[],
            rounded: best.map(|&w| w as f32).collect(),
        }
    }

    /// The value, and w − v; a free bias is not in w.
    fn value(&self, losses: f64, pulls: &[f64], sizes: &Sizes) -> (f64, Vec<f64>) {
        let counting = &self.w[..sizes.regularised()];
        let mut gradient: Vec<f64> = pulls.iter().map(|v| -v).collect();
        gradient.resize(sizes.vector(), 0.0);
        for (gradient, w) in gradient.iter_mut().zip(counting) {
            *gradient += w;
        }
        (0.5 * dot(counting, counting) + losses, gradient)
    }
}

fn points_of(problem: &Problem) -> usize {
    if problem.is_coupled() {
        1
    } else {
        problem.subproblems()
    }
}

/// Numbers that a pass sums for the metric of a point.
fn metric_of(sizes: &Sizes) -> usize {
    if sizes.length <= MOST_NEWTON_FEATURES {
        sizes.width * sizes.width
    } else {
        sizes.width
    }
}

impl PassSolver for Lbfgs {
    fn start(&mut self, weights: &Weights) {
        let Sizes {
            classes, columns, ..
        } = self.sizes;
        let (is_coupled, offset) = (self.problem.is_coupled(), self.sizes.offset);
        for (s, point) in self.points.iter_mut().enumerate() {
            let first = if is_coupled { 0 } else { s };
            for k in 0..classes {
                let places = point.w.iter_mut().skip(k).step_by(columns);
                for (w, start) in places.zip(weights.vector(first + k)) {
                    *w = f64::from(*start);
                }
            }
            if let Some(offset) = offset {
                point.w[offset] = 1.0;
            }
            point.rounded.clone_from(&point.w);
        }
    }

    fn begin_pass(&mut self) {
        let metric = metric_of(&self.sizes);
        let wanted = |point: &Point| {
            let is_wanted = point.wants_metric && !point.done;
            if is_wanted { metric } else { 0 }
        };
        if self.problem.is_coupled() {
            let numbers = self.sizes.sums() + wanted(&self.points[0]);
            let lanes = 0..self.sizes.lanes(metric);
            self.lanes = Lanes::Joint(lanes.map(|_| Lane::new(numbers)).collect());
        } else {
            let sums = |point| look::Sums::new(&self.problem, wanted(point));
            let lane = look::Lane::new(self.points.iter().map(sums).collect());
            let count = look::lanes(&self.problem, metric * self.points.len());
            self.lanes = Lanes::Separate(vec![lane; count]);
        }
    }

    fn add(&mut self, rows: &RowTable, interrupt: &AtomicBool) -> Result<bool, LinearError> {
        check_rows(&self.problem, rows)?;
        let (problem, stride, simd) = (&*self.problem, self.stride, self.simd);
        let mut lanes = std::mem::replace(&mut self.lanes, Lanes::None);
        let whole = match &mut lanes {
            Lanes::Joint(lanes) => {
                let point = &self.points[0];
                let pass = Pass {
                    problem,
                    terms: problem.terms(0),
                    sizes: self.sizes,
                    w: &point.w,
                    rounded: &point.rounded,
                    is_exact: point.w != point.rounded,
                    parents: point.tree.parents(),
                    is_first: !point.history.has_metric(),
                    stride,
                    simd,
                };
                let add = |range, lane: &mut Lane| pass.add(rows, range, lane);
                deal(lanes, rows.len(), RUN, interrupt, add)
            }
            Lanes::Separate(lanes) => {
                let look = Look {
                    problem,
                    views: self.views(),
                    stride,
                    is_first: !self.points[0].history.has_metric(),
                    simd,
                };
                let add = |range: Range<usize>, lane: &mut look::Lane| look.add(rows, range, lane);
                deal(lanes, rows.len(), RUN, interrupt, add)
            }
            Lanes::None => true,
        };
        self.lanes = lanes;
        Ok(whole)
    }

    fn end_pass(&mut self, peers: &mut Peers<'_, LinearError>) -> Result<PassFigures, LinearError> {
        match std::mem::replace(&mut self.lanes, Lanes::None) {
            Lanes::Joint(lanes) => self.end_joint(lanes, peers)?,
            Lanes::Separate(lanes) => self.end_separate(lanes, peers)?,
            Lanes::None => {}
        }
        let is_coupled = self.problem.is_coupled();
        let sum = |of: fn(&Point) -> f64| {
            let points = self.points.iter().enumerate();
            // With coupled classes there is a single model here.
            let factor = |s| {
                if is_coupled {
                    1.0
                } else {
                    self.problem.factor(s)
                }
            };
            points.map(|(s, point)| of(point) / factor(s)).sum()
        };
        let certificate = Certificate {
            primal: sum(|point| point.best_primal),
            dual: sum(|point| point.best_dual),
        };
        let stuck = self.points.iter().all(|point| point.done);
        Ok(PassFigures {
            certificate,
            is_proved: true,
            done: stuck || certificate.relative_gap() <= self.wanted,
        })
    }

    fn best(&self) -> (Weights, Option<LossSum>) {
        let Sizes {
            classes,
            length,
            columns,
            ..
        } = self.sizes;
        let of_point = |point: &Point| {
            let of_class = |k: usize| -> Vec<f32> {
                let own = point.best_w.iter().skip(k).step_by(columns);
                own.take(length).map(|&w| w as f32).collect()
            };
            (0..classes).map(of_class).collect::<Vec<_>>()
        };
        let vectors = self.points.iter().flat_map(of_point).collect();
        let weights = Weights::from_vectors(self.problem.features(), self.problem.bias(), vectors);
        let looked = self.points.iter().all(|point| point.at_best);
        (weights, looked.then(|| self.losses.clone()))
    }

    fn save(&self) -> Vec<Vec<f64>> {
        self.points.iter().map(Point::to_numbers).collect()
    }

    fn restore(&mut self, saved: &[Vec<f64>]) -> Result<(), LinearError> {
        let points = saved
            .iter()
            .map(|saved| Point::from_numbers(saved, &self.sizes));
        let points: Option<Vec<Point>> = points.collect();
        self.points = points
            .filter(|points| points.len() == self.points.len())
            .ok_or(LinearError::StateMismatch { part: "L-BFGS" })?;
        for point in &mut self.points {
            point.resume(self.wanted);
        }
        Ok(())
    }
}
