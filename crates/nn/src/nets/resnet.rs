//! Residual nets (He et al., 2016): section 4.2 for small images, Table 1 for large ones; and one for embeddings
//! (Deng et al., 2019, section 3.1), which ends in features and not in pooled channels.

use crate::layer::Layer;
use crate::operands::Window;

use super::scaled;

fn conv(name: &str, out: usize, kernel: usize, stride: usize) -> Layer {
    Layer::Conv {
        name: name.to_owned(),
        out,
        at: Window {
            kernel,
            stride,
            padding: kernel / 2,
        },
        bias: false,
    }
}

fn norm(name: &str, relu: bool) -> Layer {
    Layer::BatchNorm {
        name: name.to_owned(),
        relu,
        scale: true,
    }
}

/// The shortcut of a block that changes the shape.
fn shortcut(name: &str, out: usize, stride: usize) -> Vec<Layer> {
    vec![
        conv(&format!("{name}.downsample.0"), out, 1, stride),
        norm(&format!("{name}.downsample.1"), false),
    ]
}

/// A block; `middle` channels inside, `out` at its end, three convolutions if they differ.
fn block(name: &str, middle: usize, out: usize, stride: usize, changes: bool) -> Layer {
    let part = |part: &str| format!("{name}.{part}");
    let body = if middle == out {
        vec![
            conv(&part("conv1"), middle, 3, stride),
            norm(&part("bn1"), true),
            conv(&part("conv2"), out, 3, 1),
            norm(&part("bn2"), false),
        ]
    } else {
        // The stride is in the 3×3 convolution, as in torchvision.
        vec![
            conv(&part("conv1"), middle, 1, 1),
            norm(&part("bn1"), true),
            conv(&part("conv2"), middle, 3, stride),
            norm(&part("bn2"), true),
            conv(&part("conv3"), out, 1, 1),
            norm(&part("bn3"), false),
        ]
    };
    Layer::Residual {
        body,
        shortcut: if changes {
            shortcut(name, out, stride)
        } else {
            vec![]
        },
        relu: true,
    }
}

fn linear(out: usize) -> Layer {
    Layer::Linear {
        name: "fc".to_owned(),
        out,
        bias: true,
        tied: None,
    }
}

fn end(classes: usize) -> [Layer; 2] {
    [Layer::Average, linear(classes)]
}

/// 6·`blocks` + 2 layers for small images: 16, 32 and 64 channels.
///
/// Differs from section 4.2: if the shape changes, the shortcut is a projection (option B), not padding.
fn small(blocks: usize, classes: usize, width: f64) -> Vec<Layer> {
    let mut layers = vec![conv("conv1", scaled(16, width), 3, 1), norm("bn1", true)];
    for stage in 0..3 {
        let out = scaled(16 << stage, width);
        for at in 0..blocks {
            let changes = stage > 0 && at == 0;
            let stride = if changes { 2 } else { 1 };
            let name = format!("layer{}.{at}", stage + 1);
            layers.push(block(&name, out, out, stride, changes));
        }
    }
    layers.extend(end(classes));
    layers
}

/// 20 layers for images of 28² or 32².
pub fn resnet20(classes: usize, width: f64) -> Vec<Layer> {
    small(3, classes, width)
}

/// 32 layers for images of 28² or 32².
pub fn resnet32(classes: usize, width: f64) -> Vec<Layer> {
    small(5, classes, width)
}

/// 50 layers; torchvision's `resnet50`. Images below 64² keep their size at the beginning.
pub fn resnet50(image: [usize; 3], classes: usize, width: f64) -> Vec<Layer> {
    let large = image[0].min(image[1]) >= 64;
    let base = scaled(64, width);
    let mut layers = if large {
        vec![conv("conv1", base, 7, 2), norm("bn1", true)]
    } else {
        vec![conv("conv1", base, 3, 1), norm("bn1", true)]
    };
    if large {
        layers.push(Layer::MaxPool(Window {
            kernel: 3,
            stride: 2,
            padding: 1,
        }));
    }
    for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        let middle = scaled(64 << stage, width);
        for at in 0..blocks {
            let stride = if stage > 0 && at == 0 { 2 } else { 1 };
            let name = format!("layer{}.{at}", stage + 1);
            layers.push(block(&name, middle, 4 * middle, stride, at == 0));
        }
    }
    layers.extend(end(classes));
    layers
}

/// 18 layers that embed images of 16² to 112², as faces: insightface's `iresnet18`. A block begins with a batch norm,
/// has its stride in the second convolution and no ReLU after the sum; at the end all positions feed a linear layer of
/// `features`, and a batch norm without learned scale gives each feature the same variance.
///
/// Differs from insightface: ReLU instead of PReLU, and no dropout (there its rate is 0).
pub fn iresnet18(features: usize, width: f64) -> Vec<Layer> {
    let mut layers = vec![conv("conv1", scaled(64, width), 3, 1), norm("bn1", true)];
    for stage in 0..4 {
        let out = scaled(64 << stage, width);
        for at in 0..2 {
            let stride = if at == 0 { 2 } else { 1 };
            let name = format!("layer{}.{at}", stage + 1);
            let part = |part: &str| format!("{name}.{part}");
            layers.push(Layer::Residual {
                body: vec![
                    norm(&part("bn1"), false),
                    conv(&part("conv1"), out, 3, 1),
                    norm(&part("bn2"), true),
                    conv(&part("conv2"), out, 3, stride),
                    norm(&part("bn3"), false),
                ],
                shortcut: if at == 0 {
                    shortcut(&name, out, stride)
                } else {
                    vec![]
                },
                relu: false,
            });
        }
    }
    layers.extend([
        norm("bn2", false),
        Layer::Flatten,
        linear(features),
        Layer::BatchNorm {
            name: "features".to_owned(),
            relu: false,
            scale: false,
        },
    ]);
    layers
}
