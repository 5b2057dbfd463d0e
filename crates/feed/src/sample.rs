//! One example passing through the stages.

use std::borrow::Cow;
use std::sync::Arc;

use pelton_batch::DType;
use pelton_image::Pixels;

/// One example passing through the stages: its fields by name.
///
/// Data that was read, or is held for repeats, is borrowed; a stage that changes a field copies it first.
#[derive(Debug, Default)]
pub struct Sample<'a> {
    fields: Vec<(Arc<str>, Value<'a>)>,
    spare: Spare,
}

/// The value of an example's field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Bytes of any kind: records as they are stored, encoded pictures, text.
    Bytes(Cow<'a, [u8]>),
    /// A picture, height × width × channels, of bytes or 16-bit numbers.
    Pixels(Cow<'a, Pixels>),
    /// Numbers of a vocabulary.
    Tokens(Cow<'a, [u32]>),
    /// Numbers of single precision; dimensions and values, the last dimension's neighbours side by side.
    Floats(Vec<usize>, Cow<'a, [f32]>),
    /// Numbers of any type; type, dimensions and bytes.
    Numbers(DType, Vec<usize>, Cow<'a, [u8]>),
    /// Its slot in the batch is already written.
    Written,
}

/// Memory of dropped values, for reuse.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    pixels: Vec<Pixels>,
    tokens: Vec<Vec<u32>>,
}

impl<'a> Sample<'a> {
    /// An example with one field.
    pub fn new(name: &Arc<str>, value: Value<'a>) -> Sample<'a> {
        Sample {
            fields: vec![(Arc::clone(name), value)],
            spare: Spare::default(),
        }
    }

    pub(crate) fn with_spare(mut self, spare: Spare) -> Sample<'a> {
        self.spare = spare;
        self
    }

    /// The field of this name.
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        let (_, value) = self.fields.iter().find(|(known, _)| &**known == name)?;
        Some(value)
    }

    /// The field of this name, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value<'a>> {
        let mut fields = self.fields.iter_mut();
        Some(&mut fields.find(|(known, _)| &**known == name)?.1)
    }

    /// Sets a field, replacing one of the same name.
    pub fn set(&mut self, name: &Arc<str>, value: Value<'a>) {
        match self.fields.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.fields.push((Arc::clone(name), value)),
        }
    }

    /// Marks the field of this name as written to its slot in the batch; its memory serves the next example.
    pub(crate) fn finish(&mut self, name: &str) {
        if let Some(value) = self.get_mut(name)
            && let Value::Pixels(Cow::Owned(pixels)) = std::mem::replace(value, Value::Written)
        {
            self.spare.pixels.push(pixels);
        }
    }

    /// Takes the field of this name out.
    pub fn remove(&mut self, name: &str) -> Option<Value<'a>> {
        let i = self.fields.iter().position(|(known, _)| &**known == name)?;
        Some(self.fields.remove(i).1)
    }

    /// Replaces all fields by these, with different names.
    pub fn set_all(&mut self, fields: Vec<(Arc<str>, Value<'a>)>) {
        self.fields = fields;
    }

    /// Replaces all fields by those of another sample.
    pub(crate) fn replace_fields(&mut self, other: Sample<'a>) {
        self.fields = other.fields;
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Value<'a>)> {
        self.fields.iter().map(|(name, value)| (name, value))
    }

    /// A picture to be filled, in reused memory.
    pub(crate) fn new_pixels(&mut self) -> Pixels {
        self.spare.take_pixels()
    }

    /// Numbers to be filled, in reused memory.
    pub(crate) fn new_tokens(&mut self) -> Vec<u32> {
        let mut tokens = self.spare.tokens.pop().unwrap_or_default();
        tokens.clear();
        tokens
    }

    /// Ends this example; its memory serves the next.
    pub(crate) fn into_spare(self) -> Spare {
        let mut spare = self.spare;
        for (_, value) in self.fields {
            match value {
                Value::Pixels(Cow::Owned(pixels)) => spare.pixels.push(pixels),
                Value::Tokens(Cow::Owned(tokens)) => spare.tokens.push(tokens),
                _ => {}
            }
        }
        spare.pixels.truncate(2);
        spare.tokens.truncate(2);
        spare
    }

    /// The same, borrowed.
    pub(crate) fn view(&self) -> Sample<'_> {
        let fields = self.fields.iter();
        Sample {
            fields: fields
                .map(|(name, value)| (Arc::clone(name), value.view()))
                .collect(),
            spare: Spare::default(),
        }
    }

    /// The same with owned memory; fields already written to the batch are left out.
    pub(crate) fn into_owned(self) -> (Sample<'static>, Spare) {
        let fields = self.fields.into_iter();
        let fields = fields.filter(|(_, value)| *value != Value::Written);
        let own = Sample {
            fields: fields
                .map(|(name, value)| (name, value.into_owned()))
                .collect(),
            spare: Spare::default(),
        };
        (own, self.spare)
    }

    /// Copies of its fields.
    pub(crate) fn copied(&self) -> impl Iterator<Item = (Arc<str>, Value<'static>)> {
        let fields = self.fields.iter();
        fields.map(|(name, value)| (Arc::clone(name), value.view().into_owned()))
    }

    /// Bytes of its fields' elements.
    pub fn data_bytes(&self) -> usize {
        self.fields
            .iter()
            .map(|(_, value)| value.bytes().len())
            .sum()
    }
}

impl Spare {
    pub(crate) fn take_pixels(&mut self) -> Pixels {
        self.pixels.pop().unwrap_or_default()
    }
}

impl<'a> Value<'a> {
    /// The kind of value, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Bytes(_) => "bytes",
            Value::Pixels(_) => "a picture",
            Value::Tokens(_) => "tokens",
            Value::Floats(..) | Value::Numbers(..) => "numbers",
            Value::Written => "in the batch",
        }
    }

    /// Kind, type and dimensions, for messages.
    pub(crate) fn described(&self) -> String {
        format!("{} ({} of {:?})", self.kind(), self.dtype(), self.dims())
    }

    /// Whether it has these dimensions, with channels first if `planar`.
    fn has_dims(&self, dims: &[usize], planar: bool) -> bool {
        match self {
            Value::Bytes(bytes) => *dims == [bytes.len()],
            Value::Tokens(tokens) => *dims == [tokens.len()],
            Value::Floats(own, _) | Value::Numbers(_, own, _) => own == dims,
            Value::Pixels(pixels) => {
                let (height, width) = (pixels.height() as usize, pixels.width() as usize);
                let channels = pixels.channels();
                if planar {
                    *dims == [channels, height, width]
                } else {
                    *dims == [height, width, channels]
                }
            }
            Value::Written => true,
        }
    }

    /// Refuses a type or shape that differs from the declared output.
    pub(crate) fn check(
        &self,
        name: &str,
        (dtype, dims): (DType, &[usize]),
        planar: bool,
    ) -> Result<(), String> {
        let fits = self.dtype() == dtype || matches!(self, Value::Written);
        if fits && self.has_dims(dims, planar) {
            Ok(())
        } else {
            let remedy = if self.dtype() == dtype {
                "; bring them to one shape, or collate with `pad` or `ragged`"
            } else {
                ""
            };
            Err(format!(
                "its `{name}` is {}, that of the others {dtype} of {dims:?}{remedy}",
                self.described()
            ))
        }
    }

    /// The bytes, if it is a string of bytes.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Its elements as bytes; a picture's pixels with their channels side by side.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Value::Bytes(bytes) | Value::Numbers(_, _, bytes) => bytes,
            Value::Pixels(pixels) => pixels.data(),
            Value::Tokens(tokens) => bytemuck::cast_slice(tokens),
            Value::Floats(_, values) => bytemuck::cast_slice(values),
            Value::Written => &[],
        }
    }

    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        match self {
            Value::Pixels(pixels) if pixels.value_bytes() == 2 => DType::U16,
            Value::Bytes(_) | Value::Pixels(_) | Value::Written => DType::U8,
            Value::Tokens(_) => DType::U32,
            Value::Floats(..) => DType::F32,
            Value::Numbers(dtype, ..) => *dtype,
        }
    }

    /// Its dimensions; of a picture height, width and channels.
    pub fn dims(&self) -> Vec<usize> {
        match self {
            Value::Bytes(bytes) => vec![bytes.len()],
            Value::Pixels(pixels) => {
                let (height, width) = (pixels.height() as usize, pixels.width() as usize);
                vec![height, width, pixels.channels()]
            }
            Value::Tokens(tokens) => vec![tokens.len()],
            Value::Floats(dims, _) | Value::Numbers(_, dims, _) => dims.clone(),
            Value::Written => Vec::new(),
        }
    }

    /// Writes its elements to their slot; pictures channel by channel if `planar`.
    pub(crate) fn write(&self, planar: bool, slot: &mut [u8]) -> Result<(), String> {
        match self {
            Value::Pixels(pixels) if planar => {
                check_length(pixels.data().len(), slot.len())?;
                pixels.write_planes(slot);
                Ok(())
            }
            value => copy(value.bytes(), slot),
        }
    }

    fn view(&self) -> Value<'_> {
        match self {
            Value::Bytes(bytes) => Value::Bytes(Cow::Borrowed(bytes)),
            Value::Pixels(pixels) => Value::Pixels(Cow::Borrowed(pixels)),
            Value::Tokens(tokens) => Value::Tokens(Cow::Borrowed(tokens)),
            Value::Floats(dims, values) => Value::Floats(dims.clone(), Cow::Borrowed(values)),
            Value::Numbers(dtype, dims, bytes) => {
                Value::Numbers(*dtype, dims.clone(), Cow::Borrowed(bytes))
            }
            Value::Written => Value::Written,
        }
    }

    fn into_owned(self) -> Value<'static> {
        match self {
            Value::Bytes(bytes) => Value::Bytes(Cow::Owned(bytes.into_owned())),
            Value::Pixels(pixels) => {
                let mut pixels = pixels.into_owned();
                pixels.drop_scratch();
                Value::Pixels(Cow::Owned(pixels))
            }
            Value::Tokens(tokens) => Value::Tokens(Cow::Owned(tokens.into_owned())),
            Value::Floats(dims, values) => Value::Floats(dims, Cow::Owned(values.into_owned())),
            Value::Numbers(dtype, dims, bytes) => {
                Value::Numbers(dtype, dims, Cow::Owned(bytes.into_owned()))
            }
            Value::Written => Value::Written,
        }
    }
}

impl From<Vec<u8>> for Value<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Value::Bytes(Cow::Owned(bytes))
    }
}

impl From<Vec<u32>> for Value<'_> {
    fn from(tokens: Vec<u32>) -> Self {
        Value::Tokens(Cow::Owned(tokens))
    }
}

impl From<Vec<f32>> for Value<'_> {
    fn from(values: Vec<f32>) -> Self {
        Value::Floats(vec![values.len()], Cow::Owned(values))
    }
}

/// Writes a sample to its slot.
pub(crate) fn copy(bytes: &[u8], slot: &mut [u8]) -> Result<(), String> {
    check_length(bytes.len(), slot.len())?;
    slot.copy_from_slice(bytes);
    Ok(())
}

fn check_length(found: usize, expected: usize) -> Result<(), String> {
    if found != expected {
        return Err(format!(
            "the sample has {found} bytes, the others have {expected}; collate with `ragged`, or resize"
        ));
    }
    Ok(())
}
