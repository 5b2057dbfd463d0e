//! Fully connected layers and what is done number by number.

use burn_flex::FlexTensor;
use pelton_kernels::{Gelu, Linear, LinearGradients, relu_backward};
use rayon::prelude::*;

use super::sizes;
use super::tape::{Taped, record};
use crate::memory::{Block, contiguous, owned, slice};

/// Numbers that a thread works on at a time.
const CHUNK: usize = 1 << 14;

fn layer<'a>(weight: &'a FlexTensor, bias: Option<&'a [f32]>) -> Linear<'a> {
    let shape = sizes(weight);
    Linear {
        weights: slice(weight),
        bias,
        inputs: shape[1],
        outputs: shape[0],
    }
}

pub(super) fn linear(x: &FlexTensor, weight: &FlexTensor, bias: Option<&FlexTensor>) -> FlexTensor {
    let (value, weight) = (contiguous(x.clone()), contiguous(weight.clone()));
    let layer = layer(&weight, bias.map(slice));
    let mut shape = sizes(x);
    *shape.last_mut().expect("an axis") = layer.outputs;
    let mut y = Block::new(shape.iter().product());
    layer.forward(slice(&value), &mut y, false);
    y.tensor(&shape)
}

pub(super) fn linear_taped(x: Taped, weight: Taped, bias: Option<Taped>) -> Taped {
    let (value, w) = (
        contiguous(x.primitive.clone()),
        contiguous(weight.primitive.clone()),
    );
    let y = linear(&value, &w, bias.as_ref().map(|bias| &bias.primitive));
    let backward = move |dy: FlexTensor, wanted: [bool; 3]| {
        let dy = contiguous(dy);
        let layer = layer(&w, None);
        let mut dx = wanted[0].then(|| Block::new(slice(&value).len()));
        let mut dw = Block::new(slice(&w).len());
        let mut db = wanted[2].then(|| Block::new(layer.outputs));
        let gradients = LinearGradients {
            dx: dx.as_deref_mut(),
            dweights: &mut dw,
            dbias: db.as_deref_mut(),
        };
        layer.backward(slice(&value), slice(&dy), gradients);
        [
            dx.map(|dx| dx.tensor(&sizes(&value))),
            Some(dw.tensor(&sizes(&w))),
            db.map(|db| db.tensor(&[layer.outputs])),
        ]
    };
    match bias {
        Some(bias) => record([&x, &weight, &bias], y, backward),
        None => record([&x, &weight], y, move |dy, [dx, dw]| {
            let [dx, dw, _] = backward(dy, [dx, dw, false]);
            [dx, dw]
        }),
    }
}

/// A function of each number.
fn each(x: FlexTensor, of: impl FnOnce(&[f32], &mut [f32])) -> FlexTensor {
    let shape = sizes(&x);
    let x = contiguous(x);
    let mut y = Block::new(slice(&x).len());
    of(slice(&x), &mut y);
    y.tensor(&shape)
}

pub(super) fn relu(x: FlexTensor) -> FlexTensor {
    each(x, pelton_kernels::relu)
}

/// Takes the gradient away where `y` is 0.
pub(super) fn mask(dy: FlexTensor, y: &FlexTensor) -> FlexTensor {
    each(dy, |dy, dx| relu_backward(slice(y), dy, dx))
}

pub(super) fn relu_taped(x: Taped) -> Taped {
    let y = relu(x.primitive.clone());
    let kept = y.clone();
    record([&x], y, move |dy, _| [Some(mask(dy, &kept))])
}

pub(super) fn gelu(x: FlexTensor) -> FlexTensor {
    each(x, |x, y| Gelu::Exact.forward(x, y))
}

pub(super) fn gelu_taped(x: Taped) -> Taped {
    let kept = contiguous(x.primitive.clone());
    record([&x], gelu(kept.clone()), move |dy, _| {
        let mut dy = owned(dy);
        Gelu::Exact.backward(slice(&kept), dy.storage_mut());
        [Some(dy)]
    })
}

pub(super) fn dropout(x: FlexTensor, rate: f32, key: u64) -> FlexTensor {
    let mut x = owned(x);
    pelton_kernels::dropout(x.storage_mut(), rate, key);
    x
}

pub(super) fn dropout_taped(mut x: Taped, rate: f32, key: u64) -> Taped {
    let nothing = Block::new(0).tensor(&[0]);
    let y = dropout(std::mem::replace(&mut x.primitive, nothing), rate, key);
    record([&x], y, move |dy, _| [Some(dropout(dy, rate, key))])
}

pub(super) fn add(x: FlexTensor, y: &FlexTensor) -> FlexTensor {
    let mut x = owned(x);
    let y = contiguous(y.clone());
    let numbers: &mut [f32] = x.storage_mut();
    numbers
        .par_chunks_mut(CHUNK)
        .zip(slice(&y).par_chunks(CHUNK))
        .for_each(|(x, y)| {
            for (x, y) in x.iter_mut().zip(y) {
                *x += y;
            }
        });
    x
}

pub(super) fn add_taped(x: Taped, y: Taped) -> Taped {
    let sum = add(x.primitive.clone(), &y.primitive);
    record([&x, &y], sum, move |dy, wanted| {
        wanted.map(|wanted| wanted.then(|| dy.clone()))
    })
}
