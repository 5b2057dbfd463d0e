//! The weights of one rank's classes.

use std::ops::Range;

use pelton_comm::{Comm, Reduction};
use pelton_kernels::optimizer::AdamW;
use pelton_kernels::sums::dot;
use rayon::prelude::*;

use crate::error::HeadError;
use crate::table::Table;

/// How class weights change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// g ← g + βw; v ← m·v + g; w ← w − γ·v, or w − γ·(g + m·v) with Nesterov's look ahead.
    Sgd {
        /// m, below 1.
        momentum: f32,
        /// Whether the step looks ahead.
        nesterov: bool,
    },
    /// λ = η‖w‖ / (‖g‖ + β‖w‖); v ← m·v + γλ(g + βw); w ← w − v (You et al., 2017). The norms are over all rows of all
    /// ranks, as if none waited. They take one more pass over the active rows, and three numbers of each other row.
    Lars {
        /// m, below 1.
        momentum: f32,
        /// η.
        trust: f32,
    },
    /// Adam with weight decay apart from the gradient (Loshchilov and Hutter, 2019), row by row: a row that takes no
    /// part does not move, and its means do not decay, as with PyTorch's `SparseAdam` and Partial FC. Their bias is
    /// corrected by the steps of the row itself, so that a row that first takes part late begins like the others; if
    /// all take part in every step it is `torch.optim.AdamW`.
    AdamW {
        /// β₁.
        mean_decay: f32,
        /// β₂.
        square_decay: f32,
        /// ε.
        epsilon: f32,
    },
}

/// One step of the class weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// The rule.
    pub rule: Rule,
    /// Learning rate γ.
    pub rate: f32,
    /// Weight decay β, for active rows only.
    pub weight_decay: f32,
    /// Factor on gradients before anything else: clipping.
    pub scale: f32,
}

/// The step of a row.
pub(crate) enum RowStep {
    /// Along a velocity, which also moves rows that wait.
    Velocity(Factors),
    /// By means of gradients and of their squares; rows that take no part stay.
    AdamW(AdamW),
}

/// How rows take their step: g ← of_gradient·(g + weight_decay·w); v ← momentum·v + g; w −= of_velocity·v, or
/// of_velocity·(g + momentum·v) with Nesterov's look ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factors {
    pub(crate) of_gradient: f32,
    pub(crate) of_velocity: f32,
    pub(crate) momentum: f32,
    pub(crate) weight_decay: f32,
    pub(crate) nesterov: bool,
}

impl Factors {
    /// The factor of a row's move along its velocity.
    pub(crate) fn along(&self) -> f32 {
        let part = if self.nesterov { self.momentum } else { 1.0 };
        self.of_velocity * part
    }
}

/// Rows `first..first + len` of the class weights \[classes, d\], and their momentum.
///
/// A row that takes no part in a step moves with its momentum, as if its gradient were 0, unless the rule is AdamW. It
/// does so late: in all steps that it has waited at once, before it takes part again or all are
/// [settled](ClassRows::settle).
#[derive(Clone, Debug)]
pub struct ClassRows {
    d: usize,
    first: u64,
    pub(crate) weights: Vec<f32>,
    /// Empty until a step has momentum; of AdamW the means of the gradients.
    pub(crate) velocity: Vec<f32>,
    /// The means of their squares, and the steps of each row; empty without AdamW.
    pub(crate) squares: Vec<f32>,
    pub(crate) steps: Vec<u32>,
    /// The step that each row waits for: the one after its last.
    seen: Vec<u32>,
    /// The pending move of rows that wait, by the step that they wait for; the last is the next step.
    waits: Vec<Wait>,
    /// w·w, w·v and v·v of each row; empty until [`ClassRows::square`] needs them.
    products: Vec<f32>,
}

/// Numbers of a row in [`ClassRows::products`].
const PRODUCTS: usize = 3;

/// The memory of a row that moves.
pub(crate) struct Moving<'a> {
    pub(crate) weights: &'a mut [f32],
    /// Empty without momentum.
    pub(crate) velocity: &'a mut [f32],
    /// Empty without AdamW.
    pub(crate) squares: &'a mut [f32],
    /// Steps that it has taken with AdamW, this one included.
    pub(crate) steps: u32,
    /// Empty if unused.
    products: &'a mut [f32],
}

impl Moving<'_> {
    /// Ends the move.
    pub(crate) fn end(self) {
        if let [ww, wv, vv] = self.products {
            let (w, v) = (&*self.weights, &*self.velocity);
            *ww = dot(w, w);
            if !v.is_empty() {
                (*wv, *vv) = (dot(w, v), dot(v, v));
            }
        }
    }
}

/// The move of a row with velocity v between two of its steps: w −= moved·v; v ← kept·v.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wait {
    pub(crate) moved: f32,
    pub(crate) kept: f32,
}

impl Wait {
    const NONE: Wait = Wait {
        moved: 0.0,
        kept: 1.0,
    };
}

impl Table for ClassRows {
    fn d(&self) -> usize {
        self.d
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn row(&self, row: usize) -> &[f32] {
        self.row(row)
    }

    fn row_of(&self, class: u64) -> Option<usize> {
        let is_here = self.classes().contains(&class);
        is_here.then(|| (class - self.first) as usize)
    }
}

/// Momentum below which a row has come to rest.
const REST: f32 = 1e-12;

impl ClassRows {
    /// `weights` \[len, d\] of the classes from `first` on. Panics unless they are whole rows.
    pub fn new(first: u64, d: usize, weights: Vec<f32>) -> ClassRows {
        assert!(d > 0 && weights.len().is_multiple_of(d), "rows of weights");
        let seen = vec![0; weights.len() / d];
        ClassRows {
            d,
            first,
            weights,
            velocity: Vec::new(),
            squares: Vec::new(),
            steps: Vec::new(),
            seen,
            waits: vec![Wait::NONE],
            products: Vec::new(),
        }
    }

    /// Rows with velocity that have waited for some steps each, with their pending moves. Panics unless there is one
    /// entry a row.
    pub(crate) fn waiting(mut self, velocity: Vec<f32>, waited: &[(u32, Wait)]) -> ClassRows {
        assert_eq!(
            (velocity.len(), waited.len()),
            (self.weights.len(), self.len()),
            "rows that wait"
        );
        self.velocity = velocity;
        let most = waited.iter().map(|(steps, _)| *steps).max().unwrap_or(0);
        self.waits = vec![Wait::NONE; most as usize + 1];
        for (seen, &(steps, wait)) in self.seen.iter_mut().zip(waited) {
            *seen = most - steps;
            self.waits[*seen as usize] = wait;
        }
        self
    }

    /// Rows with the means of squares, and their steps, of AdamW. Panics unless there is one entry a row.
    pub(crate) fn with_squares(mut self, squares: Vec<f32>, steps: Vec<u32>) -> ClassRows {
        assert_eq!(
            (squares.len(), steps.len()),
            (self.velocity.len(), self.len()),
            "rows of AdamW"
        );
        (self.squares, self.steps) = (squares, steps);
        self
    }

    /// Steps that a row has waited, and its pending move.
    pub(crate) fn waited(&self, row: usize) -> (u32, Wait) {
        let seen = self.seen[row];
        (self.now() - seen, self.waits[seen as usize])
    }

    fn now(&self) -> u32 {
        self.waits.len() as u32 - 1
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let numbers = self.weights.len() + self.velocity.len() + self.squares.len();
        4 * (numbers + self.seen.len() + self.steps.len() + self.products.len())
            + self.waits.len() * size_of::<Wait>()
    }

    /// Numbers in a row.
    pub fn d(&self) -> usize {
        self.d
    }

    /// Classes of this rank.
    pub fn classes(&self) -> Range<u64> {
        self.first..self.first + self.len() as u64
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// Whether this rank has no rows.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// All weights, \[len, d\].
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// Weights of the row with this index on this rank.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.weights[row * self.d..][..self.d]
    }

    /// Moves these rows, ascending, by the momentum of the steps that they waited.
    pub(crate) fn wake(&mut self, rows: impl Iterator<Item = usize>) {
        let now = self.now();
        if self.velocity.is_empty() {
            // Without velocity they do not move.
            rows.for_each(|row| self.seen[row] = now);
            return;
        }
        let (waits, seen) = (&self.waits, &mut self.seen);
        let mut memory = Memory::new(
            self.d,
            &mut self.weights,
            &mut self.velocity,
            &mut self.squares,
            &mut self.products,
        );
        let woken: Vec<(Wait, Moving<'_>)> = rows
            .filter_map(|row| {
                let since = std::mem::replace(&mut seen[row], now);
                let wait = waits[since as usize];
                (wait != Wait::NONE).then(|| (wait, memory.row(row)))
            })
            .collect();
        let each = woken.into_par_iter().with_min_len(64);
        each.for_each(|(Wait { moved, kept }, row)| {
            for (w, v) in row.weights.iter_mut().zip(row.velocity.iter_mut()) {
                *w -= moved * *v;
                *v *= kept;
            }
            row.end();
        });
    }

    /// Moves all rows as far as they have come.
    pub fn settle(&mut self) {
        self.wake(0..self.len());
    }

    /// Memory of these rows, ascending, which take a step.
    pub(crate) fn moving(&mut self, rows: impl Iterator<Item = usize>) -> Vec<Moving<'_>> {
        let next = self.now() + 1;
        let (seen, steps) = (&mut self.seen, &mut self.steps);
        let mut memory = Memory::new(
            self.d,
            &mut self.weights,
            &mut self.velocity,
            &mut self.squares,
            &mut self.products,
        );
        rows.map(|row| {
            debug_assert_eq!(seen[row] + 1, next, "a row that was not woken");
            seen[row] = next;
            let mut moving = memory.row(row);
            if let Some(steps) = steps.get_mut(row) {
                *steps += 1;
                moving.steps = *steps;
            }
            moving
        })
        .collect()
    }

    /// The sum of squares of all weights, including the pending moves of rows that wait. A sum of three numbers a row
    /// once they are known.
    pub(crate) fn square(&mut self) -> f64 {
        if self.products.is_empty() {
            self.products = vec![0.0; PRODUCTS * self.len()];
            let mut memory = Memory::new(
                self.d,
                &mut self.weights,
                &mut self.velocity,
                &mut self.squares,
                &mut self.products,
            );
            let rows: Vec<Moving<'_>> = (0..self.seen.len()).map(|row| memory.row(row)).collect();
            rows.into_par_iter().with_min_len(64).for_each(Moving::end);
        }
        let rows = self.seen.iter().zip(self.products.chunks_exact(PRODUCTS));
        rows.map(|(&seen, products)| {
            let moved = f64::from(self.waits[seen as usize].moved);
            let [ww, wv, vv] = [0, 1, 2].map(|at| f64::from(products[at]));
            ww - 2.0 * moved * wv + moved * moved * vv
        })
        .sum()
    }

    /// Finds weights that have no direction, because they are not finite or too large for f32. All ranks call it.
    ///
    /// Errors: the first class with such weights, the same on all ranks; a lost rank.
    pub(crate) fn check(&self, comm: &Comm) -> Result<(), HeadError> {
        let is_lost = |&row: &usize| !dot(self.row(row), self.row(row)).is_finite();
        let lost = (0..self.len()).into_par_iter().find_first(is_lost);
        let mut left = [lost.map_or(0, |row| u64::MAX - self.first - row as u64)];
        comm.all_reduce(&mut left, Reduction::Max)?;
        match left[0] {
            0 => Ok(()),
            left => Err(HeadError::Weights {
                class: u64::MAX - left,
            }),
        }
    }

    /// Ends a step: rows that took no part have waited for one more.
    pub(crate) fn next_step(&mut self, step: &RowStep) {
        if let RowStep::Velocity(factors) = step {
            let along = factors.along();
            let moving = self.waits.iter_mut().rev();
            for wait in moving.take_while(|wait| wait.kept > REST) {
                wait.kept *= factors.momentum;
                wait.moved += along * wait.kept;
            }
        }
        self.waits.push(Wait::NONE);
    }

    /// Makes room for the state of a step. A velocity is not a mean of gradients: the velocity of another rule is moved
    /// to its end and dropped.
    pub(crate) fn make_room(&mut self, step: &RowStep) {
        let (momentum, is_adam) = match step {
            RowStep::Velocity(factors) => (factors.momentum > 0.0, false),
            RowStep::AdamW(_) => (true, true),
        };
        if is_adam == self.squares.is_empty() {
            self.settle();
            self.velocity.clear();
            self.products.clear();
            let many = |each: usize| if is_adam { each } else { 0 };
            self.squares = vec![0.0; many(self.weights.len())];
            self.steps = vec![0; many(self.len())];
        }
        if momentum && self.velocity.is_empty() {
            self.velocity = vec![0.0; self.weights.len()];
        }
    }
}

/// Memory of rows, taken in ascending order.
struct Memory<'a> {
    d: usize,
    weights: Rest<'a>,
    velocity: Rest<'a>,
    squares: Rest<'a>,
    products: Rest<'a>,
}

impl<'a> Memory<'a> {
    fn new(
        d: usize,
        weights: &'a mut [f32],
        velocity: &'a mut [f32],
        squares: &'a mut [f32],
        products: &'a mut [f32],
    ) -> Memory<'a> {
        let all = [weights, velocity, squares, products];
        let [weights, velocity, squares, products] = all.map(Rest::new);
        Memory {
            d,
            weights,
            velocity,
            squares,
            products,
        }
    }

    fn row(&mut self, row: usize) -> Moving<'a> {
        Moving {
            weights: self.weights.row(row, self.d),
            velocity: self.velocity.row(row, self.d),
            squares: self.squares.row(row, self.d),
            steps: 0,
            products: self.products.row(row, PRODUCTS),
        }
    }
}

/// Rows of a matrix, taken in ascending order.
struct Rest<'a> {
    left: &'a mut [f32],
    next: usize,
}

impl<'a> Rest<'a> {
    fn new(all: &'a mut [f32]) -> Rest<'a> {
        Rest { left: all, next: 0 }
    }

    /// Empty for a matrix without numbers.
    fn row(&mut self, row: usize, d: usize) -> &'a mut [f32] {
        let left = std::mem::take(&mut self.left);
        if left.is_empty() {
            return left;
        }
        let (taken, left) = left[(row - self.next) * d..].split_at_mut(d);
        (self.left, self.next) = (left, row + 1);
        taken
    }
}
