//! A primal-dual interior-point solver for rows that lie in memory and have few features.
//!
//! Coordinate descent moves one α at a time and crawls where features differ in size by orders of
//! magnitude: on columns as they were measured, in metres and degrees, its gap may stay near 1 for
//! thousands of passes. Newton's method does not notice. An iteration costs n·d²/2 multiplications
//! for n rows of d features and three passes over the rows; 20 to 60 iterations reach a relative gap
//! of 1e-6 whatever the scale, where w is a d-vector and the matrix I + XᵀΘX has d rows (Ferris and
//! Munson, SIAM J. Optim. 2002; predictor and corrector as Mehrotra, SIAM J. Optim. 1992).
//!
//! | symbol | meaning |
//! |---|---|
//! | m = y w·x | margin |
//! | s ≥ 0, ξ ≥ 0 | how far m + Dα lies above and below 1 |
//! | α·s = (U − α)·ξ = 0 | at the optimum; μ is their mean on the way there |
//!
//! Over ranks each passes over its own rows; what they add up to (the matrix, vectors of d numbers, a few
//! values) is the same on all, and so is every step.
//!
//! Everything is f64. Memory: 48 bytes a row and d² numbers. Over ranks an iteration exchanges d² + 4d numbers.

use pelton_format::{Row, RowTable};

use crate::duals::Duals;
use crate::error::LinearError;
use crate::problem::{Loss, Problem};
use crate::ranks::{Exchange, Peers};
use crate::weights::Weights;

/// Most features, the bias included, for which the matrix is formed.
pub const MOST_INTERIOR_FEATURES: usize = 512;
/// Bytes beside the rows, for each of them.
pub const INTERIOR_BYTES_A_ROW: u64 = size_of::<State>() as u64;

const MOST_ITERATIONS: u32 = 200;
/// Share of the way to the nearest bound that a step goes.
const STEP: f64 = 0.995;

/// What [`solve_interior`] found: the weights of least primal value. Those that belong to the duals,
/// as the dual value needs them, differ from them on the way to the optimum.
#[derive(Clone, Debug)]
pub struct Interior {
    /// w.
    pub weights: Weights,
    /// Iterations over all subproblems.
    pub iterations: u32,
}

/// Whether the solver takes this problem: a hinge loss and few features.
pub fn interior_fits(problem: &Problem) -> bool {
    let width = problem.features() + usize::from(problem.bias().is_some());
    problem.loss() != Loss::Logistic && width <= MOST_INTERIOR_FEATURES
}

/// Solves the problem over all of `rows`, from scratch, to the relative gap `wanted`; leaves the dual
/// variables in `duals` and their weighted sum of rows in `weights`. `None` when `keep_going`, asked
/// at each iteration, says no: nothing is changed then.
///
/// Panics unless [`interior_fits`]. Ends short of `wanted` where the precision of f64 does.
pub fn solve_interior(
    problem: &Problem,
    rows: &RowTable,
    wanted: f64,
    weights: &mut Weights,
    duals: &mut Duals,
    keep_going: &mut dyn FnMut() -> bool,
) -> Result<Option<Interior>, LinearError> {
    let ranks = Together(None);
    solve_together(problem, rows, wanted, weights, duals, ranks, keep_going)
}

/// The same over the rows of all ranks, of which this one has `rows` and their duals. Ends where
/// `keep_going` says no on any rank.
pub fn solve_interior_share<E: From<LinearError>>(
    problem: &Problem,
    rows: &RowTable,
    wanted: f64,
    weights: &mut Weights,
    duals: &mut Duals,
    peers: &mut Peers<'_, E>,
    keep_going: &mut dyn FnMut() -> bool,
) -> Result<Option<Interior>, E> {
    let ranks = Together(Some(peers));
    solve_together(problem, rows, wanted, weights, duals, ranks, keep_going)
}

/// The other ranks, where there are any.
struct Together<'a, 'b, E>(Option<&'a mut Peers<'b, E>>);

impl<E> Together<'_, '_, E> {
    fn exchange(&mut self, what: Exchange<'_>) -> Result<(), E> {
        match &mut self.0 {
            Some(peers) => (peers.exchange)(what),
            None => Ok(()),
        }
    }

    fn add_up(&mut self, values: &mut [f64]) -> Result<(), E> {
        self.exchange(Exchange::SumWide(values))
    }

    /// The least value of any rank.
    fn least(&mut self, value: f64) -> Result<f64, E> {
        let mut values = [-value];
        self.exchange(Exchange::Largest(&mut values))?;
        Ok(-values[0])
    }
}

fn solve_together<E: From<LinearError>>(
    problem: &Problem,
    rows: &RowTable,
    wanted: f64,
    weights: &mut Weights,
    duals: &mut Duals,
    mut ranks: Together<'_, '_, E>,
    keep_going: &mut dyn FnMut() -> bool,
) -> Result<Option<Interior>, E> {
    assert!(interior_fits(problem));
    check(problem, rows, duals)?;
    let mut primal = Weights::zeros(problem);
    let mut iterations = 0;
    let (mut sums, mut alphas) = (Vec::new(), Vec::new());
    for subproblem in 0..problem.subproblems() {
        let mut run = Run::new(problem, rows, subproblem);
        loop {
            let goes_on = f64::from(u8::from(keep_going()));
            if ranks.least(goes_on)? == 0.0 {
                return Ok(None);
            }
            let done = run.look(wanted, &mut ranks)?;
            iterations += 1;
            if done || run.iterations >= MOST_ITERATIONS || !run.step(&mut ranks)? {
                break;
            }
        }
        for (weight, &best) in primal.vector_mut(subproblem).iter_mut().zip(&run.best_w) {
            *weight = best as f32;
        }
        let alpha = run.rounded_alpha();
        let mut sum = run.sum_of(&alpha);
        ranks.add_up(&mut sum)?;
        alphas.push(alpha);
        sums.push(sum);
    }
    for (subproblem, (alpha, sum)) in alphas.iter().zip(&sums).enumerate() {
        let (stored, term) = duals.stored_mut(subproblem);
        let mut terms = [0.0];
        for (i, &alpha) in alpha.iter().enumerate() {
            stored[rows.id(i) as usize] = alpha;
            terms[0] += problem.dual_term(rows.label(i), alpha);
        }
        ranks.add_up(&mut terms)?;
        [*term] = terms;
        for (weight, &sum) in weights.vector_mut(subproblem).iter_mut().zip(sum) {
            *weight = sum as f32;
        }
    }
    Ok(Some(Interior {
        weights: primal,
        iterations,
    }))
}

fn check(problem: &Problem, rows: &RowTable, duals: &Duals) -> Result<(), LinearError> {
    let records = duals.records();
    for i in 0..rows.len() {
        let record = rows.id(i);
        if record >= records as u64 {
            return Err(LinearError::RecordOutOfRange { record, records });
        }
        if rows.label(i) as usize >= problem.classes() {
            return Err(LinearError::UnknownClass {
                class: rows.label(i),
                classes: problem.classes(),
            });
        }
        match rows.row(i) {
            Row::Dense(values) if values.len() != problem.features() => {
                return Err(LinearError::Width {
                    record,
                    found: values.len(),
                    expected: problem.features(),
                });
            }
            Row::Sparse { indices, .. } => {
                if let Some(&index) = indices.last()
                    && index as usize >= problem.features()
                {
                    return Err(LinearError::FeatureOutOfRange {
                        record,
                        index: index as usize,
                        features: problem.features(),
                    });
                }
            }
            Row::Dense(_) => {}
            Row::Bytes(_) => return Err(LinearError::NoFeatures { record }),
        }
    }
    Ok(())
}

/// The state of a row.
#[derive(Clone, Copy)]
struct State {
    alpha: f64,
    /// s and ξ.
    above: f64,
    below: f64,
    margin: f64,
    /// y x·Δw of the predictor, and of the step.
    predicted: f64,
    moved: f64,
}

/// What is constant of a row.
#[derive(Clone, Copy)]
struct Terms {
    sign: f64,
    upper: f64,
    diagonal: f64,
}

/// How a row's variables change.
#[derive(Clone, Copy)]
struct Change {
    alpha: f64,
    above: f64,
    below: f64,
}

/// One subproblem.
struct Run<'a> {
    rows: &'a RowTable,
    terms: Vec<Terms>,
    bias: Option<f64>,
    states: Vec<State>,
    w: Vec<f64>,
    best_w: Vec<f64>,
    best_primal: f64,
    iterations: u32,
    /// I + XᵀΘX, its lower triangle row by row; then its Cholesky factor.
    matrix: Vec<f64>,
    right: Vec<f64>,
    /// μ now.
    mean: f64,
}

impl<'a> Run<'a> {
    fn new(problem: &Problem, rows: &'a RowTable, subproblem: usize) -> Run<'a> {
        let width = problem.features() + usize::from(problem.bias().is_some());
        let terms: Vec<Terms> = (0..problem.classes() as u32)
            .map(|class| Terms {
                sign: f64::from(problem.sign(subproblem, class)),
                upper: f64::from(problem.upper(class)),
                diagonal: f64::from(problem.diagonal(class)),
            })
            .collect();
        let states = (0..rows.len()).map(|i| {
            let terms = terms[rows.label(i) as usize];
            let bounded = terms.upper.is_finite();
            State {
                alpha: if bounded {
                    0.5 * terms.upper
                } else {
                    0.5 / terms.diagonal
                },
                above: 1.0,
                below: if bounded { 2.0 } else { 0.0 },
                margin: 0.0,
                predicted: 0.0,
                moved: 0.0,
            }
        });
        Run {
            rows,
            states: states.collect(),
            terms,
            bias: problem.bias().map(f64::from),
            w: vec![0.0; width],
            best_w: vec![0.0; width],
            best_primal: f64::INFINITY,
            iterations: 0,
            matrix: vec![0.0; width * width],
            right: vec![0.0; width],
            mean: 0.0,
        }
    }

    /// Values at the present point, and the equations of a Newton step from it. Returns whether the
    /// gap is small enough.
    fn look<E>(&mut self, wanted: f64, ranks: &mut Together<'_, '_, E>) -> Result<bool, E> {
        self.iterations += 1;
        let width = self.w.len();
        let mut x = vec![0.0; width];
        let mut sum = vec![0.0; width];
        let (mut loss, mut linear, mut products) = (0.0, 0.0, 0.0);
        let mut pairs = 0_u64;
        self.matrix.fill(0.0);
        self.right.fill(0.0);
        for (i, state) in self.states.iter_mut().enumerate() {
            let terms = self.terms[self.rows.label(i) as usize];
            unpack(self.rows.row(i), self.bias, &mut x);
            let margin = terms.sign * dot(&x, &self.w);
            state.margin = margin;
            let short = (1.0 - margin).max(0.0);
            let State {
                alpha,
                above,
                below,
                ..
            } = *state;
            if terms.upper.is_finite() {
                loss += terms.upper * short;
                products += (terms.upper - alpha) * below;
                pairs += 1;
            } else {
                loss += 0.5 / terms.diagonal * short * short;
            }
            products += alpha * above;
            pairs += 1;
            linear += alpha - 0.5 * terms.diagonal * alpha * alpha;
            add_scaled(&mut sum, terms.sign * alpha, &x);
            let theta = weight(state, terms);
            let wanted_change = 1.0 - margin - terms.diagonal * alpha;
            add_scaled(&mut self.right, terms.sign * theta * wanted_change, &x);
            add_outer(&mut self.matrix, theta, &x);
        }
        ranks.add_up(&mut self.matrix)?;
        ranks.add_up(&mut self.right)?;
        ranks.add_up(&mut sum)?;
        let mut values = [loss, linear, products, pairs as f64];
        ranks.add_up(&mut values)?;
        let [loss, linear, products, pairs] = values;
        let squared = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>();
        let primal = 0.5 * squared(&self.w) + loss;
        let dual = linear - 0.5 * squared(&sum);
        if primal < self.best_primal {
            self.best_primal = primal;
            self.best_w.copy_from_slice(&self.w);
        }
        self.matrix
            .iter_mut()
            .step_by(width + 1)
            .for_each(|entry| *entry += 1.0);
        for ((right, sum), w) in self.right.iter_mut().zip(&sum).zip(&self.w) {
            *right += sum - w;
        }
        self.mean = products / pairs.max(1.0);
        Ok(dual > 0.0 && self.best_primal - dual <= wanted * dual)
    }

    /// Takes a step; `false` where rounding leaves none.
    fn step<E>(&mut self, ranks: &mut Together<'_, '_, E>) -> Result<bool, E> {
        let width = self.w.len();
        if !factor(&mut self.matrix, width) {
            return Ok(false);
        }
        let mut predictor = self.right.clone();
        solve(&self.matrix, &mut predictor);
        // Where the predictor leads, and what the corrector adds: μ times one vector, and another.
        let mut x = vec![0.0; width];
        let (mut central, mut second) = (vec![0.0; width], vec![0.0; width]);
        // The terms of the mean product along the predictor, and the number of products.
        let mut products = [0.0; 4];
        let mut most = f64::INFINITY;
        for i in 0..self.states.len() {
            let terms = self.terms[self.rows.label(i) as usize];
            unpack(self.rows.row(i), self.bias, &mut x);
            let state = &mut self.states[i];
            state.predicted = terms.sign * dot(&x, &predictor);
            let change = affine(state, terms);
            most = most.min(room(state, change, terms));
            products[0] += state.alpha * state.above;
            products[1] += state.alpha * change.above + change.alpha * state.above;
            products[2] += change.alpha * change.above;
            products[3] += 1.0;
            let mut push = 1.0 / state.alpha;
            let mut bend = -change.alpha * change.above / state.alpha;
            if terms.upper.is_finite() {
                let left = terms.upper - state.alpha;
                products[0] += left * state.below;
                products[1] += left * change.below - change.alpha * state.below;
                products[2] -= change.alpha * change.below;
                products[3] += 1.0;
                push -= 1.0 / left;
                bend -= change.alpha * change.below / left;
            }
            let scale = terms.sign * weight(state, terms);
            add_scaled(&mut central, scale * push, &x);
            add_scaled(&mut second, scale * bend, &x);
        }
        ranks.add_up(&mut central)?;
        ranks.add_up(&mut second)?;
        ranks.add_up(&mut products)?;
        let t = ranks.least(most)?.min(1.0);
        let reached = (products[0] + t * products[1] + t * t * products[2]) / products[3];
        let target = (reached / self.mean).clamp(0.0, 1.0).powi(3) * self.mean;
        let mut direction = self.right.clone();
        add_scaled(&mut direction, target, &central);
        add_scaled(&mut direction, 1.0, &second);
        solve(&self.matrix, &mut direction);
        if direction.iter().any(|value| !value.is_finite()) {
            return Ok(false);
        }
        let mut most = f64::INFINITY;
        for i in 0..self.states.len() {
            let terms = self.terms[self.rows.label(i) as usize];
            unpack(self.rows.row(i), self.bias, &mut x);
            let state = &mut self.states[i];
            state.moved = terms.sign * dot(&x, &direction);
            let change = corrected(state, terms, target);
            most = most.min(room(state, change, terms));
        }
        let t = (STEP * ranks.least(most)?).min(1.0);
        if t.is_nan() || t <= 1e-12 {
            return Ok(false);
        }
        for (i, state) in self.states.iter_mut().enumerate() {
            let terms = self.terms[self.rows.label(i) as usize];
            let change = corrected(state, terms, target);
            state.alpha += t * change.alpha;
            state.above += t * change.above;
            state.below += t * change.below;
        }
        add_scaled(&mut self.w, t, &direction);
        Ok(true)
    }

    /// α as it is stored: inside its bounds to the last bit.
    fn rounded_alpha(&self) -> Vec<f32> {
        let rounded = self.states.iter().enumerate().map(|(i, state)| {
            let upper = self.terms[self.rows.label(i) as usize].upper as f32;
            (state.alpha as f32).clamp(0.0, upper)
        });
        rounded.collect()
    }

    /// Σ α y x.
    fn sum_of(&self, alpha: &[f32]) -> Vec<f64> {
        let mut x = vec![0.0; self.w.len()];
        let mut sum = vec![0.0; self.w.len()];
        for (i, &alpha) in alpha.iter().enumerate() {
            unpack(self.rows.row(i), self.bias, &mut x);
            let sign = self.terms[self.rows.label(i) as usize].sign;
            add_scaled(&mut sum, sign * f64::from(alpha), &x);
        }
        sum
    }
}

/// θ: how much α yields to a change of the margin.
fn weight(state: &State, terms: Terms) -> f64 {
    let mut stiff = state.above / state.alpha + terms.diagonal;
    if terms.upper.is_finite() {
        stiff += state.below / (terms.upper - state.alpha);
    }
    1.0 / stiff
}

/// The predictor's change: to where all products are 0.
fn affine(state: &State, terms: Terms) -> Change {
    let wanted = 1.0 - state.margin - terms.diagonal * state.alpha;
    let alpha = weight(state, terms) * (wanted - state.predicted);
    completed(
        state,
        terms,
        alpha,
        -state.alpha * state.above,
        -(terms.upper - state.alpha) * state.below,
    )
}

/// The step's change: to where all products are `target`, with the predictor's curvature.
fn corrected(state: &State, terms: Terms, target: f64) -> Change {
    let predictor = affine(state, terms);
    let bounded = terms.upper.is_finite();
    let left = terms.upper - state.alpha;
    let lower = target - predictor.alpha * predictor.above;
    let upper = target + predictor.alpha * predictor.below;
    let mut wanted = 1.0 - state.margin - terms.diagonal * state.alpha + lower / state.alpha;
    if bounded {
        wanted -= upper / left;
    }
    let alpha = weight(state, terms) * (wanted - state.moved);
    let lower = lower - state.alpha * state.above;
    let upper = upper - left * state.below;
    completed(state, terms, alpha, lower, upper)
}

/// The changes of s and ξ that go with one of α, for products that are to change by `lower` and
/// `upper`.
fn completed(state: &State, terms: Terms, alpha: f64, lower: f64, upper: f64) -> Change {
    Change {
        alpha,
        above: (lower - state.above * alpha) / state.alpha,
        below: if terms.upper.is_finite() {
            (upper + state.below * alpha) / (terms.upper - state.alpha)
        } else {
            0.0
        },
    }
}

/// Longest step along a change that keeps every variable of the row at least 0.
fn room(state: &State, change: Change, terms: Terms) -> f64 {
    let along = |value: f64, change: f64| {
        if change < 0.0 {
            -value / change
        } else {
            f64::INFINITY
        }
    };
    let mut most = along(state.alpha, change.alpha).min(along(state.above, change.above));
    if terms.upper.is_finite() {
        most = most
            .min(along(terms.upper - state.alpha, -change.alpha))
            .min(along(state.below, change.below));
    }
    most
}

/// The row's features and bias as a dense vector.
fn unpack(row: Row<'_>, bias: Option<f64>, x: &mut [f64]) {
    match row {
        Row::Dense(values) => {
            for (x, &value) in x.iter_mut().zip(values) {
                *x = f64::from(value);
            }
        }
        Row::Sparse { indices, values } => {
            x.fill(0.0);
            for (&index, &value) in indices.iter().zip(values) {
                x[index as usize] = f64::from(value);
            }
        }
        Row::Bytes(_) => x.fill(0.0),
    }
    if let (Some(bias), Some(last)) = (bias, x.last_mut()) {
        *last = bias;
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (chunks, rest) = a.as_chunks::<8>();
    let (others, other_rest) = b.as_chunks::<8>();
    for (a, b) in chunks.iter().zip(others) {
        for k in 0..8 {
            sums[k] += a[k] * b[k];
        }
    }
    let rest: f64 = rest.iter().zip(other_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}

fn add_scaled(sum: &mut [f64], scale: f64, x: &[f64]) {
    for (sum, &x) in sum.iter_mut().zip(x) {
        *sum += scale * x;
    }
}

/// Adds `scale` x xᵀ to the lower triangle.
fn add_outer(matrix: &mut [f64], scale: f64, x: &[f64]) {
    for (j, &value) in x.iter().enumerate() {
        if value != 0.0 {
            let row = &mut matrix[j * x.len()..j * x.len() + j + 1];
            add_scaled(row, scale * value, x);
        }
    }
}

/// Cholesky's factor of the lower triangle, in place; `false` where it is not positive definite.
fn factor(matrix: &mut [f64], width: usize) -> bool {
    for j in 0..width {
        for k in 0..=j {
            let (before, at) = matrix.split_at_mut(j * width);
            let row = &mut at[..width];
            let other = if k < j {
                &before[k * width..k * width + k]
            } else {
                &row[..k]
            };
            let value = row[k] - dot(&row[..k], other);
            if k < j {
                row[k] = value / before[k * width + k];
            } else if value > 0.0 {
                row[j] = value.sqrt();
            } else {
                return false;
            }
        }
    }
    true
}

/// Solves L Lᵀ v = `vector` in place.
fn solve(factor: &[f64], vector: &mut [f64]) {
    let width = vector.len();
    for j in 0..width {
        let row = &factor[j * width..j * width + j + 1];
        vector[j] = (vector[j] - dot(&row[..j], &vector[..j])) / row[j];
    }
    for j in (0..width).rev() {
        let row = &factor[j * width..j * width + j + 1];
        vector[j] /= row[j];
        let value = vector[j];
        add_scaled(&mut vector[..j], -value, &row[..j]);
    }
}
