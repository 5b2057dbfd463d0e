//! Records that are strings of bytes: which part of a record is the row, and which class it has.

use crate::error::Fault;
use crate::formats::tar::members::check_group;
use crate::labels::codes::Codes;

/// Bytes of the pixels of a CIFAR record.
pub(crate) const CIFAR_PIXELS: usize = 3 * 32 * 32;

/// How a record's bytes become a row of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampleShape {
    /// All of them.
    Whole,
    /// A line without its end.
    Line,
    /// Label bytes, then pixels; the byte numbered `label` is the class.
    Cifar { label: usize, labels: usize },
    /// Headers and data of tar members; `label` tells by which key their classes were found.
    Group { label: u64 },
    /// All bytes, which were cut every `length` tokens.
    Tokens { length: u32 },
    /// All bytes, which were cut every `length` of them.
    Bytes { length: u32 },
}

/// What a decoder of samples needs besides classes.
#[derive(Clone, Debug)]
pub(crate) struct SampleReading {
    pub(crate) shape: SampleShape,
    pub(crate) codes: Codes,
}

impl SampleReading {
    /// For records that say their class themselves, or are all of one.
    pub(crate) fn one_class(shape: SampleShape) -> SampleReading {
        SampleReading {
            shape,
            codes: Codes::One,
        }
    }
}

impl SampleShape {
    /// The row that the bytes of a record hold, and its class as the file counts: what the record itself
    /// says, or else `listed`.
    #[inline]
    pub(crate) fn row(
        self,
        bytes: &[u8],
        listed: impl FnOnce() -> u32,
    ) -> Result<(u32, &[u8]), Fault> {
        match self {
            SampleShape::Whole | SampleShape::Tokens { .. } | SampleShape::Bytes { .. } => {
                Ok((listed(), bytes))
            }
            SampleShape::Line => Ok((listed(), without_line_end(bytes))),
            SampleShape::Cifar { label, labels } => {
                if bytes.len() <= CIFAR_PIXELS + label {
                    return Err(Fault::NoRecord);
                }
                let code = class_of_byte(bytes[label], labels)?;
                Ok((code, &bytes[bytes.len() - CIFAR_PIXELS..]))
            }
            SampleShape::Group { .. } => {
                check_group(bytes)?;
                Ok((listed(), bytes))
            }
        }
    }

    /// The class that a class byte stands for, as the file counts.
    #[inline]
    pub(crate) fn class_of_byte(self, byte: u8) -> Result<u32, Fault> {
        match self {
            SampleShape::Cifar { labels, .. } => class_of_byte(byte, labels),
            _ => Ok(u32::from(byte)),
        }
    }

    /// For fingerprints.
    pub(crate) fn words(self) -> [u64; 2] {
        match self {
            SampleShape::Whole => [5, 0],
            SampleShape::Line => [6, 0],
            SampleShape::Cifar { label, .. } => [7, label as u64],
            SampleShape::Group { label } => [8, label],
            SampleShape::Tokens { length } => [9, u64::from(length)],
            SampleShape::Bytes { length } => [10, u64::from(length)],
        }
    }
}

#[inline]
fn class_of_byte(byte: u8, labels: usize) -> Result<u32, Fault> {
    if usize::from(byte) >= labels {
        return Err(Fault::ClassByte {
            found: byte,
            classes: labels as u32,
        });
    }
    Ok(u32::from(byte))
}

/// A line without what ends it.
#[inline]
pub(crate) fn without_line_end(line: &[u8]) -> &[u8] {
    match line {
        [text @ .., b'\r', b'\n'] | [text @ .., b'\n'] => text,
        _ => line,
    }
}
