//! AlexNet (Krizhevsky, 2014, "One weird trick") and the fast OverFeat (Sermanet et al., 2014, Table 1).

use crate::layer::Layer;
use crate::operands::Window;

use super::scaled;

/// A max pool without padding.
pub(super) fn pool(kernel: usize, stride: usize) -> Layer {
    Layer::MaxPool(Window {
        kernel,
        stride,
        padding: 0,
    })
}

fn conv(name: String, out: usize, kernel: usize, stride: usize, padding: usize) -> [Layer; 2] {
    let at = Window {
        kernel,
        stride,
        padding,
    };
    let bias = true;
    [
        Layer::Conv {
            name,
            out,
            at,
            bias,
        },
        Layer::Relu,
    ]
}

/// Fully connected layers with ReLUs and dropout of a half, before or after each; named `classifier.` and an index.
pub(super) fn classifier(
    hidden: &[usize],
    names: [usize; 3],
    classes: usize,
    dropout_first: bool,
) -> Vec<Layer> {
    let linear = |name: usize, out: usize| Layer::Linear {
        name: format!("classifier.{name}"),
        out,
        bias: true,
        tied: None,
    };
    let mut layers = Vec::new();
    for (&out, &name) in hidden.iter().zip(&names) {
        if dropout_first {
            layers.push(Layer::Dropout(0.5));
        }
        layers.extend([linear(name, out), Layer::Relu]);
        if !dropout_first {
            layers.push(Layer::Dropout(0.5));
        }
    }
    layers.push(linear(names[2], classes));
    layers
}

/// torchvision's `alexnet`. Images below 64² begin with 5×5 windows of stride 1, instead of 11×11 of stride 4, and end
/// in layers of 1024.
pub fn alexnet(image: [usize; 3], classes: usize, width: f64) -> Vec<Layer> {
    let small = image[0].min(image[1]) < 64;
    let channels = [64, 192, 384, 256, 256].map(|c| scaled(c, width));
    let name = |at: usize| format!("features.{at}");
    let mut layers = Vec::new();
    if small {
        layers.extend(conv(name(0), channels[0], 5, 1, 2))
    } else {
        layers.extend(conv(name(0), channels[0], 11, 4, 2))
    }
    layers.push(pool(3, 2));
    layers.extend(conv(name(3), channels[1], 5, 1, 2));
    layers.push(pool(3, 2));
    layers.extend(conv(name(6), channels[2], 3, 1, 1));
    layers.extend(conv(name(8), channels[3], 3, 1, 1));
    layers.extend(conv(name(10), channels[4], 3, 1, 1));
    layers.extend([pool(3, 2), Layer::Flatten]);
    let wide = scaled(if small { 1024 } else { 4096 }, width);
    layers.extend(classifier(&[wide, wide], [1, 4, 6], classes, true));
    layers
}

/// OverFeat's fast model. Images below 64² begin with 5×5 windows of stride 1, instead of 11×11 of stride 4, and end in
/// layers of 1024.
///
/// Differs from Table 1 for small images only: the second convolution is padded.
pub fn overfeat(image: [usize; 3], classes: usize, width: f64) -> Vec<Layer> {
    let small = image[0].min(image[1]) < 64;
    let channels = [96, 256, 512, 1024, 1024].map(|c| scaled(c, width));
    let name = |at: usize| format!("features.{at}");
    let mut layers = Vec::new();
    if small {
        layers.extend(conv(name(0), channels[0], 5, 1, 2))
    } else {
        layers.extend(conv(name(0), channels[0], 11, 4, 0))
    }
    layers.push(pool(2, 2));
    layers.extend(conv(name(3), channels[1], 5, 1, if small { 2 } else { 0 }));
    layers.push(pool(2, 2));
    layers.extend(conv(name(6), channels[2], 3, 1, 1));
    layers.extend(conv(name(8), channels[3], 3, 1, 1));
    layers.extend(conv(name(10), channels[4], 3, 1, 1));
    layers.extend([pool(2, 2), Layer::Flatten]);
    let wide = if small { [1024, 1024] } else { [3072, 4096] };
    let wide = wide.map(|out| scaled(out, width));
    layers.extend(classifier(&wide, [1, 4, 6], classes, true));
    layers
}
