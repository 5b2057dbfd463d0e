//! Fully connected layers and elementwise operators.

use pelton_kernels::{Gelu, Linear, LinearGradients, Precision, relu_backward};

use crate::memory::Block;
use crate::tape::{Tape, Taped};
use crate::tensor::Tensor;

fn layer<'a>(weights: &'a Tensor, bias: Option<&'a Taped>, precision: Precision) -> Linear<'a> {
    Linear {
        precision,
        weights,
        bias: bias.map(|bias| &***bias),
        inputs: weights.shape()[1],
        outputs: weights.shape()[0],
    }
}

/// x·wᵀ + b over the last axis; `weight` is [out, in].
pub(crate) fn linear(tape: &mut Tape, x: &Taped, weight: &Taped, bias: Option<&Taped>) -> Taped {
    let precision = tape.precision;
    let of = layer(weight, bias, precision);
    let mut shape = x.shape().to_vec();
    *shape.last_mut().expect("an axis") = of.outputs;
    let mut y = Block::new(shape.iter().product());
    of.forward(x, &mut y, false);

    let inputs = [x.node, weight.node, bias.and_then(|bias| bias.node)];
    let (x, weight) = (x.value.clone(), weight.value.clone());
    tape.record(inputs, Tensor::new(y, &shape), move |dy, wanted| {
        let of = layer(&weight, None, precision);
        let mut dx = wanted[0].then(|| Block::new(x.len()));
        let mut dw = Block::new(weight.len());
        let mut db = wanted[2].then(|| Block::new(of.outputs));
        let gradients = LinearGradients {
            dx: dx.as_deref_mut(),
            dweights: &mut dw,
            dbias: db.as_deref_mut(),
        };
        of.backward(&x, &dy, gradients);
        [
            dx.map(|dx| Tensor::new(dx, x.shape())),
            Some(Tensor::new(dw, weight.shape())),
            db.map(|db| Tensor::new(db, &[of.outputs])),
        ]
    })
}

/// An elementwise function.
fn each(x: &Tensor, of: impl FnOnce(&[f32], &mut [f32])) -> Tensor {
    let mut y = Block::new(x.len());
    of(x, &mut y);
    Tensor::new(y, x.shape())
}

/// The gradient before a ReLU: 0 for each `y` of 0.
pub(super) fn masked(dy: &Tensor, y: &Tensor) -> Tensor {
    each(dy, |dy, dx| relu_backward(y, dy, dx))
}

/// max(x, 0).
pub(crate) fn relu(tape: &mut Tape, x: &Taped) -> Taped {
    let y = each(x, pelton_kernels::relu);
    let kept = y.clone();
    tape.record([x.node], y, move |dy, _| [Some(masked(&dy, &kept))])
}

/// x·Φ(x), by the error function.
pub(crate) fn gelu(tape: &mut Tape, x: &Taped) -> Taped {
    let y = each(x, |x, y| Gelu::Exact.forward(x, y));
    let kept = x.value.clone();
    tape.record([x.node], y, move |mut dy, _| {
        Gelu::Exact.backward(&kept, dy.numbers_mut());
        [Some(dy)]
    })
}

/// Zero with chance `rate`, else x / (1 − rate); which ones, `key` decides.
pub(crate) fn dropout(tape: &mut Tape, x: Taped, rate: f32, key: u64) -> Taped {
    let drop = move |mut x: Tensor| {
        pelton_kernels::dropout(x.numbers_mut(), rate, key);
        x
    };
    let y = drop(x.value);
    tape.record([x.node], y, move |dy, _| [Some(drop(dy))])
}

/// The sum of two tensors of one shape.
pub(crate) fn sum(tape: &mut Tape, x: Taped, y: &Taped) -> Taped {
    let inputs = [x.node, y.node];
    tape.record(inputs, x.value.plus(y), |dy, wanted| {
        wanted.map(|wanted| wanted.then(|| dy.clone()))
    })
}
