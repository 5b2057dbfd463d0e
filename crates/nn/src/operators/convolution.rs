//! Convolutions.

use pelton_kernels::Conv;

use super::rows::masked;
use crate::memory::Block;
use crate::operands::Window;
use crate::tape::{Tape, Taped};
use crate::tensor::Tensor;

/// A convolution of images [batch, height, width, channels] with weights [out, kernel height, kernel width, channels],
/// followed by a ReLU if asked.
pub(crate) fn conv2d(
    tape: &mut Tape,
    x: &Taped,
    weight: &Taped,
    bias: Option<&Taped>,
    at: Window,
    relu: bool,
) -> Taped {
    let (image, kernel) = (x.shape(), weight.shape());
    let conv = Conv {
        batch: image[0],
        input: [image[1], image[2]],
        in_channels: image[3],
        out_channels: kernel[0],
        kernel: [kernel[1], kernel[2]],
        stride: [at.stride; 2],
        padding: [at.padding; 2],
        precision: tape.precision,
    };
    let mut y = Block::new(conv.output_len());
    conv.forward(x, weight, bias.map(|b| &***b), relu, &mut y);
    let [height, width] = conv.output();
    let y = Tensor::new(y, &[conv.batch, height, width, conv.out_channels]);

    let inputs = [x.node, weight.node, bias.and_then(|bias| bias.node)];
    let kept = relu.then(|| y.clone());
    let (x, weight) = (x.value.clone(), weight.value.clone());
    tape.record(inputs, y, move |mut dy, wanted| {
        if let Some(y) = kept {
            dy = masked(&dy, &y);
        }
        let dx = wanted[0].then(|| {
            let mut dx = Block::new(conv.input_len());
            conv.input_gradient(&dy, &weight, &mut dx);
            Tensor::new(dx, x.shape())
        });
        let dw = wanted[1].then(|| {
            let mut dw = Block::new(conv.weights_len());
            conv.weight_gradient(&x, &dy, &mut dw);
            Tensor::new(dw, weight.shape())
        });
        let db = wanted[2].then(|| {
            let mut db = Block::new(conv.out_channels);
            conv.bias_gradient(&dy, &mut db);
            Tensor::new(db, &[conv.out_channels])
        });
        [dx, dw, db]
    })
}
