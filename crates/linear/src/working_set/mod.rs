//! Penalties with ‖w‖₁, by working sets: passes over all rows choose the features with weights that may differ from 0
//! and prove how good the present weights are; between passes, solves use only the columns of these features, in memory
//! (Johnson, Guestrin, ICML 2015: BLITZ; Massias, Gramfort, Salmon, ICML 2018: celer).
//!
//! | symbol | meaning |
//! |---|---|
//! | R(w) | the penalty, [`crate::Penalty`]; a free bias is not part of it |
//! | m = s w·x | margin of a row; of one with a real target, its value |
//! | α(m) = −C ξ'(m) | the dual variable that belongs to it |
//! | v = Σ α s x | R(w) + v·w is least at 0 if every abs(v_j) ≤ ρ |
//!
//! A pass *looks* at w: P(w), α and v. The features of weight 0 with the largest abs(v_j) join those with a weight,
//! three times as many. If columns are missing, the next pass *collects* them; then `descent` solves over them: to the
//! target, or loosely if features outside the set must still join.
//!
//! **Certificate.** By Fenchel duality P(w) ≥ Σ d(θ α) − R*(θ v) for any θ in 0 to 1 and any w, and Σ d(θ α) ≥ θ Σ
//! d(α), as d is concave and at least 0 at 0. With ‖w‖₁ alone, θ = 1 / max abs(v_j) if the maximum is above 1; else the
//! best θ. With a free bias the α of the heavier side are first scaled down, as in [`crate::DualBound`]. All sums are
//! computed from the rows in f64, for v at the w of the solver and for P at w rounded to f32, as in the model; the
//! bounds subtract their rounding errors.
//!
//! Memory: 8 bytes a value of the columns, 80 a row while it solves, and 40 a feature, with 8 or 16 more a lane of
//! threads and subproblem. Cost: a pass that looks, two products and one sum of rows; one that collects, a look at each
//! value.

mod columns;
mod descent;
mod point;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pelton_format::RowTable;
use pelton_storage::in_parallel;
use rayon::prelude::*;

use crate::certificate::{Certificate, LossSum};
use crate::error::LinearError;
use crate::kernels::Simd;
use crate::look::{self, CHUNK, Look, Sums, Total, View, for_each_value, sides};
use crate::passes::{PassFigures, PassSolver, check_rows, deal};
use crate::peers::{Exchange, Peers};
use crate::problem::Problem;
use crate::weights::Weights;
use columns::{Collector, Columns};
use descent::{MOST_STEPS, Subproblem};
use point::{MOST_IDLE, Point};

/// Fewest features of a working set, and up to how many all are one.
const LEAST_SET: usize = 256;
const ALL_IN_SET: usize = 512;
/// Violations inside a set are reduced to this share of the largest one outside.
const SHARE: f64 = 0.1;
/// Features of weight 0 that join a set, for each one with a weight.
const GROWTH: usize = 3;
/// Proximal Newton steps over a set that must grow anyway.
const STAGE_STEPS: u32 = 2;

/// A problem with a penalty of ‖w‖₁, between two passes.
#[derive(Debug)]
pub struct WorkingSet {
    problem: Arc<Problem>,
    wanted: f64,
    /// Bytes that columns may take.
    memory: u64,
    interrupt: Arc<AtomicBool>,
    simd: Simd,
    points: Vec<Point>,
    /// Of the rounded weights that the last look was at.
    losses: LossSum,
    /// Values of each feature in this rank's rows; in all rows, and ‖x_j‖². Empty before the first look.
    counts: Vec<u32>,
    totals: Vec<f64>,
    squares: Vec<f64>,
    columns: Columns,
    pass: Pass,
    /// Whether the next pass collects columns.
    collects: bool,
}

/// The state of a running pass.
#[derive(Debug)]
enum Pass {
    None,
    Look(Vec<Lane>),
    Collect(Collector),
}

/// The sums of a look, and in the first look the number of values of each feature and their squares.
#[derive(Clone, Debug, Default)]
struct Lane {
    look: look::Lane,
    counts: Vec<u32>,
    squares: Vec<f64>,
}

impl WorkingSet {
    /// A run from w = 0 to the relative gap `wanted`, with at most `memory` bytes of columns. Solving ends early if
    /// `interrupt` is set.
    pub fn new(
        problem: Arc<Problem>,
        wanted: f64,
        memory: u64,
        interrupt: Arc<AtomicBool>,
        simd: Simd,
    ) -> WorkingSet {
        let point = Point::new(problem.length());
        WorkingSet {
            wanted,
            memory,
            interrupt,
            simd,
            points: vec![point; problem.subproblems()],
            losses: LossSum::new(&problem),
            counts: Vec::new(),
            totals: Vec::new(),
            squares: Vec::new(),
            columns: Columns::default(),
            pass: Pass::None,
            collects: false,
            problem,
        }
    }

    /// Bytes in addition to the rows and the columns, for `records` records.
    pub fn bytes(problem: &Problem, records: u64) -> u64 {
        let length = problem.length() as u64;
        let (lanes, sides) = (look::lanes(problem, 0) as u64, sides(problem) as u64);
        80 * records
            + length * problem.subproblems() as u64 * (20 + 8 * sides * (lanes + 1))
            + 28 * length
    }

    fn views(&self) -> Vec<View<'_>> {
        self.points
            .iter()
            .map(|point| View::new(&point.w))
            .collect()
    }

    /// Ends a look: bounds, and which features the next columns are of.
    fn end_look(
        &mut self,
        lanes: Vec<Lane>,
        peers: &mut Peers<'_, LinearError>,
    ) -> Result<(), LinearError> {
        if self.counts.is_empty() {
            for lane in &lanes {
                self.counts.resize(lane.counts.len(), 0);
                self.squares.resize(lane.squares.len(), 0.0);
                let counts = self.counts.iter_mut().zip(&lane.counts);
                counts.for_each(|(sum, own)| *sum += own);
                let squares = self.squares.iter_mut().zip(&lane.squares);
                squares.for_each(|(sum, own)| *sum += own);
            }
            self.totals = self.counts.iter().map(|&count| f64::from(count)).collect();
            peers(Exchange::Sum(&mut self.totals))?;
            peers(Exchange::Sum(&mut self.squares))?;
        }
        let total = Total::new(lanes.into_iter().map(|lane| lane.look), peers)?;
        self.losses.rows = total.rows;
        self.losses.correct = total.correct;
        let mut scores = Vec::new();
        for (s, sums) in total.sums.iter().enumerate() {
            self.losses.loss[s] = sums.loss;
            let v = self.points[s].end_look(
                sums,
                &self.problem,
                &total.rounding,
                self.wanted,
                &self.totals,
                &self.squares,
            );
            scores.push(v);
        }
        let wanted: Vec<bool> = self.points.iter().map(|point| !point.done).collect();
        if !wanted.contains(&true) {
            return Ok(());
        }
        self.choose(&scores)?;
        let mut features: Vec<u32> = self
            .points
            .iter()
            .flat_map(|point| point.set.iter().copied())
            .collect();
        features.sort_unstable();
        features.dedup();
        let known = |feature: &u32| self.columns.place(*feature).is_some();
        if !self.columns.labels.is_empty() && features.iter().all(known) {
            return self.solve(peers);
        }
        self.columns = Columns::default();
        self.collects = true;
        Ok(())
    }

    /// Chooses the features of each subproblem by its v, as many as fit in memory.
    ///
    /// Errors: the features that have a weight do not fit.
    fn choose(&mut self, scores: &[Vec<f64>]) -> Result<(), LinearError> {
        let features = self.problem.features();
        let total: f64 = self.totals.iter().sum();
        if features <= ALL_IN_SET && Columns::bytes(total as u64) <= self.memory {
            let all: Vec<u32> = (0..)
                .zip(&self.totals)
                .filter(|(_, count)| **count > 0.0)
                .map(|(j, _)| j)
                .collect();
            self.points
                .iter_mut()
                .for_each(|point| point.set.clone_from(&all));
            return Ok(());
        }
        let mut taken = vec![false; features];
        let mut bytes = 0;
        let mut take = |j: usize, totals: &[f64]| {
            if !std::mem::replace(&mut taken[j], true) {
                bytes += Columns::bytes(totals[j] as u64);
            }
            bytes
        };
        for point in self.points.iter_mut().filter(|point| !point.done) {
            point.set = (0..)
                .zip(&point.w[..features])
                .filter(|(_, w)| **w != 0.0)
                .map(|(j, _)| j)
                .collect();
            for &j in &point.set {
                let needed = take(j as usize, &self.totals);
                if needed > self.memory {
                    return Err(LinearError::Columns {
                        needed,
                        memory: self.memory,
                    });
                }
            }
        }
        for (point, v) in self
            .points
            .iter_mut()
            .zip(scores)
            .filter(|(point, _)| !point.done)
        {
            let most = (GROWTH * point.set.len()).max(LEAST_SET);
            let is_open = |j: &u32| point.w[*j as usize] == 0.0 && v[*j as usize] != 0.0;
            let mut others: Vec<u32> = (0..features as u32).filter(is_open).collect();
            let by_size = |a: &u32, b: &u32| {
                v[*b as usize]
                    .abs()
                    .total_cmp(&v[*a as usize].abs())
                    .then(a.cmp(b))
            };
            if others.len() > most {
                others.select_nth_unstable_by(most, by_size);
                others.truncate(most);
            }
            others.sort_unstable_by(by_size);
            for (number, j) in others.into_iter().enumerate() {
                if take(j as usize, &self.totals) > self.memory && number > 0 {
                    break;
                }
                point.set.push(j);
            }
            point.set.sort_unstable();
            let outside = |j: &u32| point.set.binary_search(j).is_err();
            let largest = (0..features as u32)
                .filter(outside)
                .map(|j| v[j as usize].abs());
            let share = self.problem.penalty().l1_share();
            point.outside = (largest.fold(0.0, f64::max) / share - 1.0).max(0.0);
        }
        Ok(())
    }

    /// Solves over the columns; changes nothing, on any rank, if one of them is interrupted.
    fn solve(&mut self, peers: &mut Peers<'_, LinearError>) -> Result<(), LinearError> {
        let (wanted, columns) = (self.wanted, &self.columns);
        let (problem, simd, interrupt) = (&*self.problem, self.simd, &*self.interrupt);
        let before: Vec<Vec<f64>> = self.points.iter().map(|point| point.w.clone()).collect();
        let solved = |(number, point): (usize, &mut Point)| {
            let subproblem = Subproblem {
                problem,
                number,
                columns,
                simd,
                interrupt,
            };
            let tolerance = 0.3 * wanted.max(SHARE * point.outside);
            // Features outside must still join.
            let is_stage = point.outside > 1.0;
            let most_steps = if is_stage { STAGE_STEPS } else { MOST_STEPS };
            point.done || subproblem.solve(&point.set, &mut point.w, tolerance, most_steps)
        };
        let points = self.points.par_iter_mut().enumerate();
        let whole = in_parallel(|| points.map(solved).reduce(|| true, |a, b| a && b))?;
        let mut stopped = [f64::from(u8::from(!whole))];
        peers(Exchange::Largest(&mut stopped))?;
        if stopped[0] > 0.0 {
            self.points
                .iter_mut()
                .zip(before)
                .for_each(|(point, w)| point.w = w);
        }
        Ok(())
    }
}

impl PassSolver for WorkingSet {
    fn start(&mut self, weights: &Weights) {
        for (s, point) in self.points.iter_mut().enumerate() {
            let own = weights.vector(s).iter();
            point.w = own.map(|&w| f64::from(w)).collect();
        }
    }

    fn begin_pass(&mut self) {
        let features = self.problem.features();
        if self.collects {
            let mut all: Vec<u32> = self
                .points
                .iter()
                .flat_map(|point| point.set.iter().copied())
                .collect();
            all.sort_unstable();
            all.dedup();
            self.pass = Pass::Collect(Collector::new(all, &self.counts));
            return;
        }
        let counted = if self.counts.is_empty() { features } else { 0 };
        let lane = Lane {
            look: look::Lane::new(vec![Sums::new(&self.problem, 0); self.points.len()]),
            counts: vec![0; counted],
            squares: vec![0.0; counted],
        };
        self.pass = Pass::Look(vec![lane; look::lanes(&self.problem, 0)]);
    }

    fn add(&mut self, rows: &RowTable, interrupt: &AtomicBool) -> Result<bool, LinearError> {
        check_rows(&self.problem, rows)?;
        let count = rows.len();
        let mut pass = std::mem::replace(&mut self.pass, Pass::None);
        let whole = match &mut pass {
            Pass::Look(lanes) => {
                let look = Look {
                    problem: &self.problem,
                    views: self.views(),
                    stride: 1,
                    is_first: false,
                    simd: self.simd,
                };
                let add = |range: Range<usize>, lane: &mut Lane| {
                    look.add(rows, range.clone(), &mut lane.look);
                    lane.count(rows, range);
                };
                deal(lanes, count, CHUNK, interrupt, add)
            }
            Pass::Collect(collector) => {
                for start in (0..count).step_by(CHUNK) {
                    if !interrupt.load(Ordering::Relaxed) {
                        collector.add(rows, start..count.min(start + CHUNK))?;
                    }
                }
                !interrupt.load(Ordering::Relaxed)
            }
            Pass::None => true,
        };
        self.pass = pass;
        Ok(whole)
    }

    fn end_pass(&mut self, peers: &mut Peers<'_, LinearError>) -> Result<PassFigures, LinearError> {
        match std::mem::replace(&mut self.pass, Pass::None) {
            Pass::Look(lanes) => self.end_look(lanes, peers)?,
            Pass::Collect(collector) => {
                self.columns = collector.finish(peers)?;
                self.collects = false;
                self.solve(peers)?;
            }
            Pass::None => {}
        }
        let sum = |of: fn(&Point) -> f64| {
            let points = self.points.iter().enumerate();
            let over = |(s, point): (usize, &Point)| of(point) / self.problem.factor(s);
            points.map(over).sum()
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
        let vectors = self
            .points
            .iter()
            .map(|point| point.best_w.clone())
            .collect();
        let weights = Weights::from_vectors(self.problem.features(), self.problem.bias(), vectors);
        let looked = self.points.iter().all(|point| point.at_best);
        (weights, looked.then(|| self.losses.clone()))
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
                part: "working sets",
            })?;
        for point in &mut self.points {
            // The run before may have wanted less.
            point.done &= point.gap <= self.wanted || point.idle >= MOST_IDLE;
        }
        Ok(())
    }
}

impl Lane {
    /// Counts the values of each feature in the first look.
    fn count(&mut self, rows: &RowTable, range: Range<usize>) {
        if self.counts.is_empty() {
            return;
        }
        for i in range {
            for_each_value(rows.row(i), None, |feature, value| {
                self.counts[feature] += 1;
                self.squares[feature] += f64::from(value).powi(2);
            });
        }
    }
}
