//! Steps of L-BFGS: the metric that they begin from, and the pairs of the last steps.

use std::collections::VecDeque;

use super::pass::Sizes;
use crate::newton::cholesky::{self, dot};
use crate::newton::{drop_dust, factor_of};

/// Most pairs that are kept.
pub(super) const PAIRS: usize = 10;
/// Stands for 1 in the metric of a free bias: enough for a bias without curvature in any row.
const NEXT_TO_NOTHING: f64 = 1e-12;

/// M = I + Σ C h x xᵀ, the same for each class.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Metric {
    /// Its diagonal, and its Cholesky factor if there is one.
    diagonal: Vec<f64>,
    factor: Vec<f64>,
}

impl Metric {
    /// Of the lower triangle of Σ C h x xᵀ, or of its diagonal.
    pub fn new(sums: &[f64], sizes: &Sizes) -> Metric {
        let width = sizes.width;
        let free_bias = sizes.bias_is_free.then_some(sizes.length - 1);
        let is_matrix = sums.len() > width;
        let own = |j| {
            if Some(j) == free_bias {
                NEXT_TO_NOTHING
            } else {
                1.0
            }
        };
        let place = |j: usize| if is_matrix { j * (width + 1) } else { j };
        let sum = |j: usize| {
            if sizes.offset == Some(j) {
                0.0
            } else {
                sums[place(j)]
            }
        };
        let factor = if is_matrix {
            let mut sums = sums.to_vec();
            // No step moves its weight.
            for j in sizes
                .offset
                .into_iter()
                .flat_map(|offset| (0..width).map(move |j| (j, offset)))
            {
                sums[j.0.max(j.1) * width + j.0.min(j.1)] = 0.0;
            }
            factor_of(sums, width, free_bias)
        } else {
            None
        };
        Metric {
            diagonal: (0..width).map(|j| own(j) + sum(j)).collect(),
            factor: factor.unwrap_or_default(),
        }
    }

    /// M⁻¹ times the part of each class.
    fn divide(&self, vector: &mut [f64], sizes: &Sizes) {
        let columns = sizes.columns;
        if self.factor.is_empty() {
            let features = vector.chunks_exact_mut(columns).zip(&self.diagonal);
            features.for_each(|(values, own)| values.iter_mut().for_each(|value| *value /= own));
            return;
        }
        let mut own = vec![0.0; sizes.width];
        for k in 0..sizes.classes {
            for (j, own) in own.iter_mut().enumerate() {
                *own = vector[j * columns + k];
            }
            cholesky::solve(&self.factor, &mut own);
            for (j, own) in own.iter().enumerate() {
                vector[j * columns + k] = *own;
            }
        }
    }
}

/// A step, the change of the gradient over it, and their product.
#[derive(Clone, Debug)]
struct Pair {
    step: Vec<f64>,
    change: Vec<f64>,
    product: f64,
}

/// The state that steps are computed from.
#[derive(Clone, Debug)]
pub(super) struct History {
    metric: Metric,
    /// The newest last.
    pairs: VecDeque<Pair>,
    /// Factor on M⁻¹.
    scale: f64,
}

impl History {
    pub fn from(metric: Metric) -> History {
        History {
            metric,
            pairs: VecDeque::new(),
            scale: 1.0,
        }
    }

    /// Replaces the metric and keeps the pairs.
    pub fn use_metric(&mut self, metric: Metric, sizes: &Sizes) {
        self.metric = metric;
        if let Some(pair) = self.pairs.back() {
            let mut divided = pair.change.clone();
            self.metric.divide(&mut divided, sizes);
            self.scale = pair.product / dot(&pair.change, &divided);
        }
    }

    /// Whether there is a metric yet.
    pub fn has_metric(&self) -> bool {
        !self.metric.diagonal.is_empty()
    }

    /// wᵀ M w if M had only its diagonal.
    pub fn diagonal_product(&self, w: &[f64], sizes: &Sizes) -> f64 {
        let features = w.chunks_exact(sizes.columns).zip(&self.metric.diagonal);
        features.map(|(w, own)| own * dot(w, w)).sum()
    }

    /// Zeroes weights that are only rounding.
    pub fn drop_dust(&self, w: &mut [f64], left: f64, sizes: &Sizes) {
        let each = |own: &f64| std::iter::repeat_n(*own, sizes.columns);
        let diagonal: Vec<f64> = self.metric.diagonal.iter().flat_map(each).collect();
        drop_dust(w, &diagonal, left);
    }

    /// Remembers a step and the change of the gradient over it, unless that is mostly rounding.
    pub fn push(&mut self, step: Vec<f64>, change: Vec<f64>, sizes: &Sizes) {
        let product = dot(&step, &change);
        let counting = &step[..sizes.regularised()];
        let mut divided = change.clone();
        self.metric.divide(&mut divided, sizes);
        let scale = product / dot(&change, &divided);
        // The regulariser alone has the curvature 1.
        if product > 0.5 * dot(counting, counting) && scale > 0.0 && scale.is_finite() {
            self.scale = scale;
            if self.pairs.len() == PAIRS {
                self.pairs.pop_front();
            }
            self.pairs.push_back(Pair {
                step,
                change,
                product,
            });
        }
    }

    /// Drops everything but the metric.
    pub fn forget(&mut self) {
        self.pairs.clear();
        self.scale = 1.0;
    }

    /// The step from a point with this gradient.
    pub fn step(&self, gradient: &[f64], sizes: &Sizes) -> Vec<f64> {
        let add = |vector: &mut [f64], factor: f64, other: &[f64]| {
            for (value, other) in vector.iter_mut().zip(other) {
                *value += factor * other;
            }
        };
        let mut step = gradient.to_vec();
        let mut shares = Vec::with_capacity(PAIRS);
        for pair in self.pairs.iter().rev() {
            let share = dot(&pair.step, &step) / pair.product;
            add(&mut step, -share, &pair.change);
            shares.push(share);
        }
        self.metric.divide(&mut step, sizes);
        step.iter_mut().for_each(|value| *value *= self.scale);
        for (pair, share) in self.pairs.iter().zip(shares.into_iter().rev()) {
            let share = share - dot(&pair.change, &step) / pair.product;
            add(&mut step, share, &pair.step);
        }
        step.iter_mut().for_each(|value| *value = -*value);
        step
    }

    /// The scale, and all vectors: of the pairs, and the metric if there is one.
    pub fn to_numbers(&self) -> (f64, Vec<Vec<f64>>) {
        let pairs = self.pairs.iter();
        let pairs = pairs.flat_map(|pair| [pair.step.clone(), pair.change.clone()]);
        let metric = [&self.metric.diagonal[..], &self.metric.factor].concat();
        let metric = self.has_metric().then_some(metric);
        (self.scale, pairs.chain(metric).collect())
    }

    /// How many pairs there are.
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// The reverse, from the pairs and the metric; `None` if these do not fit.
    pub fn from_numbers(
        scale: f64,
        pairs: &[f64],
        metric: &[f64],
        sizes: &Sizes,
    ) -> Option<History> {
        let (width, count) = (sizes.width, pairs.len() / (2 * sizes.vector()));
        let is_metric = [width, width + width * width].contains(&metric.len());
        if count > PAIRS || !(is_metric || metric.is_empty() && count == 0) {
            return None;
        }
        let (diagonal, factor) = metric.split_at(metric.len().min(width));
        let pairs = pairs.chunks_exact(2 * sizes.vector()).map(|pair| {
            let (step, change) = pair.split_at(sizes.vector());
            Pair {
                product: dot(step, change),
                step: step.to_vec(),
                change: change.to_vec(),
            }
        });
        Some(History {
            pairs: pairs.collect(),
            scale,
            metric: Metric {
                diagonal: diagonal.to_vec(),
                factor: factor.to_vec(),
            },
        })
    }
}
