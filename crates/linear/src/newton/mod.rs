//! Newton's method for many rows of few features, in memory or streamed.
//!
//! With few features, a step of Newton's method needs only Σ D x xᵀ and Σ α s x: one pass over the rows in any order,
//! by any number of threads and ranks; their sums add up. Coordinate descent moves one α at a time, and on overlapping
//! classes or features of different sizes needs hundreds of passes; this needs 5 to 20.
//!
//! | symbol | meaning |
//! |---|---|
//! | m = s w·x | margin of a row; of one with a real target, its value |
//! | α(m) = −C ξ'(m) | the dual variable that belongs to it: feasible at any w |
//! | D = C ξ''(m) | curvature |
//! | u = Σ α s x | w − u is the gradient of P, and of nothing else |
//! | τ | width of the bend of a smoothed loss |
//!
//! **Certificate.** α(m) is dual feasible at every w, so each pass gives P(w) and the bound Σ term(α) − ½‖u‖², both
//! summed from the rows in f64, with their rounding subtracted (as `DualBound` does). Their difference is ½‖w − u‖²
//! plus the gap of smoothing, and falls quadratically. Far from the optimum a multiple of α gives a better bound.
//!
//! **Smoothing.** A loss without curvature somewhere is smoothed, to a bend of width τ (see [`crate::loss`]): the hinge
//! from the beginning, by a barrier, the squared hinge after several line searches; losses of real targets likewise,
//! with τ in units of the residuals of the first pass at w = 0. For the hinge this is the central path of an
//! interior-point method on the dual, in w alone (Nesterov, Nemirovskii, Interior-point polynomial algorithms, 1994):
//! each step goes along the tangent of the path to a smaller τ, or back to the path if the last step left it. τ ends
//! when its part is half of the target gap. Rows keep no state, so a pass needs nothing but w.
//!
//! A proximal method on the dual (a centre of each α, kept between passes) was used before. It takes a sixth fewer
//! passes if rows are many, but does not converge if there are about as many rows as features. A primal–dual
//! interior-point method keeps three numbers a row and needs two passes a step.
//!
//! **Steps.** Full ones. If the value rises, the next pass sums the slope at 24 fractions of the step, and the search
//! takes the point of slope 0 between two of them. Values at different τ cannot be compared: then a search starts if
//! the slope at the end has more than half the size of that at the beginning.
//!
//! Cost of a pass, measured at d = 20 on one AVX2 core that other work shared: 110 to 120 ns a row for logistic, 100 to
//! 120 for the squared hinge. At larger d the n·d²/2 products of the matrix are most of it; solving takes
//! d³/6. Memory: d² numbers a lane of threads ([`Newton::bytes`]).

pub(crate) mod cholesky;
mod pass;
mod point;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_format::RowTable;

use crate::certificate::{Certificate, LossSum, balance};
use crate::error::LinearError;
use crate::kernels::Simd;
use crate::kernels::gram::padded;
use crate::look::{gamma, gamma_of_products};
use crate::loss::{Bend, LossFunction};
use crate::passes::{PassFigures, PassSolver, check_rows, deal};
use crate::peers::{Exchange, Peers};
use crate::problem::Problem;
use crate::weights::Weights;
use cholesky::dot;
use pass::{Lane, Pass, Sums, TRIALS, additions, lanes};
use point::Point;

/// Most features, the bias included, for which the matrix is formed.
pub const MOST_NEWTON_FEATURES: usize = 1024;

/// τ at first, in units of [`LossFunction::distance`].
const FIRST_SMOOTHING: f64 = 0.3;
/// Smallest and largest factor on τ.
const SHRINK: [f64; 2] = [0.05, 0.6];
/// Squared length of the Newton step in units of τ, over the rows in the bend: above `NEAR` τ shrinks more slowly,
/// above `FAR` not at all.
const NEAR: f64 = 1.0;
const FAR: f64 = 8.0;
/// Change of a margin by rounding w, over τ, above which w is not rounded.
const FINE_BEND: f64 = 0.01;
/// Share of the unit matrix that rows of little curvature may be left out of the matrix for.
const SLIGHT: f64 = 0.01;
/// Remaining decrease, over the value, below which w is not rounded: rounding would change the value by more.
const FINE: f64 = 1e-9;
/// The same, over the change of the value by rounding w.
const COARSE: f64 = 10.0;
/// Half a unit in the last place of the f32 1.
const HALF_A_UNIT: f64 = 0.5 * f32::EPSILON as f64;
/// Factor on the allowed gap of smoothing after each look without a gain: rounding w to f32 takes a part of the gap
/// too.
const LESS: f64 = 0.25;
/// Idle looks in a row after which training ends.
const MOST_IDLE: u32 = 3;
/// A run of rows without a check for interruption.
const RUN: usize = 1 << 14;

/// Whether the loss is smoothed from the start.
fn smoothed_at_once(problem: &Problem) -> bool {
    problem.loss().function().smoothing() == Some(0)
}

fn width_of(problem: &Problem) -> usize {
    problem.length()
}

/// Newton's method on a problem, between two passes.
#[derive(Debug)]
pub struct Newton {
    problem: Arc<Problem>,
    wanted: f64,
    points: Vec<Point>,
    records: usize,
    lanes: Vec<Lane>,
    losses: LossSum,
    simd: Simd,
}

impl Newton {
    /// A run from w = 0 over `records` rows to the relative gap `wanted`. Panics beyond [`MOST_NEWTON_FEATURES`]
    /// and at a loss of all classes.
    pub fn new(problem: Arc<Problem>, records: usize, wanted: f64, simd: Simd) -> Newton {
        let width = width_of(&problem);
        assert!(width <= MOST_NEWTON_FEATURES && !problem.is_coupled());
        let smoothing = if smoothed_at_once(&problem) {
            FIRST_SMOOTHING
        } else {
            0.0
        };
        let point = Point::new(padded(width), smoothing, problem.free_bias());
        Newton {
            wanted,
            points: vec![point; problem.subproblems()],
            records,
            lanes: Vec::new(),
            losses: LossSum::new(&problem),
            simd,
            problem,
        }
    }

    /// Whether the problem is one of single vectors of few enough features, and the method takes at most a quarter of
    /// the memory.
    pub fn fits(problem: &Problem, memory: u64) -> bool {
        let is_possible = width_of(problem) <= MOST_NEWTON_FEATURES && !problem.is_coupled();
        is_possible && Newton::bytes(problem) <= memory / 4
    }

    /// Bytes next to the rows and the weights.
    pub fn bytes(problem: &Problem) -> u64 {
        let (width, subproblems) = (padded(width_of(problem)), problem.subproblems());
        let matrices = (lanes(width, subproblems) + 1) * subproblems * 8 * width * width;
        matrices as u64
    }
}

impl PassSolver for Newton {
    fn start(&mut self, weights: &Weights) {
        for (s, point) in self.points.iter_mut().enumerate() {
            let mut w = vec![0.0; point.w.len()];
            for (w, start) in w.iter_mut().zip(weights.vector(s)) {
                *w = f64::from(*start);
            }
            point.go_to(w);
        }
    }

    fn begin_pass(&mut self) {
        let (width, is_free) = (self.points[0].w.len(), self.problem.bias_is_free());
        let sums = |point: &Point| {
            let looks = !point.done && point.search.is_none();
            Sums::new(
                width,
                looks,
                looks && point.smoothing > 0.0,
                looks && is_free,
            )
        };
        let lane = || Lane::new(self.points.iter().map(sums).collect());
        self.lanes = (0..lanes(width, self.points.len()))
            .map(|_| lane())
            .collect();
    }

    fn add(&mut self, rows: &RowTable, interrupt: &AtomicBool) -> Result<bool, LinearError> {
        check_rows(&self.problem, rows)?;
        let pass = Pass {
            problem: &self.problem,
            points: &self.points,
            slight: if smoothed_at_once(&self.problem) {
                SLIGHT / self.records.max(1) as f64
            } else {
                0.0
            },
            simd: self.simd,
        };
        let add = |range, lane: &mut Lane| pass.add(rows, range, lane);
        Ok(deal(&mut self.lanes, rows.len(), RUN, interrupt, add))
    }

    fn end_pass(&mut self, peers: &mut Peers<'_, LinearError>) -> Result<PassFigures, LinearError> {
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
            peers(Exchange::Sum(&mut flat))?;
            sums.set_flat(&flat);
        }
        let most = additions(total.chunks as f64) + lanes_used as f64;
        let mut counts = [total.rows as f64, total.correct as f64, most];
        peers(Exchange::Sum(&mut counts))?;
        self.losses.rows = counts[0] as u64;
        self.losses.correct = counts[1] as u64;
        let function = self.problem.loss().function();
        for (subproblem, sums) in total.sums.into_iter().enumerate() {
            if self.points[subproblem].search.is_some() {
                self.points[subproblem].end_search(&sums);
            } else {
                self.losses.loss[subproblem] = sums.loss;
                let largest = self.problem.largest_cost(subproblem);
                let mean = sums.value / (largest * counts[0]);
                let look = Look {
                    additions: counts[2],
                    wanted: self.wanted,
                    largest,
                    distance: function.distance(mean),
                };
                self.points[subproblem].end_look(sums, &look, &*function);
            }
        }
        let sum = |of: fn(&Point) -> f64| {
            let values = self.points.iter().map(of).zip(0..);
            values
                .map(|(value, subproblem)| value / self.problem.factor(subproblem))
                .sum()
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
        let width = width_of(&self.problem);
        let best = |point: &Point| point.best_w[..width].iter().map(|&w| w as f32).collect();
        let vectors = self.points.iter().map(best).collect();
        let weights = Weights::from_vectors(self.problem.features(), self.problem.bias(), vectors);
        let looked = self.points.iter().all(|point| point.at_best);
        (weights, looked.then(|| self.losses.clone()))
    }

    fn save(&self) -> Vec<Vec<f64>> {
        self.points.iter().map(Point::to_numbers).collect()
    }

    fn restore(&mut self, saved: &[Vec<f64>]) -> Result<(), LinearError> {
        let (width, free_bias) = (self.points[0].w.len(), self.problem.free_bias());
        let points = saved
            .iter()
            .map(|saved| Point::from_numbers(saved, width, free_bias));
        let points: Option<Vec<Point>> = points.collect();
        self.points = points
            .filter(|points| points.len() == self.points.len())
            .ok_or(LinearError::StateMismatch {
                part: "Newton's method",
            })?;
        for point in &mut self.points {
            // The run before may have wanted less.
            let gap = point.best_primal - point.best_dual;
            point.done &= gap <= self.wanted * point.best_dual || point.idle >= MOST_IDLE;
        }
        Ok(())
    }
}

/// Figures that judge a pass, in addition to its sums.
struct Look {
    /// Additions over the rows, at most.
    additions: f64,
    wanted: f64,
    /// The largest cost of a row.
    largest: f64,
    /// The unit of τ.
    distance: f64,
}

impl Point {
    /// Ends a line search: moves to the point of slope 0.
    fn end_search(&mut self, sums: &Sums) {
        let from = self.search.take().expect("a search was under way");
        self.at_best = false;
        let (start, length) = (
            self.product(&from, &self.step),
            self.product(&self.step, &self.step),
        );
        let slope = |trial: usize| {
            let t = 0.5_f64.powi(trial as i32);
            (t, start + t * length + sums.slopes[trial])
        };
        // The slope rises with t; at 0 it is negative.
        let t = match (0..TRIALS).map(slope).position(|(_, slope)| slope <= 0.0) {
            None if self.is_long(&from) => {
                // With hardly any curvature a free bias may step much too far: the next pass looks nearer.
                let shortest = 0.5_f64.powi(TRIALS as i32);
                self.step.iter_mut().for_each(|step| *step *= shortest);
                self.search = Some(from);
                return;
            }
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

    /// Whether the shortest step that a search tries still moves w by more than rounding.
    fn is_long(&self, from: &[f64]) -> bool {
        let largest = |vector: &[f64]| vector.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
        0.5_f64.powi(TRIALS as i32) * largest(&self.step) > 1e-3 * largest(from)
    }

    /// Ends a pass: bounds, and a step.
    fn end_look(&mut self, sums: Sums, look: &Look, loss: &dyn LossFunction) {
        let (wanted, largest) = (look.wanted, look.largest);
        let is_first = self.best_primal == f64::INFINITY;
        let width = self.w.len();
        let additions = gamma(look.additions + 16.0);
        let norm = dot(&self.rounded, &self.rounded).sqrt();
        let margins = gamma_of_products(&self.rounded, width as f64 + 8.0) * norm * sums.loss_slope;
        let squares = self.product(&self.rounded, &self.rounded);
        let primal =
            (0.5 * squares + sums.loss) * (1.0 + additions + gamma(width as f64 + 8.0)) + margins;
        if is_first {
            self.first_primal = primal;
        }
        if primal < self.best_primal {
            self.best_primal = primal;
            self.best_w.copy_from_slice(&self.rounded);
        }
        self.at_best = self.best_w == self.rounded;
        if self.done {
            return;
        }
        let mut gradient: Vec<f64> = self.w.iter().zip(&sums.sum).map(|(w, u)| w - u).collect();
        if let Some(bias) = self.free_bias {
            gradient[bias] = -sums.sum[bias];
        }
        let (terms, feasible, slack) = self.feasible(&sums);
        let additions = slack * additions;
        let bound = self.product(&feasible, &feasible).sqrt() + additions * sums.size;
        let bound = bound * (1.0 + gamma(width as f64 + 8.0));
        let terms = terms - additions * sums.magnitudes - sums.rounding;
        // Terms are concave and 0 at α = 0, so those of s α are at least s times these. This takes the best s, which
        // matters far from the optimum, where u is much too long.
        let share = if bound > 0.0 {
            (terms / (bound * bound)).clamp(0.0, 1.0)
        } else {
            1.0
        };
        let dual = share * terms - 0.5 * (share * bound).powi(2);
        let dual = dual - 4.0 * f64::EPSILON * terms.abs();
        let rise = dual - self.best_dual;
        self.best_dual = self.best_dual.max(dual);
        if is_first && self.smoothing > 0.0 && look.distance != 1.0 {
            // The unit of τ is now known from the rows: the next pass looks here again. If all losses are 0, so is the
            // optimum.
            self.smoothing = FIRST_SMOOTHING * look.distance;
            self.done = self.smoothing == 0.0;
            return;
        }
        let value = 0.5 * self.product(&self.w, &self.w) + sums.value;
        let is_smoothed = !sums.path.is_empty();
        if let Some((from, before, slope)) = self.before.take() {
            let is_beyond = if is_smoothed {
                dot(&gradient, &self.step) > 0.5 * slope.abs()
            } else {
                value > before + 1e-4 * slope + 1e-13 * before.abs()
            };
            if is_beyond {
                self.searches += 1;
                if loss.smoothing() == Some(self.searches) {
                    self.smoothing = FIRST_SMOOTHING * look.distance;
                } else {
                    self.search = Some(from);
                    return;
                }
            }
        }
        // Approximate change of the smoothed value by rounding w to f32: large if the cost is large and the bend
        // narrow.
        let diagonal: Vec<f64> = (0..width).map(|j| sums.matrix[j * (width + 1)]).collect();
        let squares: f64 = (self.w.iter().zip(&diagonal)).map(|(w, h)| h * w * w).sum();
        let rounding = squares * HALF_A_UNIT.powi(2);
        let trace: f64 = diagonal.iter().sum();
        let Some(factor) = factor_of(sums.matrix, width, self.free_bias) else {
            self.done = true;
            return;
        };
        let solve = |vector: &[f64]| {
            let mut solved = vector.to_vec();
            cholesky::solve(&factor, &mut solved);
            solved
        };
        let newton = solve(&gradient);
        let mut slope = -dot(&gradient, &newton);
        let mut step: Vec<f64> = newton.iter().map(|v| -v).collect();
        // The approximate remaining decrease of the smoothed value.
        let gain = -0.5 * slope;
        let gap = self.best_primal - self.best_dual;
        let mut shrinks = false;
        if is_smoothed && sums.smoothing > 0.0 {
            let tau = self.smoothing;
            // About as large as the products that add up to the margin of a row in the bend.
            let margin = (squares / sums.curvature).sqrt();
            let [unit, least] = loss.narrow(&Bend {
                tau,
                smoothing: sums.smoothing,
                over: LESS.powi(self.idle as i32) * 0.5 * wanted * self.best_primal
                    / sums.smoothing,
                curvature: sums.curvature,
                trace,
                margin,
                largest,
            });
            let length = 2.0 * gain / unit;
            self.shrink = if length <= NEAR {
                (0.5 * self.shrink).max(SHRINK[0])
            } else {
                (1.5 * self.shrink).min(SHRINK[1])
            };
            let next = (self.shrink * tau).max(least);
            if length <= FAR && next < tau {
                let along = solve(&sums.path);
                for (step, along) in step.iter_mut().zip(&along) {
                    *step -= (next - tau) * along;
                }
                slope = dot(&gradient, &step) + (next - tau) * dot(&sums.path, &step);
                self.smoothing = next;
                shrinks = true;
            }
            self.exact |= HALF_A_UNIT * margin > FINE_BEND * self.smoothing;
        }
        if !step.iter().all(|step| step.is_finite()) {
            self.done = true;
            return;
        }
        let ends = !shrinks && gain <= 1e-15 * primal && rise <= 1e-3 * gap;
        if ends {
            self.idle += 1;
        } else if !shrinks {
            self.idle = 0;
        }
        // The target over all subproblems follows from that of each.
        self.done = gap <= wanted * self.best_dual || self.idle >= MOST_IDLE;
        self.exact |= gain <= FINE * primal || gain <= COARSE * rounding;
        if !self.done {
            self.before = Some((self.w.clone(), value, slope));
            let mut w: Vec<f64> = self.w.iter().zip(&step).map(|(w, s)| w + s).collect();
            drop_dust(&mut w, &diagonal, self.best_primal / self.first_primal);
            self.step = step;
            self.go_to(w);
        }
    }

    /// Σ terms and Σ α y x of feasible α, which with a free bias scale down the heavier side, and the factor that this
    /// puts on their error bounds.
    fn feasible(&self, sums: &Sums) -> (f64, Vec<f64>, f64) {
        let Some(bias) = self.free_bias else {
            return (sums.terms, sums.sum.clone(), 1.0);
        };
        let weight = sums.positive[bias];
        let [positive, negative] = balance(weight, weight - sums.sum[bias]);
        let terms = positive * sums.positive_terms + negative * (sums.terms - sums.positive_terms);
        let pairs = sums.positive.iter().zip(&sums.sum);
        let sum = pairs.map(|(own, all)| positive * own + negative * (all - own));
        (terms, sum.collect(), 5.0)
    }

    fn to_numbers(&self) -> Vec<f64> {
        let (from, value, slope) = self.before.clone().unwrap_or_default();
        let mut numbers = vec![
            f64::from(u8::from(self.done)),
            f64::from(u8::from(self.search.is_some())),
            f64::from(u8::from(self.before.is_some())),
            self.smoothing,
            self.shrink,
            self.best_primal,
            self.best_dual,
            value,
            slope,
            f64::from(self.idle),
            f64::from(self.searches),
            f64::from(u8::from(self.exact)),
            self.first_primal,
        ];
        for vector in [&self.w, &self.step, &self.best_w] {
            numbers.extend(vector);
        }
        numbers.extend(self.search.iter().flatten());
        numbers.extend(from);
        numbers
    }

    fn from_numbers(numbers: &[f64], width: usize, free_bias: Option<usize>) -> Option<Point> {
        let (figures, rest) = numbers.split_first_chunk::<13>()?;
        let &[
            done,
            is_searching,
            compares,
            smoothing,
            shrink,
            best_primal,
            best_dual,
            value,
            slope,
            idle,
            searches,
            exact,
            first_primal,
        ] = figures;
        let (vectors, rest_len) = (rest.chunks_exact(width), rest.len());
        let count = 3 + usize::from(is_searching != 0.0) + usize::from(compares != 0.0);
        if rest_len != count * width || !(smoothing >= 0.0 && shrink > 0.0) {
            return None;
        }
        let mut vectors = vectors.map(<[f64]>::to_vec);
        let mut point = Point::new(width, smoothing, free_bias);
        point.exact = exact != 0.0;
        point.go_to(vectors.next()?);
        point.step = vectors.next()?;
        point.best_w = vectors.next()?;
        point.search = (is_searching != 0.0).then(|| vectors.next()).flatten();
        point.before = (compares != 0.0)
            .then(|| vectors.next())
            .flatten()
            .map(|from| (from, value, slope));
        Some(Point {
            idle: idle as u32,
            searches: searches as u32,
            done: done != 0.0,
            smoothing,
            shrink,
            best_primal,
            best_dual,
            first_primal,
            ..point
        })
    }
}

/// If hardly anything of the first value is left, zeroes weights that change the value by less than rounding: with
/// perfectly fitted rows, only they would remain. `diagonal` has the curvature along each.
pub(crate) fn drop_dust(w: &mut [f64], diagonal: &[f64], left: f64) {
    const FITTED: f64 = 1e-12;
    const DUST: f64 = 1e-28;
    if left > FITTED {
        return;
    }
    let pairs = w.iter().zip(diagonal);
    let sizes: Vec<f64> = pairs.map(|(w, h)| (1.0 + h) * w * w).collect();
    let least = DUST * sizes.iter().sum::<f64>();
    for (w, size) in w.iter_mut().zip(sizes) {
        if size < least {
            *w = 0.0;
        }
    }
}

/// The factor of I + H, of the lower triangle of H; `None` if numbers are not finite. A free bias has almost 0 in I:
/// enough for a bias without curvature in any row.
pub(crate) fn factor_of(
    matrix: Vec<f64>,
    width: usize,
    free_bias: Option<usize>,
) -> Option<Vec<f64>> {
    const NEXT_TO_NOTHING: f64 = 1e-12;
    // Columns that are nearly the same leave a matrix that rounding makes indefinite; a little more on the
    // diagonal makes it definite, and the step shorter.
    [0.0, 1e-14, 1e-12, 1e-10, 1e-8]
        .into_iter()
        .find_map(|more| {
            let mut factor = matrix.clone();
            for j in 0..width {
                let own = if Some(j) == free_bias {
                    NEXT_TO_NOTHING
                } else {
                    1.0
                };
                factor[j * (width + 1)] = (own + factor[j * (width + 1)]) * (1.0 + more);
            }
            cholesky::factor(&mut factor, width).then_some(factor)
        })
}
