//! Convolutions.

use burn_flex::FlexTensor;
use pelton_kernels::Conv;

use super::rows::mask;
use super::tape::{Taped, record};
use super::{numbers, sizes};
use crate::memory::{Block, contiguous, slice};
use crate::operands::Window;

fn shape_of(x: &FlexTensor, w: &FlexTensor, at: Window) -> Conv {
    let (x, w) = (sizes(x), sizes(w));
    Conv {
        batch: x[0],
        input: [x[1], x[2]],
        in_channels: x[3],
        out_channels: w[0],
        kernel: [w[1], w[2]],
        stride: [at.stride; 2],
        padding: [at.padding; 2],
    }
}

pub(super) fn forward(
    x: FlexTensor,
    w: FlexTensor,
    bias: Option<FlexTensor>,
    at: Window,
    relu: bool,
) -> FlexTensor {
    let conv = shape_of(&x, &w, at);
    let (x, w) = (contiguous(x), contiguous(w));
    let mut y = Block::new(conv.output_len());
    conv.forward(slice(&x), slice(&w), numbers(&bias), relu, &mut y);
    let [height, width] = conv.output();
    y.tensor(&[conv.batch, height, width, conv.out_channels])
}

pub(super) fn taped(x: Taped, w: Taped, bias: Option<Taped>, at: Window, relu: bool) -> Taped {
    let (input, weight) = (
        contiguous(x.primitive.clone()),
        contiguous(w.primitive.clone()),
    );
    let conv = shape_of(&input, &weight, at);
    let b = bias.as_ref().map(|b| b.primitive.clone());
    let y = forward(input.clone(), weight.clone(), b, at, relu);
    let kept = relu.then(|| y.clone());
    let backward = move |dy: FlexTensor, wanted: [bool; 3]| {
        let dy = match kept {
            Some(y) => mask(dy, &y),
            None => contiguous(dy),
        };
        let dy = slice(&dy);
        let dx = wanted[0].then(|| {
            let mut dx = Block::new(conv.input_len());
            conv.input_gradient(dy, slice(&weight), &mut dx);
            dx.tensor(&sizes(&input))
        });
        let dw = wanted[1].then(|| {
            let mut dw = Block::new(conv.weights_len());
            conv.weight_gradient(slice(&input), dy, &mut dw);
            dw.tensor(&sizes(&weight))
        });
        let db = wanted[2].then(|| {
            let mut db = Block::new(conv.out_channels);
            conv.bias_gradient(dy, &mut db);
            db.tensor(&[conv.out_channels])
        });
        [dx, dw, db]
    };
    match bias {
        Some(bias) => record([&x, &w, &bias], y, backward),
        None => record([&x, &w], y, move |dy, [dx, dw]| {
            let [dx, dw, _] = backward(dy, [dx, dw, false]);
            [dx, dw]
        }),
    }
}
