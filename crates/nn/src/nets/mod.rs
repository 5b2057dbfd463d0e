//! The nets, by the tables of their papers.

mod alexnet;
mod language;
mod resnet;
mod vgg;

pub use alexnet::{alexnet, overfeat};
pub use language::{LanguageModel, lstm, transformer};
pub use resnet::{resnet20, resnet32, resnet50};
pub use vgg::vgg16;

use crate::error::NnError;
use crate::layer::{Flow, Layer, Summary, follow};

/// A net and what follows from its layers.
#[derive(Clone, Debug)]
pub struct Net {
    /// The layers, which end in logits.
    pub layers: Vec<Layer>,
    /// What flows in.
    pub input: Flow,
    /// Parameters and cost.
    pub summary: Summary,
    /// Classes or words at its end.
    pub classes: usize,
}

impl Net {
    /// Checks that the layers fit one another.
    pub fn new(layers: Vec<Layer>, input: Flow) -> Result<Net, NnError> {
        let mut summary = Summary::default();
        let end = follow(&layers, input, &mut summary)?;
        let Flow::Row(classes) = end else {
            return Err(NnError::Net(format!("a net ends in logits, not {end:?}")));
        };
        Ok(Net {
            layers,
            input,
            summary,
            classes,
        })
    }

    /// Numbers that are trained.
    pub fn trained(&self) -> usize {
        let all = self.summary.parameters.iter();
        all.filter(|p| p.role != crate::layer::Role::Statistic)
            .map(|p| p.len())
            .sum()
    }
}

/// A net for images, as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageModel {
    /// Krizhevsky et al., 2012, in the shape of torchvision (Krizhevsky, 2014).
    AlexNet,
    /// Sermanet et al., 2014, the fast one.
    OverFeat,
    /// Simonyan and Zisserman, 2015, with batch norm.
    Vgg16,
    /// He et al., 2016, for small images.
    ResNet20,
    /// He et al., 2016, for small images.
    ResNet32,
    /// He et al., 2016.
    ResNet50,
}

impl ImageModel {
    /// Spellings of all.
    pub const NAMES: [(&'static str, ImageModel); 6] = [
        ("alexnet", ImageModel::AlexNet),
        ("overfeat", ImageModel::OverFeat),
        ("vgg16", ImageModel::Vgg16),
        ("resnet20", ImageModel::ResNet20),
        ("resnet32", ImageModel::ResNet32),
        ("resnet50", ImageModel::ResNet50),
    ];

    /// The net for images of height, width and channels, `width` times as wide as published.
    pub fn net(self, image: [usize; 3], classes: usize, width: f64) -> Result<Net, NnError> {
        let layers = match self {
            ImageModel::AlexNet => alexnet(image, classes, width),
            ImageModel::OverFeat => overfeat(image, classes, width),
            ImageModel::Vgg16 => vgg16(image, classes, width),
            ImageModel::ResNet20 => resnet20(classes, width),
            ImageModel::ResNet32 => resnet32(classes, width),
            ImageModel::ResNet50 => resnet50(image, classes, width),
        };
        let [height, across, channels] = image;
        Net::new(layers, Flow::Image(height, across, channels))
    }
}

impl std::str::FromStr for ImageModel {
    type Err = String;

    fn from_str(text: &str) -> Result<ImageModel, String> {
        let found = ImageModel::NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, model)| *model).ok_or_else(|| {
            let names: Vec<&str> = ImageModel::NAMES.iter().map(|(name, _)| *name).collect();
            format!("`{text}` is not a net for images: use {}", names.join(", "))
        })
    }
}

impl std::fmt::Display for ImageModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let found = ImageModel::NAMES.iter().find(|(_, model)| model == self);
        f.write_str(found.map_or("", |(name, _)| name))
    }
}

/// So many channels, scaled; at least one.
fn scaled(channels: usize, width: f64) -> usize {
    ((channels as f64 * width).round() as usize).max(1)
}
