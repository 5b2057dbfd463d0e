//! One subproblem over some columns: proximal Newton steps; coordinate descent over the columns minimises their
//! quadratic models (Yuan, Ho, Lin, JMLR 2012: newGLMNET).

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::columns::{Column, Columns};
use crate::kernels::Simd;
use crate::kernels::gram::{add_products_by, padded};
use crate::newton::cholesky;
use crate::problem::Problem;
use crate::random::{Stream, derive};

/// Most proximal Newton steps, and passes of coordinate descent over columns, or over products of columns, for each.
pub(super) const MOST_STEPS: u32 = 100;
const MOST_PASSES: [u32; 2] = [1000, 100_000];
/// Most coordinates for which products of columns are formed, and the rows taken at a time.
const MOST_IN_MATRIX: usize = 512;
const ROWS_AT_ONCE: usize = 64;
/// The matrix is formed once passes over columns have taken `PATIENCE` times as long; until then each step may make at
/// least `LEAST_PASSES` passes.
const PATIENCE: u32 = 3;
const LEAST_PASSES: u32 = 8;
/// Products that take as long as a value of a pass.
const PRODUCTS_AT_ONCE: usize = 16;
/// The longest extrapolation along a pass, in lengths of its move.
const LONGEST_STRIDE: f64 = 1e9;
const LANES: usize = 4;
/// Passes over products after which the equations of the non-zero weights are solved, and one more for each eight of
/// these.
const FACE_PASSES: u32 = 8;
/// Share of the first violation of the optimality conditions at which the model of a loss that is not quadratic is
/// solved.
const FORCING: f64 = 0.1;
/// Most halvings of a step.
const MOST_HALVINGS: u32 = 40;
/// Decrease of the objective, as a share of the prediction by the slope, at which a step is accepted.
const ARMIJO: f64 = 0.01;

/// If the loss of a row is straight, its model is bent by this share of the least parabola above it that touches it:
/// less for steps of full length, more if they must be cut.
const BENT: [f64; 2] = [1e-3, 1.0];

/// A weight that may move.
struct Coordinate<'a> {
    column: Column<'a>,
    feature: usize,
    /// ρ, and 1 − ρ: both 0 for a free bias.
    l1: f64,
    l2: f64,
    gradient: f64,
    curvature: f64,
    /// The change of the weight by the step.
    step: f64,
}

impl Coordinate<'_> {
    /// The violation of the optimality condition of weight `z` if the smooth part has the slope `slope`.
    fn violation(&self, z: f64, slope: f64) -> f64 {
        if z == 0.0 {
            (slope.abs() - self.l1).max(0.0)
        } else {
            (slope + self.l1.copysign(z)).abs()
        }
    }

    /// Whether it is not 0 after its step, or may have any sign.
    fn is_inside(&self, w: &[f64]) -> bool {
        w[self.feature] + self.step != 0.0 || self.l1 == 0.0
    }

    /// The change of the first-order model by a step from weight `z`. Near the optimum gradient and penalty cancel, and
    /// the remainder is less than the rounding of either.
    fn promise(&self, z: f64, step: f64) -> f64 {
        if z * (z + step) > 0.0 {
            let bend = 0.5 * self.l2 * step;
            step * (self.gradient + self.l1.copysign(z) + self.l2 * z + bend)
        } else {
            self.gradient * step + self.penalty(z + step) - self.penalty(z)
        }
    }

    fn penalty(&self, z: f64) -> f64 {
        self.l1 * z.abs() + 0.5 * self.l2 * z * z
    }
}

/// A subproblem over some columns.
pub(super) struct Subproblem<'a> {
    pub problem: &'a Problem,
    pub number: usize,
    pub columns: &'a Columns,
    pub simd: Simd,
    pub interrupt: &'a AtomicBool,
}

impl Subproblem<'_> {
    /// Minimises the objective over the weights in `w` of the features `set`, and its bias, from their present values;
    /// all others must be 0. It ends when every optimality condition holds to `tolerance` times its scale, or after
    /// `most_steps` proximal Newton steps. Returns `false`, with `w` unchanged, if it was interrupted.
    pub fn solve(&self, set: &[u32], w: &mut [f64], tolerance: f64, most_steps: u32) -> bool {
        let &Subproblem {
            problem,
            columns,
            simd,
            interrupt,
            ..
        } = self;
        let (count, share) = (columns.labels.len(), problem.penalty().l1_share());
        let of = |column, feature, is_free| Coordinate {
            column,
            feature,
            l1: if is_free { 0.0 } else { share },
            l2: if is_free { 0.0 } else { 1.0 - share },
            gradient: 0.0,
            curvature: 0.0,
            step: 0.0,
        };
        let places = set.iter().filter_map(|&j| Some((j, columns.place(j)?)));
        let mut coordinates: Vec<Coordinate<'_>> = places
            .map(|(j, place)| of(columns.column(place), j as usize, false))
            .collect();
        if let Some(bias) = problem.bias() {
            let column = Column::Constant(f64::from(bias));
            coordinates.push(of(column, problem.features(), problem.bias_is_free()));
        }
        let loss = problem.loss().function();
        let terms = problem.terms(self.number);
        let rows = columns.labels.iter().zip(&columns.records);
        let rows: Vec<[f64; 3]> = rows
            .map(|(&label, &record)| {
                let row = terms.of(label, record);
                [f64::from(row.sign), f64::from(row.target), row.cost]
            })
            .collect();
        let ones = vec![1.0; count];
        let mut u = vec![0.0; count];
        for coordinate in &coordinates {
            let weight = w[coordinate.feature];
            if weight != 0.0 {
                coordinate.column.add_to(weight, &ones, &mut u);
            }
        }
        let loss_of = |u: &[f64]| -> f64 {
            let each = |(u, [sign, target, cost]): (&f64, &[f64; 3])| {
                loss.newton_loss(sign * u, *target, *cost)[0]
            };
            u.iter().zip(&rows).map(each).sum()
        };
        let before: Vec<f64> = coordinates.iter().map(|c| w[c.feature]).collect();
        let is_quadratic = problem.loss().is_quadratic();
        let (mut alphas, mut curvatures) = (vec![0.0; count], vec![0.0; count]);
        let mut moves = vec![0.0; count];
        let mut value = loss_of(&u);
        let mut bent = BENT[0];
        let price = price_of_matrix(&coordinates, count);
        let mut row_passes = 0;
        let (mut loose, mut total_at_first) = (1.0, None);
        for step in 0..most_steps {
            let mut size = 0.0;
            for (i, [sign, target, cost]) in rows.iter().enumerate() {
                let m = sign * u[i];
                let row = loss.newton(m, *target, *cost, 0.0, loss.prepared(m));
                alphas[i] = sign * row.alpha;
                curvatures[i] = row.curvature;
                let secant = loss.secant(m, *target, row.alpha);
                curvatures[i] = row.curvature.max(bent * secant);
                size += row.alpha.abs();
            }
            let (mut worst, mut largest, mut total): (f64, f64, f64) = (0.0, 0.0, 0.0);
            for coordinate in &mut coordinates {
                coordinate.gradient = -coordinate.column.dot(&alphas);
                let mut curvature = 0.0;
                coordinate
                    .column
                    .for_each(count, |row, x| curvature += curvatures[row] * x * x);
                coordinate.curvature = curvature;
                coordinate.step = 0.0;
                let z = w[coordinate.feature];
                let slope = coordinate.gradient + coordinate.l2 * z;
                // The scale of the condition: ρ and the ridge, or for a free bias the weight of either side.
                let held = match coordinate.column {
                    Column::Constant(bias) if coordinate.l1 + coordinate.l2 == 0.0 => size * bias,
                    _ => coordinate.l1 + coordinate.l2 * z.abs(),
                };
                let off = coordinate.violation(z, slope);
                worst = worst.max(off / held.max(f64::MIN_POSITIVE));
                largest = largest.max(off);
                total += off;
            }
            if worst <= tolerance {
                break;
            }
            // A slow descent will stay slow.
            let pays = row_passes / PATIENCE >= price;
            let mut bend = Bend::new(&coordinates, &curvatures, pays, simd);
            let until = match bend {
                // The model is the objective itself.
                _ if is_quadratic => 0.1 * tolerance / worst * largest,
                Bend::Rows(..) => loose * *total_at_first.get_or_insert(total),
                // The matrix took longer than passes do.
                Bend::Matrix { .. } => FORCING * largest,
            };
            let order = derive(self.number as u64, u64::from(step));
            let most = bend.most_passes().min(if pays {
                u32::MAX
            } else {
                price.max(LEAST_PASSES)
            });
            let passes = minimise_model(
                &mut coordinates,
                w,
                &mut bend,
                (until, most),
                order,
                interrupt,
            );
            row_passes += if pays { 0 } else { passes };
            if passes == 1 {
                loose *= 0.25;
            }
            if passes == 0 {
                for (coordinate, before) in coordinates.iter().zip(before) {
                    w[coordinate.feature] = before;
                }
                return false;
            }
            moves.fill(0.0);
            // The predicted decrease by the slope.
            let mut promised = 0.0;
            for coordinate in coordinates.iter().filter(|c| c.step != 0.0) {
                coordinate.column.add_to(coordinate.step, &ones, &mut moves);
                let (z, step) = (w[coordinate.feature], coordinate.step);
                promised += coordinate.promise(z, step);
            }
            if promised.is_nan() || promised >= 0.0 {
                break;
            }
            let mut t = 1.0;
            let mut taken = false;
            for _ in 0..MOST_HALVINGS {
                let moved: Vec<f64> = u.iter().zip(&moves).map(|(u, m)| u + t * m).collect();
                let new = loss_of(&moved);
                let penalties = coordinates.iter().map(|coordinate| {
                    let z = w[coordinate.feature];
                    coordinate.penalty(z + t * coordinate.step) - coordinate.penalty(z)
                });
                let change = new - value + penalties.sum::<f64>();
                // Near the optimum a step brings less than rounding takes.
                if change <= ARMIJO * t * promised + 4.0 * f64::EPSILON * value.abs() {
                    (u, value, taken) = (moved, new, true);
                    break;
                }
                t *= 0.5;
            }
            bent = if t < 0.1 { 10.0 * bent } else { 0.1 * bent }.clamp(BENT[0], BENT[1]);
            if !taken {
                break;
            }
            for coordinate in &coordinates {
                w[coordinate.feature] += t * coordinate.step;
            }
        }
        true
    }
}

/// Coordinate descent on the quadratic model, in random orders that `key` decides, until the violations of its
/// conditions sum to `until`, or for a number of passes. Returns the number of passes; 0 if `interrupt` was set.
fn minimise_model(
    coordinates: &mut [Coordinate<'_>],
    w: &[f64],
    bend: &mut Bend<'_>,
    (until, most): (f64, u32),
    key: u64,
    interrupt: &AtomicBool,
) -> u32 {
    let all: Vec<u32> = (0..coordinates.len() as u32).collect();
    let mut active = all.clone();
    let mut before = f64::INFINITY;
    let is_random = matches!(bend, Bend::Rows(..));
    let mut passes = 0;
    while passes < most {
        if interrupt.load(Ordering::Relaxed) {
            return 0;
        }
        let (mut worst, mut total): (f64, f64) = (0.0, 0.0);
        let is_whole = active.len() == coordinates.len();
        if is_random {
            Stream::new(derive(key, u64::from(passes))).shuffle(&mut active);
        }
        active.retain(|&at| {
            let coordinate = &mut coordinates[at as usize];
            let z = w[coordinate.feature] + coordinate.step;
            let slope = coordinate.gradient
                + bend.slope(at as usize, coordinate.column)
                + coordinate.l2 * z;
            let off = coordinate.violation(z, slope);
            worst = worst.max(off);
            total += off;
            if z == 0.0 && slope.abs() < coordinate.l1 - before {
                return false;
            }
            let curvature = coordinate.curvature + coordinate.l2;
            if off > 0.0 && curvature > 0.0 {
                let moved = z - slope / curvature;
                let kept = (moved.abs() - coordinate.l1 / curvature).max(0.0);
                let by = kept.copysign(moved) - z;
                if by != 0.0 && by.is_finite() {
                    coordinate.step += by;
                    bend.step(at as usize, coordinate.column, by);
                }
            }
            true
        });
        passes += 1;
        before = worst;
        bend.stride(coordinates, w, passes);
        if if is_random { total } else { worst } <= until {
            if is_whole {
                break;
            }
            active.clone_from(&all);
            before = f64::INFINITY;
        }
    }
    passes.max(1)
}

/// Passes over the columns that take as long as forming their products; `u32::MAX` if there are too many columns.
fn price_of_matrix(coordinates: &[Coordinate<'_>], rows: usize) -> u32 {
    if coordinates.len() > MOST_IN_MATRIX {
        return u32::MAX;
    }
    let values: usize = coordinates.iter().map(|c| c.column.len(rows)).sum();
    (coordinates.len().pow(2) * rows / PRODUCTS_AT_ONCE / values.max(1)) as u32
}

/// The change of a model's slopes by its steps: Σ h x_j (x·steps) for each coordinate j.
enum Bend<'a> {
    /// For each row its curvature h, and that times x·steps.
    Rows(&'a [f64], Vec<f64>),
    /// Σ h x_j x_k, in rows of `width`, and the slopes themselves: with few coordinates passes over these are so much
    /// shorter that descent may make the thousands that columns of categories need, since they add up to the bias.
    Matrix {
        matrix: Vec<f64>,
        width: usize,
        slopes: Vec<f64>,
        /// Slopes and steps of a pass before.
        earlier: [Vec<f64>; 2],
    },
}

impl<'a> Bend<'a> {
    fn new(
        coordinates: &[Coordinate<'_>],
        curvatures: &'a [f64],
        by_matrix: bool,
        simd: Simd,
    ) -> Bend<'a> {
        let rows = curvatures.len();
        if !by_matrix {
            return Bend::Rows(curvatures, vec![0.0; rows]);
        }
        let width = padded(coordinates.len());
        let share = rows.div_ceil(LANES).next_multiple_of(ROWS_AT_ONCE);
        let lane = |number: usize| {
            let range = (number * share).min(rows)..((number + 1) * share).min(rows);
            products(coordinates, curvatures, range, width, simd)
        };
        let lanes: Vec<Vec<f64>> = (0..LANES).into_par_iter().map(lane).collect();
        let mut matrix = vec![0.0; width * width];
        for lane in lanes {
            matrix
                .iter_mut()
                .zip(&lane)
                .for_each(|(sum, own)| *sum += own);
        }
        for i in 0..width {
            for j in 0..i {
                matrix[j * width + i] = matrix[i * width + j];
            }
        }
        Bend::Matrix {
            matrix,
            width,
            slopes: vec![0.0; width],
            earlier: [vec![0.0; width], vec![0.0; coordinates.len()]],
        }
    }

    /// Most passes over the coordinates.
    fn most_passes(&self) -> u32 {
        match self {
            Bend::Rows(..) => MOST_PASSES[0],
            Bend::Matrix { .. } => MOST_PASSES[1],
        }
    }

    fn slope(&self, at: usize, column: Column<'_>) -> f64 {
        match self {
            Bend::Rows(_, bend) => column.dot(bend),
            Bend::Matrix { slopes, .. } => slopes[at],
        }
    }

    fn step(&mut self, at: usize, column: Column<'_>, by: f64) {
        match self {
            Bend::Rows(curvatures, bend) => column.add_to(by, curvatures, bend),
            Bend::Matrix {
                matrix,
                width,
                slopes,
                ..
            } => {
                let row = &matrix[at * *width..(at + 1) * *width];
                slopes
                    .iter_mut()
                    .zip(row)
                    .for_each(|(slope, m)| *slope += by * m);
            }
        }
    }
}

impl Bend<'_> {
    /// With a matrix, extrapolates along the move of the last pass, and at regular intervals jumps to the least value
    /// over the non-zero weights: descent is slow if weights must move together.
    fn stride(&mut self, coordinates: &mut [Coordinate<'_>], w: &[f64], passes: u32) {
        let Bend::Matrix {
            matrix,
            width,
            slopes,
            earlier: [slopes_before, steps_before],
        } = self
        else {
            return;
        };
        let pairs = coordinates.iter().zip(&*steps_before);
        let way: Vec<f64> = pairs.map(|(c, before)| c.step - before).collect();
        let pairs = slopes.iter().zip(&*slopes_before);
        let bends: Vec<f64> = pairs.map(|(slope, before)| slope - before).collect();
        go_along(coordinates, w, slopes, &way, &bends);
        let inside: Vec<usize> = (0..coordinates.len())
            .filter(|&at| coordinates[at].is_inside(w))
            .collect();
        if passes.is_multiple_of(FACE_PASSES + inside.len() as u32 / 8)
            && let Some(moves) = to_least(coordinates, w, &inside, matrix, *width, slopes)
        {
            let mut way = vec![0.0; coordinates.len()];
            let mut bends = vec![0.0; *width];
            for (&at, by) in inside.iter().zip(&moves) {
                way[at] = *by;
                let row = &matrix[at * *width..][..*width];
                bends
                    .iter_mut()
                    .zip(row)
                    .for_each(|(bend, m)| *bend += by * m);
            }
            go_along(coordinates, w, slopes, &way, &bends);
        }
        slopes_before.clone_from(slopes);
        for (before, coordinate) in steps_before.iter_mut().zip(coordinates) {
            *before = coordinate.step;
        }
    }
}

/// The moves of the coordinates `inside` to the least value of the model, assuming that none changes its sign.
///
/// Cost: a sixth of the cube of their number.
fn to_least(
    coordinates: &[Coordinate<'_>],
    w: &[f64],
    inside: &[usize],
    matrix: &[f64],
    width: usize,
    slopes: &[f64],
) -> Option<Vec<f64>> {
    let count = inside.len();
    let moves = inside.iter().map(|&at| {
        let coordinate = &coordinates[at];
        let z = w[coordinate.feature] + coordinate.step;
        let smooth = coordinate.gradient + slopes[at] + coordinate.l2 * z;
        -(smooth + coordinate.l1 * z.signum())
    });
    let mut moves: Vec<f64> = moves.collect();
    let factor = [1e-14, 1e-12, 1e-10, 1e-8].into_iter().find_map(|more| {
        let mut factor = vec![0.0; count * count];
        for (i, &at) in inside.iter().enumerate() {
            for (j, &other) in inside[..=i].iter().enumerate() {
                factor[i * count + j] = matrix[at * width + other];
            }
            let own = &mut factor[i * count + i];
            // Columns that are nearly the same leave a matrix that rounding makes indefinite.
            *own = (*own + coordinates[at].l2) * (1.0 + more);
        }
        cholesky::factor(&mut factor, count).then_some(factor)
    })?;
    cholesky::solve(&factor, &mut moves);
    moves.iter().all(|by| by.is_finite()).then_some(moves)
}

/// Moves along the direction `way` to the least value of the model. `bends` is the change of the slopes by a step of
/// length 1.
fn go_along(
    coordinates: &mut [Coordinate<'_>],
    w: &[f64],
    slopes: &mut [f64],
    way: &[f64],
    bends: &[f64],
) {
    // The slope at the start, the curvature of the smooth part, and the steps at which weights become 0.
    let (mut slope, mut curvature) = (0.0, 0.0);
    let mut zeros = Vec::new();
    for (at, coordinate) in coordinates.iter().enumerate() {
        let by = way[at];
        if by == 0.0 {
            continue;
        }
        let z = w[coordinate.feature] + coordinate.step;
        slope += by * (coordinate.gradient + slopes[at] + coordinate.l2 * z);
        curvature += by * (bends[at] + coordinate.l2 * by);
        slope += coordinate.l1 * if z == 0.0 { by.abs() } else { by * z.signum() };
        if z * by < 0.0 && coordinate.l1 > 0.0 {
            zeros.push((-z / by, 2.0 * coordinate.l1 * by.abs(), at));
        }
    }
    zeros.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (mut t, mut zero) = (-slope / curvature, None);
    for (place, more, at) in zeros {
        if slope + curvature * place >= 0.0 {
            break;
        }
        slope += more;
        if slope + curvature * place >= 0.0 {
            (t, zero) = (place, Some(at));
            break;
        }
        t = -slope / curvature;
    }
    if !(t > 0.0 && t < LONGEST_STRIDE) {
        return;
    }
    for (at, (coordinate, by)) in coordinates.iter_mut().zip(way).enumerate() {
        coordinate.step += t * by;
        if zero == Some(at) {
            coordinate.step = -w[coordinate.feature];
        }
    }
    for (slope, bend) in slopes.iter_mut().zip(bends) {
        *slope += t * bend;
    }
}

/// The lower triangle of Σ h x xᵀ over some rows.
fn products(
    coordinates: &[Coordinate<'_>],
    curvatures: &[f64],
    rows: Range<usize>,
    width: usize,
    simd: Simd,
) -> Vec<f64> {
    let mut matrix = vec![0.0; width * width];
    let mut block = vec![0.0; ROWS_AT_ONCE * width];
    let mut ends: Vec<usize> = coordinates
        .iter()
        .map(|c| c.column.before(rows.start))
        .collect();
    for start in rows.clone().step_by(ROWS_AT_ONCE) {
        let chunk = start..rows.end.min(start + ROWS_AT_ONCE);
        let block = &mut block[..chunk.len() * width];
        block.fill(0.0);
        for (place, (coordinate, end)) in coordinates.iter().zip(&mut ends).enumerate() {
            *end = coordinate
                .column
                .for_each_in(chunk.clone(), *end, |row, x| {
                    block[(row - start) * width + place] = curvatures[row].sqrt() * x;
                });
        }
        add_products_by(simd, block, width, &mut matrix);
    }
    matrix
}
