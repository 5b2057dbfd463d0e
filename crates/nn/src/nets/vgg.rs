//! VGG-16 (Simonyan and Zisserman, 2015, Table 1, D), with batch norm.

use crate::layer::Layer;
use crate::operands::Window;

use super::alexnet::{classifier, pool};
use super::scaled;

/// torchvision's `vgg16_bn`. Images below 64² have a classifier of one layer, as is usual for them.
pub fn vgg16(image: [usize; 3], classes: usize, width: f64) -> Vec<Layer> {
    let mut layers = Vec::new();
    let mut at = 0;
    for (convs, channels) in [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)] {
        for _ in 0..convs {
            layers.push(Layer::Conv {
                name: format!("features.{at}"),
                out: scaled(channels, width),
                at: Window {
                    kernel: 3,
                    stride: 1,
                    padding: 1,
                },
                bias: true,
            });
            layers.push(Layer::BatchNorm {
                name: format!("features.{}", at + 1),
                relu: true,
                scale: true,
            });
            // Convolution, norm and ReLU are three modules in torchvision.
            at += 3;
        }
        layers.push(pool(2, 2));
        at += 1;
    }
    layers.push(Layer::Flatten);
    if image[0].min(image[1]) < 64 {
        layers.push(Layer::Linear {
            name: "classifier".to_owned(),
            out: classes,
            bias: true,
            tied: None,
        });
    } else {
        let wide = scaled(4096, width);
        layers.extend(classifier(&[wide, wide], [0, 3, 6], classes, false));
    }
    layers
}
