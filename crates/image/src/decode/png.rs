//! PNG: every colour type and depth, interlaced or not; checksums are verified.

use std::io::{self, Cursor};

use png::{ColorType, Decoder, DecodingError, Transformations};

use super::{Limits, drop_alpha};
use crate::{Format, ImageError, Pixels};

const FORMAT: Format = Format::Png;

pub(super) fn decode(bytes: &[u8], limits: &Limits, pixels: &mut Pixels) -> Result<(), ImageError> {
    let refusal = |error| refusal(error, bytes);
    let mut decoder = Decoder::new(Cursor::new(bytes));
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    // Palettes to RGB, fewer bits to 8, and of 16 bits the upper 8.
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let (width, height) = decoder.read_header_info().map_err(refusal)?.size();
    limits.check(FORMAT, width, height)?;
    let mut reader = decoder.read_info().map_err(refusal)?;
    let (stored, channels) = match reader.output_color_type().0 {
        ColorType::Grayscale => (1, 1),
        ColorType::GrayscaleAlpha => (2, 1),
        ColorType::Rgba => (4, 3),
        ColorType::Rgb | ColorType::Indexed => (3, 3),
    };
    pixels.reshape(height, width, channels);
    let data = pixels.data_mut();
    data.resize(height as usize * width as usize * stored, 0);
    reader.next_frame(data).map_err(refusal)?;
    match (stored, channels) {
        (2, 1) => drop_alpha::<1>(data),
        (4, 3) => drop_alpha::<3>(data),
        _ => (),
    }
    Ok(())
}

fn refusal(error: DecodingError, bytes: &[u8]) -> ImageError {
    match error {
        DecodingError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            ImageError::CutShort {
                format: FORMAT,
                found: bytes.len(),
            }
        }
        DecodingError::LimitsExceeded => ImageError::Unsupported {
            format: FORMAT,
            reason: "its rows or tables take more than 64 MiB".to_string(),
        },
        other => ImageError::Damaged {
            format: FORMAT,
            reason: other.to_string(),
        },
    }
}
