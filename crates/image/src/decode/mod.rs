//! Encoded bytes to pixels.
//!
//! The format is known by the first bytes, never by a name. What comes out is what the file holds, as
//! bytes: RGB, or one channel where the file is grey.
//!
//! - CMYK and YCCK (JPEG) become RGB; palettes become RGB. Of 16 bits a channel (PNG) the upper 8 are taken, of grey
//!   ones what is above 255 becomes 255, as Pillow's `convert` has both.
//! - Alpha is dropped: the colours are those stored, not blended with any background. That is what
//!   Pillow's `convert("RGB")` does.
//! - An orientation stated in EXIF is not applied, as PyTorch's and TensorFlow's loaders do not; [`orientation`] says
//!   it, and [`Pixels::turn_upright`] applies it.
//! - Colour profiles are ignored, as they do.
//! - Of an animation the first frame is taken.
//!
//! JPEG as photos have it (baseline, one scan) is decoded here, in `baseline/`, as far as it is looked at; other kinds are
//! by zune-jpeg, whole. Decoding at half the size from the DCT coefficients would serve crops of twice the output's side alone; photos 400 pixels wide have
//! none for an output of 224.

mod baseline;
mod jpeg;
mod jpeg_markers;
mod orientation;
mod png;
mod webp;

use std::fmt;

pub(crate) use baseline::Scratch;
pub use orientation::{Orientation, orientation};

use crate::crop::Rectangle;
use crate::{ImageError, Pipeline, Pixels};

/// What an image is encoded as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// JPEG: baseline and progressive.
    Jpeg,
    /// PNG.
    Png,
    /// WebP, lossy and lossless.
    Webp,
}

impl Format {
    /// The format of an image that begins with these bytes.
    ///
    /// ```
    /// use pelton_image::Format;
    /// assert_eq!(Format::of(b"\x89PNG\r\n\x1a\n..."), Some(Format::Png));
    /// assert_eq!(Format::of(b"GIF89a"), None);
    /// ```
    pub fn of(bytes: &[u8]) -> Option<Format> {
        match bytes {
            [0xFF, 0xD8, 0xFF, ..] => Some(Format::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => Some(Format::Png),
            [
                b'R',
                b'I',
                b'F',
                b'F',
                _,
                _,
                _,
                _,
                b'W',
                b'E',
                b'B',
                b'P',
                ..,
            ] => Some(Format::Webp),
            _ => None,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Jpeg => "JPEG",
            Format::Png => "PNG",
            Format::Webp => "WebP",
        })
    }
}

/// What an image may ask for. A decoder's own tables aside, decoding takes at most 4 bytes a pixel, a
/// progressive JPEG up to 8 more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most pixels of one image. One that declares more is refused before memory is taken for it.
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
    fn check(&self, format: Format, width: u32, height: u32) -> Result<(), ImageError> {
        if width == 0 || height == 0 {
            return Err(ImageError::NoPixels {
                format,
                width,
                height,
            });
        }
        if u64::from(width) * u64::from(height) > self.most_pixels {
            return Err(ImageError::TooManyPixels {
                format,
                width,
                height,
                most: self.most_pixels,
            });
        }
        Ok(())
    }
}

/// Decodes an image into `pixels`, whose memory is used again.
///
/// Errors: every way in which the bytes are no whole image of a known format within the limits; `pixels`
/// is then empty. Bytes after the image's end are ignored.
///
/// ```
/// use pelton_image::{ImageError, Limits, Pixels, decode};
///
/// let mut pixels = Pixels::new();
/// let refused = decode(b"GIF89a", &Limits::default(), &mut pixels).unwrap_err();
/// assert!(matches!(refused, ImageError::NotAnImage { .. }));
/// ```
pub fn decode(bytes: &[u8], limits: &Limits, pixels: &mut Pixels) -> Result<Format, ImageError> {
    decode_part(bytes, limits, &Rectangle::all, pixels)
}

/// Decodes what a pipeline looks at under a key, for [`Pipeline::apply`] with the same two: the output has the pixels
/// that it has of the whole image. The less of the image a crop at the pipeline's beginning takes, the faster.
///
/// Only a JPEG that is not progressive is decoded in part, with one component, or three of which the colours are at most
/// halved in either direction; of others all is there. Of a part, damage to the data behind its last row is not noticed.
///
/// Errors: those of [`decode()`].
pub fn decode_for(
    (pipeline, key): (&Pipeline, u64),
    bytes: &[u8],
    limits: &Limits,
    pixels: &mut Pixels,
) -> Result<Format, ImageError> {
    let look = |height, width| pipeline.looks_at(height, width, key);
    decode_part(bytes, limits, &look, pixels)
}

fn decode_part(
    bytes: &[u8],
    limits: &Limits,
    look: &dyn Fn(u32, u32) -> Rectangle,
    pixels: &mut Pixels,
) -> Result<Format, ImageError> {
    let Some(format) = Format::of(bytes) else {
        pixels.clear();
        let begins = bytes[..bytes.len().min(8)].to_vec();
        return Err(ImageError::NotAnImage { begins });
    };
    let decoded = match format {
        Format::Jpeg => jpeg::decode(bytes, limits, look, pixels),
        Format::Png => png::decode(bytes, limits, pixels),
        Format::Webp => webp::decode(bytes, limits, pixels),
    };
    match decoded {
        Ok(()) => Ok(format),
        Err(error) => {
            pixels.clear();
            Err(error)
        }
    }
}

/// Decodes a mask, whose values are classes: as [`decode`], but a picture by palette as the numbers of its colours, one
/// channel.
pub fn decode_mask(
    bytes: &[u8],
    limits: &Limits,
    pixels: &mut Pixels,
) -> Result<Format, ImageError> {
    let by_palette = match Format::of(bytes) {
        Some(Format::Png) => png::decode_indices(bytes, limits, pixels),
        _ => Ok(false),
    };
    match by_palette {
        Ok(true) => Ok(Format::Png),
        Ok(false) => decode(bytes, limits, pixels),
        Err(error) => {
            pixels.clear();
            Err(error)
        }
    }
}

/// Drops the last of `CHANNELS` + 1 channels in place, keeping the memory.
fn drop_alpha<const CHANNELS: usize>(data: &mut Vec<u8>) {
    let pixels = data.len() / (CHANNELS + 1);
    for pixel in 1..pixels {
        let from = pixel * (CHANNELS + 1);
        data.copy_within(from..from + CHANNELS, pixel * CHANNELS);
    }
    data.truncate(pixels * CHANNELS);
}
