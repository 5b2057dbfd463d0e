//! Token ids in one array, as trainers of language models write them, cut into windows: `windows:1025:1024:u16`.
//!
//! ```text
//! windows:LENGTH[:STRIDE[:TYPE]]     a window of LENGTH ids begins every STRIDE ids, by default LENGTH
//! ```
//!
//! A file is a bare array, as nanoGPT's `.bin`, a `.npy` of one dimension, or the `.bin` of Megatron-LM. `.npy` states the
//! TYPE itself, and so does the `.idx` next to the `.bin` of Megatron-LM; of others it is to be given: u8, u16, i16, u32,
//! i32 or i64, little-endian. Windows may overlap, so that each can hold its targets, the ids one further. Ids after the
//! last whole window are left out, with a note if they are more than a hundredth.

use std::fs::File;

use pelton_batch::DType;

use crate::arrays::ids::IdsDecoder;
use crate::arrays::{megatron, npy};
use crate::locate::format::{Format, Shard, Source};
use crate::locate::places::Places;
use crate::record::error::FormatError;

/// Longest window.
const MOST: u64 = 1 << 26;
const SPELLED: &str = "write windows:LENGTH, windows:LENGTH:STRIDE or windows:LENGTH:STRIDE:TYPE with u8, u16, i16, u32, i32 or i64";

/// Windows of token ids.
pub(crate) struct Windows;

/// A parsed spelling.
struct Spelled {
    length: u64,
    stride: u64,
    dtype: Option<DType>,
}

fn parse(text: &str) -> Result<Spelled, String> {
    let mut parts = text.split(':');
    let number = |part: &str, what: &str| {
        let number = part.parse::<u64>().ok().filter(|_| !part.starts_with('+'));
        number
            .filter(|number| (1..=MOST).contains(number))
            .ok_or_else(|| format!("has a {what} that is not from 1 to {MOST}; {SPELLED}"))
    };
    let length = number(parts.next().unwrap_or_default(), "length")?;
    let stride = parts.next().map(|part| number(part, "stride"));
    let dtype = match parts.next() {
        None => None,
        Some("u8") => Some(DType::U8),
        Some("u16") => Some(DType::U16),
        Some("i16") => Some(DType::I16),
        Some("u32") => Some(DType::U32),
        Some("i32") => Some(DType::I32),
        Some("i64") => Some(DType::I64),
        Some(other) => return Err(format!("has the type {other}; {SPELLED}")),
    };
    match parts.next() {
        None => Ok(Spelled {
            length,
            stride: stride.transpose()?.unwrap_or(length),
            dtype,
        }),
        Some(_) => Err(format!("has too many parts; {SPELLED}")),
    }
}

impl Format for Windows {
    fn name(&self) -> &'static str {
        "windows"
    }

    fn argument(&self) -> Option<&'static str> {
        Some("LENGTH")
    }

    fn check(&self, argument: &str) -> Result<(), String> {
        parse(argument).map(drop)
    }

    fn in_place_only(&self) -> bool {
        true
    }

    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Shard, FormatError> {
        let Spelled {
            length,
            stride,
            dtype,
        } = parse(source.argument()).expect("it was checked");
        let size = source.stamp.size;
        let (dtype, from) = match type_of(source)? {
            Some((stated, _)) if dtype.is_some_and(|asked| asked != stated) => {
                let what = format!(
                    "its ids are {stated}, as it says itself; leave the type out of `format`"
                );
                return Err(FormatError::malformed(0, what));
            }
            Some(stated) => stated,
            None => (dtype.ok_or_else(untold)?, 0),
        };
        let each = dtype.bytes() as u64;
        let bytes = size.saturating_sub(from);
        if !bytes.is_multiple_of(each) {
            let what = format!(
                "its {bytes} bytes are no ids of type {dtype}; give another type in `format`"
            );
            return Err(FormatError::malformed(size, what));
        }
        let ids = bytes / each;
        if ids < length {
            let what =
                format!("it has {ids} ids, fewer than a window of {length}; give a shorter one");
            return Err(FormatError::malformed(size, what));
        }
        let records = (ids - length) / stride + 1;
        let used = (records - 1) * stride + length;
        if ids - used > ids / 100 {
            let path = source.path.display();
            notes.push(format!(
                "{path}: its last {} of {ids} ids fill no window of {length}",
                ids - used
            ));
        }
        let decoder = IdsDecoder::new(dtype, Some(length as usize), 0);
        Ok(Shard {
            bytes: used * each,
            longest: length * each,
            places: Places::Spaced {
                from,
                stride: stride * each,
                bytes: length * each,
            },
            ..Shard::fields(records, decoder)
        })
    }
}

fn untold() -> FormatError {
    let what =
        "a bare array does not tell the type of its ids; give it, as in windows:1025:1024:u16";
    FormatError::malformed(0, what.to_string())
}

/// The type of the ids and the offset of the first, if the file or its neighbour states them.
fn type_of(source: &Source<'_>) -> Result<Option<(DType, u64)>, FormatError> {
    if source.head.starts_with(b"\x93NUMPY") {
        let header = npy::read_header(&source.input()?, source.stamp.size)?;
        let is_whole = !matches!(
            header.number,
            DType::F16 | DType::BF16 | DType::F32 | DType::F64
        );
        if header.shape.len() != 1 || !is_whole {
            let what = "windows are cut from an array of whole numbers in one dimension; save the ids as one";
            return Err(FormatError::malformed(0, what.to_string()));
        }
        return Ok(Some((header.number, header.data_offset)));
    }
    let index = source.path.with_extension("idx");
    match File::open(&index).map(|file| megatron::head(&index, file)) {
        Ok(head) => Ok(head?.map(|head| (head.dtype, 0))),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        let found = parse("1025:1024:u16").unwrap();
        assert_eq!(
            (found.length, found.stride, found.dtype),
            (1025, 1024, Some(DType::U16))
        );
        let found = parse("8").unwrap();
        assert_eq!((found.length, found.stride, found.dtype), (8, 8, None));
        for (wrong, part) in [
            ("", "length that is not"),
            ("0", "length that is not"),
            ("+3", "length that is not"),
            ("99999999999", "length that is not"),
            ("8:0", "stride that is not"),
            ("8:x", "stride that is not"),
            ("8:8:f32", "has the type f32"),
            ("8:8:u16:1", "too many parts"),
        ] {
            let said = parse(wrong).err().unwrap();
            assert!(
                said.contains(part) && said.contains("write windows:LENGTH"),
                "{said}"
            );
        }
    }
}
