//! BMP, GIF (its first frame), PNM and TIFF (its first page).

use std::io::{self, Cursor};

use image::codecs::{bmp::BmpDecoder, gif::GifDecoder, pnm::PnmDecoder, tiff::TiffDecoder};
use image::{ExtendedColorType, ImageDecoder, ImageResult};

use super::alpha::drop_alpha;
use super::keep::Keep;
use super::limits::Limits;
use crate::{Format, ImageError, Pixels};

/// Most memory of a decoder next to 16 bytes a pixel.
const MOST_BYTES: u64 = 64 << 20;

/// Decodes one of these formats.
pub(super) fn decode(
    format: Format,
    bytes: &[u8],
    limits: &Limits,
    keep: Keep,
    pixels: &mut Pixels,
) -> Result<(), ImageError> {
    let (file, of) = (Cursor::new(bytes), (format, bytes, keep));
    match format {
        Format::Gif if keep == Keep::Numbers => Err(ImageError::new(
            "a GIF has colours in place of numbers; convert it to PNG, or name the field `image` if it is a picture",
        )),
        Format::Gif => read(of, GifDecoder::new(file), limits, pixels),
        Format::Pnm => read(of, PnmDecoder::new(file), limits, pixels),
        Format::Tiff => read(of, TiffDecoder::new(file), limits, pixels),
        _ => {
            let mut decoder = BmpDecoder::new(file);
            if let Ok(decoder) = &mut decoder {
                let has_palette = decoder.get_palette().is_some();
                decoder.set_indexed_color(keep == Keep::Numbers && has_palette);
            }
            read(of, decoder, limits, pixels)
        }
    }
}

fn read(
    (format, bytes, keep): (Format, &[u8], Keep),
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
    let value_bytes = kind.bytes_per_pixel() / kind.channel_count();
    if value_bytes > 2 {
        let reason = "its values have 32 bits; convert it to 8";
        return Err(ImageError::unsupported(format, reason));
    }
    let mut most = image::Limits::no_limits();
    most.max_alloc = Some(MOST_BYTES + 16 * u64::from(width) * u64::from(height));
    decoder.set_limits(most).map_err(refusal)?;
    let is_bit = decoder.original_color_type() == ExtendedColorType::L1;
    pixels.reshape_as(height, width, channels, usize::from(value_bytes));
    let data = pixels.data_mut();
    data.resize(decoder.total_bytes() as usize, 0);
    decoder.read_image(data).map_err(refusal)?;
    if is_bit && keep == Keep::Numbers {
        data.iter_mut()
            .for_each(|value| *value = u8::from(*value != 0));
    }
    drop_alpha(pixels, usize::from(kind.channel_count()));
    Ok(())
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
