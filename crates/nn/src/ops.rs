//! The operators of the nets, on any Burn backend.
//!
//! Each has a body here that is composed of Burn's own operators: it runs on every device, is differentiated by Burn,
//! and is the oracle in tests. `flex` has the ones that carry the time on a CPU, over the crate `kernels`.
//!
//! Images are [batch, height, width, channels]; weights of convolutions [out, kernel height, kernel width, in];
//! sequences [steps, batch, width].

use burn_backend::Backend;

use crate::composed;
use crate::operands::{Counts, F, LossOptions, LstmWeights, NormMode, Window};
use crate::optimiser::{Slot, Update};

/// Backends that nets run on.
pub trait Ops: Backend {
    /// A convolution, with a ReLU behind it or none.
    fn nn_conv2d(
        x: F<Self>,
        weight: F<Self>,
        bias: Option<F<Self>>,
        at: Window,
        relu: bool,
    ) -> F<Self> {
        composed::conv2d::<Self>(x, weight, bias, at, relu)
    }

    /// A batch norm over the last axis of an image or of rows, then plus `residual`, then the ReLU that `mode` may ask
    /// for. In training `running` (mean, variance) follows.
    fn nn_batch_norm(
        x: F<Self>,
        gamma: F<Self>,
        beta: F<Self>,
        running: &mut [F<Self>; 2],
        residual: Option<F<Self>>,
        mode: NormMode,
    ) -> F<Self> {
        composed::batch_norm::<Self>(x, gamma, beta, running, residual, mode)
    }

    /// max(x, 0).
    fn nn_relu(x: F<Self>) -> F<Self> {
        composed::relu::<Self>(x)
    }

    /// The sum of two tensors of one shape.
    fn nn_add(x: F<Self>, y: F<Self>) -> F<Self> {
        composed::add::<Self>(x, y)
    }

    /// The largest value of each window.
    fn nn_max_pool(x: F<Self>, at: Window) -> F<Self> {
        composed::max_pool::<Self>(x, at)
    }

    /// The mean over height and width: [batch, channels].
    fn nn_average(x: F<Self>) -> F<Self> {
        composed::average::<Self>(x)
    }

    /// x·wᵀ + b over the last axis; `weight` is [out, in].
    fn nn_linear(x: F<Self>, weight: F<Self>, bias: Option<F<Self>>) -> F<Self> {
        composed::linear::<Self>(x, weight, bias)
    }

    /// Rows of `weight` [words, width] by number: [ids, width].
    fn nn_embedding(weight: F<Self>, ids: &[i64]) -> F<Self> {
        composed::embedding::<Self>(weight, ids)
    }

    /// One LSTM layer over a sequence [steps, batch, width] from the state (h, c), each [batch, hidden]; `keep`
    /// [steps · batch], where given, is 0 where the state before that step is taken as zero, otherwise 1. Returns the
    /// outputs [steps, batch, hidden] and the last state.
    fn nn_lstm(
        x: F<Self>,
        weights: LstmWeights<Self>,
        state: [F<Self>; 2],
        keep: Option<&[f32]>,
    ) -> (F<Self>, [F<Self>; 2]) {
        composed::lstm::<Self>(x, weights, state, keep)
    }

    /// Softmax and cross-entropy of `logits` [rows, classes] against `targets`, of which [`NO_TARGET`] counts for nothing:
    /// a scalar loss of one number, and what was counted.
    fn nn_cross_entropy(
        logits: F<Self>,
        targets: &[i64],
        options: LossOptions,
    ) -> (F<Self>, Counts) {
        composed::cross_entropy::<Self>(logits, targets, options)
    }

    /// Causal attention over queries, keys and values [batch, steps, 3, heads, width]: [batch, steps, heads · width]. A
    /// position sees those of its own segment up to itself; `segments` [batch · steps], where absent, is one a row.
    fn nn_attention(qkv: F<Self>, segments: Option<&[u32]>) -> F<Self> {
        composed::attention::<Self>(qkv, segments)
    }

    /// Layer norm over the last axis.
    fn nn_layer_norm(x: F<Self>, gamma: F<Self>, beta: F<Self>) -> F<Self> {
        composed::layer_norm::<Self>(x, gamma, beta)
    }

    /// x·Φ(x), by the error function.
    fn nn_gelu(x: F<Self>) -> F<Self> {
        composed::gelu::<Self>(x)
    }

    /// Zero with chance `rate`, else x / (1 − rate); which ones, `key` decides.
    fn nn_dropout(x: F<Self>, rate: f32, key: u64) -> F<Self> {
        composed::dropout::<Self>(x, rate, key)
    }

    /// A scalar, one number, whose gradient with respect to `x` is `gradient`: where a backward pass begins that another part of
    /// the net goes on with.
    fn seed_gradient(x: F<Self>, gradient: F<Self>) -> F<Self> {
        composed::seed_gradient::<Self>(x, gradient)
    }

    /// The 2-norm of all numbers of some tensors; not finite where one of them is not.
    fn norm(tensors: &[F<Self>]) -> f64 {
        composed::norm::<Self>(tensors)
    }

    /// One step of an optimiser, in place.
    fn update(update: &Update, slots: &mut [Slot<Self>]) {
        composed::update::<Self>(update, slots)
    }
}
