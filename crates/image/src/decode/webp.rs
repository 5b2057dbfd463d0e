//! WebP: lossy, lossless, with alpha, and the first frame of animations.

use std::io::{self, Cursor};

use image_webp::{DecodingError, WebPDecoder};

use super::alpha::drop_alpha;
use super::limits::Limits;
use crate::{Format, ImageError, Pixels};

const FORMAT: Format = Format::Webp;

pub(super) fn decode(bytes: &[u8], limits: &Limits, pixels: &mut Pixels) -> Result<(), ImageError> {
    let refusal = |error| refusal(error, bytes);
    let riff = riff(bytes)?;
    check_frames(riff, 12, limits)?;
    let mut decoder = WebPDecoder::new(Cursor::new(riff)).map_err(refusal)?;
    let (width, height) = decoder.dimensions();
    limits.check(FORMAT, width, height)?;
    // Chunks of metadata and alpha are no larger than the file.
    decoder.set_memory_limit(bytes.len());
    pixels.reshape(height, width, 3);
    let stored = if decoder.has_alpha() { 4 } else { 3 };
    let data = pixels.data_mut();
    data.resize(height as usize * width as usize * stored, 0);
    decoder.read_image(data).map_err(refusal)?;
    drop_alpha(pixels, stored);
    Ok(())
}

/// The bytes of the container; the decoder does not check its stated length.
fn riff(bytes: &[u8]) -> Result<&[u8], ImageError> {
    let stated = u32_at(bytes, 4).map_or(usize::MAX, |length| length as usize);
    bytes
        .get(..stated.saturating_add(8))
        .ok_or_else(|| ImageError::cut_short(FORMAT, bytes))
}

/// Checks the sizes that the frames declare: the decoder allocates a lossy frame before comparing its size with the
/// image's.
fn check_frames(bytes: &[u8], mut at: usize, limits: &Limits) -> Result<(), ImageError> {
    while let Some(length) = u32_at(bytes, at.saturating_add(4)) {
        let content = at + 8;
        match &bytes[at..at + 4] {
            b"VP8 " => {
                if let Some(sizes) = u32_at(bytes, content + 6) {
                    limits.check(FORMAT, sizes & 0x3FFF, sizes >> 16 & 0x3FFF)?;
                }
            }
            b"VP8L" => {
                if let Some(sizes) = u32_at(bytes, content + 1) {
                    limits.check(FORMAT, (sizes & 0x3FFF) + 1, (sizes >> 14 & 0x3FFF) + 1)?;
                }
            }
            b"ANMF" => {
                // A frame of an animation: 16 bytes, then chunks. The next chunk follows the last of them.
                at = content + 16;
                continue;
            }
            _ => (),
        }
        // Lengths are rounded up to even ones.
        at = content
            .saturating_add(length as usize)
            .saturating_add(length as usize & 1);
    }
    Ok(())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}

fn refusal(error: DecodingError, bytes: &[u8]) -> ImageError {
    match error {
        DecodingError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            ImageError::cut_short(FORMAT, bytes)
        }
        DecodingError::UnsupportedFeature(reason) => ImageError::unsupported(FORMAT, reason),
        other => ImageError::damaged(FORMAT, other),
    }
}
