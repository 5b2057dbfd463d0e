//! Pixels in memory.

use crate::{Layout, interleave};

/// An image of bytes: rows from the top, pixels from the left, one byte a channel (HWC). One channel is
/// grey, three are red, green and blue.
///
/// Made once a thread and filled again and again: its memory is kept.
#[derive(Debug, Clone, Default)]
pub struct Pixels {
    height: u32,
    width: u32,
    channels: usize,
    data: Vec<u8>,
    /// Encoded bytes as a decoder is given them, where they differ from the caller's.
    pub(crate) encoded: Vec<u8>,
}

impl PartialEq for Pixels {
    fn eq(&self, other: &Pixels) -> bool {
        let shape = |pixels: &Pixels| (pixels.height, pixels.width, pixels.channels);
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

    /// Another shape, with whatever bytes are there to be overwritten.
    pub(crate) fn reshape(&mut self, height: u32, width: u32, channels: usize) -> &mut [u8] {
        (self.height, self.width, self.channels) = (height, width, channels);
        let bytes = height as usize * width as usize * channels;
        self.data.resize(bytes, 0);
        &mut self.data
    }

    /// Room for decoders that write a channel more than is kept.
    pub(crate) fn data_mut(&mut self) -> &mut Vec<u8> {
        &mut self.data
    }

    /// After a failure: nothing, rather than half an image.
    pub(crate) fn clear(&mut self) {
        (self.height, self.width, self.channels) = (0, 0, 0);
        self.data.clear();
    }
}
