//! Decision values, classes and probabilities.

use pelton_format::RowTable;

use crate::certificate::{for_each_chunk, predicted};
use crate::error::LinearError;
use crate::kernels::Simd;
use crate::problem::{Loss, Problem};
use crate::weights::Weights;

/// What a model says of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction<'a> {
    /// The class predicted: by the sign with two classes, else the largest value, the first of equals.
    pub class: u32,
    /// w·x of each subproblem.
    pub values: &'a [f64],
}

/// Calls `each` with the number of each row of `block` and what the model says of it. Features that
/// the model does not know count as absent.
///
/// Cost: a dot product a row and subproblem; no allocation beyond a few thousand rows' values.
pub fn predict(
    weights: &Weights,
    block: &RowTable,
    simd: Simd,
    mut each: impl FnMut(usize, Prediction<'_>),
) {
    let mut row_values = vec![0.0; weights.subproblems()];
    let walked = for_each_chunk(weights, block, simd, |start, values, length| {
        for i in 0..length {
            for (subproblem, value) in row_values.iter_mut().enumerate() {
                *value = values[subproblem * length + i];
            }
            let prediction = Prediction {
                class: predicted(values, length, i),
                values: &row_values,
            };
            each(start + i, prediction);
        }
        Ok::<(), std::convert::Infallible>(())
    });
    let Ok(()) = walked;
}

/// Class probabilities of a logistic model from its decision values, as LIBLINEAR computes them: σ(v)
/// for two classes; else σ of each value, divided by their sum. `None` for other losses, whose values
/// are no log-odds.
pub fn probabilities(loss: Loss, values: &[f64], out: &mut Vec<f64>) -> Option<()> {
    if loss != Loss::Logistic {
        return None;
    }
    out.clear();
    out.extend(values.iter().map(|&value| 1.0 / (1.0 + (-value).exp())));
    if let [positive] = out[..] {
        out.push(1.0 - positive);
    } else {
        let sum: f64 = out.iter().sum();
        out.iter_mut().for_each(|p| *p /= sum);
    }
    Some(())
}

/// How often rows of one class were given another.
#[derive(Clone, Debug, PartialEq)]
pub struct Confusion {
    classes: usize,
    counts: Vec<u64>,
}

impl Confusion {
    /// Nothing counted yet.
    pub fn new(classes: usize) -> Confusion {
        Confusion {
            classes,
            counts: vec![0; classes * classes],
        }
    }

    /// Adds the rows of a block.
    pub fn add(
        &mut self,
        problem: &Problem,
        block: &RowTable,
        weights: &Weights,
        simd: Simd,
    ) -> Result<(), LinearError> {
        let classes = problem.classes();
        for_each_chunk(weights, block, simd, |start, values, length| {
            for i in 0..length {
                let class = block.label(start + i);
                if class as usize >= classes {
                    return Err(LinearError::UnknownClass { class, classes });
                }
                let guess = predicted(values, length, i);
                self.counts[class as usize * self.classes + guess as usize] += 1;
            }
            Ok(())
        })
    }

    /// Rows of class `class` that were given class `predicted`.
    pub fn count(&self, class: u32, predicted: u32) -> u64 {
        self.counts[class as usize * self.classes + predicted as usize]
    }

    /// Rows counted.
    pub fn rows(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Share of the rows given their own class; 0 when there are none.
    pub fn accuracy(&self) -> f64 {
        let correct: u64 = (0..self.classes)
            .map(|c| self.counts[c * (self.classes + 1)])
            .sum();
        correct as f64 / self.rows().max(1) as f64
    }
}
