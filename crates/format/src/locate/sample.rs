//! Records that are strings of bytes: which part of a record is the row, and its class.

use pelton_key::Digest;

use crate::locate::places::newlines::without_line_end;
use std::sync::Arc;

use crate::locate::decoder::{ClassByte, Cut, Decoded, Decoder};
use crate::locate::tar::walk::check_group;
use crate::record::error::Fault;
use crate::record::labels::stored::Label;
use crate::record::rows::NewRow;

/// Bytes of the pixels of a CIFAR record.
pub(crate) const CIFAR_PIXELS: usize = 3 * 32 * 32;

/// How the bytes of a record become a row of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampleShape {
    /// All of them.
    Whole,
    /// A line without its end.
    Line,
    /// Label bytes, then pixels; the byte with index `label` is the class.
    Cifar { label: usize, class: ClassByte },
    /// Headers and data of tar members; `label` identifies the key of their classes.
    Group { label: u64 },
    /// All bytes, in runs of `length` tokens.
    Tokens { length: u32 },
    /// All bytes, in runs of `length` bytes.
    Bytes { length: u32 },
}

/// The pixel value that becomes the feature 1: pixels are features from 0 to 1, as such data is usually scaled.
const BRIGHTEST: f32 = 255.0;

/// Records that are strings of bytes as rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleDecoder {
    shape: SampleShape,
    /// Whether the bytes are pixels that become features.
    as_features: bool,
}

impl SampleDecoder {
    pub(crate) fn new(shape: SampleShape) -> SampleDecoder {
        SampleDecoder {
            shape,
            as_features: false,
        }
    }
}

impl Decoder for SampleDecoder {
    #[inline]
    fn decode<'b>(&self, _: u64, bytes: &'b [u8], row: &mut NewRow<'_>) -> Decoded<'b> {
        let (label, sample) = self.shape.row(bytes)?;
        if !self.as_features {
            row.bytes(sample);
            return Ok(label);
        }
        let features = row.dense();
        if sample.len() != features.len() {
            return Err(Fault::NO_RECORD);
        }
        for (feature, pixel) in features.iter_mut().zip(sample) {
            *feature = f32::from(*pixel) / BRIGHTEST;
        }
        Ok(label)
    }

    fn fingerprint(&self) -> [u64; 3] {
        let (shape, label) = self.shape.identity();
        [shape.value(), label, self.as_features.into()]
    }

    fn lists_classes(&self) -> bool {
        !matches!(self.shape, SampleShape::Cifar { .. })
    }

    fn pixels_as_features(&self) -> Option<Arc<dyn Decoder>> {
        Some(Arc::new(SampleDecoder {
            as_features: true,
            ..*self
        }))
    }

    fn cut(&self) -> Option<Cut> {
        let whole = Cut {
            skip: 0,
            length: None,
            class: None,
        };
        match self.shape {
            _ if self.as_features => None,
            SampleShape::Whole | SampleShape::Tokens { .. } | SampleShape::Bytes { .. } => {
                Some(whole)
            }
            SampleShape::Cifar { class, .. } => Some(Cut {
                skip: self.shape.head_bytes() as u64,
                class: Some(class),
                ..whole
            }),
            SampleShape::Line | SampleShape::Group { .. } => None,
        }
    }
}

impl SampleShape {
    /// The label and the row in the bytes of a record.
    #[inline]
    fn row(self, bytes: &[u8]) -> Result<(Label<'static>, &[u8]), Fault> {
        match self {
            SampleShape::Whole | SampleShape::Tokens { .. } | SampleShape::Bytes { .. } => {
                Ok((Label::Listed, bytes))
            }
            SampleShape::Line => Ok((Label::Listed, without_line_end(bytes))),
            SampleShape::Cifar { label, class } => {
                let head = self.head_bytes();
                if bytes.len() != head + CIFAR_PIXELS {
                    return Err(Fault::NO_RECORD);
                }
                Ok((class.label(bytes[label])?, &bytes[head..]))
            }
            SampleShape::Group { .. } => {
                check_group(bytes)?;
                Ok((Label::Listed, bytes))
            }
        }
    }

    /// Bytes before the row.
    fn head_bytes(self) -> usize {
        match self {
            SampleShape::Cifar { label, class } => label + usize::from(class.before),
            _ => 0,
        }
    }

    /// For fingerprints.
    fn identity(self) -> (Digest, u64) {
        match self {
            SampleShape::Whole => (Digest::new("files"), 0),
            SampleShape::Line => (Digest::new("lines"), 0),
            SampleShape::Cifar { label, .. } => (Digest::new("cifar"), label as u64),
            SampleShape::Group { label } => (Digest::new("tar"), label),
            SampleShape::Tokens { length } => (Digest::new("tokens"), length.into()),
            SampleShape::Bytes { length } => (Digest::new("bytes"), length.into()),
        }
    }
}
