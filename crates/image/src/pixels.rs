//! Pixels in memory.

use crate::crop::Rectangle;
use crate::orientation::Orientation;
use crate::scratch::Scratch;
use crate::write::Part;
use crate::{Layout, interleave, separate};

/// An image: rows from the top, pixels from the left, channels side by side (HWC). One channel is grey, three are red,
/// green and blue. A value has one byte, or two if a decoder keeps 16 bits; numbers of masks have any size.
///
/// Created once a thread and reused: its memory is kept.
#[derive(Clone, Default)]
pub struct Pixels {
    height: u32,
    width: u32,
    channels: usize,
    value_bytes: usize,
    data: Vec<u8>,
    /// Height and width of the image, and the decoded part, if that is not the whole image.
    decoded: Option<((u32, u32), Rectangle)>,
    /// The encoded bytes for a decoder, if they differ from the caller's; also memory for turning pixels.
    pub(crate) encoded: Vec<u8>,
    /// A decoder's working memory; absent until something was decoded.
    pub(crate) scratch: Option<Box<Scratch>>,
}

impl std::fmt::Debug for Pixels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pixels")
            .field("height", &self.height)
            .field("width", &self.width)
            .field("channels", &self.channels)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Pixels {
    fn eq(&self, other: &Pixels) -> bool {
        let shape = |of: &Pixels| (of.height, of.width, of.channels, of.value_bytes, of.decoded);
        shape(self) == shape(other) && self.data == other.data
    }
}

impl Eq for Pixels {}

impl Pixels {
    /// Without pixels.
    pub fn new() -> Pixels {
        Pixels::default()
    }

    /// Takes raw pixels, for data that are not encoded. Asserts that there is at least one, that channels
    /// are 1 or 3, and that the number of bytes matches.
    pub fn set(&mut self, height: u32, width: u32, channels: usize, layout: Layout, bytes: &[u8]) {
        assert!(height > 0 && width > 0, "an image has pixels");
        assert!(channels == 1 || channels == 3, "an image is grey or RGB");
        self.set_numbers((height, width, channels), 1, layout, bytes);
    }

    /// Takes numbers of `value_bytes` bytes each, in any number of channels. Asserts that there is at least one, and that
    /// the number of bytes matches.
    pub fn set_numbers(
        &mut self,
        (height, width, channels): (u32, u32, usize),
        value_bytes: usize,
        layout: Layout,
        bytes: &[u8],
    ) {
        assert!(!bytes.is_empty(), "an image has pixels");
        let data = self.reshape_as(height, width, channels, value_bytes);
        assert_eq!(bytes.len(), data.len(), "bytes of the image");
        match (layout, channels, value_bytes) {
            (Layout::Hwc, ..) | (_, 1, _) => data.copy_from_slice(bytes),
            (Layout::Chw, 3, 1) => interleave(bytes, data),
            (Layout::Chw, ..) => {
                let plane = data.len() / channels / value_bytes;
                for (i, value) in data.chunks_exact_mut(value_bytes).enumerate() {
                    let from = (i % channels * plane + i / channels) * value_bytes;
                    value.copy_from_slice(&bytes[from..from + value_bytes]);
                }
            }
        }
    }

    /// Scales values of 16 bits to 8, rounded. Returns whether there were any.
    pub fn scale_to_bytes(&mut self) -> bool {
        if self.value_bytes != 2 {
            return false;
        }
        self.value_bytes = 1;
        let values = self.data.len() / 2;
        for place in 0..values {
            let value = u16::from_ne_bytes([self.data[2 * place], self.data[2 * place + 1]]);
            // 65535 is 257 times 255.
            self.data[place] = ((u32::from(value) + 128) / 257) as u8;
        }
        self.data.truncate(values);
        true
    }

    /// Writes all values of one channel before those of the next. Asserts that `out` has as many bytes as the pixels.
    pub fn write_planes(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.data.len(), "bytes of the image");
        match (self.channels, self.value_bytes) {
            (1, _) => out.copy_from_slice(&self.data),
            (3, 1) => separate(&self.data, out),
            _ => {
                let whole = Part {
                    data: &self.data,
                    row: self.width,
                    channels: self.pixel_bytes(),
                    area: Rectangle::all(self.height, self.width),
                    mirrored: false,
                };
                whole.write_numbers(self.value_bytes, Layout::Chw, out);
            }
        }
    }

    /// Turns and mirrors an image stored in this orientation until it is upright. Asserts that the whole image was
    /// decoded.
    pub fn turn_upright(&mut self, orientation: Orientation) {
        if orientation.is_upright() {
            return;
        }
        assert!(self.decoded.is_none(), "parts are not turned");
        let (height, width) = (self.height as usize, self.width as usize);
        let mut turned = std::mem::take(&mut self.encoded);
        turned.resize(self.data.len(), 0);
        let turn = match self.pixel_bytes() {
            1 => turn::<1>,
            2 => turn::<2>,
            6 => turn::<6>,
            _ => turn::<3>,
        };
        turn(&self.data, (height, width), orientation, &mut turned);
        self.encoded = std::mem::replace(&mut self.data, turned);
        if orientation.swaps() {
            (self.height, self.width) = (self.width, self.height);
        }
    }

    /// Frees the memory that only decoding uses, for an image that is kept.
    pub fn drop_scratch(&mut self) {
        self.encoded = Vec::new();
        self.scratch = None;
    }

    /// Rows.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Pixels of a row.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Channels.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Bytes of a value of a channel.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Bytes of a pixel.
    pub(crate) fn pixel_bytes(&self) -> usize {
        self.channels * self.value_bytes
    }

    /// `height * width * channels * value_bytes` bytes.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Height and width of the whole image; these pixels may be a part of it ([`crate::decode_for`]).
    pub fn whole_size(&self) -> (u32, u32) {
        self.decoded
            .map_or((self.height, self.width), |(size, _)| size)
    }

    /// The part of the image in these pixels.
    pub(crate) fn held(&self) -> Rectangle {
        let all = Rectangle::all(self.height, self.width);
        self.decoded.map_or(all, |(_, part)| part)
    }

    /// Marks this as a part of an image of this size.
    pub(crate) fn is_part(&mut self, size: (u32, u32), part: Rectangle) {
        self.decoded = (part != Rectangle::all(size.0, size.1)).then_some((size, part));
    }

    /// Changes the shape; the bytes are to be overwritten.
    pub(crate) fn reshape(&mut self, height: u32, width: u32, channels: usize) -> &mut [u8] {
        self.reshape_as(height, width, channels, 1)
    }

    /// The same for values of this size.
    pub(crate) fn reshape_as(
        &mut self,
        height: u32,
        width: u32,
        channels: usize,
        value_bytes: usize,
    ) -> &mut [u8] {
        (self.height, self.width, self.channels) = (height, width, channels);
        self.value_bytes = value_bytes;
        self.decoded = None;
        let bytes = height as usize * width as usize * self.pixel_bytes();
        self.data.resize(bytes, 0);
        &mut self.data
    }

    /// Room for decoders that write an additional channel.
    pub(crate) fn data_mut(&mut self) -> &mut Vec<u8> {
        &mut self.data
    }

    /// After a failure: no pixels, rather than half an image.
    pub(crate) fn clear(&mut self) {
        (self.height, self.width, self.channels) = (0, 0, 0);
        self.decoded = None;
        self.data.clear();
    }
}

/// Moves every pixel of an image of this height and width to its upright position.
fn turn<const CHANNELS: usize>(
    stored: &[u8],
    (height, width): (usize, usize),
    orientation: Orientation,
    turned: &mut [u8],
) {
    let stored = stored.as_chunks::<CHANNELS>().0;
    let (from_last_row, from_last_pixel) = orientation.reverses();
    let at = |length: usize, reverses: bool, place: usize| {
        if reverses { length - 1 - place } else { place }
    };
    let columns = if orientation.swaps() { height } else { width };
    for (place, pixel) in turned.as_chunks_mut::<CHANNELS>().0.iter_mut().enumerate() {
        let (row, column) = if orientation.swaps() {
            (place % columns, place / columns)
        } else {
            (place / columns, place % columns)
        };
        let row = at(height, from_last_row, row);
        *pixel = stored[row * width + at(width, from_last_pixel, column)];
    }
}
