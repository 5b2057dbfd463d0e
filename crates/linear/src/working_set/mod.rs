//! Penalties with ‖w‖₁, by working sets: passes over all rows choose the features whose weights may differ from 0 and
//! prove how good the present ones are; between them the columns of these features, in memory, are all that is solved
//! over (Johnson, Guestrin, ICML 2015: BLITZ; Massias, Gramfort, Salmon, ICML 2018: celer).
//!
//! | symbol | meaning |
//! |---|---|
//! | R(w) | the penalty, [`crate::Penalty`]; a free bias is not part of it |
//! | m = s w·x | margin of a row; of one with a real target, its value |
//! | α(m) = −C ξ'(m) | the dual variable that belongs to it |
//! | v = Σ α s x | R(w) + v·w is least at 0 where every abs(v_j) ≤ ρ |
//!
//! A pass *looks* at w: P(w), α and v. Features of weight 0 whose abs(v_j) is largest join those with a weight, three times as
//! many. If columns are missing, the next pass *collects* them; then `descent` solves over them: to the target, or
//! loosely where features outside the set must still join.
//!
//! **Certificate.** By Fenchel duality P(w) ≥ Σ d(θ α) − R*(θ v) for any θ in 0 to 1 and any w, and Σ d(θ α) ≥ θ Σ d(α),
//! d being concave and at least 0 at 0. With ‖w‖₁ alone, θ = 1 / max abs(v_j) where that is above 1; else the best θ. With a free
//! bias α is first shrunk on the side that weighs more, as in [`crate::DualBound`]. All sums are made from the rows in f64,
//! at the w of the solver for v and at w rounded to f32, as the model has it, for P; their rounding is taken off.
//!
//! Memory: 8 bytes a value of the columns, 80 a row while it solves, and 40 a feature, with 8 or 16 more a lane of threads
//! and subproblem. Cost: a pass that looks, two products and one sum of rows; one that collects, a look at each value.

mod columns;
mod descent;
mod point;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pelton_format::RowTable;
use pelton_storage::in_parallel;
use rayon::prelude::*;

use crate::block::{block_rows, places_clipped};
use crate::certificate::{Certificate, LossSum, predicted};
use crate::error::LinearError;
use crate::kernels::{self, Simd};
use crate::passes::{PassFigures, PassSolver, check_rows, deal};
use crate::peers::{Exchange, Peers};
use crate::problem::Problem;
use crate::weights::Weights;
use columns::{Collector, Columns, for_each_value};
use descent::{MOST_STEPS, Subproblem};
use point::{MOST_IDLE, Point, Rounding, Side, Sums};

/// Rows whose products are made at a time.
const CHUNK: usize = 2048;
/// Lanes that the rows of a block are dealt to, whatever the number of threads, and bytes of their sums.
const LANES: usize = 8;
const LANE_BYTES: usize = 256 << 20;
/// Fewest features of a working set, and up to how many all are one.
const LEAST_SET: usize = 256;
const ALL_IN_SET: usize = 512;
/// Features up to which the sums of a chunk are made apart, so that a coordinate is added to less often.
const NARROW: usize = 1 << 14;
/// Share of the largest violation outside a set to which those inside are reduced.
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
    /// Values of each feature in this rank's rows; in all rows, and ‖x_j‖². None before the first look.
    counts: Vec<u32>,
    totals: Vec<f64>,
    squares: Vec<f64>,
    columns: Columns,
    pass: Pass,
    /// Whether the next pass collects columns.
    collects: bool,
}

/// A pass under way.
#[derive(Debug)]
enum Pass {
    None,
    Look(Vec<Lane>),
    Collect(Collector),
}

/// What a look sums up of its rows.
#[derive(Clone, Debug, Default)]
struct Lane {
    rows: f64,
    correct: f64,
    /// Additions to a coordinate of a sum, at most, and values of a row.
    additions: f64,
    longest: f64,
    sums: Vec<Sums>,
    counts: Vec<u32>,
    squares: Vec<f64>,
}

impl WorkingSet {
    /// A run from w = 0 to the relative gap `wanted`, whose columns may take `memory` bytes. Solving ends early where
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

    /// Bytes next to the rows and the columns, for so many records.
    pub fn bytes(problem: &Problem, records: u64) -> u64 {
        let length = problem.length() as u64;
        let (lanes, sides) = (lanes(problem) as u64, sides(problem) as u64);
        80 * records
            + length * problem.subproblems() as u64 * (20 + 8 * sides * (lanes + 1))
            + 28 * length
    }

    fn look(&self, rows: &RowTable, range: std::ops::Range<usize>, lane: &mut Lane) {
        let problem = &*self.problem;
        let loss = problem.loss().function();
        let has_classes = !problem.has_real_targets();
        let (subproblems, sides) = (problem.subproblems(), sides(problem));
        let weights: Vec<[Vec<f32>; 2]> = self.points.iter().map(Point::halves).collect();
        let terms: Vec<_> = (0..subproblems).map(|s| problem.terms(s)).collect();
        let block = block_rows(problem.features(), problem.bias(), rows);
        let is_narrow = problem.length() <= NARROW;
        let (mut places, mut values, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        let mut scales = vec![Vec::new(); sides];
        for start in range.clone().step_by(CHUNK) {
            let chunk = start..range.end.min(start + CHUNK);
            let length = chunk.len();
            places.clear();
            places_clipped(problem.features(), rows, chunk.clone(), &mut places);
            values.resize(length * subproblems, 0.0);
            rest.resize(length, 0.0);
            for (s, [high, low]) in weights.iter().enumerate() {
                let sums = &mut lane.sums[s];
                let out = &mut values[s * length..(s + 1) * length];
                kernels::sweep(self.simd, &block, high, &places, out);
                kernels::sweep(self.simd, &block, low, &places, &mut rest);
                scales.iter_mut().for_each(|scales| {
                    scales.clear();
                    scales.resize(length, 0.0);
                });
                for i in 0..length {
                    let row = terms[s].of(rows.label(start + i), rows.id(start + i));
                    let (sign, target) = (f64::from(row.sign), f64::from(row.target));
                    sums.loss += loss.newton_loss(sign * out[i], target, row.cost)[0];
                    let m = sign * (out[i] + rest[i]);
                    let found = loss.newton(m, target, row.cost, 0.0, loss.prepared(m));
                    let scale = sign * found.alpha;
                    let side = usize::from(sides == 2 && scale < 0.0);
                    let figures = &mut sums.sides[side].terms;
                    figures[0] += found.term;
                    figures[1] += found.term.abs();
                    figures[2] += found.rounding;
                    sums.alphas += scale * scale;
                    scales[side][i] = scale;
                }
                for (side, scales) in sums.sides.iter_mut().zip(&scales) {
                    if is_narrow {
                        let mut own = vec![0.0; side.sum.len()];
                        sums.size +=
                            kernels::add_rows(self.simd, &block, &places, scales, &mut own);
                        side.sum
                            .iter_mut()
                            .zip(&own)
                            .for_each(|(sum, own)| *sum += own);
                    } else {
                        sums.size +=
                            kernels::add_rows(self.simd, &block, &places, scales, &mut side.sum);
                    }
                }
            }
            lane.rows += length as f64;
            lane.additions += if is_narrow { 1.0 } else { length as f64 };
            for (i, place) in places.iter().enumerate() {
                lane.longest = lane.longest.max(f64::from(place.length));
                if has_classes && predicted(&values, length, i) == rows.label(start + i) {
                    lane.correct += 1.0;
                }
            }
            if !lane.counts.is_empty() {
                for i in chunk {
                    for_each_value(rows.row(i), |feature, value| {
                        lane.counts[feature] += 1;
                        lane.squares[feature] += f64::from(value).powi(2);
                    });
                }
            }
        }
    }

    /// Ends a look: bounds, and which features the next columns are of.
    fn end_look(
        &mut self,
        lanes: Vec<Lane>,
        peers: &mut Peers<'_, LinearError>,
    ) -> Result<(), LinearError> {
        let mut lanes = lanes.into_iter();
        let mut total = lanes.next().unwrap_or_default();
        let mut count = 1.0;
        for lane in lanes {
            total.add(&lane);
            count += 1.0;
        }
        let mut most = [total.additions, total.longest, count];
        peers(Exchange::Largest(&mut most))?;
        let mut sums = vec![total.rows, total.correct, 1.0];
        for own in &total.sums {
            sums.extend([own.loss, own.size, own.alphas]);
            own.sides.iter().for_each(|side| sums.extend(side.terms));
        }
        peers(Exchange::Sum(&mut sums))?;
        self.losses.rows = sums[0] as u64;
        self.losses.correct = sums[1] as u64;
        let ranks = sums[2];
        let mut rest = &sums[3..];
        for own in &mut total.sums {
            [own.loss, own.size, own.alphas] = [rest[0], rest[1], rest[2]];
            rest = &rest[3..];
            for side in &mut own.sides {
                side.terms.copy_from_slice(&rest[..3]);
                rest = &rest[3..];
                peers(Exchange::Sum(&mut side.sum))?;
            }
        }
        if self.counts.is_empty() {
            self.totals = total.counts.iter().map(|&count| f64::from(count)).collect();
            (self.counts, self.squares) = (total.counts, total.squares);
            peers(Exchange::Sum(&mut self.totals))?;
            peers(Exchange::Sum(&mut self.squares))?;
        }
        let rounding = Rounding {
            additions: most[0]
                + most[2]
                + ranks
                + if self.problem.length() <= NARROW {
                    CHUNK as f64
                } else {
                    0.0
                },
            rows: self.losses.rows as f64 + most[2] + ranks,
            longest: most[1] + 20.0,
        };
        let mut scores = Vec::new();
        for (s, sums) in total.sums.iter().enumerate() {
            self.losses.loss[s] = sums.loss;
            let v = self.points[s].end_look(
                sums,
                &self.problem,
                &rounding,
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

    /// Chooses the features of each subproblem by its v, as many as there is memory for.
    ///
    /// Errors: there is none for the features that have a weight.
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

    /// Solves over the columns; changes nothing, on any rank, where one of them is interrupted.
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
        let side = Side {
            terms: [0.0; 3],
            sum: vec![0.0; self.problem.length()],
        };
        let sums = Sums {
            sides: vec![side; sides(&self.problem)],
            ..Sums::default()
        };
        let counted = if self.counts.is_empty() { features } else { 0 };
        let lane = Lane {
            sums: vec![sums; self.points.len()],
            counts: vec![0; counted],
            squares: vec![0.0; counted],
            ..Lane::default()
        };
        self.pass = Pass::Look(vec![lane; lanes(&self.problem)]);
    }

    fn add(&mut self, rows: &RowTable, interrupt: &AtomicBool) -> Result<bool, LinearError> {
        check_rows(&self.problem, rows)?;
        let count = rows.len();
        let mut pass = std::mem::replace(&mut self.pass, Pass::None);
        let whole = match &mut pass {
            Pass::Look(lanes) => {
                let add = |range, lane: &mut Lane| self.look(rows, range, lane);
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
    fn add(&mut self, other: &Lane) {
        let add = |own: &mut [f64], other: &[f64]| {
            own.iter_mut()
                .zip(other)
                .for_each(|(own, other)| *own += other)
        };
        self.rows += other.rows;
        self.correct += other.correct;
        self.additions = self.additions.max(other.additions);
        self.longest = self.longest.max(other.longest);
        for (own, other) in self.sums.iter_mut().zip(&other.sums) {
            own.loss += other.loss;
            own.size += other.size;
            own.alphas += other.alphas;
            for (own, other) in own.sides.iter_mut().zip(&other.sides) {
                add(&mut own.terms, &other.terms);
                add(&mut own.sum, &other.sum);
            }
        }
        self.counts
            .iter_mut()
            .zip(&other.counts)
            .for_each(|(own, other)| *own += other);
        add(&mut self.squares, &other.squares);
    }
}

/// Lanes for a problem.
fn lanes(problem: &Problem) -> usize {
    let bytes = 8 * problem.length() * problem.subproblems() * sides(problem);
    (LANE_BYTES / bytes.max(1)).clamp(1, LANES)
}

/// Parts of the sums of a subproblem.
fn sides(problem: &Problem) -> usize {
    1 + usize::from(problem.bias_is_free())
}
