//! PNG: every colour type and depth, interlaced or not; checksums are verified.

use std::io::{self, Cursor};

use png::{BitDepth, ColorType, Decoder, DecodingError, Transformations};

use super::alpha::drop_alpha;
use super::limits::Limits;
use super::others::check_classes;
use crate::{Format, ImageError, Pixels};

const FORMAT: Format = Format::Png;

pub(super) fn decode(
    bytes: &[u8],
    limits: &Limits,
    of_classes: bool,
    pixels: &mut Pixels,
) -> Result<(), ImageError> {
    let refusal = |error| refusal(error, bytes);
    let mut decoder = Decoder::new(Cursor::new(bytes));
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let header = decoder.read_header_info().map_err(refusal)?;
    let (width, height) = header.size();
    let is_deep_grey =
        (header.color_type, header.bit_depth) == (ColorType::Grayscale, BitDepth::Sixteen);
    limits.check(FORMAT, width, height)?;
    // Palettes to RGB, fewer bits to 8, and of 16 bits the upper 8.
    decoder.set_transformations(if is_deep_grey {
        Transformations::IDENTITY
    } else {
        Transformations::EXPAND | Transformations::STRIP_16
    });
    let mut reader = decoder.read_info().map_err(refusal)?;
    let (stored, channels) = match reader.output_color_type().0 {
        ColorType::Grayscale if is_deep_grey => (2, 1),
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
        (2, 1) if is_deep_grey => {
            let values = data.as_chunks::<2>().0.iter();
            let most = values.map(|&value| u16::from_be_bytes(value)).max();
            check_classes(of_classes, most)?;
            clip(data);
        }
        (2, 1) => drop_alpha::<1>(data),
        (4, 3) => drop_alpha::<3>(data),
        _ => (),
    }
    Ok(())
}

/// The palette indices of a picture, one channel, or else its values, none of which is clipped.
pub(super) fn decode_classes(
    bytes: &[u8],
    limits: &Limits,
    pixels: &mut Pixels,
) -> Result<(), ImageError> {
    let refusal = |error| refusal(error, bytes);
    let mut decoder = Decoder::new(Cursor::new(bytes));
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let header = decoder.read_header_info().map_err(refusal)?;
    if header.color_type != ColorType::Indexed {
        return decode(bytes, limits, true, pixels);
    }
    let (width, height) = header.size();
    let bits = header.bit_depth as u8 as usize;
    limits.check(FORMAT, width, height)?;
    decoder.set_transformations(Transformations::IDENTITY);
    let mut reader = decoder.read_info().map_err(refusal)?;
    let (rows, columns) = (height as usize, width as usize);
    let row_bytes = (columns * bits).div_ceil(8);
    // Rows as stored, with several numbers a byte, then unpacked in place from the last on.
    pixels.reshape(height, width, 1);
    let data = pixels.data_mut();
    data.resize(rows * columns.max(row_bytes), 0);
    reader
        .next_frame(&mut data[..rows * row_bytes])
        .map_err(refusal)?;
    for place in (0..rows * columns).rev() {
        let (row, column) = (place / columns, place % columns);
        let byte = data[row * row_bytes + column * bits / 8];
        let shift = 8 - bits - column * bits % 8;
        data[place] = byte >> shift & (u8::MAX >> (8 - bits));
    }
    data.truncate(rows * columns);
    Ok(())
}

/// 16-bit big-endian numbers to one byte in place: those above 255 become 255.
fn clip(data: &mut Vec<u8>) {
    let pixels = data.len() / 2;
    for pixel in 0..pixels {
        data[pixel] = match data[2 * pixel] {
            0 => data[2 * pixel + 1],
            _ => u8::MAX,
        };
    }
    data.truncate(pixels);
}

fn refusal(error: DecodingError, bytes: &[u8]) -> ImageError {
    match error {
        DecodingError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            ImageError::cut_short(FORMAT, bytes)
        }
        DecodingError::LimitsExceeded => {
            ImageError::unsupported(FORMAT, "its rows or tables take more than 64 MiB")
        }
        other => ImageError::damaged(FORMAT, other),
    }
}
