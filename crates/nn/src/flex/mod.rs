//! The operators that carry the time, on a CPU: `kernels` behind Burn's Flex backend, with and without its tape.

mod convolution;
mod loss;
mod rows;
mod sequence;
mod tape;

use burn_autodiff::Autodiff;
use burn_flex::{Flex, FlexTensor};

use crate::memory::{Block, slice};
use crate::ops::{Counts, F, LossOptions, LstmWeights, NormMode, Ops, Window};
use crate::optimiser::{Slot, Update};

/// The sizes of a tensor.
fn sizes(x: &FlexTensor) -> Vec<usize> {
    x.layout().shape().to_vec()
}

/// A bias as numbers, once its tensor is at hand.
fn numbers(x: &Option<FlexTensor>) -> Option<&[f32]> {
    x.as_ref().map(slice)
}

impl Ops for Flex {
    fn nn_conv2d(x: F<Self>, w: F<Self>, b: Option<F<Self>>, at: Window, relu: bool) -> F<Self> {
        convolution::forward(x, w, b, at, relu)
    }

    fn nn_relu(x: F<Self>) -> F<Self> {
        rows::relu(x)
    }

    fn nn_add(x: F<Self>, y: F<Self>) -> F<Self> {
        rows::add(x, &y)
    }

    fn nn_linear(x: F<Self>, weight: F<Self>, bias: Option<F<Self>>) -> F<Self> {
        rows::linear(&x, &weight, bias.as_ref())
    }

    fn nn_embedding(weight: F<Self>, ids: &[i64]) -> F<Self> {
        sequence::embedding(&weight, ids)
    }

    fn nn_lstm(
        x: F<Self>,
        weights: LstmWeights<Self>,
        state: [F<Self>; 2],
        keep: Option<&[f32]>,
    ) -> (F<Self>, [F<Self>; 2]) {
        sequence::lstm(x, weights.all(), state, keep)
    }

    fn nn_cross_entropy(
        logits: F<Self>,
        targets: &[i64],
        options: LossOptions,
    ) -> (F<Self>, Counts) {
        let counts = loss::counts(&logits, targets);
        // The loss itself is asked for in training only, with a tape.
        let value = (counts.loss * f64::from(options.scale)) as f32;
        (Block::of(&[value]).tensor(&[1]), counts)
    }

    fn norm(tensors: &[F<Self>]) -> f64 {
        loss::norm(tensors)
    }

    fn update(update: &Update, slots: &mut [Slot<Self>]) {
        loss::update(update, slots);
    }
}

impl Ops for Autodiff<Flex> {
    fn nn_conv2d(x: F<Self>, w: F<Self>, b: Option<F<Self>>, at: Window, relu: bool) -> F<Self> {
        convolution::taped(x, w, b, at, relu)
    }

    fn nn_relu(x: F<Self>) -> F<Self> {
        rows::relu_taped(x)
    }

    fn nn_linear(x: F<Self>, weight: F<Self>, bias: Option<F<Self>>) -> F<Self> {
        rows::linear_taped(x, weight, bias)
    }

    fn nn_embedding(weight: F<Self>, ids: &[i64]) -> F<Self> {
        sequence::embedding_taped(weight, ids)
    }

    fn nn_lstm(
        x: F<Self>,
        weights: LstmWeights<Self>,
        state: [F<Self>; 2],
        keep: Option<&[f32]>,
    ) -> (F<Self>, [F<Self>; 2]) {
        sequence::lstm_taped(x, weights.all(), state, keep)
    }

    fn nn_cross_entropy(
        logits: F<Self>,
        targets: &[i64],
        options: LossOptions,
    ) -> (F<Self>, Counts) {
        loss::taped(logits, targets, options)
    }
}
