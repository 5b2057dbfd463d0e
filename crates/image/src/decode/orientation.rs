//! The orientation of the camera that an image states in its EXIF data.
//!
//! EXIF is a TIFF file without pixels, in a segment of JPEG, a chunk of PNG or a chunk of WebP; one of its entries is
//! needed. Unreadable EXIF is ignored, as in other readers: an image is never refused for it. XMP, in which some
//! programs repeat the orientation, is not read.
//!
//! Cost: the headers before the pixels, for PNG and WebP those of all chunks; no allocation.

use super::jpeg_markers;
use crate::Format;
use crate::orientation::Orientation;

/// The orientation that an encoded image states; upright if it states none.
///
/// ```
/// assert!(pelton_image::orientation(b"no image").is_upright());
/// ```
pub fn orientation(bytes: &[u8]) -> Orientation {
    let exif = match Format::detect(bytes) {
        Some(Format::Jpeg) => jpeg_markers::exif(bytes),
        Some(Format::Png) => of_png(bytes),
        Some(Format::Webp) => of_webp(bytes),
        Some(Format::Tiff) => Some(bytes),
        Some(Format::Bmp | Format::Gif | Format::Pnm) | None => None,
    };
    exif.and_then(of_tiff).unwrap_or_default()
}

/// After a signature of 8 bytes: length, kind, content and checksum of each chunk.
fn of_png(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes.get(8..)?;
    loop {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        let (kind, behind) = behind.split_first_chunk::<4>()?;
        let (content, behind) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        if kind == b"eXIf" {
            return Some(content);
        }
        rest = behind.get(4..)?;
    }
}

/// After a header of 12 bytes: kind, length and content of each chunk, padded to an even length.
fn of_webp(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes.get(12..)?;
    loop {
        let (kind, behind) = rest.split_first_chunk::<4>()?;
        let (length, behind) = behind.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length) as usize;
        let (content, behind) = behind.split_at_checked(length)?;
        if kind == b"EXIF" {
            // Some encoders write JPEG's EXIF header.
            return Some(content.strip_prefix(jpeg_markers::EXIF).unwrap_or(content));
        }
        rest = behind.get(length & 1..)?;
    }
}

/// The entry of a TIFF file's first directory that states the orientation.
fn of_tiff(tiff: &[u8]) -> Option<Orientation> {
    const TAG: u32 = 0x0112;
    const SHORT: u32 = 3;
    const LONG: u32 = 4;
    let is_big = match tiff.get(..4)? {
        b"MM\0*" => true,
        b"II*\0" => false,
        _ => return None,
    };
    let number = |at: usize, bytes: usize| {
        let digits = tiff.get(at..at.checked_add(bytes)?)?.iter();
        let add = |number: u32, &digit: &u8| number << 8 | u32::from(digit);
        Some(if is_big {
            digits.fold(0, add)
        } else {
            digits.rev().fold(0, add)
        })
    };
    let directory = number(4, 4)? as usize;
    let entries = number(directory, 2)? as usize;
    for entry in 0..entries {
        // Tag, type, count and value.
        let at = directory.checked_add(2 + 12 * entry)?;
        if number(at, 2)? == TAG {
            let value = match number(at + 2, 2)? {
                SHORT => number(at + 8, 2)?,
                LONG => number(at + 8, 4)?,
                _ => return None,
            };
            return Orientation::of_number(value);
        }
    }
    None
}
