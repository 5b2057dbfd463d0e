//! Encoded bytes to pixels.
//!
//! The format is recognised by the first bytes, never by a name. The result is the file's content as bytes: RGB, or
//! one channel if the file is grey.
//!
//! - CMYK and YCCK (JPEG, TIFF) become RGB; palettes become RGB. 16 bits a channel (PNG, TIFF, PNM) are scaled to 8 and
//!   rounded, unless [`Keep`] says otherwise.
//! - Alpha is dropped: the colours are those stored, not blended with any background. That is what
//!   Pillow's `convert("RGB")` does.
//! - An EXIF orientation is not applied, as in PyTorch's and TensorFlow's loaders; [`orientation`] returns it, and
//!   [`Pixels::turn_upright`] applies it.
//! - Colour profiles are ignored, as in those loaders.
//! - Animations give their first frame, files of several pages their first page.
//!
//! JPEG as in photos (baseline, one scan) is decoded here, in `baseline/`, as far as needed; zune-jpeg decodes other
//! kinds, whole. Decoding at half the size from the DCT coefficients would only help for crops with twice the output's
//! side; photos 400 pixels wide have none for an output of 224.

mod alpha;
mod baseline;
mod jpeg;
mod jpeg_errors;
mod jpeg_markers;
mod keep;
mod limits;
mod orientation;
mod others;
mod png;
mod webp;

pub use keep::Keep;
pub use limits::Limits;
pub use orientation::orientation;

use crate::crop::Rectangle;
use crate::{Format, ImageError, Pipeline, Pixels};

/// Decodes an image into `pixels` and reuses their memory.
///
/// Errors: the bytes are not a whole image of a known format within the limits; `pixels` is then
/// empty. Bytes after the image's end are ignored.
///
/// ```
/// use pelton_image::{Limits, Pixels, decode};
///
/// let mut pixels = Pixels::new();
/// let refused = decode(b"%PDF-1.7", &Limits::default(), &mut pixels).unwrap_err();
/// assert!(refused.to_string().contains("not a JPEG, PNG, WebP, BMP, GIF, PNM or TIFF image"));
/// ```
pub fn decode(bytes: &[u8], limits: &Limits, pixels: &mut Pixels) -> Result<Format, ImageError> {
    decode_keeping(Keep::Bytes, bytes, limits, pixels)
}

/// The same, keeping more than bytes.
///
/// Errors: those of [`decode()`], and a GIF if numbers are kept, since its decoder does not give palette indices.
pub fn decode_keeping(
    keep: Keep,
    bytes: &[u8],
    limits: &Limits,
    pixels: &mut Pixels,
) -> Result<Format, ImageError> {
    decode_part(bytes, limits, (keep, &Rectangle::all), pixels)
}

/// Decodes the part that a pipeline needs under a key, for [`Pipeline::apply`] with the same two: the output is the
/// same as for the whole image. The smaller a crop at the pipeline's beginning, the faster.
///
/// Only baseline JPEGs are decoded in part: grey, or YCbCr with chroma at full or half resolution; others are decoded
/// whole, with values of 16 bits kept. Damage to the data after the last row of a part is not noticed.
///
/// Errors: those of [`decode()`].
pub fn decode_for(
    (pipeline, key): (&Pipeline, u64),
    bytes: &[u8],
    limits: &Limits,
    pixels: &mut Pixels,
) -> Result<Format, ImageError> {
    let look = |height, width| pipeline.looks_at(height, width, key);
    decode_part(bytes, limits, (Keep::Depth, &look), pixels)
}

fn decode_part(
    bytes: &[u8],
    limits: &Limits,
    (keep, look): (Keep, &dyn Fn(u32, u32) -> Rectangle),
    pixels: &mut Pixels,
) -> Result<Format, ImageError> {
    let Some(format) = Format::detect(bytes) else {
        pixels.clear();
        return Err(not_an_image(bytes));
    };
    let decoded = match format {
        Format::Jpeg => jpeg::decode(bytes, limits, look, pixels),
        Format::Png => png::decode(bytes, limits, keep, pixels),
        Format::Webp => webp::decode(bytes, limits, pixels),
        Format::Bmp | Format::Gif | Format::Pnm | Format::Tiff => {
            others::decode(format, bytes, limits, keep, pixels)
        }
    };
    match decoded {
        Ok(()) => {
            if keep == Keep::Bytes {
                pixels.scale_to_bytes();
            }
            Ok(format)
        }
        Err(error) => {
            pixels.clear();
            Err(error)
        }
    }
}

/// The first bytes match none of the formats.
fn not_an_image(bytes: &[u8]) -> ImageError {
    let first: Vec<String> = { bytes.iter().take(8) }
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let first = if first.is_empty() {
        "nothing".into()
    } else {
        first.join(" ")
    };
    ImageError::new(format!(
        "the bytes are not a JPEG, PNG, WebP, BMP, GIF, PNM or TIFF image, whatever their name says: they begin with {first}"
    ))
}
