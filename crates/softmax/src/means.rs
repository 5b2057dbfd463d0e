//! Class vectors that begin as the mean features of their classes.

use std::ops::Range;

use pelton_comm::{Comm, Reduction};
use pelton_kernels::sums::dot;

use crate::error::HeadError;

/// Sums over the examples of all ranks.
#[derive(Clone, Debug)]
pub struct Means {
    /// Classes of this rank.
    own: Range<u64>,
    /// Σ of the features of length 1, \[classes, d\].
    sums: Vec<f32>,
    /// Examples of each class.
    counts: Vec<u32>,
}

impl Means {
    /// Of the classes `own`, without an example.
    pub fn new(own: Range<u64>, d: usize) -> Means {
        let classes = (own.end - own.start) as usize;
        Means {
            own,
            sums: vec![0.0; classes * d],
            counts: vec![0; classes],
        }
    }

    /// Adds examples, except those without a direction.
    pub fn add(&mut self, features: &[f32], labels: &[u64]) {
        let d = features.len() / labels.len().max(1);
        for (x, label) in features.chunks_exact(d.max(1)).zip(labels) {
            let length = dot(x, x).sqrt();
            if length == 0.0 || !self.own.contains(label) {
                continue;
            }
            let row = (label - self.own.start) as usize;
            self.counts[row] += 1;
            let sum = &mut self.sums[row * d..][..d];
            sum.iter_mut()
                .zip(x)
                .for_each(|(sum, x)| *sum += x / length);
        }
    }

    /// Writes the means over the weights of their classes, and returns how many classes of all ranks have none and so
    /// keep their weights. All ranks call it.
    pub fn write(self, weights: &mut [f32], comm: &Comm) -> Result<u64, HeadError> {
        let d = self.sums.len() / self.counts.len().max(1);
        let mut missing = [0u64];
        let sums = self.sums.chunks_exact(d.max(1)).zip(&self.counts);
        for (row, (sum, &count)) in weights.chunks_exact_mut(d.max(1)).zip(sums) {
            // Features of opposite directions have no mean direction either.
            if count == 0 || sum.iter().all(|&x| x == 0.0) {
                missing[0] += 1;
                continue;
            }
            row.iter_mut()
                .zip(sum)
                .for_each(|(w, x)| *w = x / count as f32);
        }
        comm.all_reduce(&mut missing, Reduction::Sum)?;
        Ok(missing[0])
    }
}
