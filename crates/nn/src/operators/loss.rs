//! Cross-entropy, the start of a backward pass.

use pelton_kernels::{CrossEntropy, Loss, Targets, Upstream};

use crate::operands::{Counts, LossOptions, NO_TARGET};
use crate::tensor::Tensor;

fn of(loss: &Loss) -> Counts {
    Counts {
        loss: loss.sum,
        rows: loss.count as u64,
        correct: loss.correct as u64,
    }
}

fn cross_entropy<'a>(logits: &Tensor, targets: &'a [i64], smoothing: f32) -> CrossEntropy<'a> {
    CrossEntropy {
        classes: logits.width(),
        targets: Targets::I64(targets),
        ignore: Some(NO_TARGET),
        smoothing,
        bias: None,
    }
}

/// The loss of `logits` [.., classes] against `targets`; rows with [`NO_TARGET`] do not count.
pub(crate) fn counts(logits: &Tensor, targets: &[i64]) -> Counts {
    of(&cross_entropy(logits, targets, 0.0).loss(logits, None))
}

/// The gradient of the scaled loss, in the memory of the logits if that is not shared, and the counts.
pub(crate) fn loss_gradient(
    mut logits: Tensor,
    targets: &[i64],
    options: LossOptions<'_>,
) -> (Tensor, Counts) {
    let of_rows = cross_entropy(&logits, targets, options.smoothing);
    let Some(factors) = options.factors(targets) else {
        let upstream = Upstream::Sum(options.scale);
        let loss = of_rows.gradient(logits.numbers_mut(), upstream, None, None);
        return (logits, of(&loss));
    };
    let mut losses = vec![0.0; targets.len()];
    let scaled: Vec<f32> = factors
        .iter()
        .map(|factor| options.scale * factor)
        .collect();
    let upstream = Upstream::Rows(&scaled);
    let mut loss = of_rows.gradient(logits.numbers_mut(), upstream, None, Some(&mut losses));
    let weighted = factors
        .iter()
        .zip(losses)
        .map(|(&factor, loss)| f64::from(factor) * f64::from(loss));
    loss.sum = weighted.sum();
    (logits, of(&loss))
}
