//! The definition of a logit.

use std::f32::consts::FRAC_PI_2;
use std::f64::consts::PI;
use std::fmt;
use std::str::FromStr;

/// Beyond this scale the roundings of cosines in f32 move logits by more than a thousandth.
const LARGEST_SCALE: f32 = 10_000.0;

/// Of angles to the right class. Beyond it, an example at a right angle or nearer would already be on the line of
/// [`Margin`], which then begins above the cosine that it continues.
const LARGEST_FACTOR: f32 = 2.0;

/// How a logit comes from the features x of an example and the weights w of a class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Logits {
    /// x·w.
    Product,
    /// scale · cos(x, w): features and weights count by their direction alone.
    Cosine {
        /// Above 0; the larger, the sharper the softmax.
        scale: f32,
        /// The margin of the right class over the others.
        margin: Margin,
    },
}

/// cos(m₁·θ + m₂) − m₃ instead of the cosine of the right class during training: the combined margin of insightface
/// (`loss_m1` to `loss_m3` in recognition/arcface_mxnet/train.py). CosFace (arXiv 1801.09414, equation 4) has m₃ alone,
/// ArcFace (arXiv 1801.07698, equation 3) m₂ alone; `CombinedMarginLoss` in recognition/arcface_torch/losses.py is one
/// or the other.
///
/// When m₁·θ + m₂ passes π, at the angle θ₀, a cosine would rise again. From there it is the line cos θ − (π − θ₀)·sin
/// θ₀ − m₃: with m₁ = 1 that of ArcFace, cos θ − m₂·sin m₂.
///
/// Differs from insightface: there the cosine rises beyond π, and in arcface_torch the gradient leaves the slope of the
/// margin out. The slope here is the derivative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margin {
    /// m₁, above 0.
    pub factor: f32,
    /// m₂, an angle in radians.
    pub angle: f32,
    /// m₃.
    pub cosine: f32,
}

impl Margin {
    /// No margin: cos θ.
    pub const NONE: Margin = Margin {
        factor: 1.0,
        angle: 0.0,
        cosine: 0.0,
    };

    /// cos θ − m.
    pub const fn cosine(m: f32) -> Margin {
        Margin {
            cosine: m,
            ..Margin::NONE
        }
    }

    /// cos(θ + m).
    pub const fn angle(m: f32) -> Margin {
        Margin {
            angle: m,
            ..Margin::NONE
        }
    }

    /// The value for the cosine `z`, and its derivative by `z`.
    fn of(self, z: f64) -> (f64, f64) {
        let [m1, m2, m3] = [self.factor, self.angle, self.cosine].map(f64::from);
        // Roundings bring a cosine above 1.
        let z = z.clamp(-1.0, 1.0);
        let theta = z.acos();
        let added = (m1 - 1.0) * theta + m2;
        if theta + added < PI {
            // A sine of 0 has no slope.
            let sine = (1.0 - z * z).max(1e-6).sqrt();
            let slope = m1 * (added.cos() + z / sine * added.sin());
            ((theta + added).cos() - m3, slope)
        } else {
            let turn = ((PI - m2) / m1).min(PI);
            (z - (PI - turn) * turn.sin() - m3, 1.0)
        }
    }
}

impl Logits {
    /// A line of help.
    pub const HELP: &str = "Logits: product, cosine[:SCALE], or with a margin cosface[:SCALE[:M3]], arcface[:SCALE[:M2]] or combined[:SCALE[:M1[:M2[:M3]]]], which takes cos(M1·θ + M2) − M3 for the right class (default: cosine:16)";

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

    /// The right class's value instead of `z`, and its derivative by `z`.
    pub(crate) fn of_target(self, z: f32) -> (f32, f32) {
        match self {
            Logits::Cosine { margin, .. } if margin != Margin::NONE => {
                let (value, slope) = margin.of(f64::from(z));
                (value as f32, slope as f32)
            }
            _ => (z, 1.0),
        }
    }
}

impl Default for Logits {
    /// Cosines times 16.
    fn default() -> Logits {
        Logits::Cosine {
            scale: 16.0,
            margin: Margin::NONE,
        }
    }
}

impl FromStr for Logits {
    type Err = String;

    fn from_str(text: &str) -> Result<Logits, String> {
        let bad = || {
            format!(
                "`{text}` are not logits: use product, cosine[:SCALE], cosface[:SCALE[:M3]], arcface[:SCALE[:M2]] or combined[:SCALE[:M1[:M2[:M3]]]], such as cosine:16"
            )
        };
        let mut parts = text.split(':');
        let kind = parts.next().unwrap_or_default();
        let mut number = |default: f32| match parts.next() {
            None => Ok(default),
            Some(part) => {
                let number = part.parse::<f32>().ok();
                number
                    .filter(|x| x.is_finite() && *x >= 0.0)
                    .ok_or_else(bad)
            }
        };
        let mut scale = || number(16.0).and_then(|x| if x > 0.0 { Ok(x) } else { Err(bad()) });
        let (scale, margin) = match kind {
            "product" => (1.0, Margin::NONE),
            "cosine" => (scale()?, Margin::NONE),
            "cosface" => (scale()?, Margin::cosine(number(0.1)?)),
            "arcface" => (scale()?, Margin::angle(number(0.1)?)),
            // As the combined margin of insightface's sample configuration.
            "combined" => {
                let (scale, factor) = (scale()?, number(1.0)?);
                let (angle, cosine) = (number(0.3)?, number(0.2)?);
                let margin = Margin {
                    factor,
                    angle,
                    cosine,
                };
                (scale, margin)
            }
            _ => return Err(bad()),
        };
        if parts.next().is_some() {
            return Err(bad());
        }
        if kind == "product" {
            return Ok(Logits::Product);
        }
        if scale > LARGEST_SCALE {
            return Err(format!(
                "`{text}`: a scale of {scale} is more than cosines in f32 are exact for; give at most {LARGEST_SCALE}"
            ));
        }
        if !(margin.factor > 0.0 && margin.factor <= LARGEST_FACTOR) {
            return Err(format!(
                "`{text}`: the angle to the right class is multiplied by {}; give more than 0 and at most {LARGEST_FACTOR}, such as 1",
                margin.factor
            ));
        }
        if margin.cosine > 2.0 {
            return Err(format!(
                "`{text}`: cosines differ by at most 2, and the margin is {}; give a smaller one, such as 0.1",
                margin.cosine
            ));
        }
        if margin.angle > FRAC_PI_2 {
            return Err(format!(
                "`{text}`: the margin {} is an angle in radians; give at most {FRAC_PI_2}, such as 0.1",
                margin.angle
            ));
        }
        Ok(Logits::Cosine { scale, margin })
    }
}

impl fmt::Display for Logits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Logits::Cosine { scale, margin } = *self else {
            return f.write_str("product");
        };
        let Margin {
            factor,
            angle,
            cosine,
        } = margin;
        if margin == Margin::NONE {
            write!(f, "cosine:{scale}")
        } else if margin == Margin::cosine(cosine) {
            write!(f, "cosface:{scale}:{cosine}")
        } else if margin == Margin::angle(angle) {
            write!(f, "arcface:{scale}:{angle}")
        } else {
            write!(f, "combined:{scale}:{factor}:{angle}:{cosine}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_are_text_and_back() {
        for text in [
            "product",
            "cosine:8",
            "cosface:16:0.2",
            "arcface:30:0.5",
            "combined:64:1:0.3:0.2",
            "combined:64:0.9:0.4:0.15",
        ] {
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
            "combined:1:1:0:0:0",
            "combined:1:1:-1",
        ] {
            let error = wrong.parse::<Logits>().unwrap_err();
            assert!(error.contains("such as cosine:16"), "{error}");
        }
        for (wrong, remedy) in [
            ("cosine:1e5", "give at most 10000"),
            ("cosface:16:2.5", "such as 0.1"),
            ("arcface:64:28.6", "in radians"),
            ("combined:64:1:28.6:0", "in radians"),
            ("combined:64:4", "at most 2, such as 1"),
            ("combined:64:0", "more than 0"),
        ] {
            let error = wrong.parse::<Logits>().unwrap_err();
            assert!(error.contains(remedy), "{error}");
        }
    }

    /// The values of insightface's formula, slopes by differences, and the others as special cases, at all angles.
    #[test]
    fn a_margin_is_the_combined_one_of_insightface() {
        for text in [
            "cosine",
            "cosface:16:0.4",
            "arcface:64:0.5",
            "combined:64:1:0.3:0.2",
            "combined:64:0.9:0.4:0.15",
            "combined:64:1.35:0:0",
            "combined:64:2:0.5:0.1",
        ] {
            let Ok(Logits::Cosine { margin, .. }) = text.parse() else {
                panic!("{text}");
            };
            let [m1, m2, m3] = [margin.factor, margin.angle, margin.cosine].map(f64::from);
            let mut before = f64::INFINITY;
            for step in 20..980 {
                let theta = PI * f64::from(step) / 1000.0;
                let (value, slope) = margin.of(theta.cos());
                if m1 * theta + m2 < PI {
                    let expected = (m1 * theta + m2).cos() - m3;
                    assert!((value - expected).abs() < 1e-12, "{text} {theta}");
                } else if m1 == 1.0 {
                    let expected = theta.cos() - m2 * m2.sin() - m3;
                    assert!((value - expected).abs() < 1e-12, "{text} {theta}");
                }
                // It falls with the angle; at the start of the line, it may be a little above.
                assert!(value < before + 0.05, "{text} {theta}");
                before = value;
                let turn = (PI - m2) / m1;
                let h = 1e-6;
                if (theta - turn).abs() > 1e-3 {
                    let [above, below] = [h, -h].map(|h| margin.of(theta.cos() + h).0);
                    let expected = (above - below) / (2.0 * h);
                    assert!(
                        (slope - expected).abs() < 1e-4,
                        "{text} {theta}: {slope} {expected}"
                    );
                }
            }
        }
    }
}
