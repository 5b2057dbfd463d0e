//! The state of L-BFGS between two passes: a point, the step that led there, and the history for further steps.

use super::history::{History, Metric};
use super::pass::Sizes;
use super::tree::Tree;
use crate::newton::cholesky::dot;

/// Share of the decrease that the slope promises which a step must bring.
const ENOUGH: f64 = 1e-4;
/// Shortest and longest part of a step that is left of it when it is cut short.
const CUT: [f64; 2] = [0.05, 0.7];
/// Parts of a step that are tried before the pairs are dropped.
const MOST_CUTS: u32 = 12;
/// Remaining decrease, over the value, below which w is not rounded: rounding would change the value by more.
const FINE: f64 = 1e-9;
/// The same, over the change of the value by rounding w.
const COARSE: f64 = 10.0;
/// Half a unit in the last place of the f32 1.
const HALF_A_UNIT: f64 = 0.5 * f32::EPSILON as f64;
/// Idle passes in a row after which training ends.
const MOST_IDLE: u32 = 3;
/// Change of the logarithm of its trace at which the metric is recomputed: always, and once it is `OLD` passes old.
const FAR: f64 = std::f64::consts::LN_2;
const NEAR: f64 = 0.05;
const OLD: u32 = 10;
/// Scalars of a point in a saved state.
const FIGURES: usize = 15;

/// The result of a pass at a point.
pub(super) struct Found {
    /// Bounds of the optimum: P of the rounded weights, and a dual value.
    pub primal: f64,
    pub dual: f64,
    /// The value of the weights themselves, and its gradient.
    pub value: f64,
    pub gradient: Vec<f64>,
    /// Σ C h x xᵀ or its diagonal, if the pass summed it, and Σ C h ‖x‖².
    pub metric: Vec<f64>,
    pub trace: f64,
}

/// The weights of the next pass, and the best found.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub w: Vec<f64>,
    /// The same in f32.
    pub rounded: Vec<f64>,
    pub best_w: Vec<f64>,
    pub best_primal: f64,
    pub best_dual: f64,
    /// P at w = 0.
    first_primal: f64,
    /// The previous point, the step from it that led here, and how often that was cut short.
    before: Option<Before>,
    cuts: u32,
    pub history: History,
    /// Σ C h ‖x‖² of the rows in the metric, and whether the next pass sums it.
    trace: f64,
    pub wants_metric: bool,
    /// Passes since that was done.
    age: u32,
    /// The classes that exchange probability with a free bias; unused for a single vector.
    pub tree: Tree,
    /// Whether w is not rounded to f32.
    exact: bool,
    /// Passes in a row that improved neither bound by more than rounding.
    idle: u32,
    /// Whether the last pass looked at the best w.
    pub at_best: bool,
    pub done: bool,
}

/// A point, with the value, its slope along the step from there, and its gradient.
#[derive(Clone, Debug, Default)]
struct Before {
    value: f64,
    slope: f64,
    w: Vec<f64>,
    step: Vec<f64>,
    gradient: Vec<f64>,
}

impl Point {
    pub fn new(sizes: &Sizes) -> Point {
        let mut w = vec![0.0; sizes.vector()];
        if let Some(offset) = sizes.offset {
            w[offset] = 1.0;
        }
        Point {
            rounded: w.clone(),
            best_w: w.clone(),
            w,
            best_primal: f64::INFINITY,
            // α = 0 is feasible, and for the loss of all classes α = C (1[y = k] − 1[y = k]).
            best_dual: 0.0,
            first_primal: 0.0,
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
        }
    }

    /// Ends a pass: takes its results, and makes a step.
    pub fn end_look(&mut self, found: Found, wanted: f64, sizes: &Sizes) {
        let Found {
            primal,
            dual,
            value,
            gradient,
            metric,
            trace,
        } = found;
        if self.best_primal == f64::INFINITY {
            self.first_primal = primal;
        }
        if primal < self.best_primal {
            self.best_primal = primal;
            self.best_w.copy_from_slice(&self.rounded);
        }
        self.at_best = self.best_w == self.rounded;
        let rise = dual - self.best_dual;
        self.best_dual = self.best_dual.max(dual);
        if !metric.is_empty() {
            self.history.use_metric(Metric::new(&metric, sizes), sizes);
            self.trace = trace;
            self.age = 0;
        }
        self.age += 1;
        let change = (trace / self.trace).ln().abs();
        // With all classes the first metric is only a bound.
        let is_old = self.age >= OLD && (change > NEAR || sizes.classes > 1);
        self.wants_metric = change > FAR || is_old;
        let mut failed = false;
        if let Some(before) = self.before.take() {
            let most = before.value + ENOUGH * before.slope + 1e-13 * before.value.abs();
            failed = value.is_nan() || value > most;
            if failed && self.cuts < MOST_CUTS {
                let slope = dot(&before.step, &gradient);
                return self.cut_short(before, slope, sizes);
            }
            if failed {
                self.history.forget();
            } else {
                let change = gradient.iter().zip(&before.gradient).map(|(a, b)| a - b);
                self.history.push(before.step, change.collect(), sizes);
            }
        }
        let step = self.history.step(&gradient, sizes);
        // The approximate remaining decrease of the value.
        let gain = -0.5 * dot(&step, &gradient);
        let gap = self.best_primal - self.best_dual;
        let ends = failed || gain <= 1e-15 * primal && rise <= 1e-3 * gap;
        self.idle = if ends { self.idle + 1 } else { 0 };
        let is_usable = gain > 0.0 && step.iter().all(|step| step.is_finite());
        self.done = gap <= wanted * self.best_dual || self.idle >= MOST_IDLE || !is_usable;
        let squares = self.history.diagonal_product(&self.w, sizes);
        let rounding = squares * HALF_A_UNIT.powi(2);
        self.exact |= gain <= FINE * primal || gain <= COARSE * rounding;
        self.cuts = 0;
        if !self.done {
            let from = Before {
                value,
                slope: 0.0,
                w: self.w.clone(),
                step,
                gradient,
            };
            self.go_from(from, sizes);
        }
    }

    /// Takes a step from a point.
    fn go_from(&mut self, mut from: Before, sizes: &Sizes) {
        let w = from.w.iter().zip(&from.step).map(|(w, step)| w + step);
        self.w = w.collect();
        let left = self.best_primal / self.first_primal;
        self.history.drop_dust(&mut self.w, left, sizes);
        if let Some(offset) = sizes.offset {
            self.w[offset] = 1.0;
        }
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

    /// Takes a part of the step that led here; `slope` is the slope along the step at its end.
    fn cut_short(&mut self, mut before: Before, slope: f64, sizes: &Sizes) {
        let part = before.slope / (before.slope - slope);
        let part = if part > 0.0 { part } else { CUT[1] };
        let part = part.clamp(CUT[0], CUT[1]);
        before.step.iter_mut().for_each(|step| *step *= part);
        self.cuts += 1;
        self.go_from(before, sizes);
    }

    /// Takes up a run that may have wanted less.
    pub fn resume(&mut self, wanted: f64) {
        let gap = self.best_primal - self.best_dual;
        self.done &= gap <= wanted * self.best_dual || self.idle >= MOST_IDLE;
    }

    pub fn to_numbers(&self) -> Vec<f64> {
        let (scale, vectors) = self.history.to_numbers();
        let flag = |is_so: bool| f64::from(u8::from(is_so));
        let edges = self.tree.edges();
        let mut all = vec![
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
            edges.len() as f64,
            self.history.pairs() as f64,
            self.first_primal,
        ];
        for &(class, parent) in edges {
            all.extend([class as f64, parent as f64]);
        }
        all.extend(&self.w);
        all.extend(&self.best_w);
        if let Some(before) = &self.before {
            all.extend(&before.w);
            all.extend(&before.step);
            all.extend(&before.gradient);
        }
        all.extend(vectors.iter().flatten());
        all
    }

    pub fn from_numbers(numbers: &[f64], sizes: &Sizes) -> Option<Point> {
        let (figures, rest) = numbers.split_first_chunk::<FIGURES>()?;
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
            edges,
            pairs,
            first_primal,
        ] = figures;
        let (edges, rest) = rest.split_at_checked(2 * edges as usize)?;
        let edges = edges.as_chunks::<2>().0.iter();
        let edges = edges.map(|&[class, parent]| (class as usize, parent as usize));
        let tree = Tree::new(sizes.classes, edges.collect())?;
        let count = if moves != 0.0 { 5 } else { 2 };
        let (own, rest) = rest.split_at_checked(count * sizes.vector())?;
        let own: Vec<&[f64]> = own.chunks_exact(sizes.vector()).collect();
        let (pairs, metric) = rest.split_at_checked(2 * pairs as usize * sizes.vector())?;
        let before = (moves != 0.0).then(|| Before {
            value,
            slope: dot(own[3], own[4]),
            w: own[2].to_vec(),
            step: own[3].to_vec(),
            gradient: own[4].to_vec(),
        });
        Some(Point {
            rounded: own[0].iter().map(|&w| f64::from(w as f32)).collect(),
            w: own[0].to_vec(),
            best_w: own[1].to_vec(),
            best_primal,
            best_dual,
            first_primal,
            before,
            cuts: cuts as u32,
            history: History::from_numbers(scale, pairs, metric, sizes)?,
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
