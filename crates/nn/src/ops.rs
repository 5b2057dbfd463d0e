//! The operators of the nets, on any Burn backend.
//!
//! Each has a body here that is composed of Burn's own operators: it runs on every device, is differentiated by Burn,
//! and is the oracle in tests. `flex` has the ones that carry the time on a CPU, over the crate `kernels`.
//!
//! Images are [batch, height, width, channels]; weights of convolutions [out, kernel height, kernel width, in];
//! sequences [steps, batch, width].

use burn_backend::ops::ConvOptions;
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, TensorMetadata};
use burn_tensor::activation::{gelu, log_softmax, relu, sigmoid, softmax, tanh};
use burn_tensor::module;
use burn_tensor::{Bool, Distribution, Int, Tensor, TensorData, TensorPrimitive};

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

fn t<B: Backend, const D: usize>(x: F<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(x))
}

fn f<B: Backend, const D: usize>(x: Tensor<B, D>) -> F<B> {
    x.into_primitive().tensor()
}

/// Places numbers on a device.
pub(crate) fn place<B: Backend, const D: usize>(
    values: Vec<f32>,
    shape: [usize; D],
    device: &B::Device,
) -> F<B> {
    f::<B, D>(Tensor::from_data(TensorData::new(values, shape), device))
}

/// The numbers of a tensor.
pub(crate) fn numbers<B: Backend>(x: F<B>) -> Vec<f32> {
    let data = t::<B, 1>(flat::<B>(x)).into_data().convert::<f32>();
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

/// Backends that nets run on. See the [module](self).
pub trait Ops: Backend {
    /// A convolution, with a ReLU behind it or none.
    fn nn_conv2d(
        x: F<Self>,
        weight: F<Self>,
        bias: Option<F<Self>>,
        at: Window,
        relu: bool,
    ) -> F<Self> {
        let x = t::<Self, 4>(x).permute([0, 3, 1, 2]);
        let weight = t::<Self, 4>(weight).permute([0, 3, 1, 2]);
        let options = ConvOptions::new([at.stride; 2], [at.padding; 2], [1, 1], 1);
        let y = module::conv2d(x, weight, bias.map(t::<Self, 1>), options);
        let y = y.permute([0, 2, 3, 1]);
        f(if relu {
            burn_tensor::activation::relu(y)
        } else {
            y
        })
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
        let shape = dims::<Self>(&x);
        let width = shape[shape.len() - 1];
        let x = t::<Self, 2>(reshape::<Self>(
            x,
            &[shape.iter().product::<usize>() / width, width],
        ));
        let rows = x.dims()[0] as f32;
        let (mean, variance) = if mode.training {
            let mean = x.clone().mean_dim(0);
            let variance = (x.clone() - mean.clone()).powi_scalar(2).mean_dim(0);
            let follow = |old: F<Self>, new: Tensor<Self, 2>| {
                let new = new.detach().reshape([width]);
                f(t::<Self, 1>(old) * (1.0 - MOMENTUM) + new * MOMENTUM)
            };
            running[0] = follow(running[0].clone(), mean.clone());
            let unbiased = rows / (rows - 1.0).max(1.0);
            running[1] = follow(running[1].clone(), variance.clone() * unbiased);
            (mean, variance)
        } else {
            let [mean, variance] = running.clone();
            (
                t::<Self, 1>(mean).unsqueeze(),
                t::<Self, 1>(variance).unsqueeze(),
            )
        };
        let mut y = (x - mean) / (variance + EPSILON).sqrt();
        y = y * t::<Self, 1>(gamma).unsqueeze() + t::<Self, 1>(beta).unsqueeze();
        if let Some(residual) = residual {
            y = y + t::<Self, 2>(residual_rows::<Self>(residual, width));
        }
        if mode.relu {
            y = relu(y);
        }
        reshape::<Self>(f(y), &shape)
    }

    /// max(x, 0).
    fn nn_relu(x: F<Self>) -> F<Self> {
        let shape = dims::<Self>(&x);
        reshape::<Self>(f(relu(t::<Self, 1>(flat::<Self>(x)))), &shape)
    }

    /// The sum of two tensors of one shape.
    fn nn_add(x: F<Self>, y: F<Self>) -> F<Self> {
        Self::float_add(x, y)
    }

    /// The largest value of each window.
    fn nn_max_pool(x: F<Self>, at: Window) -> F<Self> {
        let x = t::<Self, 4>(x).permute([0, 3, 1, 2]);
        let (kernel, stride, padding) = ([at.kernel; 2], [at.stride; 2], [at.padding; 2]);
        f(module::max_pool2d(x, kernel, stride, padding, [1, 1], false).permute([0, 2, 3, 1]))
    }

    /// The mean over height and width: [batch, channels].
    fn nn_average(x: F<Self>) -> F<Self> {
        let [batch, height, width, channels] = dims::<Self>(&x)[..] else {
            panic!("an image has four axes")
        };
        let x = t::<Self, 3>(reshape::<Self>(x, &[batch, height * width, channels]));
        f(x.mean_dim(1).reshape([batch, channels]))
    }

    /// x·wᵀ + b over the last axis; `weight` is [out, in].
    fn nn_linear(x: F<Self>, weight: F<Self>, bias: Option<F<Self>>) -> F<Self> {
        let mut shape = dims::<Self>(&x);
        let [out, width] = dims::<Self>(&weight)[..] else {
            panic!("a weight has two axes")
        };
        let rows = shape.iter().product::<usize>() / width;
        let x = t::<Self, 2>(reshape::<Self>(x, &[rows, width]));
        let mut y = x.matmul(t::<Self, 2>(weight).transpose());
        if let Some(bias) = bias {
            y = y + t::<Self, 1>(bias).unsqueeze();
        }
        *shape.last_mut().expect("an axis") = out;
        reshape::<Self>(f(y), &shape)
    }

    /// Rows of `weight` [words, width] by number: [ids, width].
    fn nn_embedding(weight: F<Self>, ids: &[i64]) -> F<Self> {
        let weight = t::<Self, 2>(weight);
        let ids = Tensor::<Self, 1, Int>::from_data(
            TensorData::new(ids.to_vec(), [ids.len()]),
            &weight.device(),
        );
        f(weight.select(0, ids))
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
        let [steps, batch, width] = dims::<Self>(&x)[..] else {
            panic!("a sequence has three axes")
        };
        let hidden = dims::<Self>(&weights.hidden)[1];
        let x = t::<Self, 3>(x);
        let device = x.device();
        let input = t::<Self, 2>(weights.input).transpose();
        let recurrent = t::<Self, 2>(weights.hidden).transpose();
        let bias = t::<Self, 1>(weights.input_bias) + t::<Self, 1>(weights.hidden_bias);
        let gates = x.reshape([steps * batch, width]).matmul(input) + bias.unsqueeze();
        let gates = gates.reshape([steps, batch, 4 * hidden]);
        let [mut h, mut c] = state.map(t::<Self, 2>);
        let mut outputs = Vec::with_capacity(steps);
        for step in 0..steps {
            if let Some(keep) = keep {
                let keep = keep[step * batch..][..batch].to_vec();
                let keep = Tensor::<Self, 2>::from_data(TensorData::new(keep, [batch, 1]), &device);
                h = h * keep.clone();
                c = c * keep;
            }
            let now = gates
                .clone()
                .narrow(0, step, 1)
                .reshape([batch, 4 * hidden]);
            let now = now + h.matmul(recurrent.clone());
            let gate = |k: usize| now.clone().narrow(1, k * hidden, hidden);
            c = sigmoid(gate(1)) * c + sigmoid(gate(0)) * tanh(gate(2));
            h = sigmoid(gate(3)) * tanh(c.clone());
            outputs.push(h.clone().unsqueeze::<3>());
        }
        (f(Tensor::cat(outputs, 0)), [f(h), f(c)])
    }

    /// Softmax and cross-entropy of `logits` [rows, classes] against `targets`, of which [`NO_TARGET`] counts for nothing:
    /// a scalar loss [1], and what was counted.
    fn nn_cross_entropy(
        logits: F<Self>,
        targets: &[i64],
        options: LossOptions,
    ) -> (F<Self>, Counts) {
        let logits = t::<Self, 2>(logits);
        let [rows, classes] = logits.dims();
        let device = logits.device();
        let has: Vec<f32> = targets.iter().map(|&y| f32::from(y >= 0)).collect();
        let index: Vec<i64> = targets.iter().map(|&y| y.max(0)).collect();
        let has = Tensor::<Self, 2>::from_data(TensorData::new(has, [rows, 1]), &device);
        let index = Tensor::<Self, 2, Int>::from_data(TensorData::new(index, [rows, 1]), &device);
        let best = logits.clone().detach().argmax(1);
        let correct = best.equal(index.clone()).float() * has.clone();
        let log_p = log_softmax(logits, 1);
        let of_target = log_p.clone().gather(1, index) * has.clone();
        let mut loss = of_target.sum().neg() * (1.0 - options.smoothing);
        if options.smoothing > 0.0 {
            let all = (log_p * has.clone()).sum().neg();
            loss = loss + all * (options.smoothing / classes as f32);
        }
        let read = |x: Tensor<Self, 1>| f64::from(numbers::<Self>(f(x))[0]);
        let counts = Counts {
            loss: read(loss.clone().detach()),
            rows: targets.iter().filter(|&&y| y >= 0).count() as u64,
            correct: read(correct.sum()) as u64,
        };
        (f(loss * options.scale), counts)
    }

    /// Causal attention over queries, keys and values [batch, steps, 3, heads, width]: [batch, steps, heads · width]. A
    /// position sees those of its own segment up to itself; `segments` [batch · steps], where absent, is one a row.
    fn nn_attention(qkv: F<Self>, segments: Option<&[u32]>) -> F<Self> {
        let [batch, steps, _, heads, width] = dims::<Self>(&qkv)[..] else {
            panic!("queries, keys and values have five axes")
        };
        let qkv = t::<Self, 5>(qkv);
        let device = qkv.device();
        let part = |k: usize| {
            let part = qkv.clone().narrow(2, k, 1);
            part.reshape([batch, steps, heads, width]).swap_dims(1, 2)
        };
        let scores = part(0).matmul(part(1).transpose()) / (width as f32).sqrt();
        let hidden: Vec<bool> = (0..batch * steps * steps)
            .map(|at| {
                let (row, query, key) = (at / steps / steps, at / steps % steps, at % steps);
                let segment = |i: usize| segments.map_or(0, |s| s[row * steps + i]);
                key > query || segment(key) != segment(query)
            })
            .collect();
        let hidden = Tensor::<Self, 4, Bool>::from_data(
            TensorData::new(hidden, [batch, 1, steps, steps]),
            &device,
        );
        let scores = scores.mask_fill(
            hidden.expand([batch, heads, steps, steps]),
            f32::NEG_INFINITY,
        );
        let y = softmax(scores, 3).matmul(part(2)).swap_dims(1, 2);
        f(y.reshape([batch, steps, heads * width]))
    }

    /// Layer norm over the last axis.
    fn nn_layer_norm(x: F<Self>, gamma: F<Self>, beta: F<Self>) -> F<Self> {
        let shape = dims::<Self>(&x);
        let width = shape[shape.len() - 1];
        let x = t::<Self, 2>(reshape::<Self>(
            x,
            &[shape.iter().product::<usize>() / width, width],
        ));
        let centred = x.clone() - x.mean_dim(1);
        let variance = centred.clone().powi_scalar(2).mean_dim(1);
        let y = centred / (variance + EPSILON).sqrt();
        let y = y * t::<Self, 1>(gamma).unsqueeze() + t::<Self, 1>(beta).unsqueeze();
        reshape::<Self>(f(y), &shape)
    }

    /// x·Φ(x), by the error function.
    fn nn_gelu(x: F<Self>) -> F<Self> {
        let shape = dims::<Self>(&x);
        reshape::<Self>(f(gelu(t::<Self, 1>(flat::<Self>(x)))), &shape)
    }

    /// Zero with chance `rate`, else x / (1 − rate); which ones, `key` decides.
    fn nn_dropout(x: F<Self>, rate: f32, key: u64) -> F<Self> {
        let shape = dims::<Self>(&x);
        let x = t::<Self, 1>(flat::<Self>(x));
        Self::seed(&x.device(), key);
        let keep = Distribution::Bernoulli(1.0 - f64::from(rate));
        let mask = Tensor::<Self, 1>::random(x.dims(), keep, &x.device());
        reshape::<Self>(f(x * mask / (1.0 - rate)), &shape)
    }

    /// A scalar [1] whose gradient with respect to `x` is `gradient`: where a backward pass begins that another part of
    /// the net goes on with.
    fn seed_gradient(x: F<Self>, gradient: F<Self>) -> F<Self> {
        let x = t::<Self, 1>(flat::<Self>(x));
        f((x * t::<Self, 1>(flat::<Self>(gradient))).sum())
    }

    /// The 2-norm of all numbers of some tensors; not finite where one of them is not.
    fn norm(tensors: &[F<Self>]) -> f64 {
        let square = |x: &F<Self>| {
            let sum = t::<Self, 1>(flat::<Self>(x.clone())).powi_scalar(2).sum();
            numbers::<Self>(f(sum))[0]
        };
        tensors
            .iter()
            .map(|x| f64::from(square(x)))
            .sum::<f64>()
            .sqrt()
    }

    /// One step of an optimiser, in place.
    fn update(update: &Update, slots: &mut [Slot<Self>]) {
        crate::optimiser::by_tensors(update, slots);
    }
}

fn flat<B: Backend>(x: F<B>) -> F<B> {
    let all = dims::<B>(&x).iter().product();
    reshape::<B>(x, &[all])
}

fn residual_rows<B: Backend>(x: F<B>, width: usize) -> F<B> {
    let all: usize = dims::<B>(&x).iter().product();
    reshape::<B>(x, &[all / width, width])
}
