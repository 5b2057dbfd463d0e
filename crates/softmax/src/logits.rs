//! What a logit is.

use std::f32::consts::{FRAC_PI_2, PI};
use std::fmt;
use std::str::FromStr;

/// Beyond this scale the roundings of cosines in f32 move logits by more than a thousandth.
const LARGEST_SCALE: f32 = 10_000.0;

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
    /// A line of help.
    pub const HELP: &str = "Logits: product, cosine[:SCALE], or with a margin cosface[:SCALE[:MARGIN]] or arcface[:SCALE[:MARGIN]] (default: cosine:16)";

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

impl Default for Logits {
    /// Cosines times 16.
    fn default() -> Logits {
        Logits::Cosine {
            scale: 16.0,
            margin: Margin::None,
        }
    }
}

impl FromStr for Logits {
    type Err = String;

    fn from_str(text: &str) -> Result<Logits, String> {
        let bad = || {
            format!(
                "`{text}` are not logits: use product, cosine[:SCALE], cosface[:SCALE[:MARGIN]] or arcface[:SCALE[:MARGIN]], such as cosine:16"
            )
        };
        let mut parts = text.split(':');
        let kind = parts.next().unwrap_or_default();
        let mut number = |default: f32| match parts.next() {
            None => Ok(default),
            Some(part) => {
                let number = part.parse::<f32>().ok();
                number.filter(|x| x.is_finite() && *x > 0.0).ok_or_else(bad)
            }
        };
        let logits = match kind {
            "product" => Logits::Product,
            "cosine" => Logits::Cosine {
                scale: number(16.0)?,
                margin: Margin::None,
            },
            "cosface" => Logits::Cosine {
                scale: number(16.0)?,
                margin: Margin::Cosine(number(0.1)?),
            },
            "arcface" => Logits::Cosine {
                scale: number(16.0)?,
                margin: Margin::Angle(number(0.1)?),
            },
            _ => return Err(bad()),
        };
        if parts.next().is_some() {
            return Err(bad());
        }
        let Logits::Cosine { scale, margin } = logits else {
            return Ok(logits);
        };
        if scale > LARGEST_SCALE {
            return Err(format!(
                "`{text}`: a scale of {scale} is more than cosines in f32 are exact for; give at most {LARGEST_SCALE}"
            ));
        }
        match margin {
            Margin::Cosine(m) if m > 2.0 => Err(format!(
                "`{text}`: cosines differ by at most 2, and the margin is {m}; give a smaller one, such as 0.1"
            )),
            Margin::Angle(m) if m > FRAC_PI_2 => Err(format!(
                "`{text}`: the margin {m} is an angle in radians; give at most {FRAC_PI_2}, such as 0.1"
            )),
            _ => Ok(logits),
        }
    }
}

impl fmt::Display for Logits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Logits::Product => f.write_str("product"),
            Logits::Cosine { scale, margin } => match margin {
                Margin::None => write!(f, "cosine:{scale}"),
                Margin::Cosine(m) => write!(f, "cosface:{scale}:{m}"),
                Margin::Angle(m) => write!(f, "arcface:{scale}:{m}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_are_text_and_back() {
        for text in ["product", "cosine:8", "cosface:16:0.2", "arcface:30:0.5"] {
            let setting: Logits = text.parse().expect("logits");
            assert_eq!(setting.to_string(), text);
        }
        for wrong in [
            "",
            "cos",
            "cosine:0",
            "cosine:1:2",
            "product:1",
            "arcface:1:x",
        ] {
            let error = wrong.parse::<Logits>().unwrap_err();
            assert!(error.contains("such as cosine:16"), "{error}");
        }
        for (wrong, remedy) in [
            ("cosine:1e5", "give at most 10000"),
            ("cosface:16:2.5", "such as 0.1"),
            ("arcface:64:28.6", "in radians"),
        ] {
            let error = wrong.parse::<Logits>().unwrap_err();
            assert!(error.contains(remedy), "{error}");
        }
    }
}
