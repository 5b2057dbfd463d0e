//! The weight vectors, one a subproblem.

use crate::problem::Problem;
use pelton_storage::{huge_vec, huge_zeros};

/// A weight vector for each subproblem: `features` entries, then the bias weight if there is one.
#[derive(Debug, Default, PartialEq)]
pub struct Weights {
    features: usize,
    bias: Option<f32>,
    vectors: Vec<Vec<f32>>,
}

impl Clone for Weights {
    fn clone(&self) -> Weights {
        let vectors = self.vectors.iter().map(|vector| {
            // On ordinary pages the copy takes three times as long.
            let mut copy = huge_vec(vector.len());
            copy.extend_from_slice(vector);
            copy
        });
        Weights {
            vectors: vectors.collect(),
            ..*self
        }
    }

    fn clone_from(&mut self, other: &Weights) {
        (self.features, self.bias) = (other.features, other.bias);
        self.vectors.clone_from(&other.vectors);
    }
}

impl Weights {
    /// All weights 0.
    pub fn zeros(problem: &Problem) -> Weights {
        let length = problem.length();
        Weights {
            features: problem.features(),
            bias: problem.bias(),
            vectors: (0..problem.subproblems())
                .map(|_| huge_zeros(length))
                .collect(),
        }
    }

    /// Weights from given vectors; panics unless each holds `features` entries and one more for a
    /// bias.
    pub fn from_vectors(features: usize, bias: Option<f32>, vectors: Vec<Vec<f32>>) -> Weights {
        let length = features + usize::from(bias.is_some());
        assert!(vectors.iter().all(|vector| vector.len() == length));
        Weights {
            features,
            bias,
            vectors,
        }
    }

    /// Features a row, without the bias.
    pub fn features(&self) -> usize {
        self.features
    }

    /// Value of the constant feature.
    pub fn bias(&self) -> Option<f32> {
        self.bias
    }

    /// Number of subproblems.
    pub fn subproblems(&self) -> usize {
        self.vectors.len()
    }

    /// The vector of a subproblem, the bias weight last.
    pub fn vector(&self, subproblem: usize) -> &[f32] {
        &self.vectors[subproblem]
    }

    /// The vector of a subproblem, to be changed.
    pub fn vector_mut(&mut self, subproblem: usize) -> &mut [f32] {
        &mut self.vectors[subproblem]
    }

    /// The vectors of all subproblems.
    pub(crate) fn into_vectors(self) -> Vec<Vec<f32>> {
        self.vectors
    }

    /// The vectors of all subproblems, to be changed.
    pub(crate) fn vectors_mut(&mut self) -> &mut [Vec<f32>] {
        &mut self.vectors
    }

    /// Multiplies every weight.
    pub(crate) fn multiply(&mut self, factor: f32) {
        for vector in &mut self.vectors {
            vector.iter_mut().for_each(|weight| *weight *= factor);
        }
    }

    /// Adds the weights of another vector of the same shape.
    pub(crate) fn add(&mut self, other: &Weights) {
        for (vector, other) in self.vectors.iter_mut().zip(&other.vectors) {
            for (weight, &other) in vector.iter_mut().zip(other.iter()) {
                *weight += other;
            }
        }
    }

    /// ‖w‖² of the first entries of a subproblem's vector, summed in f64.
    pub(crate) fn squared_norm(&self, subproblem: usize, entries: usize) -> f64 {
        squared_norm(&self.vectors[subproblem][..entries])
    }

    /// Weights that are not 0, and all of them, biases included.
    pub fn nonzero(&self) -> [u64; 2] {
        let all = self.vectors.iter().flatten();
        let nonzero = all.filter(|weight| **weight != 0.0).count();
        [nonzero, self.vectors.iter().map(Vec::len).sum()].map(|count| count as u64)
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        4 * self.vectors.iter().map(Vec::len).sum::<usize>()
    }
}

/// ‖x‖² in f64, in sixteen sums so that the compiler can use vector registers.
fn squared_norm(x: &[f32]) -> f64 {
    let mut sums = [0.0_f64; 16];
    let (chunks, rest) = x.as_chunks::<16>();
    for chunk in chunks {
        for (sum, &value) in sums.iter_mut().zip(chunk) {
            *sum += f64::from(value) * f64::from(value);
        }
    }
    for (sum, &value) in sums.iter_mut().zip(rest) {
        *sum += f64::from(value) * f64::from(value);
    }
    sums.iter().sum()
}
