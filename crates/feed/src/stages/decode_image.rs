//! Encoded pictures to pixels.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pelton_batch::{DType, FieldSpec, FieldSpecs};
use pelton_image::Limits;

use super::IMAGE;
use super::members::{check_record, take_record};
use crate::sample::{Sample, Value};
use crate::stage::{Appearance, Slots, Stage, StageFailure};

/// Decodes JPEG, PNG or WebP, told apart by content, to the field "image". Of a sample of tar members the first with
/// one of its extensions is taken.
pub struct DecodeImages {
    extensions: Vec<String>,
    most_pixels: u64,
    exif: Exif,
    name: Arc<str>,
    /// Pictures of the first epoch that state an orientation other than upright.
    turned: AtomicU64,
}

impl DecodeImages {
    /// Largest picture where nothing is said: 100 million pixels.
    pub const MOST_PIXELS: u64 = 100_000_000;
    /// What [`Stage::counted`] calls pictures that state an orientation other than upright.
    pub const EXIF_PICTURES: &'static str = "exif_pictures";

    /// Pictures of one or all of the known kinds: `jpg`, `png`, `webp` or `image`.
    pub fn of(kind: &str) -> Option<DecodeImages> {
        let extensions: &[&str] = match kind {
            "jpg" | "jpeg" => &["jpg", "jpeg"],
            "png" => &["png"],
            "webp" => &["webp"],
            "image" => &["jpg", "jpeg", "png", "webp"],
            _ => return None,
        };
        Some(DecodeImages {
            extensions: extensions.iter().map(|&known| known.to_owned()).collect(),
            most_pixels: DecodeImages::MOST_PIXELS,
            exif: Exif::default(),
            name: IMAGE.into(),
            turned: AtomicU64::new(0),
        })
    }

    /// With what is done with orientations that EXIF data state.
    pub fn with_exif(self, exif: Exif) -> DecodeImages {
        DecodeImages { exif, ..self }
    }

    /// Where pictures of more pixels are bad records.
    pub fn with_most_pixels(self, most_pixels: u64) -> DecodeImages {
        DecodeImages {
            most_pixels,
            ..self
        }
    }
}

impl Stage for DecodeImages {
    fn name(&self) -> &'static str {
        "decode"
    }

    fn spec(&self, input: FieldSpecs) -> Result<FieldSpecs, String> {
        // Raw pixels are what they should be.
        if input.get(IMAGE).is_some() {
            return Ok(input);
        }
        check_record(&input, "a decoder of pictures")?;
        let image = FieldSpec::new(IMAGE, DType::U8, &[None, None, None]);
        Ok(FieldSpecs(vec![image]))
    }

    /// Encoded pictures are some ten times as large when decoded.
    fn bytes(&self, input: u64) -> u64 {
        10 * input
    }

    fn run(
        &self,
        sample: &mut Sample<'_>,
        _: &mut Slots<'_>,
        at: &Appearance,
        _: &mut dyn Any,
    ) -> Result<(), StageFailure> {
        let Some(record) = take_record(sample, &self.extensions)? else {
            return Ok(());
        };
        let bytes = record.bytes();
        let limits = Limits {
            most_pixels: self.most_pixels,
        };
        let mut pixels = sample.new_pixels();
        pelton_image::decode(bytes, &limits, &mut pixels)?;
        let orientation = pelton_image::orientation(bytes);
        if !orientation.is_upright() {
            if self.exif == Exif::Apply {
                pixels.turn_upright(orientation);
            }
            // Later epochs and copies meet the same pictures.
            self.turned.fetch_add(u64::from(at.first), Relaxed);
        }
        sample.set(&self.name, Value::Pixels(Cow::Owned(pixels)));
        Ok(())
    }

    fn counted(&self) -> Vec<(&'static str, u64)> {
        vec![(DecodeImages::EXIF_PICTURES, self.turned.load(Relaxed))]
    }
}

/// What is done with the orientation that the EXIF data of a picture state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exif {
    /// Nothing: pixels come as they are stored, as torchvision and TensorFlow have it.
    #[default]
    Ignore,
    /// The picture is turned and mirrored until it is upright.
    Apply,
}

impl fmt::Display for Exif {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Exif::Ignore => "ignore",
            Exif::Apply => "apply",
        })
    }
}

impl FromStr for Exif {
    type Err = String;

    fn from_str(text: &str) -> Result<Exif, String> {
        match text {
            "ignore" => Ok(Exif::Ignore),
            "apply" => Ok(Exif::Apply),
            _ => Err(format!(
                "`{text}` is nothing to do with EXIF orientations: use ignore or apply"
            )),
        }
    }
}
