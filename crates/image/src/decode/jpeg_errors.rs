//! What can be wrong with a JPEG.

use crate::{Format, ImageError};

pub(super) fn cut_short(bytes: &[u8]) -> ImageError {
    ImageError::CutShort {
        format: Format::Jpeg,
        found: bytes.len(),
    }
}

pub(super) fn damaged(reason: &str) -> ImageError {
    ImageError::Damaged {
        format: Format::Jpeg,
        reason: reason.to_string(),
    }
}

pub(super) fn unsupported(reason: String) -> ImageError {
    ImageError::Unsupported {
        format: Format::Jpeg,
        reason,
    }
}
