//! Batch norm with the operations after it, and layer norm.

use pelton_kernels::LayerNorm;
use pelton_kernels::norm::{Backward, BatchNorm, Gradients, Running, Saved};

use crate::memory::Block;
use crate::operands::{EPSILON, MOMENTUM, NormMode};
use crate::tape::{Tape, Taped};
use crate::tensor::Tensor;

fn norm<'a>(gamma: &'a Tensor, beta: &'a Tensor, relu: bool) -> BatchNorm<'a> {
    BatchNorm {
        gamma,
        beta,
        epsilon: EPSILON,
        relu,
    }
}

/// A batch norm over the last axis of an image or of rows, then plus `residual`, then the ReLU, if `mode` has one. In
/// training `running` (mean, variance) follows the batch; gradients flow in training only.
pub(crate) fn batch_norm(
    tape: &mut Tape,
    x: &Taped,
    [gamma, beta]: [&Taped; 2],
    [mean, variance]: [&mut Tensor; 2],
    residual: Option<&Taped>,
    mode: NormMode,
) -> Taped {
    let mut y = Block::new(x.len());
    let of = norm(gamma, beta, mode.relu);
    let added = residual.map(|residual| &***residual);
    if !mode.training {
        of.evaluate(x, added, mean, variance, &mut y);
        return Tensor::new(y, x.shape()).into();
    }
    let channels = gamma.len();
    let mut saved = [Block::new(channels), Block::new(channels)];
    let running = Running {
        mean: mean.numbers_mut(),
        variance: variance.numbers_mut(),
        momentum: MOMENTUM,
    };
    let [batch_mean, inverse_deviation] = &mut saved;
    let statistics = Saved {
        mean: batch_mean,
        inverse_deviation,
    };
    of.train(x, added, Some(running), statistics, &mut y);
    let y = Tensor::new(y, x.shape());

    let inputs = [x.node, gamma.node, beta.node, residual.and_then(|r| r.node)];
    let (kept, x) = (y.clone(), x.value.clone());
    let (gamma, beta) = (gamma.value.clone(), beta.value.clone());
    tape.record(inputs, y, move |dy, [.., wants_residual]| {
        let mut dx = Block::new(x.len());
        let [mut dgamma, mut dbeta] = [Block::new(channels), Block::new(channels)];
        // Without a ReLU the residual's gradient is that of the output.
        let mut dr = (wants_residual && mode.relu).then(|| Block::new(x.len()));
        norm(&gamma, &beta, mode.relu).backward(
            Backward {
                x: &x,
                y: &kept,
                dy: &dy,
                mean: &saved[0],
                inverse_deviation: &saved[1],
            },
            Gradients {
                x: &mut dx,
                gamma: &mut dgamma,
                beta: &mut dbeta,
                residual: dr.as_deref_mut(),
            },
        );
        [
            Some(Tensor::new(dx, x.shape())),
            Some(Tensor::new(dgamma, &[channels])),
            Some(Tensor::new(dbeta, &[channels])),
            match dr {
                Some(dr) => Some(Tensor::new(dr, x.shape())),
                None => wants_residual.then_some(dy),
            },
        ]
    })
}

/// Layer norm over the last axis.
pub(crate) fn layer_norm(tape: &mut Tape, x: &Taped, gamma: &Taped, beta: &Taped) -> Taped {
    let width = gamma.len();
    let mut y = Block::new(x.len());
    let mut statistics = Block::new(2 * x.len() / width.max(1));
    rows(gamma, beta).forward(x, &mut y, &mut statistics);

    let inputs = [x.node, gamma.node, beta.node];
    let y = Tensor::new(y, x.shape());
    let x = x.value.clone();
    let (gamma, beta) = (gamma.value.clone(), beta.value.clone());
    tape.record(inputs, y, move |dy, _| {
        let mut dx = Block::new(x.len());
        let [mut dgamma, mut dbeta] = [Block::new(width), Block::new(width)];
        let of = rows(&gamma, &beta);
        of.backward(&x, &statistics, &dy, &mut dx, &mut dgamma, &mut dbeta);
        [
            Some(Tensor::new(dx, x.shape())),
            Some(Tensor::new(dgamma, &[width])),
            Some(Tensor::new(dbeta, &[width])),
        ]
    })
}

fn rows<'a>(gamma: &'a Tensor, beta: &'a Tensor) -> LayerNorm<'a> {
    LayerNorm {
        gamma,
        beta,
        eps: EPSILON,
    }
}
