//! The operators of the nets, on any Burn backend.
//!
//! Each has a body here that is composed of Burn's own operators: it runs on every device, is differentiated by Burn,
//! and is the oracle in tests. `flex` has the ones that carry the time on a CPU, over the crate `kernels`.
//!
//! Images are [batch, height, width, channels]; weights of convolutions [out, kernel height, kernel width, in];
//! sequences [steps, batch, width].

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, TensorMetadata};
use burn_tensor::{Tensor, TensorData, TensorPrimitive};

use crate::composed;
use crate::optimiser::{Slot, Update};

/// A tensor of f32 with its shape at run time.
pub type F<B> = FloatTensor<B>;

/// Where a window of a convolution or a pool stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Height and width.
    pub kernel: usize,
    /// Rows and columns from one to the next.
    pub stride: usize,
    /// Rows and columns of zeros around the image.
    pub padding: usize,
}

impl Window {
    /// Windows along a side of `size`; 0 where the image is smaller than the kernel.
    pub fn over(self, size: usize) -> usize {
        (size + 2 * self.padding)
            .checked_sub(self.kernel)
            .map_or(0, |rest| rest / self.stride + 1)
    }
}

/// What a batch norm does beside normalising.
#[derive(Clone, Copy, Debug)]
pub struct NormMode {
    /// Whether the statistics are those of the batch, and the running ones follow them.
    pub training: bool,
    /// Whether negative results become 0.
    pub relu: bool,
}

/// ε of batch norms and layer norms.
pub const EPSILON: f32 = 1e-5;
/// How far running statistics move towards those of a batch.
pub const MOMENTUM: f32 = 0.1;

/// The weights of one LSTM layer: PyTorch's, gates in the order i, f, g, o.
#[derive(Clone, Debug)]
pub struct LstmWeights<B: Backend> {
    /// [4·hidden, width of the input].
    pub input: F<B>,
    /// [4·hidden, hidden].
    pub hidden: F<B>,
    /// [4·hidden].
    pub input_bias: F<B>,
    /// [4·hidden].
    pub hidden_bias: F<B>,
}

impl<B: Backend> LstmWeights<B> {
    /// In the order of the fields.
    pub(crate) fn all(self) -> [F<B>; 4] {
        [self.input, self.hidden, self.input_bias, self.hidden_bias]
    }
}

/// How the loss of a batch is counted.
#[derive(Clone, Copy, Debug)]
pub struct LossOptions {
    /// The loss is the sum over the rows times this.
    pub scale: f32,
    /// Part of the probability that the target shares with all classes alike.
    pub smoothing: f32,
}

/// What a loss counted, without its scale.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Sum of the losses of the rows; −log p of the targets where nothing is smoothed.
    pub loss: f64,
    /// Rows that have a target.
    pub rows: u64,
    /// Rows whose largest logit is that of the target.
    pub correct: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.loss += other.loss;
        self.rows += other.rows;
        self.correct += other.correct;
    }
}

/// A target that is none: padding.
pub const NO_TARGET: i64 = -1;

/// Places numbers on a device.
pub(crate) fn place<B: Backend, const D: usize>(
    values: Vec<f32>,
    shape: [usize; D],
    device: &B::Device,
) -> F<B> {
    let data = TensorData::new(values, shape);
    B::float_from_data(data, device)
}

/// The numbers of a tensor.
pub(crate) fn numbers<B: Backend>(x: F<B>) -> Vec<f32> {
    let all = dims::<B>(&x).iter().product();
    let x = Tensor::<B, 1>::from_primitive(TensorPrimitive::Float(reshape::<B>(x, &[all])));
    let data = x.into_data().convert::<f32>();
    data.to_vec().expect("just converted to f32")
}

/// The sizes of a tensor.
pub(crate) fn dims<B: Backend>(x: &F<B>) -> Vec<usize> {
    x.shape().to_vec()
}

/// The same numbers under another shape.
pub(crate) fn reshape<B: Backend>(x: F<B>, shape: &[usize]) -> F<B> {
    B::float_reshape(x, burn_std::Shape::from(shape.to_vec()))
}

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
