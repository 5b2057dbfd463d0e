//! Decision values, classes and probabilities.
//!
//! A decision value is summed in f64 over the features in ascending order, the bias last, as LIBLINEAR's `predict` sums
//! it. Weights and values are f32, so every product is exact, and both programs get the same bits from one `model.txt`:
//! they give rows with ties up to rounding, as between rare classes, the same class. The f32 sums of the training
//! kernels would be two to four times as fast, but reading the rows takes longer than either.

use pelton_format::{Row, RowTable};

use crate::loss::Loss;
use crate::weights::Weights;

/// The prediction for one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction<'a> {
    /// The class predicted: by the sign with two classes, else the largest value, the first of equals. Meaningless with
    /// real targets.
    pub class: u32,
    /// w·x of each subproblem.
    pub values: &'a [f64],
}

/// Calls `each` with the index and the prediction of each row of `block`. Features beyond the model count as absent.
///
/// Cost: a dot product for each row and subproblem; allocates only one row's values.
pub fn predict(weights: &Weights, block: &RowTable, each: impl FnMut(usize, Prediction<'_>)) {
    predict_some(weights, block, |_| true, each);
}

/// The same for the rows selected by `wants`.
pub fn predict_some(
    weights: &Weights,
    block: &RowTable,
    wants: impl Fn(usize) -> bool,
    mut each: impl FnMut(usize, Prediction<'_>),
) {
    let mut values = vec![0.0; weights.subproblems()];
    for i in (0..block.len()).filter(|i| wants(*i)) {
        for (subproblem, value) in values.iter_mut().enumerate() {
            *value = decision_value(weights, subproblem, block.row(i));
        }
        let class = class_of(&values);
        let values = &values;
        each(i, Prediction { class, values });
    }
}

fn decision_value(weights: &Weights, subproblem: usize, row: Row<'_>) -> f64 {
    let (vector, bias_weight) = weights.vector(subproblem).split_at(weights.features());
    let product = |weight: f32, value: f32| f64::from(weight) * f64::from(value);
    let mut sum = 0.0;
    match row {
        Row::Dense(values) => {
            for (&weight, &value) in vector.iter().zip(values) {
                sum += product(weight, value);
            }
        }
        Row::Sparse { indices, values } => {
            for (&index, &value) in indices.iter().zip(values) {
                if let Some(&weight) = vector.get(index as usize) {
                    sum += product(weight, value);
                }
            }
        }
        Row::Bytes(_) => {}
    }
    if let (Some(bias), [weight]) = (weights.bias(), bias_weight) {
        sum += product(*weight, bias);
    }
    sum
}

fn class_of(values: &[f64]) -> u32 {
    if let [value] = values {
        return u32::from(*value <= 0.0);
    }
    let mut best = 0;
    for (class, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = class;
        }
    }
    best as u32
}

/// Class probabilities of a model from its decision values: σ(v) for two classes; else, as LIBLINEAR defines them, σ of
/// each value, divided by their sum, or with the multinomial loss e^v of each value, divided by their sum. `None` for
/// losses without log-odds.
pub fn probabilities(loss: Loss, values: &[f64], out: &mut Vec<f64>) -> Option<()> {
    log_probabilities(loss, values, out)?;
    out.iter_mut().for_each(|share| *share = share.exp());
    Some(())
}

/// Their logarithms: of low values all shares may be smaller than numbers can be, but not their ratios.
pub(crate) fn log_probabilities(loss: Loss, values: &[f64], out: &mut Vec<f64>) -> Option<()> {
    let log_share = loss.log_share()?;
    out.clear();
    if let [value] = *values {
        out.extend([value, -value].map(log_share));
        return Some(());
    }
    if loss.is_of_all_classes() {
        out.extend(values);
    } else {
        out.extend(values.iter().copied().map(log_share));
    }
    let most = out.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = out.iter().map(|share| (share - most).exp()).sum();
    let all = most + sum.ln();
    out.iter_mut().for_each(|share| *share -= all);
    Some(())
}
