//! The text form of one field of samples: the member or field of a record it is decoded from, and how.

use std::fmt;

use pelton_batch::DType;
use pelton_format::{JsonKey, Member, PICTURE_EXTENSIONS};

use crate::numbers::NumbersKind;

/// A field of samples, as text: `NAME=SOURCE[:KEY][:AS]`.
///
/// SOURCE is the extension of a tar member (or `__key__`, its sample's name without extension), or the name of a
/// field of bytes or numbers of a record. AS says what it becomes: `image`, `jpg`, `png` or another ending of
/// pictures (a picture; its kind is detected by content), `bytes`, or numbers of a TYPE, TYPE[LENGTH,…] (without
/// those lengths that vary, as in `f32[,4]`) or TYPE[] (of any lengths), of f32, f64, i32, i64 and u8. Without AS,
/// the extension decides: a picture, a whole number for `cls`, numbers for `npy` (f32[]), otherwise bytes. KEY is a
/// key of a member `json`; its numbers are f32.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSetting {
    /// Its name.
    pub name: String,
    /// Extension of the member, or name of the field of a record.
    pub source: String,
    /// The decoded kind.
    pub kind: FieldKind,
    /// The text after the source.
    spelt: String,
}

/// How a field is decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A picture.
    Picture,
    /// Bytes or numbers of a record, unchanged.
    Bytes,
    /// Numbers of a text.
    Text(NumbersKind),
    /// Numbers under a key of JSON.
    Json(JsonKey, NumbersKind),
    /// An array of NumPy's.
    Npy(NumbersKind),
}

impl FieldSetting {
    /// The source for the name that all members of a sample share, as WebDataset calls it.
    pub(crate) const KEY: &str = "__key__";

    /// Whether it is decoded from this member.
    pub(crate) fn takes(&self, member: &Member<'_>) -> bool {
        match extensions(&self.source) {
            Some(known) => known.iter().any(|extension| member.is(extension)),
            None => member.is(&self.source),
        }
    }

    /// The fields of a text, with commas between them.
    pub(crate) fn all(text: &str) -> Result<Vec<FieldSetting>, String> {
        let mut fields: Vec<FieldSetting> = Vec::new();
        for part in outside_brackets(text) {
            let field = FieldSetting::one(part.trim()).map_err(|what| {
                format!(
                    "`{part}` is not a field: {what}; write NAME=EXTENSION, as in image=jpg,mask=png,score=json:score,box=json:box:f32[4]"
                )
            })?;
            if fields.iter().any(|other| other.name == field.name) {
                return Err(format!(
                    "two fields are called `{}`; name each once",
                    field.name
                ));
            }
            fields.push(field);
        }
        Ok(fields)
    }

    fn one(text: &str) -> Result<FieldSetting, String> {
        let (name, rest) = text.split_once('=').ok_or("it has no `=`")?;
        let (source, spelt) = match rest.split_once(':') {
            Some((source, spelt)) => (source, Some(spelt)),
            None => (rest, None),
        };
        if name.is_empty() || source.is_empty() {
            return Err("its name or its source is missing".to_owned());
        }
        let extension = source
            .rsplit('.')
            .next()
            .unwrap_or(source)
            .to_ascii_lowercase();
        let kind = match (extension.as_str(), spelt) {
            ("json", Some(spelt)) => {
                let (key, of) = spelt.split_once(':').unwrap_or((spelt, "f32"));
                FieldKind::Json(key.parse()?, numbers(of)?)
            }
            (_, Some("bytes")) => FieldKind::Bytes,
            (_, Some(spelt)) if extensions(spelt).is_some() => FieldKind::Picture,
            ("npy", spelt) => FieldKind::Npy(numbers(spelt.unwrap_or("f32[]"))?),
            (_, Some(spelt)) => FieldKind::Text(numbers(spelt)?),
            (extension, None) if extensions(extension).is_some() => FieldKind::Picture,
            ("cls", None) => FieldKind::Text(numbers("i64")?),
            (_, None) => FieldKind::Bytes,
        };
        Ok(FieldSetting {
            name: name.to_owned(),
            source: source.to_owned(),
            kind,
            spelt: spelt.map_or_else(String::new, |spelt| format!(":{spelt}")),
        })
    }
}

impl fmt::Display for FieldSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}{}", self.name, self.source, self.spelt)
    }
}

/// Endings of pictures of one or, as `image`, all of the known kinds.
pub(crate) fn extensions(kind: &str) -> Option<&'static [&'static str]> {
    match kind {
        "image" => Some(&PICTURE_EXTENSIONS),
        "jpg" | "jpeg" => Some(&["jpg", "jpeg"]),
        "tif" | "tiff" => Some(&["tif", "tiff"]),
        kind => PICTURE_EXTENSIONS.chunks(1).find(|known| known == &[kind]),
    }
}

/// A type, perhaps with lengths.
fn numbers(text: &str) -> Result<NumbersKind, String> {
    let (dtype, lengths) = match text.split_once('[') {
        Some((dtype, lengths)) => (
            dtype,
            Some(lengths.strip_suffix(']').ok_or("`]` is missing")?),
        ),
        None => (text, None),
    };
    let dtype = match dtype {
        "f32" => DType::F32,
        "f64" => DType::F64,
        "i32" => DType::I32,
        "i64" => DType::I64,
        "u8" => DType::U8,
        _ => {
            return Err(format!(
                "`{dtype}` is not picture, bytes or a number type (f32, f64, i32, i64, u8)"
            ));
        }
    };
    let dims = match lengths {
        None => Some(Vec::new()),
        Some("") => None,
        Some(lengths) => {
            let length = |text: &str| match text.trim() {
                "" => Some(None),
                length => Some(Some(length.parse::<u32>().ok()? as usize)),
            };
            let lengths: Option<Vec<Option<usize>>> = lengths.split(',').map(length).collect();
            let lengths = lengths.ok_or("a length is not a whole number")?;
            let known = lengths.iter().flatten();
            let elements = known.copied().try_fold(8_usize, usize::checked_mul);
            if elements.is_none_or(|bytes| bytes > 1 << 32) {
                return Err("it would have more than 2^32 bytes".to_owned());
            }
            Some(lengths)
        }
    };
    Ok(NumbersKind { dtype, dims })
}

/// The parts between commas that are not in brackets.
fn outside_brackets(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    })
}
