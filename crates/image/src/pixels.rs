//! Pixels in memory.

use crate::crop::Rectangle;
use crate::decode::Scratch;
use crate::{Layout, Orientation, interleave};

/// An image of bytes: rows from the top, pixels from the left, one byte a channel (HWC). One channel is
/// grey, three are red, green and blue.
///
/// Created once a thread and reused: its memory is kept.
#[derive(Clone, Default)]
pub struct Pixels {
    height: u32,
    width: u32,
    channels: usize,
    data: Vec<u8>,
    /// Height and width of the image, and the decoded part, where that is not the whole image.
    decoded: Option<((u32, u32), Rectangle)>,
    /// The encoded bytes for a decoder, where they differ from the caller's; also memory for turning pixels.
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
        let shape = |of: &Pixels| (of.height, of.width, of.channels, of.decoded);
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
    /// are 1 or 3, and that there are as many bytes as pixels have.
    pub fn set(&mut self, height: u32, width: u32, channels: usize, layout: Layout, bytes: &[u8]) {
        assert!(height > 0 && width > 0, "an image has pixels");
        assert!(channels == 1 || channels == 3, "an image is grey or RGB");
        let plane = height as usize * width as usize;
        assert_eq!(bytes.len(), plane * channels, "bytes of the image");
        let data = self.reshape(height, width, channels);
        if layout == Layout::Hwc || channels == 1 {
            data.copy_from_slice(bytes);
            return;
        }
        interleave(bytes, data);
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
        match self.channels {
            1 => turn::<1>(&self.data, (height, width), orientation, &mut turned),
            _ => turn::<3>(&self.data, (height, width), orientation, &mut turned),
        }
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

    /// 1 or 3.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// `height * width * channels` bytes.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Height and width of the whole image, of which this may be a part ([`crate::decode_for`]).
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
        (self.height, self.width, self.channels) = (height, width, channels);
        self.decoded = None;
        let bytes = height as usize * width as usize * channels;
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
