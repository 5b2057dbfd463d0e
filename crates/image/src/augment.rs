//! The stages of an augmentation and how they are spelt.

use std::fmt;
use std::str::FromStr;

use crate::ImageError;

/// One stage of an augmentation.
///
/// Spelt `name:parameter:parameter`; inside a parameter `/` separates the values of channels, `x` the
/// sides and `-` the ends of a range. No parameter holds a comma, so commas separate stages.
///
/// | spelling | what it does |
/// |---|---|
/// | `resize:S` | makes the shorter side S, keeping the proportions |
/// | `resize:HxW` | makes the image H high and W wide |
/// | `crop:S` | takes the S x S pixels in the middle, with black around a smaller image |
/// | `randomcrop:S[:PAD]` | takes S x S pixels from anywhere, after adding PAD black ones on each side |
/// | `rrc:S[:MIN-MAX]` | takes a part with MIN to MAX (0.08 to 1) of the area and a ratio of 3/4 to 4/3, resized to S x S |
/// | `flip[:P]` | mirrors left and right with chance P (0.5) |
/// | `jitter:B[:C[:S[:H]]]` | changes brightness, contrast, saturation and hue, in random order |
/// | `affine:DEGREES:SHIFT:SCALE[:SHEAR]` | turns by ± DEGREES, shifts by ± SHIFT of each side, scales by 1 ± SCALE and shears rows by ± SHEAR degrees (0), about the middle, with black around it |
/// | `cutout:S` | blackens a square of S x S around a random pixel, as far as it lies in the image |
/// | `grey` | makes one channel |
/// | `normalise[:MEANS:DEVIATIONS]` | makes floats (v/255 − mean)/deviation; ImageNet's if none are given |
///
/// Sizes, draws and rounding are those of torchvision's transforms on Pillow's images. Hue alone is that
/// of its tensors, which has no steps, and `affine` looks between pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Augment {
    /// The shorter side to this many pixels.
    ResizeShorter {
        /// Its length.
        side: u32,
    },
    /// Both sides.
    Resize {
        /// Height.
        height: u32,
        /// Width.
        width: u32,
    },
    /// The middle.
    Crop {
        /// Height and width.
        side: u32,
    },
    /// A square from anywhere.
    RandomCrop {
        /// Height and width.
        side: u32,
        /// Black pixels added on every side before.
        padding: u32,
    },
    /// A part of random size and ratio from anywhere, resized.
    RandomResizedCrop {
        /// Height and width.
        side: u32,
        /// Least part of the area.
        least: f64,
        /// Greatest part of the area.
        most: f64,
    },
    /// Mirrors left and right.
    Flip {
        /// How often.
        chance: f64,
    },
    /// Changes colours. A factor is drawn from 1 ± the number, at least 0; hue turns by ± the number.
    Jitter {
        /// Of the factor on all values.
        brightness: f64,
        /// Of the factor on the distance from the mean grey.
        contrast: f64,
        /// Of the factor on the distance from the pixel's grey.
        saturation: f64,
        /// Of the turn of hue, where 1 is the whole circle; at most 0.5.
        hue: f64,
    },
    /// Turns, shifts, scales and shears about the middle, with black around the image.
    Affine {
        /// Most degrees of the turn.
        degrees: f64,
        /// Most of the shift, as a part of each side.
        shift: f64,
        /// The factor is 1 ± at most this.
        scale: f64,
        /// Most degrees by which rows are sheared.
        shear: f64,
    },
    /// Blackens a square; after [`Augment::Normalise`] it becomes 0, the mean.
    CutOut {
        /// Height and width.
        side: u32,
    },
    /// One channel, ITU-R 601-2 luma.
    Grey,
    /// Floats.
    Normalise {
        /// A mean a channel, of values from 0 to 1.
        mean: [f32; 3],
        /// A deviation a channel.
        deviation: [f32; 3],
    },
}

/// Longest side that a stage makes; 8192 x 8192 pixels are the default limit of [`crate::Limits`].
pub(crate) const MOST_SIDE: u32 = 8192;
/// Means and deviations of the photos of ImageNet, red, green and blue.
const IMAGENET: ([f32; 3], [f32; 3]) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);

const RULE_OF_AFFINE: &str = "its parameters are degrees (0 to 180), a shift (0 to 1), a scale (0 to 0.9) and perhaps \
                              degrees of shear (0 to 80), as in 10:0.08:0.15:8";
const SIDE_RULE: &str = "a side is a whole number from 1 to 8192";

impl Augment {
    /// Its name in spellings.
    pub fn name(&self) -> &'static str {
        match self {
            Augment::ResizeShorter { .. } | Augment::Resize { .. } => "resize",
            Augment::Crop { .. } => "crop",
            Augment::RandomCrop { .. } => "randomcrop",
            Augment::RandomResizedCrop { .. } => "rrc",
            Augment::Flip { .. } => "flip",
            Augment::Jitter { .. } => "jitter",
            Augment::Affine { .. } => "affine",
            Augment::CutOut { .. } => "cutout",
            Augment::Grey => "grey",
            Augment::Normalise { .. } => "normalise",
        }
    }

    /// Whether it moves pixels, so that a mask must follow; other stages change values.
    pub(crate) fn moves_pixels(&self) -> bool {
        match self {
            Augment::ResizeShorter { .. }
            | Augment::Resize { .. }
            | Augment::Crop { .. }
            | Augment::RandomCrop { .. }
            | Augment::RandomResizedCrop { .. }
            | Augment::Flip { .. }
            | Augment::Affine { .. } => true,
            Augment::Jitter { .. }
            | Augment::CutOut { .. }
            | Augment::Grey
            | Augment::Normalise { .. } => false,
        }
    }

    /// Checks its parameters; an error states the rule.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let side_fits = |side: u32| (1..=MOST_SIDE).contains(&side);
        let rule = |holds: bool, rule| if holds { Ok(()) } else { Err(rule) };
        match *self {
            Augment::ResizeShorter { side } | Augment::Crop { side } | Augment::CutOut { side } => {
                rule(side_fits(side), SIDE_RULE)
            }
            Augment::Resize { height, width } => {
                rule(side_fits(height) && side_fits(width), SIDE_RULE)
            }
            Augment::RandomCrop { side, padding } => {
                rule(side_fits(side), SIDE_RULE)?;
                let rule_of_padding = "padding is a whole number from 0 to 8192";
                rule(padding <= MOST_SIDE, rule_of_padding)
            }
            Augment::RandomResizedCrop { side, least, most } => {
                rule(side_fits(side), SIDE_RULE)?;
                let rule_of_area = "the parts of the area are MIN-MAX with 0 < MIN <= MAX <= 1";
                rule(0.0 < least && least <= most && most <= 1.0, rule_of_area)
            }
            Augment::Flip { chance } => {
                rule((0.0..=1.0).contains(&chance), "a chance lies from 0 to 1")
            }
            Augment::Jitter {
                brightness,
                contrast,
                saturation,
                hue,
            } => {
                let strong = [brightness, contrast, saturation];
                let fits = strong.iter().all(|number| (0.0..=100.0).contains(number));
                rule(
                    fits,
                    "brightness, contrast and saturation lie from 0 to 100",
                )?;
                rule((0.0..=0.5).contains(&hue), "hue lies from 0 to 0.5")
            }
            Augment::Affine {
                degrees,
                shift,
                scale,
                shear,
            } => {
                let fits = (0.0..=180.0).contains(&degrees) && (0.0..=1.0).contains(&shift);
                let fits = fits && (0.0..=0.9).contains(&scale) && (0.0..=80.0).contains(&shear);
                rule(fits, RULE_OF_AFFINE)
            }
            Augment::Grey => Ok(()),
            Augment::Normalise { mean, deviation } => {
                let fits = mean.iter().all(|mean| mean.is_finite());
                rule(fits, "a mean is a number")?;
                // So that 255 / (255 · deviation) stays finite.
                let fits = deviation.iter().all(|d| (1e-30..=1e30).contains(d));
                rule(fits, "a deviation is a number above 0")
            }
        }
    }
}

impl FromStr for Augment {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Augment, ImageError> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let parameters: Vec<&str> = parts.collect();
        let (stage, parsed) = match name {
            "resize" => ("resize", parse_resize(&parameters)),
            "crop" => (
                "crop",
                parse_side(&parameters).map(|side| Augment::Crop { side }),
            ),
            "randomcrop" => ("randomcrop", parse_random_crop(&parameters)),
            "rrc" => ("rrc", parse_random_resized_crop(&parameters)),
            "flip" => ("flip", parse_flip(&parameters)),
            "jitter" => ("jitter", parse_jitter(&parameters)),
            "affine" => ("affine", parse_affine(&parameters)),
            "cutout" => (
                "cutout",
                parse_side(&parameters).map(|side| Augment::CutOut { side }),
            ),
            "grey" if parameters.is_empty() => ("grey", Ok(Augment::Grey)),
            "grey" => ("grey", Err("it has no parameter")),
            "normalise" => ("normalise", parse_normalise(&parameters)),
            _ => {
                return Err(ImageError::new(format!(
                    "augmentation '{text}' is not known: use resize:S, resize:HxW, crop:S, randomcrop:S[:PAD], \
                     rrc:S[:MIN-MAX], flip[:P], jitter:B[:C[:S[:H]]], cutout:S, grey or \
                     normalise[:MEANS:DEVIATIONS], with commas between stages, for instance rrc:224,flip,normalise"
                )));
            }
        };
        let checked = parsed.and_then(|augment| augment.check().map(|()| augment));
        checked.map_err(|rule| bad_stage(text, stage, rule))
    }
}

/// A number of the stage `text` is missing, superfluous or outside what it may be.
pub(crate) fn bad_stage(text: &str, stage: &str, rule: &str) -> ImageError {
    ImageError::new(format!("'{text}' asks for what {stage} cannot do: {rule}"))
}

type Parsed = Result<Augment, &'static str>;

fn whole(text: &str, rule: &'static str) -> Result<u32, &'static str> {
    // "+5" is a number to std.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(rule);
    }
    text.parse().map_err(|_| rule)
}

fn number<T: FromStr>(text: &str, rule: &'static str) -> Result<T, &'static str> {
    let plain = |byte: u8| byte.is_ascii_digit() || byte == b'.' || byte == b'-';
    if !text.bytes().all(plain) {
        return Err(rule);
    }
    text.parse().map_err(|_| rule)
}

fn parse_side(parameters: &[&str]) -> Result<u32, &'static str> {
    match parameters {
        [side] => whole(side, SIDE_RULE),
        _ => Err("it has one parameter, a side"),
    }
}

fn parse_resize(parameters: &[&str]) -> Parsed {
    let [sides] = parameters else {
        return Err("it has one parameter: the shorter side, or height x width as in 224x320");
    };
    Ok(match sides.split_once('x') {
        Some((height, width)) => Augment::Resize {
            height: whole(height, SIDE_RULE)?,
            width: whole(width, SIDE_RULE)?,
        },
        None => Augment::ResizeShorter {
            side: whole(sides, SIDE_RULE)?,
        },
    })
}

fn parse_random_crop(parameters: &[&str]) -> Parsed {
    let (side, padding) = match parameters {
        [side] => (side, "0"),
        [side, padding] => (side, *padding),
        _ => return Err("its parameters are a side and perhaps a padding"),
    };
    Ok(Augment::RandomCrop {
        side: whole(side, SIDE_RULE)?,
        padding: whole(padding, "padding is a whole number from 0 to 8192")?,
    })
}

fn parse_random_resized_crop(parameters: &[&str]) -> Parsed {
    const RULE: &str = "the parts of the area are MIN-MAX with 0 < MIN <= MAX <= 1";
    let (side, (least, most)) = match parameters {
        [side] => (side, ("0.08", "1")),
        [side, area] => (side, area.split_once('-').ok_or(RULE)?),
        _ => return Err("its parameters are a side and perhaps the parts of the area, MIN-MAX"),
    };
    Ok(Augment::RandomResizedCrop {
        side: whole(side, SIDE_RULE)?,
        least: number(least, RULE)?,
        most: number(most, RULE)?,
    })
}

fn parse_flip(parameters: &[&str]) -> Parsed {
    let chance = match parameters {
        [] => "0.5",
        [chance] => chance,
        _ => return Err("its one parameter is a chance"),
    };
    Ok(Augment::Flip {
        chance: number(chance, "a chance lies from 0 to 1")?,
    })
}

fn parse_jitter(parameters: &[&str]) -> Parsed {
    const RULE: &str =
        "its parameters are brightness, contrast, saturation and hue, as in 0.4:0.4:0.4:0.1";
    if parameters.is_empty() || parameters.len() > 4 {
        return Err(RULE);
    }
    let mut numbers = [0.0; 4];
    for (slot, text) in numbers.iter_mut().zip(parameters) {
        *slot = number(text, RULE)?;
    }
    let [brightness, contrast, saturation, hue] = numbers;
    Ok(Augment::Jitter {
        brightness,
        contrast,
        saturation,
        hue,
    })
}

fn parse_affine(parameters: &[&str]) -> Parsed {
    let [degrees, shift, scale, shear] = match parameters {
        [degrees, shift, scale] => [degrees, shift, scale, &"0"],
        [degrees, shift, scale, shear] => [degrees, shift, scale, shear],
        _ => return Err(RULE_OF_AFFINE),
    };
    Ok(Augment::Affine {
        degrees: number(degrees, RULE_OF_AFFINE)?,
        shift: number(shift, RULE_OF_AFFINE)?,
        scale: number(scale, RULE_OF_AFFINE)?,
        shear: number(shear, RULE_OF_AFFINE)?,
    })
}

fn parse_normalise(parameters: &[&str]) -> Parsed {
    const RULE: &str = "its parameters are means and deviations of the channels, as in \
                        0.485/0.456/0.406:0.229/0.224/0.225 or 0.5:0.5";
    fn channels(text: &str) -> Result<[f32; 3], &'static str> {
        let values: Vec<&str> = text.split('/').collect();
        match values[..] {
            [all] => Ok([number(all, RULE)?; 3]),
            [red, green, blue] => Ok([
                number(red, RULE)?,
                number(green, RULE)?,
                number(blue, RULE)?,
            ]),
            _ => Err(RULE),
        }
    }
    let (mean, deviation) = match parameters {
        [] => IMAGENET,
        [means, deviations] => (channels(means)?, channels(deviations)?),
        _ => return Err(RULE),
    };
    Ok(Augment::Normalise { mean, deviation })
}

impl fmt::Display for Augment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match *self {
            Augment::ResizeShorter { side } | Augment::Crop { side } | Augment::CutOut { side } => {
                write!(f, ":{side}")
            }
            Augment::Resize { height, width } => write!(f, ":{height}x{width}"),
            Augment::RandomCrop { side, padding: 0 } => write!(f, ":{side}"),
            Augment::RandomCrop { side, padding } => write!(f, ":{side}:{padding}"),
            Augment::RandomResizedCrop { side, least, most } => {
                write!(f, ":{side}")?;
                if (least, most) != (0.08, 1.0) {
                    write!(f, ":{least}-{most}")?;
                }
                Ok(())
            }
            Augment::Flip { chance: 0.5 } | Augment::Grey => Ok(()),
            Augment::Flip { chance } => write!(f, ":{chance}"),
            Augment::Jitter {
                brightness,
                contrast,
                saturation,
                hue,
            } => write!(f, ":{brightness}:{contrast}:{saturation}:{hue}"),
            Augment::Affine {
                degrees,
                shift,
                scale,
                shear,
            } => {
                write!(f, ":{degrees}:{shift}:{scale}")?;
                match shear {
                    0.0 => Ok(()),
                    shear => write!(f, ":{shear}"),
                }
            }
            Augment::Normalise { mean, deviation } => {
                if (mean, deviation) == IMAGENET {
                    return Ok(());
                }
                for values in [mean, deviation] {
                    match values {
                        [red, green, blue] if red == green && green == blue => {
                            write!(f, ":{red}")?;
                        }
                        [red, green, blue] => write!(f, ":{red}/{green}/{blue}")?,
                    }
                }
                Ok(())
            }
        }
    }
}
