//! JPEG.
//!
//! The decoder is strict about the entropy-coded data, so that damage is an error and not a grey area.
//! What it does not notice is found here: a walk over the markers before it starts says that the image
//! ends with its end marker, how many pixels it declares, and whether restart markers are missing. The
//! walk costs a search for 0xFF through the file, some microseconds.
//!
//! Data may also be missing before the end marker, where a tool has ended a file that was cut. Decoders
//! go on with zeros at a marker. So the data of a sequential image are decoded without their end marker:
//! a decoder that needs more then finds none, unless less than a row of blocks is missing. What
//! progressive images and those of several scans lack within a scan is not noticed.

use std::ops::Range;

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;

use super::Limits;
use crate::{Format, ImageError, Pixels};

const FORMAT: Format = Format::Jpeg;

pub(super) fn decode(bytes: &[u8], limits: &Limits, pixels: &mut Pixels) -> Result<(), ImageError> {
    let frame = walk(bytes)?;
    limits.check(FORMAT, frame.width, frame.height)?;
    frame.check_restarts()?;
    let mut encoded = std::mem::take(&mut pixels.encoded);
    encoded.clear();
    if frame.is_one_scan() && frame.interval == 0 {
        encoded.extend_from_slice(&bytes[..frame.end - 2]);
        // A decoder reads at most 8 bytes ahead.
        encoded.extend_from_slice(&[0; 16]);
    } else {
        encoded.extend_from_slice(&bytes[..frame.end]);
    }
    let decoded = decode_frame(&encoded, &frame, pixels);
    pixels.encoded = encoded;
    decoded
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
            let reason = format!("it has {} components", frame.components);
            return Err(unsupported(reason));
        }
    };
    // Strict from here on: stray bytes between headers harm nothing, lost image data do.
    let options = options
        .set_strict_mode(true)
        .jpeg_set_out_colorspace(colours);
    decoder.set_options(options);
    let data = pixels.reshape(frame.height, frame.width, channels);
    // The decoder takes the first frame header, as the walk does; if they differed, its buffer would.
    if decoder.output_buffer_size() != Some(data.len()) {
        return Err(damaged("it has several frame headers"));
    }
    decoder.decode_into(data).map_err(refusal)
}

/// What the markers say.
struct Frame {
    width: u32,
    height: u32,
    components: u8,
    sequential: bool,
    /// Pixels of one unit of an interleaved scan: as many blocks of 8 as the finest component has.
    unit: (u32, u32),
    scans: u32,
    /// Components of the first scan.
    interleaved: u8,
    /// Units between two restart markers; 0 without them.
    interval: u32,
    restarts: u32,
    /// Where the image ends, behind its end marker.
    end: usize,
}

impl Frame {
    fn is_one_scan(&self) -> bool {
        self.sequential && self.scans == 1 && self.interleaved == self.components
    }

    /// Refuses an image of one scan that has other than the number of restart markers it should have.
    fn check_restarts(&self) -> Result<(), ImageError> {
        if !self.is_one_scan() || self.interval == 0 {
            return Ok(());
        }
        let units = self.width.div_ceil(self.unit.0) * self.height.div_ceil(self.unit.1);
        // Some write one behind the last interval, too.
        let (least, most) = ((units - 1) / self.interval, units / self.interval);
        if (least..=most).contains(&self.restarts) {
            return Ok(());
        }
        let found = self.restarts;
        Err(damaged(&format!(
            "it has {found} restart markers instead of {least}"
        )))
    }
}

const RESTARTS: Range<u8> = 0xD0..0xD8;
const END_OF_IMAGE: u8 = 0xD9;
const START_OF_SCAN: u8 = 0xDA;
const RESTART_INTERVAL: u8 = 0xDD;

/// Walks over the markers to the end of the image.
fn walk(bytes: &[u8]) -> Result<Frame, ImageError> {
    let mut frame: Option<Frame> = None;
    let (mut interval, mut restarts) = (0, 0);
    // Behind the start marker, which the caller has seen.
    let mut at = 2;
    loop {
        let (marker, behind) = next_marker(bytes, at).ok_or_else(|| cut_short(bytes))?;
        at = behind;
        if RESTARTS.contains(&marker) {
            restarts += 1;
        }
        // Restarts, and markers without a length.
        if RESTARTS.contains(&marker) || matches!(marker, 0x01 | 0xD8) {
            continue;
        }
        if marker == END_OF_IMAGE {
            let frame = frame.ok_or_else(|| damaged("it has no frame header"))?;
            return Ok(Frame {
                interval,
                restarts,
                end: behind,
                ..frame
            });
        }
        let segment = segment(bytes, behind).ok_or_else(|| cut_short(bytes))?;
        at += segment.len();
        match (marker, segment) {
            (_, [] | [_]) => return Err(damaged("a segment is shorter than its own length")),
            (RESTART_INTERVAL, &[_, _, high, low, ..]) => {
                interval = u32::from(u16::from_be_bytes([high, low]));
            }
            (START_OF_SCAN, &[_, _, components, ..]) => {
                let frame = frame.as_mut();
                let frame =
                    frame.ok_or_else(|| damaged("its data come before its frame header"))?;
                frame.interleaved = if frame.scans == 0 { components } else { 0 };
                frame.scans += 1;
            }
            _ if is_frame(marker) && frame.is_none() => frame = Some(frame_of(marker, segment)?),
            _ => (),
        }
    }
}

/// The next marker at or after `at` and the place behind it. What lies before it is entropy-coded data,
/// in which 0xFF is followed by 0, or bytes that belong to nothing.
fn next_marker(bytes: &[u8], mut at: usize) -> Option<(u8, usize)> {
    loop {
        at += memchr::memchr(0xFF, bytes.get(at..)?)?;
        // A marker may have any number of 0xFF before it.
        while *bytes.get(at)? == 0xFF {
            at += 1;
        }
        let marker = bytes[at];
        at += 1;
        if marker != 0 {
            return Some((marker, at));
        }
    }
}

/// A segment from its length on.
fn segment(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let length = bytes.get(at..at + 2)?;
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    bytes.get(at..at + length)
}

/// Headers of frames; between their numbers lie tables (C4, CC) and one that is reserved (C8).
fn is_frame(marker: u8) -> bool {
    matches!(marker, 0xC0..=0xCF) && !matches!(marker, 0xC4 | 0xC8 | 0xCC)
}

fn frame_of(marker: u8, segment: &[u8]) -> Result<Frame, ImageError> {
    let kind = match marker {
        0xC0..=0xC2 => None,
        0xC3 | 0xC7 | 0xCB | 0xCF => Some("it is lossless"),
        0xC5 | 0xC6 => Some("it is hierarchical"),
        _ => Some("it is arithmetically coded"),
    };
    if let Some(kind) = kind {
        return Err(unsupported(kind.to_string()));
    }
    let &[_, _, bits, h0, h1, w0, w1, components, ..] = segment else {
        return Err(damaged("its frame header is too short"));
    };
    if bits != 8 {
        return Err(unsupported(format!("it has {bits} bits a channel")));
    }
    // Of each component three bytes: its name, its samples across and down, its table.
    let described = segment[8..].as_chunks::<3>().0;
    let samples = |shift: u8| {
        let most = described
            .iter()
            .map(|component| component[1] >> shift & 15)
            .max();
        // One component alone is not interleaved, so its units are single blocks.
        let most = if components == 1 {
            1
        } else {
            most.unwrap_or(1).max(1)
        };
        8 * u32::from(most)
    };
    Ok(Frame {
        width: u32::from(u16::from_be_bytes([w0, w1])),
        height: u32::from(u16::from_be_bytes([h0, h1])),
        components,
        sequential: marker != 0xC2,
        unit: (samples(4), samples(0)),
        scans: 0,
        interleaved: 0,
        interval: 0,
        restarts: 0,
        end: 0,
    })
}

fn cut_short(bytes: &[u8]) -> ImageError {
    ImageError::CutShort {
        format: FORMAT,
        found: bytes.len(),
    }
}

fn damaged(reason: &str) -> ImageError {
    ImageError::Damaged {
        format: FORMAT,
        reason: reason.to_string(),
    }
}

fn unsupported(reason: String) -> ImageError {
    ImageError::Unsupported {
        format: FORMAT,
        reason,
    }
}

fn refusal(error: DecodeErrors) -> ImageError {
    match error {
        DecodeErrors::Unsupported(kind) => unsupported(format!("{kind:?}")),
        other => damaged(&other.to_string()),
    }
}
