//! BMP, GIF, PNM and TIFF: of a GIF the first frame, of a TIFF the first page.

use std::io::{self, Cursor};

use image::codecs::{bmp::BmpDecoder, gif::GifDecoder, pnm::PnmDecoder, tiff::TiffDecoder};
use image::{ColorType, ImageDecoder, ImageResult};

use super::alpha::drop_alpha;
use super::limits::Limits;
use crate::{Format, ImageError, Pixels};

/// Most memory of a decoder next to 16 bytes a pixel.
const MOST_BYTES: u64 = 64 << 20;

/// Decodes one of these formats; where its values are classes, with indices of a palette in place of colours if they are
/// known, and without clipping.
pub(super) fn decode(
    format: Format,
    bytes: &[u8],
    limits: &Limits,
    of_classes: bool,
    pixels: &mut Pixels,
) -> Result<(), ImageError> {
    let (file, of) = (Cursor::new(bytes), (format, bytes, of_classes));
    match format {
        Format::Gif if of_classes => Err(ImageError::new(
            "a mask in a GIF has colours in place of classes; convert it to PNG",
        )),
        Format::Gif => read(of, GifDecoder::new(file), limits, pixels),
        Format::Pnm => read(of, PnmDecoder::new(file), limits, pixels),
        Format::Tiff => read(of, TiffDecoder::new(file), limits, pixels),
        _ => {
            let mut decoder = BmpDecoder::new(file);
            if let Ok(decoder) = &mut decoder {
                decoder.set_indexed_color(of_classes && decoder.get_palette().is_some());
            }
            read(of, decoder, limits, pixels)
        }
    }
}

fn read(
    (format, bytes, of_classes): (Format, &[u8], bool),
    decoder: ImageResult<impl ImageDecoder>,
    limits: &Limits,
    pixels: &mut Pixels,
) -> Result<(), ImageError> {
    let refusal = |error| refusal(error, format, bytes);
    let mut decoder = decoder.map_err(refusal)?;
    let (width, height) = decoder.dimensions();
    limits.check(format, width, height)?;
    let kind = decoder.color_type();
    let channels = if kind.has_color() { 3 } else { 1 };
    if kind.bytes_per_pixel() / kind.channel_count() > 2 {
        let reason = "its values have 32 bits; convert it to 8";
        return Err(ImageError::unsupported(format, reason));
    }
    let mut most = image::Limits::no_limits();
    most.max_alloc = Some(MOST_BYTES + 16 * u64::from(width) * u64::from(height));
    decoder.set_limits(most).map_err(refusal)?;
    pixels.reshape(height, width, channels);
    let data = pixels.data_mut();
    data.resize(decoder.total_bytes() as usize, 0);
    decoder.read_image(data).map_err(refusal)?;
    if kind == ColorType::L16 {
        let most = { data.as_chunks::<2>().0.iter() }.map(|&value| u16::from_ne_bytes(value));
        check_classes(of_classes, most.max())?;
        halve(data, |value| value.min(255) as u8);
    } else if kind.bytes_per_pixel() / kind.channel_count() == 2 {
        halve(data, |value| (value >> 8) as u8);
    }
    match kind.channel_count() {
        2 => drop_alpha::<1>(data),
        4 => drop_alpha::<3>(data),
        _ => (),
    }
    Ok(())
}

/// Refuses a mask with a class that a byte does not hold.
pub(super) fn check_classes(of_classes: bool, most: Option<u16>) -> Result<(), ImageError> {
    match most {
        Some(most @ 256..) if of_classes => Err(ImageError::new(format!(
            "the mask has the class {most}, and masks hold classes up to 255; give them smaller numbers, or decode it in a function"
        ))),
        _ => Ok(()),
    }
}

/// Numbers of 16 bits to one byte each, in place.
fn halve(data: &mut Vec<u8>, to_byte: impl Fn(u16) -> u8) {
    let values = data.len() / 2;
    for place in 0..values {
        data[place] = to_byte(u16::from_ne_bytes([data[2 * place], data[2 * place + 1]]));
    }
    data.truncate(values);
}

fn refusal(error: image::ImageError, format: Format, bytes: &[u8]) -> ImageError {
    use image::ImageError as Theirs;
    match error {
        Theirs::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            ImageError::cut_short(format, bytes)
        }
        Theirs::Unsupported(reason) => ImageError::unsupported(format, reason),
        Theirs::Limits(_) => ImageError::unsupported(format, "its rows or tables are too large"),
        other => ImageError::damaged(format, other),
    }
}
