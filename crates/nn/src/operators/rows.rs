//! Fully connected layers and elementwise operators.

use pelton_kernels::{Gelu, Linear, LinearGradients, Matrix, Precision, gemm, relu_backward, sums};

use super::loss::loss_gradient;
use crate::memory::Block;
use crate::operands::{Counts, LossOptions};
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

/// Logits that are held at once: 64 MiB of them.
pub(crate) const LOGITS: usize = 16 << 20;

/// The loss of x·wᵀ + b against a target for each row, with at most `most` logits at a time. The gradients are made with
/// it: [backward](Tape::backward) from the end that it returns gives them, whatever the gradient of that.
pub(crate) fn linear_loss(
    tape: &mut Tape,
    x: &Taped,
    weight: &Taped,
    bias: Option<&Taped>,
    (targets, most): (&[i64], usize),
    options: LossOptions<'_>,
) -> (Taped, Counts) {
    let precision = tape.precision;
    let of = layer(weight, bias, precision);
    let (inputs, outputs) = (of.inputs, of.outputs);
    let each = (most / outputs).max(1);
    // Of few sizes, so that batches of other lengths use the same memory.
    let room = (each.min(targets.len()) * outputs).next_power_of_two();
    let mut counts = Counts::default();
    let mut dx = x.node.map(|_| Block::new(x.len()));
    // Each part writes or adds to it; without any it is 0.
    let mut dw = if targets.is_empty() {
        Block::zeros(weight.len())
    } else {
        Block::new(weight.len())
    };
    let mut db = bias.map(|_| Block::zeros(outputs));
    for (part, targets) in targets.chunks(each).enumerate() {
        let rows = part * each..part * each + targets.len();
        let of_rows = &x[rows.start * inputs..rows.end * inputs];
        let mut logits = Block::with_room(targets.len() * outputs, room);
        of.forward(of_rows, &mut logits, false);
        let logits = Tensor::new(logits, &[targets.len(), outputs]);
        let (dlogits, counted) = loss_gradient(logits, targets, options);
        counts += counted;
        let d = Matrix::new(&dlogits, targets.len(), outputs);
        if let Some(dx) = &mut dx {
            let dx = &mut dx[rows.start * inputs..rows.end * inputs];
            let weights = Matrix::new(weight, outputs, inputs);
            gemm(precision, d, weights, dx, inputs, false);
        }
        let of_rows = Matrix::new(of_rows, targets.len(), inputs);
        gemm(
            precision,
            d.transposed(),
            of_rows,
            &mut dw,
            inputs,
            part > 0,
        );
        if let Some(db) = &mut db {
            let mut of_part = Block::new(outputs);
            sums::of_columns(&dlogits, &mut of_part);
            db.iter_mut()
                .zip(of_part.iter())
                .for_each(|(sum, x)| *sum += x);
        }
    }
    let dx = dx.map(|dx| Tensor::new(dx, x.shape()));
    let dw = Tensor::new(dw, weight.shape());
    let db = db.map(|db| Tensor::new(db, &[outputs]));
    let inputs = [x.node, weight.node, bias.and_then(|bias| bias.node)];
    let end = tape.record(inputs, Tensor::zeros(&[1]), move |_, _| [dx, Some(dw), db]);
    (end, counts)
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
