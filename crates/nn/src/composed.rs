//! The operators of [`Ops`](crate::ops::Ops) composed of Burn's own: what runs on devices that have none of ours, and
//! the oracle of those that do.

use burn_backend::Backend;
use burn_backend::ops::ConvOptions;
use burn_tensor::{
    Bool, Distribution, Int, Tensor, TensorData, TensorPrimitive, activation, module,
};

use crate::operands::{
    Counts, EPSILON, F, LossOptions, LstmWeights, MOMENTUM, NormMode, Window, dims, numbers,
    reshape,
};
use crate::optimiser::{Slot, Update, by_tensors};

fn t<B: Backend, const D: usize>(x: F<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(x))
}

fn f<B: Backend, const D: usize>(x: Tensor<B, D>) -> F<B> {
    x.into_primitive().tensor()
}

pub(crate) fn conv2d<B: Backend>(
    x: F<B>,
    weight: F<B>,
    bias: Option<F<B>>,
    at: Window,
    relu: bool,
) -> F<B> {
    let x = t::<B, 4>(x).permute([0, 3, 1, 2]);
    let weight = t::<B, 4>(weight).permute([0, 3, 1, 2]);
    let options = ConvOptions::new([at.stride; 2], [at.padding; 2], [1, 1], 1);
    let y = module::conv2d(x, weight, bias.map(t::<B, 1>), options);
    let y = y.permute([0, 2, 3, 1]);
    f(if relu { activation::relu(y) } else { y })
}

pub(crate) fn batch_norm<B: Backend>(
    x: F<B>,
    gamma: F<B>,
    beta: F<B>,
    running: &mut [F<B>; 2],
    residual: Option<F<B>>,
    mode: NormMode,
) -> F<B> {
    let shape = dims::<B>(&x);
    let width = shape[shape.len() - 1];
    let x = t::<B, 2>(reshape::<B>(
        x,
        &[shape.iter().product::<usize>() / width, width],
    ));
    let rows = x.dims()[0] as f32;
    let (mean, variance) = if mode.training {
        let mean = x.clone().mean_dim(0);
        let variance = (x.clone() - mean.clone()).powi_scalar(2).mean_dim(0);
        let follow = |old: F<B>, new: Tensor<B, 2>| {
            let new = new.detach().reshape([width]);
            f(t::<B, 1>(old) * (1.0 - MOMENTUM) + new * MOMENTUM)
        };
        running[0] = follow(running[0].clone(), mean.clone());
        let unbiased = rows / (rows - 1.0).max(1.0);
        running[1] = follow(running[1].clone(), variance.clone() * unbiased);
        (mean, variance)
    } else {
        let [mean, variance] = running.clone();
        (t::<B, 1>(mean).unsqueeze(), t::<B, 1>(variance).unsqueeze())
    };
    let mut y = (x - mean) / (variance + EPSILON).sqrt();
    y = y * t::<B, 1>(gamma).unsqueeze() + t::<B, 1>(beta).unsqueeze();
    if let Some(residual) = residual {
        y = y + t::<B, 2>(residual_rows::<B>(residual, width));
    }
    if mode.relu {
        y = activation::relu(y);
    }
    reshape::<B>(f(y), &shape)
}

pub(crate) fn relu<B: Backend>(x: F<B>) -> F<B> {
    let shape = dims::<B>(&x);
    reshape::<B>(f(activation::relu(t::<B, 1>(flat::<B>(x)))), &shape)
}

pub(crate) fn add<B: Backend>(x: F<B>, y: F<B>) -> F<B> {
    B::float_add(x, y)
}

pub(crate) fn max_pool<B: Backend>(x: F<B>, at: Window) -> F<B> {
    let x = t::<B, 4>(x).permute([0, 3, 1, 2]);
    let (kernel, stride, padding) = ([at.kernel; 2], [at.stride; 2], [at.padding; 2]);
    f(module::max_pool2d(x, kernel, stride, padding, [1, 1], false).permute([0, 2, 3, 1]))
}

pub(crate) fn average<B: Backend>(x: F<B>) -> F<B> {
    let [batch, height, width, channels] = dims::<B>(&x)[..] else {
        panic!("an image has four axes")
    };
    let x = t::<B, 3>(reshape::<B>(x, &[batch, height * width, channels]));
    f(x.mean_dim(1).reshape([batch, channels]))
}

pub(crate) fn linear<B: Backend>(x: F<B>, weight: F<B>, bias: Option<F<B>>) -> F<B> {
    let mut shape = dims::<B>(&x);
    let [out, width] = dims::<B>(&weight)[..] else {
        panic!("a weight has two axes")
    };
    let rows = shape.iter().product::<usize>() / width;
    let x = t::<B, 2>(reshape::<B>(x, &[rows, width]));
    let mut y = x.matmul(t::<B, 2>(weight).transpose());
    if let Some(bias) = bias {
        y = y + t::<B, 1>(bias).unsqueeze();
    }
    *shape.last_mut().expect("an axis") = out;
    reshape::<B>(f(y), &shape)
}

pub(crate) fn embedding<B: Backend>(weight: F<B>, ids: &[i64]) -> F<B> {
    let weight = t::<B, 2>(weight);
    let ids = Tensor::<B, 1, Int>::from_data(
        TensorData::new(ids.to_vec(), [ids.len()]),
        &weight.device(),
    );
    f(weight.select(0, ids))
}

pub(crate) fn lstm<B: Backend>(
    x: F<B>,
    weights: LstmWeights<B>,
    state: [F<B>; 2],
    keep: Option<&[f32]>,
) -> (F<B>, [F<B>; 2]) {
    let [steps, batch, width] = dims::<B>(&x)[..] else {
        panic!("a sequence has three axes")
    };
    let hidden = dims::<B>(&weights.hidden)[1];
    let x = t::<B, 3>(x);
    let device = x.device();
    let input = t::<B, 2>(weights.input).transpose();
    let recurrent = t::<B, 2>(weights.hidden).transpose();
    let bias = t::<B, 1>(weights.input_bias) + t::<B, 1>(weights.hidden_bias);
    let gates = x.reshape([steps * batch, width]).matmul(input) + bias.unsqueeze();
    let gates = gates.reshape([steps, batch, 4 * hidden]);
    let [mut h, mut c] = state.map(t::<B, 2>);
    let mut outputs = Vec::with_capacity(steps);
    for step in 0..steps {
        if let Some(keep) = keep {
            let keep = keep[step * batch..][..batch].to_vec();
            let keep = Tensor::<B, 2>::from_data(TensorData::new(keep, [batch, 1]), &device);
            h = h * keep.clone();
            c = c * keep;
        }
        let now = gates
            .clone()
            .narrow(0, step, 1)
            .reshape([batch, 4 * hidden]);
        let now = now + h.matmul(recurrent.clone());
        let gate = |k: usize| now.clone().narrow(1, k * hidden, hidden);
        c = activation::sigmoid(gate(1)) * c
            + activation::sigmoid(gate(0)) * activation::tanh(gate(2));
        h = activation::sigmoid(gate(3)) * activation::tanh(c.clone());
        outputs.push(h.clone().unsqueeze::<3>());
    }
    (f(Tensor::cat(outputs, 0)), [f(h), f(c)])
}

pub(crate) fn cross_entropy<B: Backend>(
    logits: F<B>,
    targets: &[i64],
    options: LossOptions,
) -> (F<B>, Counts) {
    let logits = t::<B, 2>(logits);
    let [rows, classes] = logits.dims();
    let device = logits.device();
    let has: Vec<f32> = targets.iter().map(|&y| f32::from(y >= 0)).collect();
    let index: Vec<i64> = targets.iter().map(|&y| y.max(0)).collect();
    let has = Tensor::<B, 2>::from_data(TensorData::new(has, [rows, 1]), &device);
    let index = Tensor::<B, 2, Int>::from_data(TensorData::new(index, [rows, 1]), &device);
    let best = logits.clone().detach().argmax(1);
    let correct = best.equal(index.clone()).float() * has.clone();
    let log_p = activation::log_softmax(logits, 1);
    let of_target = log_p.clone().gather(1, index) * has.clone();
    let mut loss = of_target.sum().neg() * (1.0 - options.smoothing);
    if options.smoothing > 0.0 {
        let all = (log_p * has.clone()).sum().neg();
        loss = loss + all * (options.smoothing / classes as f32);
    }
    let read = |x: Tensor<B, 1>| f64::from(numbers::<B>(f(x))[0]);
    let counts = Counts {
        loss: read(loss.clone().detach()),
        rows: targets.iter().filter(|&&y| y >= 0).count() as u64,
        correct: read(correct.sum()) as u64,
    };
    (f(loss * options.scale), counts)
}

pub(crate) fn attention<B: Backend>(qkv: F<B>, segments: Option<&[u32]>) -> F<B> {
    let [batch, steps, _, heads, width] = dims::<B>(&qkv)[..] else {
        panic!("queries, keys and values have five axes")
    };
    let qkv = t::<B, 5>(qkv);
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
    let hidden =
        Tensor::<B, 4, Bool>::from_data(TensorData::new(hidden, [batch, 1, steps, steps]), &device);
    let scores = scores.mask_fill(
        hidden.expand([batch, heads, steps, steps]),
        f32::NEG_INFINITY,
    );
    let y = activation::softmax(scores, 3)
        .matmul(part(2))
        .swap_dims(1, 2);
    f(y.reshape([batch, steps, heads * width]))
}

pub(crate) fn layer_norm<B: Backend>(x: F<B>, gamma: F<B>, beta: F<B>) -> F<B> {
    let shape = dims::<B>(&x);
    let width = shape[shape.len() - 1];
    let x = t::<B, 2>(reshape::<B>(
        x,
        &[shape.iter().product::<usize>() / width, width],
    ));
    let centred = x.clone() - x.mean_dim(1);
    let variance = centred.clone().powi_scalar(2).mean_dim(1);
    let y = centred / (variance + EPSILON).sqrt();
    let y = y * t::<B, 1>(gamma).unsqueeze() + t::<B, 1>(beta).unsqueeze();
    reshape::<B>(f(y), &shape)
}

pub(crate) fn gelu<B: Backend>(x: F<B>) -> F<B> {
    let shape = dims::<B>(&x);
    reshape::<B>(f(activation::gelu(t::<B, 1>(flat::<B>(x)))), &shape)
}

pub(crate) fn dropout<B: Backend>(x: F<B>, rate: f32, key: u64) -> F<B> {
    let shape = dims::<B>(&x);
    let x = t::<B, 1>(flat::<B>(x));
    B::seed(&x.device(), key);
    let keep = Distribution::Bernoulli(1.0 - f64::from(rate));
    let mask = Tensor::<B, 1>::random(x.dims(), keep, &x.device());
    reshape::<B>(f(x * mask / (1.0 - rate)), &shape)
}

pub(crate) fn seed_gradient<B: Backend>(x: F<B>, gradient: F<B>) -> F<B> {
    let x = t::<B, 1>(flat::<B>(x));
    f((x * t::<B, 1>(flat::<B>(gradient))).sum())
}

pub(crate) fn norm<B: Backend>(tensors: &[F<B>]) -> f64 {
    let square = |x: &F<B>| {
        let sum = t::<B, 1>(flat::<B>(x.clone())).powi_scalar(2).sum();
        numbers::<B>(f(sum))[0]
    };
    tensors
        .iter()
        .map(|x| f64::from(square(x)))
        .sum::<f64>()
        .sqrt()
}

pub(crate) fn update<B: Backend>(update: &Update, slots: &mut [Slot<B>]) {
    by_tensors(update, slots);
}

fn flat<B: Backend>(x: F<B>) -> F<B> {
    let all = dims::<B>(&x).iter().product();
    reshape::<B>(x, &[all])
}

fn residual_rows<B: Backend>(x: F<B>, width: usize) -> F<B> {
    let all: usize = dims::<B>(&x).iter().product();
    reshape::<B>(x, &[all / width, width])
}
