//! Batch norm with what follows it, layer norm, and pools.

use burn_flex::FlexTensor;
use pelton_kernels::norm::{Backward, BatchNorm, Gradients, Running, Saved};
use pelton_kernels::{LayerNorm, Pool};

use super::sizes;
use super::tape::{Taped, record};
use crate::memory::{Block, contiguous, owned, slice};
use crate::operands::{EPSILON, MOMENTUM, NormMode, Window};

fn norm<'a>(gamma: &'a FlexTensor, beta: &'a FlexTensor, relu: bool) -> BatchNorm<'a> {
    BatchNorm {
        gamma: slice(gamma),
        beta: slice(beta),
        epsilon: EPSILON,
        relu,
    }
}

/// Mean and inverse deviation of the batch, and the result.
fn train(
    x: &FlexTensor,
    gamma: &FlexTensor,
    beta: &FlexTensor,
    running: &mut [FlexTensor; 2],
    residual: Option<&FlexTensor>,
    relu: bool,
) -> (FlexTensor, [Block; 2]) {
    let channels = slice(gamma).len();
    let nothing = || Block::new(0).tensor(&[0]);
    let mut statistics = running
        .each_mut()
        .map(|r| owned(std::mem::replace(r, nothing())));
    let mut saved = [Block::new(channels), Block::new(channels)];
    let mut y = Block::new(slice(x).len());
    {
        let [mean, variance] = &mut statistics;
        let [batch_mean, inverse_deviation] = &mut saved;
        norm(gamma, beta, relu).train(
            slice(x),
            residual.map(slice),
            Some(Running {
                mean: mean.storage_mut(),
                variance: variance.storage_mut(),
                momentum: MOMENTUM,
            }),
            Saved {
                mean: batch_mean,
                inverse_deviation,
            },
            &mut y,
        );
    }
    *running = statistics;
    (y.tensor(&sizes(x)), saved)
}

pub(super) fn batch_norm(
    x: FlexTensor,
    gamma: FlexTensor,
    beta: FlexTensor,
    running: &mut [FlexTensor; 2],
    residual: Option<FlexTensor>,
    mode: NormMode,
) -> FlexTensor {
    let (x, residual) = (contiguous(x), residual.map(contiguous));
    if mode.training {
        return train(&x, &gamma, &beta, running, residual.as_ref(), mode.relu).0;
    }
    let mut y = Block::new(slice(&x).len());
    norm(&gamma, &beta, mode.relu).evaluate(
        slice(&x),
        residual.as_ref().map(slice),
        slice(&running[0]),
        slice(&running[1]),
        &mut y,
    );
    y.tensor(&sizes(&x))
}

pub(super) fn batch_norm_taped(
    x: Taped,
    gamma: Taped,
    beta: Taped,
    running: &mut [Taped; 2],
    residual: Option<Taped>,
    mode: NormMode,
) -> Taped {
    let value = contiguous(x.primitive.clone());
    let (g, b) = (gamma.primitive.clone(), beta.primitive.clone());
    let other = residual.as_ref().map(|r| contiguous(r.primitive.clone()));
    let nothing = || Block::new(0).tensor(&[0]);
    let mut statistics = running
        .each_mut()
        .map(|r| std::mem::replace(&mut r.primitive, nothing()));
    if !mode.training {
        let y = batch_norm(value, g, b, &mut statistics, other, mode);
        for (kept, statistic) in running.iter_mut().zip(statistics) {
            kept.primitive = statistic;
        }
        // Gradients flow in training only.
        return record([&x], y, |_, _| [None]);
    }
    let (y, saved) = train(&value, &g, &b, &mut statistics, other.as_ref(), mode.relu);
    for (kept, statistic) in running.iter_mut().zip(statistics) {
        kept.primitive = statistic;
    }
    let kept = y.clone();
    let backward = move |dy: FlexTensor, wants_residual: bool| {
        let dy = contiguous(dy);
        let len = slice(&value).len();
        let channels = slice(&g).len();
        let mut dx = Block::new(len);
        let [mut dgamma, mut dbeta] = [Block::new(channels), Block::new(channels)];
        // Without a ReLU the residual's gradient is that of the output.
        let mut dr = (wants_residual && mode.relu).then(|| Block::new(len));
        norm(&g, &b, mode.relu).backward(
            Backward {
                x: slice(&value),
                y: slice(&kept),
                dy: slice(&dy),
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
        let shape = sizes(&value);
        let dr = match dr {
            Some(dr) => Some(dr.tensor(&shape)),
            None => wants_residual.then_some(dy),
        };
        [
            Some(dx.tensor(&shape)),
            Some(dgamma.tensor(&[channels])),
            Some(dbeta.tensor(&[channels])),
            dr,
        ]
    };
    match residual {
        Some(residual) => record([&x, &gamma, &beta, &residual], y, move |dy, wanted| {
            backward(dy, wanted[3])
        }),
        None => record([&x, &gamma, &beta], y, move |dy, _| {
            let [dx, dgamma, dbeta, _] = backward(dy, false);
            [dx, dgamma, dbeta]
        }),
    }
}

fn rows(gamma: &FlexTensor, beta: &FlexTensor) -> (FlexTensor, FlexTensor) {
    (contiguous(gamma.clone()), contiguous(beta.clone()))
}

fn normed(x: &FlexTensor, gamma: &FlexTensor, beta: &FlexTensor) -> (FlexTensor, Block) {
    let norm = LayerNorm {
        gamma: slice(gamma),
        beta: slice(beta),
        eps: EPSILON,
    };
    let len = slice(x).len();
    let mut y = Block::new(len);
    let mut statistics = Block::new(2 * len / norm.gamma.len().max(1));
    norm.forward(slice(x), &mut y, &mut statistics);
    (y.tensor(&sizes(x)), statistics)
}

pub(super) fn layer_norm(x: FlexTensor, gamma: FlexTensor, beta: FlexTensor) -> FlexTensor {
    let (gamma, beta) = rows(&gamma, &beta);
    normed(&contiguous(x), &gamma, &beta).0
}

pub(super) fn layer_norm_taped(x: Taped, gamma: Taped, beta: Taped) -> Taped {
    let value = contiguous(x.primitive.clone());
    let (g, b) = rows(&gamma.primitive, &beta.primitive);
    let (y, statistics) = normed(&value, &g, &b);
    record([&x, &gamma, &beta], y, move |dy, _| {
        let dy = contiguous(dy);
        let width = slice(&g).len();
        let mut dx = Block::new(slice(&value).len());
        let [mut dgamma, mut dbeta] = [Block::new(width), Block::new(width)];
        let norm = LayerNorm {
            gamma: slice(&g),
            beta: slice(&b),
            eps: EPSILON,
        };
        let (x, dy) = (slice(&value), slice(&dy));
        norm.backward(x, &statistics, dy, &mut dx, &mut dgamma, &mut dbeta);
        [
            Some(dx.tensor(&sizes(&value))),
            Some(dgamma.tensor(&[width])),
            Some(dbeta.tensor(&[width])),
        ]
    })
}

fn pool(x: &FlexTensor, at: Window) -> Pool {
    let shape = sizes(x);
    Pool {
        batch: shape[0],
        input: [shape[1], shape[2]],
        channels: shape[3],
        kernel: [at.kernel; 2],
        stride: [at.stride; 2],
        padding: [at.padding; 2],
    }
}

fn largest(x: &FlexTensor, pool: &Pool) -> (FlexTensor, Vec<u8>) {
    let mut y = Block::new(pool.output_len());
    let mut places = vec![0; pool.output_len()];
    pool.max(slice(x), &mut y, &mut places);
    let [height, width] = pool.output();
    (
        y.tensor(&[pool.batch, height, width, pool.channels]),
        places,
    )
}

pub(super) fn max_pool(x: FlexTensor, at: Window) -> FlexTensor {
    let x = contiguous(x);
    largest(&x, &pool(&x, at)).0
}

pub(super) fn max_pool_taped(x: Taped, at: Window) -> Taped {
    let value = contiguous(x.primitive.clone());
    let pool = pool(&value, at);
    let (y, places) = largest(&value, &pool);
    let shape = sizes(&value);
    record([&x], y, move |dy, _| {
        let mut dx = Block::new(pool.input_len());
        pool.max_backward(slice(&contiguous(dy)), &places, &mut dx);
        [Some(dx.tensor(&shape))]
    })
}

pub(super) fn average(x: FlexTensor) -> FlexTensor {
    let x = contiguous(x);
    let shape = sizes(&x);
    let pool = Pool::global(shape[0], [shape[1], shape[2]], shape[3]);
    let mut y = Block::new(pool.output_len());
    pool.mean(slice(&x), &mut y);
    y.tensor(&[shape[0], shape[3]])
}

pub(super) fn average_taped(x: Taped) -> Taped {
    let y = average(x.primitive.clone());
    let shape = sizes(&x.primitive);
    record([&x], y, move |dy, _| {
        let pool = Pool::global(shape[0], [shape[1], shape[2]], shape[3]);
        let mut dx = Block::new(pool.input_len());
        pool.mean_backward(slice(&contiguous(dy)), &mut dx);
        [Some(dx.tensor(&shape))]
    })
}
