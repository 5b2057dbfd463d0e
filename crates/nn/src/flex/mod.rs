//! The operators that carry the time, on a CPU: `kernels` behind Burn's Flex backend, with and without its tape.

mod attention;
mod convolution;
mod loss;
mod norms;
mod rows;
mod sequence;
mod tape;
#[cfg(test)]
mod tests;

use burn_autodiff::Autodiff;
use burn_flex::{Flex, FlexTensor};

use crate::memory::{Block, slice};
use crate::operands::{Counts, F, LossOptions, LstmWeights, NormMode, Window};
use crate::ops::Ops;
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

    fn nn_batch_norm(
        x: F<Self>,
        gamma: F<Self>,
        beta: F<Self>,
        running: &mut [F<Self>; 2],
        residual: Option<F<Self>>,
        mode: NormMode,
    ) -> F<Self> {
        norms::batch_norm(x, gamma, beta, running, residual, mode)
    }

    fn nn_max_pool(x: F<Self>, at: Window) -> F<Self> {
        norms::max_pool(x, at)
    }

    fn nn_average(x: F<Self>) -> F<Self> {
        norms::average(x)
    }

    fn nn_layer_norm(x: F<Self>, gamma: F<Self>, beta: F<Self>) -> F<Self> {
        norms::layer_norm(x, gamma, beta)
    }

    fn nn_gelu(x: F<Self>) -> F<Self> {
        rows::gelu(x)
    }

    fn nn_dropout(x: F<Self>, rate: f32, key: u64) -> F<Self> {
        rows::dropout(x, rate, key)
    }

    fn nn_attention(qkv: F<Self>, segments: Option<&[u32]>) -> F<Self> {
        attention::attention(qkv, segments)
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

    fn nn_batch_norm(
        x: F<Self>,
        gamma: F<Self>,
        beta: F<Self>,
        running: &mut [F<Self>; 2],
        residual: Option<F<Self>>,
        mode: NormMode,
    ) -> F<Self> {
        norms::batch_norm_taped(x, gamma, beta, running, residual, mode)
    }

    fn nn_max_pool(x: F<Self>, at: Window) -> F<Self> {
        norms::max_pool_taped(x, at)
    }

    fn nn_average(x: F<Self>) -> F<Self> {
        norms::average_taped(x)
    }

    fn nn_layer_norm(x: F<Self>, gamma: F<Self>, beta: F<Self>) -> F<Self> {
        norms::layer_norm_taped(x, gamma, beta)
    }

    fn nn_gelu(x: F<Self>) -> F<Self> {
        rows::gelu_taped(x)
    }

    fn nn_dropout(x: F<Self>, rate: f32, key: u64) -> F<Self> {
        rows::dropout_taped(x, rate, key)
    }

    fn nn_attention(qkv: F<Self>, segments: Option<&[u32]>) -> F<Self> {
        attention::attention_taped(qkv, segments)
    }

    fn nn_add(x: F<Self>, y: F<Self>) -> F<Self> {
        rows::add_taped(x, y)
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
