//! Encoded pictures to pixels.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pelton_batch::{DType, FieldSpec, FieldSpecs};
use pelton_image::{ImageError, Keep, Limits};

use super::members::{Record, check_record, take_record};
use super::{IMAGE, MEMBERS};
use crate::field_setting::extensions;
use crate::sample::{Sample, Value};
use crate::stage::{Appearance, Slots, Stage, StageFailure};

/// The name of the field of encoded pictures in files of TensorFlow's converters.
const ENCODED: &str = "image/encoded";

/// Decodes pictures to the field "image"; detects their kind by content. In a tar sample it takes the first member
/// with one of its extensions; in a record of several fields the named one, or "image", "image/encoded" or one named
/// like an extension, or else the only one of bytes. Other fields are unchanged.
pub struct DecodeImages {
    extensions: Vec<String>,
    /// The field to decode, if named.
    field: Option<String>,
    most_pixels: u64,
    exif: Exif,
    name: Arc<str>,
    /// Pictures of the first epoch that state an orientation other than upright.
    turned: AtomicU64,
}

impl DecodeImages {
    /// Default largest picture: 100 million pixels.
    pub const MOST_PIXELS: u64 = 100_000_000;
    /// The name in [`Stage::counted`] for pictures with an orientation other than upright.
    pub const EXIF_PICTURES: &'static str = "exif_pictures";

    /// Pictures of one or all of the known kinds: `jpg` or another of [`pelton_format::PICTURE_EXTENSIONS`], or
    /// `image`; if a colon and a name follow, those in the field of that name.
    pub fn from_kind(kind: &str) -> Option<DecodeImages> {
        let (kind, field) = match kind.split_once(':') {
            Some((kind, field)) => (kind, Some(field)),
            None => (kind, None),
        };
        let extensions = extensions(kind)?;
        Some(DecodeImages {
            extensions: extensions.iter().map(|&known| known.to_owned()).collect(),
            field: field.map(str::to_owned),
            most_pixels: DecodeImages::MOST_PIXELS,
            exif: Exif::default(),
            name: IMAGE.into(),
            turned: AtomicU64::new(0),
        })
    }

    /// Sets the treatment of EXIF orientations.
    pub fn with_exif(self, exif: Exif) -> DecodeImages {
        DecodeImages { exif, ..self }
    }

    /// Those in the field of this name.
    pub fn in_field(self, name: &str) -> DecodeImages {
        DecodeImages {
            field: Some(name.to_owned()),
            ..self
        }
    }

    /// The one of these fields of bytes to decode.
    fn field_among<'n>(&self, names: &[&'n str]) -> Option<&'n str> {
        let named = |wanted: &str| names.iter().copied().find(|name| *name == wanted);
        if let Some(field) = &self.field {
            return named(field);
        }
        let usual = [IMAGE, ENCODED].into_iter();
        let mut usual = usual.chain(self.extensions.iter().map(String::as_str));
        usual.find_map(named).or(match names {
            [only] => Some(only),
            _ => None,
        })
    }

    fn take_encoded<'a>(&self, sample: &mut Sample<'a>) -> Result<Option<Record<'a>>, String> {
        let of_bytes = sample
            .iter()
            .filter(|(name, value)| matches!(value, Value::Bytes(_)) && ***name != *MEMBERS);
        let names: Vec<&str> = of_bytes.map(|(name, _)| &**name).collect();
        let field = self.field_among(&names).map(str::to_owned);
        match field.and_then(|field| sample.remove(&field)) {
            Some(Value::Bytes(bytes)) => Ok(Some(Record::whole(bytes))),
            _ => take_record(sample, &self.extensions),
        }
    }

    /// Makes pictures with more pixels bad records.
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
        let is_bytes = |field: &&FieldSpec| {
            field.dtype == DType::U8 && field.dims == [None] && &*field.name != MEMBERS
        };
        let names: Vec<&str> = input.0.iter().filter(is_bytes).map(|f| &*f.name).collect();
        let image = FieldSpec::new(IMAGE, DType::U8, &[None, None, None]);
        if let Some(field) = self.field_among(&names) {
            let others = input
                .0
                .iter()
                .filter(|other| &*other.name != field && &*other.name != IMAGE);
            let others: Vec<FieldSpec> = others.cloned().collect();
            return Ok(FieldSpecs([vec![image], others].concat()));
        }
        // Raw pixels are already decoded.
        if self.field.is_none() && input.get(IMAGE).is_some() {
            return Ok(input);
        }
        if self.field.is_none() && names.len() < 2 {
            check_record(&input, "a decoder of pictures")?;
            return Ok(FieldSpecs(vec![image]));
        }
        let missing = match &self.field {
            Some(field) => format!("no field of bytes is called {field}, but these are"),
            None => "several fields could hold the pictures".to_owned(),
        };
        Err(format!(
            "{missing}: {}; name one of them, as in `decode` image:{}",
            names.join(", "),
            names.first().unwrap_or(&"FIELD"),
        ))
    }

    /// Encoded pictures are some ten times as large when decoded.
    fn bytes(&self, input: u64) -> u64 {
        10 * input
    }

    fn run(
        &self,
        sample: &mut Sample<'_>,
        slots: &mut Slots<'_>,
        at: &Appearance,
        _: &mut dyn Any,
    ) -> Result<(), StageFailure> {
        let Some(record) = self.take_encoded(sample)? else {
            return Ok(());
        };
        let bytes = record.bytes();
        let limits = Limits {
            most_pixels: self.most_pixels,
        };
        let mut pixels = sample.new_pixels();
        let orientation = pelton_image::orientation(bytes);
        let is_turned = self.exif == Exif::Apply && !orientation.is_upright();
        match slots.next.filter(|_| !is_turned) {
            Some(next) => {
                pelton_image::decode_for((next, at.key), bytes, &limits, &mut pixels)
                    .map_err(refusal)?;
            }
            None => {
                pelton_image::decode_keeping(Keep::Depth, bytes, &limits, &mut pixels)
                    .map_err(refusal)?;
            }
        }
        if !orientation.is_upright() {
            if is_turned {
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

/// The error of a picture, with the setting that admits a large one.
pub(super) fn refusal(error: ImageError) -> String {
    match error {
        ImageError::TooManyPixels(_) => format!("{error}; raise `max_megapixels`"),
        error => error.to_string(),
    }
}

pelton_key::names! {
    /// How to treat the orientation in a picture's EXIF data.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Exif: "a setting for EXIF orientation" {
        /// Ignored: pixels are returned as stored, as in torchvision and TensorFlow.
        #[default]
        Ignore = "ignore",
        /// The picture is turned and mirrored until it is upright.
        Apply = "apply",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture of 5 rows of 9 pixels.
    const JPEG: &[u8] = include_bytes!("../../../image/tests/images/orientation_1.jpg");

    fn of_bytes(name: &str) -> FieldSpec {
        FieldSpec::new(name, DType::U8, &[None])
    }

    /// The output for records with these fields of bytes and one number, by name.
    fn check(kind: &str, fields: &[&str], expected: Result<&[&str], &str>) {
        let decode = DecodeImages::from_kind(kind).unwrap();
        let number = FieldSpec::new("number", DType::I64, &[]);
        let bytes = fields.iter().map(|name| of_bytes(name));
        let spec = decode.spec(FieldSpecs(bytes.chain([number]).collect()));
        let expected = match (expected, &spec) {
            (Ok(expected), _) => expected,
            (Err(part), Err(error)) => return assert!(error.contains(part), "{error}"),
            (Err(_), Ok(spec)) => panic!("{spec:?}"),
        };
        let spec = spec.unwrap();
        let names: Vec<&str> = spec.0.iter().map(|field| &*field.name).collect();
        assert_eq!(names, expected);
        let mut sample = Sample::default();
        for name in fields {
            sample.set(&(*name).into(), Value::Bytes(Cow::Borrowed(JPEG)));
        }
        let number = Value::Numbers(DType::I64, Vec::new(), Cow::Borrowed(&[0; 8]));
        sample.set(&"number".into(), number);
        let at = Appearance {
            id: 0,
            label: 0,
            copy: 0,
            key: 0,
            first: true,
        };
        let none = &mut Slots::default();
        decode.run(&mut sample, none, &at, &mut ()).unwrap();
        let mut names: Vec<&str> = sample.iter().map(|(name, _)| &**name).collect();
        let mut expected = expected.to_vec();
        names.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names, expected);
        assert_eq!(sample.get(IMAGE).unwrap().dims(), [5, 9, 3]);
    }

    #[test]
    fn the_field_of_pictures() {
        let image = |others: &[&str]| {
            let all = [&["image"], others, &["number"]].concat();
            all.into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        let comes_out = |kind: &str, fields: &[&str], others: &[&str]| {
            let all = image(others);
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            check(kind, fields, Ok(&all));
        };
        comes_out("jpg", &["photo"], &[]);
        comes_out("jpg", &["caption", "image"], &["caption"]);
        comes_out("jpg", &["caption", "image/encoded"], &["caption"]);
        comes_out("image", &["caption", "png"], &["caption"]);
        comes_out("jpg:left", &["left", "right"], &["right"]);
        comes_out("jpg:left", &["left", "image"], &[]);
        let unknown = ": left, right; name one of them, as in `decode` image:left";
        check("jpg", &["left", "right"], Err(unknown));
        check("jpg:middle", &["left", "right"], Err(unknown));
        check("jpg", &[], Err("this data has"));
        assert!(DecodeImages::from_kind("avif:x").is_none());
    }
}
