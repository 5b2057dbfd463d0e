//! Limits on images.

use crate::{Format, ImageError};

/// Limits on images. Apart from a decoder's own tables, decoding takes at most 4 bytes a pixel, a progressive JPEG up
/// to 8 more, a TIFF or PNM of 16 bits a channel 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most pixels of one image. An image that declares more is refused before memory is allocated for it.
    pub most_pixels: u64,
}

impl Default for Limits {
    /// 2^26 pixels, 8192 x 8192: more than cameras make, and 200 MB as RGB.
    fn default() -> Limits {
        Limits {
            most_pixels: 1 << 26,
        }
    }
}

impl Limits {
    pub(super) fn check(&self, format: Format, width: u32, height: u32) -> Result<(), ImageError> {
        if width == 0 || height == 0 {
            return Err(ImageError::new(format!(
                "the {format} image has no pixels: it is {width} pixels wide and {height} high"
            )));
        }
        if u64::from(width) * u64::from(height) > self.most_pixels {
            return Err(ImageError::TooManyPixels(format!(
                "the {format} image declares {width} x {height} pixels, more than the {} that are allowed",
                self.most_pixels
            )));
        }
        Ok(())
    }
}
