//! Nets of features that cost little: a few convolutions, and fully connected layers.

use crate::layer::{Flow, Layer};
use crate::operands::Window;

use super::scaled;

fn norm(name: String) -> Layer {
    Layer::BatchNorm {
        name,
        relu: true,
        scale: true,
    }
}

fn linear(name: String, out: usize) -> Layer {
    Layer::Linear {
        name,
        out,
        bias: true,
        tied: None,
    }
}

/// Three convolutions of stride 2 with batch norm, 32, 64 and 128 channels, and a fully connected layer.
pub fn small(classes: usize, width: f64) -> Vec<Layer> {
    let mut layers = Vec::new();
    for (at, channels) in [32, 64, 128].into_iter().enumerate() {
        layers.push(Layer::Conv {
            name: format!("conv{}", at + 1),
            out: scaled(channels, width),
            at: Window {
                kernel: 3,
                stride: 2,
                padding: 1,
            },
            bias: false,
        });
        layers.push(norm(format!("bn{}", at + 1)));
    }
    layers.extend([Layer::Flatten, linear("fc".to_string(), classes)]);
    layers
}

/// Two fully connected layers of 256 with layer norm, and a third: it does not depend on how a batch is divided. Of sparse
/// rows the first is a [bag](Layer::Bag).
pub fn mlp(input: Flow, classes: usize, width: f64) -> Vec<Layer> {
    let mut layers = Vec::new();
    if matches!(input, Flow::Image(..)) {
        layers.push(Layer::Flatten);
    }
    for at in 1..3 {
        let (name, out) = (format!("fc{at}"), scaled(256, width));
        layers.push(match input {
            Flow::Bag(_) if at == 1 => Layer::Bag { name, out },
            _ => linear(name, out),
        });
        layers.push(Layer::LayerNorm {
            name: format!("ln{at}"),
        });
        layers.push(Layer::Relu);
    }
    layers.push(linear("fc3".to_string(), classes));
    layers
}
