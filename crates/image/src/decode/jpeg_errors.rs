//! Errors of JPEG files.

use std::fmt::Display;

use crate::{Format, ImageError};

pub(super) fn cut_short(bytes: &[u8]) -> ImageError {
    ImageError::cut_short(Format::Jpeg, bytes)
}

pub(super) fn damaged(reason: impl Display) -> ImageError {
    ImageError::damaged(Format::Jpeg, reason)
}

pub(super) fn unsupported(reason: impl Display) -> ImageError {
    ImageError::unsupported(Format::Jpeg, reason)
}
