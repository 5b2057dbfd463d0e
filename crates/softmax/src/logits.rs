//! What a logit is.

use std::f32::consts::PI;

/// How a logit comes from the features x of an example and the weights w of a class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Logits {
    /// x·w.
    Product,
    /// scale · cos(x, w): features and weights count by their direction alone.
    Cosine {
        /// Above 0; the larger, the sharper the softmax.
        scale: f32,
        /// What the right class is asked for beyond the others.
        margin: Margin,
    },
}

/// What is taken off the cosine of the right class during training.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Margin {
    /// Nothing.
    #[default]
    None,
    /// cos θ − m (CosFace, arXiv 1801.09414, equation 4).
    Cosine(f32),
    /// cos(θ + m) (ArcFace, arXiv 1801.07698, equation 3); beyond θ = π − m it goes on as a line in cos θ.
    Angle(f32),
}

impl Logits {
    /// Factor of a product (of unit vectors with [`Logits::Cosine`]).
    pub(crate) fn scale(self) -> f32 {
        match self {
            Logits::Product => 1.0,
            Logits::Cosine { scale, .. } => scale,
        }
    }

    /// Whether features and weights are divided by their lengths.
    pub(crate) fn is_cosine(self) -> bool {
        matches!(self, Logits::Cosine { .. })
    }

    /// The largest logit that can be, where there is one.
    pub(crate) fn bound(self) -> Option<f32> {
        match self {
            Logits::Product => None,
            Logits::Cosine { scale, .. } => Some(scale),
        }
    }

    /// The right class's value in place of `z`, and its derivative by `z`.
    pub(crate) fn of_target(self, z: f32) -> (f32, f32) {
        let Logits::Cosine { margin, .. } = self else {
            return (z, 1.0);
        };
        match margin {
            Margin::None => (z, 1.0),
            Margin::Cosine(m) => (z - m, 1.0),
            Margin::Angle(m) if z > (PI - m).cos() => {
                // A sine of 0 has no slope.
                let sine = (1.0 - z * z).max(1e-6).sqrt();
                (z * m.cos() - sine * m.sin(), m.cos() + z / sine * m.sin())
            }
            Margin::Angle(m) => (z - m * m.sin(), 1.0),
        }
    }
}
