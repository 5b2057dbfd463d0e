//! Named fields from the members of a tar sample, or from the fields of a record: pictures, masks, numbers, bytes.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pelton_batch::{DType, FieldSpec, FieldSpecs};
use pelton_format::members;
use pelton_image::{Keep, Limits, Orientation};

use super::decode_image::{DecodeImages, Exif, refusal};
use super::{IMAGE, MEMBERS, names_places};
use crate::field_setting::{FieldKind, FieldSetting};
use crate::sample::{Sample, Value};
use crate::stage::{Appearance, Slots, Stage, StageFailure};

/// Takes several members of a tar sample, or fields of a record, each decoded to a named field. Other fields
/// are dropped.
pub struct DecodeFields {
    fields: Vec<(Arc<str>, FieldSetting)>,
    most_pixels: u64,
    exif: Exif,
    /// Pictures of the first epoch that state an orientation other than upright.
    turned: AtomicU64,
}

impl DecodeFields {
    /// These fields, in this order.
    pub fn new(fields: &[FieldSetting]) -> DecodeFields {
        let fields = fields.iter().cloned();
        DecodeFields {
            fields: fields
                .map(|field| (field.name.as_str().into(), field))
                .collect(),
            most_pixels: DecodeImages::MOST_PIXELS,
            exif: Exif::default(),
            turned: AtomicU64::new(0),
        }
    }

    /// Sets the treatment of EXIF orientations.
    pub fn with_exif(self, exif: Exif) -> DecodeFields {
        DecodeFields { exif, ..self }
    }

    /// Makes pictures with more pixels bad records.
    pub fn with_most_pixels(self, most_pixels: u64) -> DecodeFields {
        DecodeFields {
            most_pixels,
            ..self
        }
    }

    fn picture(&self, name: &str, bytes: &[u8], sample: &mut Sample<'_>, first: bool) -> Decoded {
        let limits = Limits {
            most_pixels: self.most_pixels,
        };
        let mut pixels = sample.new_pixels();
        // Masks, depth maps and the like have numbers instead of colours.
        let keep = if name.starts_with(IMAGE) {
            Keep::Depth
        } else {
            Keep::Numbers
        };
        pelton_image::decode_keeping(keep, bytes, &limits, &mut pixels).map_err(refusal)?;
        let orientation = pelton_image::orientation(bytes);
        if !orientation.is_upright() {
            if self.exif == Exif::Apply {
                pixels.turn_upright(orientation);
            }
            self.turned.fetch_add(u64::from(first), Relaxed);
        }
        Ok(Value::Pixels(Cow::Owned(pixels)))
    }

    /// The bytes of a member or field for one of the output fields.
    fn decoded<'a>(
        &self,
        field: &FieldSetting,
        bytes: Cow<'a, [u8]>,
        sample: &mut Sample<'a>,
        first: bool,
    ) -> Result<Value<'a>, String> {
        match &field.kind {
            FieldKind::Bytes => Ok(Value::Bytes(bytes)),
            FieldKind::Picture => self.picture(&field.name, &bytes, sample, first),
            FieldKind::Text(numbers) => numbers.of_text(&bytes),
            FieldKind::Json(key, numbers) => numbers.of_json(&bytes, key),
            FieldKind::Npy(numbers) => numbers.of_npy(&bytes),
        }
    }
}

type Decoded = Result<Value<'static>, String>;

impl Stage for DecodeFields {
    fn name(&self) -> &'static str {
        "decode"
    }

    fn spec(&self, input: FieldSpecs) -> Result<FieldSpecs, String> {
        let of_members = input.get(MEMBERS).is_some();
        let spec = |(name, field): &(Arc<str>, FieldSetting)| {
            let named = |dtype, dims: &[Option<usize>]| FieldSpec::new(name, dtype, dims);
            let known = input.get(&field.source);
            if !of_members && known.is_none() {
                return Err(format!(
                    "`decode` {field} needs a field {}, and the records have {}; write NAME=FIELD, or NAME=FIELD:image for a picture",
                    field.source,
                    input.names()
                ));
            }
            match (&field.kind, known) {
                // Numbers as they are stored.
                (FieldKind::Bytes, Some(known)) => Ok(named(known.dtype, &known.dims)),
                (FieldKind::Picture, Some(known)) if is_array(known.dims.len()) => {
                    Ok(named(known.dtype, &known.dims))
                }
                (FieldKind::Bytes, None) => Ok(named(DType::U8, &[None])),
                (FieldKind::Picture, _) => Ok(named(DType::U8, &[None, None, None])),
                (
                    FieldKind::Text(numbers)
                    | FieldKind::Json(_, numbers)
                    | FieldKind::Npy(numbers),
                    _,
                ) => {
                    let dims = numbers.dims.clone().unwrap_or(vec![None]);
                    Ok(named(numbers.dtype, &dims))
                }
            }
        };
        let fields: Result<Vec<FieldSpec>, String> = self.fields.iter().map(spec).collect();
        fields.map(FieldSpecs)
    }

    /// As for pictures if there are any, since they are most of the bytes.
    fn bytes(&self, input: u64) -> u64 {
        let is_picture = |(_, field): &(Arc<str>, FieldSetting)| field.kind == FieldKind::Picture;
        if self.fields.iter().any(is_picture) {
            10 * input
        } else {
            input
        }
    }

    fn run(
        &self,
        sample: &mut Sample<'_>,
        _: &mut Slots<'_>,
        at: &Appearance,
        _: &mut dyn Any,
    ) -> Result<(), StageFailure> {
        let mut taken = Sample::default();
        let mut turns: Vec<(&str, Orientation)> = Vec::new();
        let members = sample.remove(MEMBERS);
        for (name, field) in &self.fields {
            let bytes = match &members {
                Some(Value::Bytes(Cow::Borrowed(group))) => Cow::Borrowed(member(group, field)?),
                Some(Value::Bytes(Cow::Owned(group))) => Cow::Owned(member(group, field)?.to_vec()),
                _ => match sample.get(&field.source).cloned() {
                    Some(Value::Bytes(bytes)) => bytes,
                    // Already decoded.
                    Some(value) if is_made(&value, &field.kind) => {
                        taken.set(name, value);
                        continue;
                    }
                    other => return Err(unlike(field, other.as_ref()).into()),
                },
            };
            if self.exif == Exif::Apply && field.kind == FieldKind::Picture {
                turns.push((name, pelton_image::orientation(&bytes)));
            }
            let value = self.decoded(field, bytes, sample, at.first);
            let value = value.map_err(|problem| format!("its {}: {problem}", field.source))?;
            taken.set(name, value);
        }
        if let Some(&(turned, turn)) = turns.iter().find(|(_, turn)| !turn.is_upright()) {
            let stays = turns.iter().find(|(_, other)| *other != turn);
            let places = { taken.iter() }.find(|(name, _)| names_places(name));
            let places = places.map(|(name, _)| name.to_string());
            if let Some(stays) = stays.map(|(name, _)| (*name).to_string()).or(places) {
                return Err(format!(
                    "its `{turned}` is turned by its EXIF data, and its `{stays}` is not; turn the files, or leave `exif` at ignore"
                )
                .into());
            }
        }
        sample.replace_fields(taken);
        Ok(())
    }

    fn counted(&self) -> Vec<(&'static str, u64)> {
        vec![(DecodeImages::EXIF_PICTURES, self.turned.load(Relaxed))]
    }
}

/// The bytes of the member for a field.
fn member<'a>(group: &'a [u8], field: &FieldSetting) -> Result<&'a [u8], String> {
    if field.source == FieldSetting::KEY {
        let first = members(group).next();
        return Ok(first.map_or(&[], |member| member.key()));
    }
    let found = members(group).find(|member| field.takes(member));
    found.map(|member| member.bytes).ok_or_else(|| {
        let there: Vec<String> = members(group)
            .take(8)
            .map(|member| format!(".{}", member.extension_text()))
            .collect();
        format!(
            "the sample has no member .{}, which `decode` {field} needs; it has {}",
            field.source,
            there.join(", ")
        )
    })
}

fn is_made(value: &Value<'_>, kind: &FieldKind) -> bool {
    match value {
        Value::Bytes(_) => false,
        Value::Pixels(_) => matches!(kind, FieldKind::Picture | FieldKind::Bytes),
        Value::Numbers(_, dims, _) if is_array(dims.len()) => {
            matches!(kind, FieldKind::Picture | FieldKind::Bytes)
        }
        _ => *kind == FieldKind::Bytes,
    }
}

/// Whether numbers of this many dimensions are already a picture.
fn is_array(dims: usize) -> bool {
    (2..=3).contains(&dims)
}

fn unlike(field: &FieldSetting, found: Option<&Value<'_>>) -> String {
    let found = found.map_or("nothing", Value::kind);
    format!("`decode` {field} needs bytes, and the record has {found} there")
}
