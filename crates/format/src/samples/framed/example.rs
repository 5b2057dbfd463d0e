//! Parses a `tf.train.Example` without copying: the names of its features, and the offsets of their values.
//!
//! ```text
//! Example      features = 1: Features
//! Features     feature = 1: map of names (key = 1) and Feature (value = 2)
//! Feature      one of bytes_list = 1, float_list = 2, int64_list = 3
//! each list    value = 1, repeated; numbers are packed or stand one by one
//! ```
//!
//! The walk skips values, so it indexes a file without reading the pictures in it, and also decodes a record in memory.
//! Other fields, a feature of two kinds and lengths beyond their container are refused, so other bytes are hardly ever
//! mistaken for an Example. A library for protocol buffers was rejected, because it would copy every value and needs
//! the whole record.

use std::io;
use std::ops::Range;

use crate::locate::places::byte_source::{ByteSource, STRETCH};
use crate::record::labels::LABEL_LIMIT;

/// Longest name of a class.
const MOST_CLASS_BYTES: u64 = 1024;
/// Longest variable-length number.
const MOST_VARINT_BYTES: u64 = 10;

/// Why a walk cannot continue.
#[derive(Debug)]
pub(crate) enum Broken {
    Failed(io::Error),
    /// A fault, and its offset.
    Damaged {
        at: u64,
        what: &'static str,
    },
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        Broken::Failed(error)
    }
}

fn damaged<T>(at: u64, what: &'static str) -> Result<T, Broken> {
    Err(Broken::Damaged { at, what })
}

/// The kind of a feature's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bytes,
    Floats,
    Integers,
}

/// One feature, by offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Feature {
    pub(crate) name: Range<u64>,
    /// `None` if its list is empty or absent: a writer of empty lists need not know their kind.
    pub(crate) kind: Option<Kind>,
    pub(crate) list: Range<u64>,
}

/// A walk over the features of an Example.
#[derive(Clone, Debug)]
pub(crate) struct Features {
    at: u64,
    /// End of the map that contains `at`.
    map_end: u64,
    end: u64,
}

impl Features {
    /// Walks over the Example in these bytes.
    pub(crate) fn new(example: Range<u64>) -> Features {
        Features {
            at: example.start,
            map_end: example.start,
            end: example.end,
        }
    }

    /// The next feature.
    #[inline]
    pub(crate) fn next(&mut self, source: &mut impl ByteSource) -> Result<Option<Feature>, Broken> {
        while self.at == self.map_end {
            if self.at == self.end {
                return Ok(None);
            }
            let (number, map) = delimited(source, self.at, self.end)?;
            if number != 1 {
                return damaged(self.at, "it has more than the field `features`");
            }
            (self.at, self.map_end) = (map.start, map.end);
        }
        let (number, entry) = delimited(source, self.at, self.map_end)?;
        if number != 1 {
            return damaged(self.at, "a field stands next to the features");
        }
        self.at = entry.end;
        let (mut at, mut name, mut value) = (entry.start, None, None);
        while at < entry.end {
            let (number, part) = delimited(source, at, entry.end)?;
            let place = match number {
                1 => &mut name,
                2 => &mut value,
                _ => return damaged(at, "a feature has more than a name and a value"),
            };
            let end = part.end;
            if place.replace(part).is_some() {
                return damaged(at, "a feature has two names or values");
            }
            at = end;
        }
        let nothing = entry.end..entry.end;
        let name = name.unwrap_or(nothing.clone());
        let value = value.unwrap_or(nothing);
        if value.is_empty() {
            let (kind, list) = (None, value);
            return Ok(Some(Feature { name, kind, list }));
        }
        let (number, list) = delimited(source, value.start, value.end)?;
        let kind = match number {
            1 => Kind::Bytes,
            2 => Kind::Floats,
            3 => Kind::Integers,
            _ => return damaged(value.start, "a feature is of no known kind"),
        };
        if list.end != value.end {
            return damaged(list.end, "a feature has two lists");
        }
        let kind = (!list.is_empty()).then_some(kind);
        Ok(Some(Feature { name, kind, list }))
    }
}

/// A length-delimited field: its number and the range of its bytes, all of them before `end`.
#[inline]
pub(crate) fn delimited(
    source: &mut impl ByteSource,
    at: u64,
    end: u64,
) -> Result<(u8, Range<u64>), Broken> {
    let head = source.bytes(at, (1 + MOST_VARINT_BYTES).min(end - at) as usize)?;
    let Some((tag, rest)) = head.split_first() else {
        return damaged(at, "it ends too early");
    };
    if tag & 0x87 != 2 {
        return damaged(at, "a field is neither a message nor a string");
    }
    let Some((length, bytes)) = varint(rest) else {
        return damaged(at, "a length is none");
    };
    let start = at + 1 + bytes as u64;
    match start.checked_add(length) {
        Some(stop) if stop <= end => Ok((tag >> 3, start..stop)),
        _ => damaged(at, "a field is longer than its message"),
    }
}

/// For bytes that begin like an Example but are not one: the offset of the first fault, and the number of the field
/// there. `None` if they do not begin like one, with a named feature.
pub(crate) fn stops_at(bytes: &[u8]) -> Option<(u64, u64)> {
    let mut source = bytes;
    let mut within = 0..bytes.len() as u64;
    for _ in 0..3 {
        let (number, part) = delimited(&mut source, within.start, within.end).ok()?;
        within = (number == 1 && !part.is_empty()).then_some(part)?;
    }
    str::from_utf8(&bytes[within.start as usize..within.end as usize]).ok()?;
    let mut walk = Features::new(0..bytes.len() as u64);
    let at = loop {
        let walked = walk.next(&mut source).and_then(|feature| {
            let Some(feature) = feature else {
                return Ok(true);
            };
            if let Some(kind) = feature.kind {
                measure(&mut source, kind, &feature.list)?;
            }
            Ok(false)
        });
        match walked {
            Ok(true) | Err(Broken::Failed(_)) => return None,
            Ok(false) => {}
            Err(Broken::Damaged { at, .. }) => break at,
        }
    };
    let (tag, _) = varint(bytes.get(at as usize..)?)?;
    Some((at, tag >> 3))
}

/// The varint at the start of `bytes`, and its length.
#[inline]
pub(crate) fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (i, byte) in bytes.iter().enumerate().take(MOST_VARINT_BYTES as usize) {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            // The tenth byte has room for one bit.
            return (i < 9 || *byte < 2).then_some((value, i + 1));
        }
    }
    None
}

/// The contiguous values of a list from `at` on: one string of bytes, or numbers. `at` moves past them.
#[inline]
fn next_run(
    source: &mut impl ByteSource,
    kind: Kind,
    at: &mut u64,
    end: u64,
) -> Result<Range<u64>, Broken> {
    let start = *at + 1;
    let head = source.bytes(*at, (1 + MOST_VARINT_BYTES).min(end - *at) as usize)?;
    let run = match (kind, head) {
        (Kind::Floats, [0x0d, ..]) if start + 4 <= end => start..start + 4,
        (Kind::Integers, [0x08, rest @ ..]) => match varint(rest) {
            Some((_, bytes)) => start..start + bytes as u64,
            None => return damaged(*at, "a number has no end"),
        },
        _ => {
            let (number, run) = delimited(source, *at, end)?;
            if number != 1 {
                return damaged(*at, "a list has more than values");
            }
            run
        }
    };
    if kind == Kind::Floats && !(run.end - run.start).is_multiple_of(4) {
        return damaged(*at, "numbers of four bytes each do not fill their list");
    }
    *at = run.end;
    Ok(run)
}

/// The number of values of a list, and their bytes in a row: 4 or 8 each for numbers.
#[inline]
pub(crate) fn measure(
    source: &mut impl ByteSource,
    kind: Kind,
    list: &Range<u64>,
) -> Result<(u64, u64), Broken> {
    let (mut at, mut count, mut bytes) = (list.start, 0, 0);
    while at < list.end {
        let run = next_run(source, kind, &mut at, list.end)?;
        match kind {
            Kind::Bytes => {
                count += 1;
                bytes += run.end - run.start;
            }
            Kind::Floats => count += (run.end - run.start) / 4,
            Kind::Integers => count += count_integers(source, run)?,
        }
    }
    let bytes = match kind {
        Kind::Bytes => bytes,
        Kind::Floats => 4 * count,
        Kind::Integers => 8 * count,
    };
    Ok((count, bytes))
}

/// The number of varints that end in these bytes.
#[inline]
fn count_integers(source: &mut impl ByteSource, run: Range<u64>) -> io::Result<u64> {
    let (mut at, mut count) = (run.start, 0);
    while at < run.end {
        let length = (run.end - at).min(STRETCH);
        let bytes = source.bytes(at, length as usize)?;
        count += bytes.iter().filter(|byte| **byte < 0x80).count() as u64;
        at += length;
    }
    Ok(count)
}

/// Calls `with` for each value of a list of strings.
pub(crate) fn strings<'a>(
    example: &'a [u8],
    list: &Range<u64>,
    mut with: impl FnMut(&'a [u8]),
) -> Result<(), Broken> {
    let mut at = list.start;
    while at < list.end {
        let run = next_run(&mut &*example, Kind::Bytes, &mut at, list.end)?;
        with(&example[run.start as usize..run.end as usize]);
    }
    Ok(())
}

/// Appends the numbers of a list as rows hold them, f32 or i64; returns how many.
#[inline]
pub(crate) fn push_numbers(
    example: &[u8],
    kind: Kind,
    list: &Range<u64>,
    row: &mut Vec<u8>,
) -> Result<u64, Broken> {
    let (mut at, before) = (list.start, row.len());
    while at < list.end {
        let run = next_run(&mut &*example, kind, &mut at, list.end)?;
        let mut bytes = &example[run.start as usize..run.end as usize];
        if kind == Kind::Floats {
            row.extend_from_slice(bytes);
            continue;
        }
        while !bytes.is_empty() {
            let Some((number, length)) = varint(bytes) else {
                return damaged(run.end - bytes.len() as u64, "a number has no end");
            };
            row.extend_from_slice(&number.to_le_bytes());
            bytes = &bytes[length..];
        }
    }
    let size = if kind == Kind::Floats { 4 } else { 8 };
    Ok(((row.len() - before) / size) as u64)
}

/// A parsed label.
#[derive(Debug, PartialEq)]
pub(crate) enum Class<'a> {
    Number(f64),
    Name(&'a str),
}

/// The label in a list of one value; `None` if it is not a label.
pub(crate) fn class_of<'s>(
    source: &'s mut impl ByteSource,
    kind: Kind,
    list: &Range<u64>,
) -> Result<Option<Class<'s>>, Broken> {
    let (mut at, mut value) = (list.start, None);
    while at < list.end {
        let run = next_run(source, kind, &mut at, list.end)?;
        // Empty runs may surround the one number.
        if kind == Kind::Bytes || !run.is_empty() {
            if value.is_some() {
                return Ok(None);
            }
            value = Some(run);
        }
    }
    let Some(value) = value.filter(|value| value.end - value.start <= MOST_CLASS_BYTES) else {
        return Ok(None);
    };
    let bytes = source.bytes(value.start, (value.end - value.start) as usize)?;
    if kind == Kind::Bytes {
        let name = str::from_utf8(bytes).ok().filter(|name| !name.is_empty());
        return Ok(name.map(Class::Name));
    }
    let number = match kind {
        Kind::Integers => varint(bytes)
            .filter(|(_, length)| *length == bytes.len())
            .map(|(number, _)| number as i64 as f64),
        _ => bytes
            .try_into()
            .ok()
            .map(|bytes| f64::from(f32::from_le_bytes(bytes))),
    };
    // Not for a value that is not a number.
    let number = number.filter(|number| number.abs() < LABEL_LIMIT);
    Ok(number.map(Class::Number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_varying_length() {
        assert_eq!(varint(&[0]), Some((0, 1)));
        assert_eq!(varint(&[0x96, 1, 9]), Some((150, 2)));
        let minus_one = [[0xff; 9].as_slice(), &[1]].concat();
        assert_eq!(varint(&minus_one), Some((u64::MAX, 10)));
        let too_large = [[0xff; 9].as_slice(), &[2]].concat();
        assert_eq!(varint(&too_large), None);
        assert_eq!(varint(&[0x80; 11]), None);
        assert_eq!(varint(&[0x80]), None);
        assert_eq!(varint(&[]), None);
    }

    #[test]
    fn lists_packed_and_one_by_one() {
        let check = |kind, list: &[u8], expected: Option<&[u8]>, count: u64| {
            let mut row = vec![7];
            let range = 0..list.len() as u64;
            let pushed = push_numbers(list, kind, &range, &mut row);
            let Some(expected) = expected else {
                assert!(pushed.is_err(), "{list:?}");
                return;
            };
            assert_eq!((pushed.unwrap(), &row[1..]), (count, expected));
            let measured = measure(&mut &*list, kind, &range).unwrap();
            assert_eq!(measured, (count, expected.len() as u64));
        };
        let integers =
            |all: &[i64]| -> Vec<u8> { all.iter().flat_map(|n| n.to_le_bytes()).collect() };
        check(Kind::Integers, &[], Some(&[]), 0);
        check(Kind::Integers, &[0x0a, 0], Some(&[]), 0);
        check(
            Kind::Integers,
            &[0x0a, 3, 1, 0x96, 1],
            Some(&integers(&[1, 150])),
            2,
        );
        check(
            Kind::Integers,
            &[8, 1, 8, 0x96, 1],
            Some(&integers(&[1, 150])),
            2,
        );
        check(
            Kind::Integers,
            &[8, 5, 0x0a, 1, 6, 8, 7],
            Some(&integers(&[5, 6, 7])),
            3,
        );
        check(Kind::Integers, &[0x0a, 1, 0x80], None, 0);
        check(Kind::Integers, &[8, 0x80], None, 0);
        check(Kind::Integers, &[0x12, 1, 0], None, 0);
        check(Kind::Integers, &[0x0a, 9, 0], None, 0);
        let float = 1.5f32.to_le_bytes();
        let packed = [&[0x0a, 8], &float[..], &float].concat();
        check(Kind::Floats, &packed, Some(&float.repeat(2)), 2);
        let single = [&[0x0d][..], &float].concat();
        check(Kind::Floats, &single, Some(&float), 1);
        check(Kind::Floats, &single[..4], None, 0);
        check(Kind::Floats, &[0x0a, 3, 0, 0, 0], None, 0);
    }
}
