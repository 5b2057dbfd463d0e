//! Errors of images and augmentations.

use std::fmt::Display;

use crate::Format;

/// Why an image or an augmentation was refused: a sentence about the bytes or the text alone. The caller adds the
/// file and the position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The image declares more pixels than allowed; nothing was allocated for it.
    #[error("{0}")]
    TooManyPixels(String),
    /// The bytes or the augmentation are wrong.
    #[error("{0}")]
    Invalid(String),
}

impl ImageError {
    #[cold]
    pub(crate) fn new(what: impl Into<String>) -> ImageError {
        ImageError::Invalid(what.into())
    }

    /// The bytes end before the image does.
    pub(crate) fn cut_short(format: Format, bytes: &[u8]) -> ImageError {
        ImageError::new(format!(
            "the {format} image is cut short: its {} bytes end before the image does",
            bytes.len()
        ))
    }

    /// The image is damaged, as the decoder says.
    pub(crate) fn damaged(format: Format, reason: impl Display) -> ImageError {
        ImageError::new(format!("the {format} image is damaged: {reason}"))
    }

    /// The image may be sound, but its kind is not supported.
    pub(crate) fn unsupported(format: Format, reason: impl Display) -> ImageError {
        ImageError::new(format!(
            "this kind of {format} image cannot be decoded: {reason}"
        ))
    }
}
