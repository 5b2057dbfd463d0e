//! PNG: every colour type and depth, interlaced or not; checksums are verified.

use std::io::{self, BufRead, Cursor, Seek};

use png::{BitDepth, ColorType, Decoder, DecodingError, Reader, Transformations};

use super::alpha::drop_alpha;
use super::keep::Keep;
use super::limits::Limits;
use crate::{Format, ImageError, Pixels};

const FORMAT: Format = Format::Png;

pub(super) fn decode(
    bytes: &[u8],
    limits: &Limits,
    keep: Keep,
    pixels: &mut Pixels,
) -> Result<(), ImageError> {
    let refusal = |error| refusal(error, bytes);
    let mut decoder = Decoder::new(Cursor::new(bytes));
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let header = decoder.read_header_info().map_err(refusal)?;
    let (width, height) = header.size();
    let is_deep = header.bit_depth == BitDepth::Sixteen;
    let of_numbers = match (header.color_type, header.bit_depth) {
        (ColorType::Indexed, bits) | (ColorType::Grayscale, bits @ BitDepth::One) => {
            (keep == Keep::Numbers).then_some(bits as u8 as usize)
        }
        _ => None,
    };
    limits.check(FORMAT, width, height)?;
    // Palettes to RGB, and fewer bits to 8.
    decoder.set_transformations(if is_deep || of_numbers.is_some() {
        Transformations::IDENTITY
    } else {
        Transformations::EXPAND
    });
    let mut reader = decoder.read_info().map_err(refusal)?;
    if let Some(bits) = of_numbers {
        return numbers(&mut reader, bits, pixels).map_err(refusal);
    }
    let (stored, channels) = match reader.output_color_type().0 {
        ColorType::Grayscale => (1, 1),
        ColorType::GrayscaleAlpha => (2, 1),
        ColorType::Rgba => (4, 3),
        ColorType::Rgb | ColorType::Indexed => (3, 3),
    };
    let value_bytes = 1 + usize::from(is_deep);
    pixels.reshape_as(height, width, channels, value_bytes);
    let data = pixels.data_mut();
    data.resize(height as usize * width as usize * stored * value_bytes, 0);
    reader.next_frame(data).map_err(refusal)?;
    if is_deep {
        for value in data.as_chunks_mut::<2>().0 {
            *value = u16::from_be_bytes(*value).to_ne_bytes();
        }
    }
    drop_alpha(pixels, stored);
    Ok(())
}

/// The stored values of one channel, `bits` each: palette indices, or black and white.
fn numbers<R: BufRead + Seek>(
    reader: &mut Reader<R>,
    bits: usize,
    pixels: &mut Pixels,
) -> Result<(), DecodingError> {
    let (width, height) = reader.info().size();
    let (rows, columns) = (height as usize, width as usize);
    let row_bytes = (columns * bits).div_ceil(8);
    // Reads rows with several values a byte, then unpacks them in place, last row first.
    pixels.reshape(height, width, 1);
    let data = pixels.data_mut();
    data.resize(rows * columns.max(row_bytes), 0);
    reader.next_frame(&mut data[..rows * row_bytes])?;
    for place in (0..rows * columns).rev() {
        let (row, column) = (place / columns, place % columns);
        let byte = data[row * row_bytes + column * bits / 8];
        let shift = 8 - bits - column * bits % 8;
        data[place] = byte >> shift & (u8::MAX >> (8 - bits));
    }
    data.truncate(rows * columns);
    Ok(())
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
