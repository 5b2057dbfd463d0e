//! The nets, by the tables of their papers.

mod alexnet;
mod language;
mod resnet;
mod small;
mod vgg;

pub use alexnet::{alexnet, overfeat};
pub use language::{LanguageModel, lstm, transformer};
pub use resnet::{iresnet18, resnet20, resnet32, resnet50};
pub use small::{mlp, small};
pub use vgg::vgg16;

use pelton_kernels::Precision;

use crate::error::NnError;
use crate::layer::{Flow, Layer, Summary, follow};

/// A net, and the summary of its layers.
#[derive(Clone, Debug)]
pub struct Net {
    /// The layers, which end in logits.
    pub layers: Vec<Layer>,
    /// The shape of the input.
    pub input: Flow,
    /// Parameters and cost.
    pub summary: Summary,
    /// Classes or words at its end.
    pub classes: usize,
    /// Of the products of its layers in training; evaluation is f32. [`Net::new`] sets f32.
    pub precision: Precision,
}

impl Net {
    /// Checks that the layers fit one another.
    pub fn new(layers: Vec<Layer>, input: Flow) -> Result<Net, NnError> {
        let mut summary = Summary::default();
        let end = follow(&layers, input, &mut summary)?;
        let Flow::Row(classes) = end else {
            return Err(NnError::Net(format!(
                "a net must end in logits, not {end:?}"
            )));
        };
        Ok(Net {
            layers,
            input,
            summary,
            classes,
            precision: Precision::F32,
        })
    }

    /// Whether the output for an example depends on the others of its batch: the net has batch norm.
    pub fn normalises_batches(&self) -> bool {
        let mut all = self.summary.parameters.iter();
        all.any(|p| p.role == crate::layer::Role::Statistic)
    }

    /// Numbers that are trained.
    pub fn trained(&self) -> usize {
        use crate::layer::Role;
        let all = self.summary.parameters.iter();
        all.filter(|p| !matches!(p.role, Role::Statistic | Role::Fixed))
            .map(|p| p.len())
            .sum()
    }
}

/// Declares the nets: each is a variant with its name as text and its layers.
macro_rules! image_models {
    (
        ($image:ident, $input:ident, $classes:ident, $width:ident);
        $($(#[doc = $doc:literal])+ $model:ident, $name:literal = $layers:expr;)+
    ) => {
        pelton_key::names! {
            /// A net for images or vectors.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum ImageModel: "a net for images or vectors" {
                $($(#[doc = $doc])+ $model = $name,)+
            }
        }

        impl ImageModel {
            /// Its layers for an input; the shape of an image is zeros if it is a row.
            fn layers(self, $image: [usize; 3], $input: Flow, $classes: usize, $width: f64) -> Vec<Layer> {
                match self {
                    $(ImageModel::$model => $layers,)+
                }
            }
        }
    };
}

image_models! {
    (image, input, classes, width);
    /// Krizhevsky et al., 2012, in the shape of torchvision (Krizhevsky, 2014).
    AlexNet, "alexnet" = alexnet(image, classes, width);
    /// Sermanet et al., 2014, the fast one.
    OverFeat, "overfeat" = overfeat(image, classes, width);
    /// Simonyan and Zisserman, 2015, with batch norm.
    Vgg16, "vgg16" = vgg16(image, classes, width);
    /// He et al., 2016, for small images.
    ResNet20, "resnet20" = resnet20(classes, width);
    /// He et al., 2016, for small images.
    ResNet32, "resnet32" = resnet32(classes, width);
    /// He et al., 2016.
    ResNet50, "resnet50" = resnet50(image, classes, width);
    /// Deng et al., 2019: features of small images for a head.
    IResNet18, "iresnet18" = iresnet18(classes, width);
    /// Three convolutions; cheap.
    Small, "small" = small(classes, width);
    /// Fully connected layers, for vectors too.
    Mlp, "mlp" = mlp(input, classes, width);
    /// No layers: vectors are their own features.
    None, "none" = vec![];
}

impl ImageModel {
    /// The net for images or vectors that ends in `classes` numbers, `width` times as wide as published.
    pub fn net(self, input: impl Into<Flow>, classes: usize, width: f64) -> Result<Net, NnError> {
        let input = input.into();
        let image = match input {
            Flow::Image(height, across, channels) => [height, across, channels],
            _ => [0; 3],
        };
        let layers = self.layers(image, input, classes, width);
        let net = Net::new(layers, input)?;
        if net.classes != classes {
            return Err(NnError::Net(format!(
                "a net without layers outputs the {} features of a vector, but {classes} are needed; choose a net such as mlp",
                net.classes
            )));
        }
        Ok(net)
    }
}

/// A scaled number of channels; at least one.
fn scaled(channels: usize, width: f64) -> usize {
    ((channels as f64 * width).round() as usize).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_lists_every_net() {
        let page = include_str!("../../../../docs/nets.md");
        for net in ImageModel::ALL {
            assert!(page.contains(&format!("`{net}`")), "{net}");
        }
    }

    /// Of torchvision 0.29, of He et al. (0.27 M, with convolutions as shortcuts), and of PyTorch's LSTM example.
    #[test]
    fn nets_have_the_published_numbers_of_parameters() {
        let image = |model: &str, image, classes| {
            let model: ImageModel = model.parse().expect("a net");
            model.net(image, classes, 1.0).expect("layers that fit")
        };
        let large = [224, 224, 3];
        let expected = [
            (image("alexnet", large, 1000), 61_100_840),
            (image("vgg16", large, 1000), 138_365_992),
            (image("resnet50", large, 1000), 25_557_032),
            (image("resnet20", [32, 32, 3], 10), 272_474),
            // insightface's 24 025 600 without 1 984 slopes of PReLU and 512 scales that it does not train.
            (image("iresnet18", [112, 112, 3], 512), 24_023_104),
        ];
        for (net, parameters) in expected {
            assert_eq!(net.trained(), parameters, "{:?}", net.layers.last());
        }
        // Multiplications, as torchvision counts them.
        let cost = image("resnet50", large, 1000).summary.multiplications as f64;
        assert!((cost / 4.09e9 - 1.0).abs() < 0.01, "{cost}");
        let model = |tied| LanguageModel {
            words: 10_000,
            embedding: 200,
            hidden: 200,
            layers: 2,
            heads: 4,
            positions: 35,
            dropout: 0.2,
            tied,
        };
        assert_eq!(lstm(&model(false)).unwrap().trained(), 4_653_200);
        assert_eq!(lstm(&model(true)).unwrap().trained(), 2_653_200);
    }
}
