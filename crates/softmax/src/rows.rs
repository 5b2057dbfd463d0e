//! The weights of one rank's classes.

use std::ops::Range;

/// How class weights change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// v ← m·v + g + βw; w ← w − γ·v.
    Sgd {
        /// m, below 1.
        momentum: f32,
    },
    /// λ = η‖w‖ / (‖g‖ + β‖w‖); v ← m·v + γλ(g + βw); w ← w − v (You et al., 2017). The norms are those of the active
    /// rows of all ranks, which take one more pass over them.
    Lars {
        /// m, below 1.
        momentum: f32,
        /// η.
        trust: f32,
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
}

impl Update {
    pub(crate) fn momentum(&self) -> f32 {
        match self.rule {
            Rule::Sgd { momentum } | Rule::Lars { momentum, .. } => momentum,
        }
    }
}

/// How rows take their step: v ← kept·v + of_gradient·(g + weight_decay·w); w −= of_velocity·v.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factors {
    pub(crate) of_gradient: f32,
    pub(crate) of_velocity: f32,
    pub(crate) momentum: f32,
    pub(crate) weight_decay: f32,
}

/// Rows `first..first + len` of the class weights \[classes, d\], and their momentum.
///
/// A row that takes no part in some steps loses momentum in them, and keeps its weights.
#[derive(Clone, Debug)]
pub struct ClassRows {
    d: usize,
    first: u64,
    pub(crate) weights: Vec<f32>,
    /// Empty until a step has momentum.
    pub(crate) velocity: Vec<f32>,
    /// The step after each row's last.
    pub(crate) seen: Vec<u32>,
    pub(crate) step: u32,
}

impl ClassRows {
    /// `weights` \[len, d\] of the classes from `first` on. Panics where they are not whole rows.
    pub fn new(first: u64, d: usize, weights: Vec<f32>) -> ClassRows {
        assert!(d > 0 && weights.len().is_multiple_of(d), "rows of weights");
        let seen = vec![0; weights.len() / d];
        ClassRows {
            d,
            first,
            weights,
            velocity: Vec::new(),
            seen,
            step: 0,
        }
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

    /// Whether this rank has none.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// All weights, \[len, d\].
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// Weights of the row of that number on this rank.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.weights[row * self.d..][..self.d]
    }

    /// Row of a class, where it is this rank's.
    pub(crate) fn row_of(&self, class: u64) -> Option<usize> {
        let is_here = self.classes().contains(&class);
        is_here.then(|| (class - self.first) as usize)
    }

    /// Room for momentum.
    pub(crate) fn with_velocity(&mut self) {
        if self.velocity.is_empty() {
            self.velocity = vec![0.0; self.weights.len()];
        }
    }
}
