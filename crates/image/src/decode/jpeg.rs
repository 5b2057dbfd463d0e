//! JPEG.
//!
//! The decoder is strict about the entropy-coded data, so that damage is an error and not a grey area. However, it
//! continues with zeros if data end early at a marker, as in a truncated file that a tool has closed, or if a
//! part was lost. Two checks detect that; neither costs more than a copy of the bytes:
//!
//! - The markers (`jpeg_markers.rs`) say whether the image ends with its end marker, whether restart markers are
//!   missing, and whether scans are.
//! - We append ones to the data of each scan and insert them before each restart marker. No code consists of ones
//!   alone, so a decoder that runs out of data hits an error, and one that does not skips them.
//!
//! **Not noticed:** data missing within a scan of a sequential image with several scans, unless restart markers are
//! missing too; less than one code missing at the end of a scan, or thousands of bits that refine coefficients of a
//! progressive image without a code between them; bytes lost or changed such that enough valid codes follow.

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;

use super::baseline::Scan;
use super::jpeg_errors::{damaged, unsupported};
use super::jpeg_markers::{Frame, walk};
use super::limits::Limits;
use crate::crop::Rectangle;
use crate::{Format, ImageError, Pixels};

const FORMAT: Format = Format::Jpeg;

pub(super) fn decode(
    bytes: &[u8],
    limits: &Limits,
    look: &dyn Fn(u32, u32) -> Rectangle,
    pixels: &mut Pixels,
) -> Result<(), ImageError> {
    let frame = walk(bytes)?;
    limits.check(FORMAT, frame.width, frame.height)?;
    frame.check()?;
    let mut scratch = pixels.scratch.take().unwrap_or_default();
    let scan = Scan::new(bytes, &frame, &mut scratch);
    let decoded = scan.and_then(|scan| {
        let Some(scan) = scan else { return Ok(false) };
        let part = look(frame.height, frame.width);
        scan.decode(part, &mut scratch, pixels)?;
        pixels.is_part((frame.height, frame.width), part);
        Ok(true)
    });
    pixels.scratch = Some(scratch);
    if decoded? {
        return Ok(());
    }
    let mut encoded = std::mem::take(&mut pixels.encoded);
    encoded.clear();
    if frame.is_one_scan() || !frame.sequential {
        put_ones(bytes, &frame, &mut encoded);
    } else {
        encoded.extend_from_slice(&bytes[..frame.end]);
    }
    let decoded = decode_frame(&encoded, &frame, pixels);
    pixels.encoded = encoded;
    decoded
}

/// A byte of ones, escaped as in data.
const ONE_BYTE: [u8; 2] = [0xFF, 0];
/// Between two codes come at most 15 other bits, and a code has at most 16.
const ONE_BYTES: usize = 8;
/// The same if bits that refine coefficients come between two codes, up to 63 for each block of a run.
const ONE_BYTES_OF_REFINING: usize = 128;

/// The image with ones after the data of every scan and before its restart markers.
///
/// Right after the first scan of a progressive image the decoder requires a marker. So we insert another scan
/// there: it refines one component by zeros, which changes nothing, and its one byte of data may end early because
/// zeros follow.
fn put_ones(bytes: &[u8], frame: &Frame, encoded: &mut Vec<u8>) {
    let mut from = 0;
    for (number, scan) in frame.scans.iter().enumerate() {
        if number == 0 && !frame.sequential {
            encoded.extend_from_slice(&bytes[..scan.begin]);
            from = scan.begin;
            // Only a DC scan is sure to have the table that this one must name.
            let Some([name, tables]) = frame.coarsest(scan).filter(|_| scan.coefficients.0 == 0)
            else {
                break;
            };
            encoded.extend_from_slice(&[0xFF, 0xDA, 0, 8, 1, name, tables, 0, 0, 1 << 4, 0]);
        }
        let count = if scan.refines_many() {
            ONE_BYTES_OF_REFINING
        } else {
            ONE_BYTES
        };
        // Unannounced restart markers mean nothing; there may be any number of them.
        let restarts = match scan.interval {
            0 => &[],
            _ => scan.restarts.as_slice(),
        };
        for &end in restarts.iter().chain([&scan.end]) {
            encoded.extend_from_slice(&bytes[from..end]);
            encoded.extend(std::iter::repeat_n(ONE_BYTE, count).flatten());
            from = end;
        }
    }
    encoded.extend_from_slice(&bytes[from..frame.end]);
}

fn decode_frame(bytes: &[u8], frame: &Frame, pixels: &mut Pixels) -> Result<(), ImageError> {
    // Only limits.check() decides on sizes; a JPEG has at most 65535 x 65535 pixels.
    let options = DecoderOptions::new_fast()
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX));
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(refusal)?;
    let (channels, colours) = match decoder.input_colorspace() {
        Some(ColorSpace::Luma) => (1, ColorSpace::Luma),
        Some(ColorSpace::YCbCr | ColorSpace::RGB | ColorSpace::CMYK | ColorSpace::YCCK) => {
            (3, ColorSpace::RGB)
        }
        _ => {
            let reason = format!("it has {} components", frame.components.len());
            return Err(unsupported(reason));
        }
    };
    // Strict from here on: stray bytes between headers harm nothing, lost image data do.
    let options = options
        .set_strict_mode(true)
        .jpeg_set_out_colorspace(colours);
    decoder.set_options(options);
    let data = pixels.reshape(frame.height, frame.width, channels);
    // The decoder uses the first frame header, as the walk does; if the two differed, so would the sizes.
    if decoder.output_buffer_size() != Some(data.len()) {
        return Err(damaged("it has several frame headers"));
    }
    decoder.decode_into(data).map_err(refusal)
}

fn refusal(error: DecodeErrors) -> ImageError {
    match error {
        DecodeErrors::Unsupported(kind) => unsupported(format!("{kind:?}")),
        other => damaged(other),
    }
}
