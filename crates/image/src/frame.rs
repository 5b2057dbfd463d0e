//! The image on its way through the stages.
//!
//! Selecting pixels costs nothing here: a crop narrows the area, a flip sets a mark, and a resize waits until its
//! pixels are needed, and may then write straight into the caller's slice. Pixels are copied when a stage changes
//! them.

use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::{InnerPixel, U8, U8x3};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};

use crate::affine::Affine;
use crate::crop::Rectangle;
use crate::write::Part;
use crate::{Pixels, colour};

/// Working memory of augmentation. One a thread, reused for each image: once it has grown to the largest of them,
/// only the resizer's weights are allocated, some kilobytes an image.
#[derive(Default)]
pub struct Workspace {
    resizer: Resizer,
    /// The current image, if it is no longer the source.
    front: Vec<u8>,
    /// The next image is made here.
    back: Vec<u8>,
}

impl Workspace {
    /// Without memory yet.
    pub fn new() -> Workspace {
        Workspace::default()
    }
}

impl std::fmt::Debug for Workspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workspace")
            .field("bytes", &(self.front.capacity() + self.back.capacity()))
            .finish_non_exhaustive()
    }
}

/// An image between two stages.
pub(crate) struct Frame<'a> {
    source: &'a Pixels,
    work: &'a mut Workspace,
    /// Whether the pixels are in `work.front`; otherwise they are the source's.
    owned: bool,
    /// Height and width of the buffer with the pixels, and their channels (for numbers: the bytes of a pixel).
    buffer: (u32, u32),
    channels: usize,
    /// The part of the image that the buffer holds.
    held: Rectangle,
    /// The selected part of the image, before it is mirrored.
    area: Rectangle,
    /// The size to which the part will be resized.
    resized: Option<(u32, u32)>,
    /// Whether left and right are exchanged.
    mirrored: bool,
    /// Whether values are classes, which must not be mixed.
    classes: bool,
}

impl<'a> Frame<'a> {
    pub fn new(source: &'a Pixels, work: &'a mut Workspace) -> Frame<'a> {
        let (height, width) = source.whole_size();
        Frame {
            source,
            work,
            owned: false,
            buffer: (source.height(), source.width()),
            channels: source.channels(),
            held: source.held(),
            area: Rectangle::all(height, width),
            resized: None,
            mirrored: false,
            classes: false,
        }
    }

    /// The same for values that are numbers such as classes: they only move, without interpolation.
    pub fn of_classes(self) -> Frame<'a> {
        Frame {
            classes: true,
            channels: self.source.pixel_bytes(),
            ..self
        }
    }

    /// Height and width as the next stage sees them.
    pub fn size(&self) -> (u32, u32) {
        self.resized.unwrap_or((self.area.height, self.area.width))
    }

    pub fn flip(&mut self) {
        self.mirrored = !self.mirrored;
    }

    pub fn resize(&mut self, height: u32, width: u32) {
        if self.size() != (height, width) {
            self.settle_size();
            self.resized = Some((height, width));
        }
    }

    /// Selects a part of the image, which is inside it.
    pub fn crop(&mut self, part: Rectangle) {
        if (part.height, part.width) == self.size() {
            return;
        }
        self.settle_size();
        self.area = self.area.part(part, self.mirrored);
    }

    /// Selects a part that may extend beyond the image; outside it is black.
    pub fn crop_beyond(&mut self, top: i64, left: i64, (height, width): (u32, u32)) {
        let inside = Rectangle::inside(top, left, (height, width), self.size());
        if (inside.height, inside.width) == (height, width) {
            return self.crop(inside);
        }
        let seen = inside.height > 0 && inside.width > 0;
        if seen {
            self.crop(inside);
            self.settle_size();
        }
        let mut back = std::mem::take(&mut self.work.back);
        back.clear();
        back.resize(height as usize * width as usize * self.channels, 0);
        if seen {
            let above = (i64::from(inside.top) - top) as u32;
            let before = (i64::from(inside.left) - left) as u32;
            let before = if self.mirrored {
                width - before - inside.width
            } else {
                before
            };
            let row = width as usize * self.channels;
            let start = before as usize * self.channels;
            let length = inside.width as usize * self.channels;
            let lines = back.chunks_exact_mut(row).skip(above as usize);
            for (to, from) in lines.zip(self.part().rows()) {
                to[start..start + length].copy_from_slice(from);
            }
        }
        self.work.back = back;
        self.swap_in(height, width);
    }

    /// Blackens a part of the image, which is inside it.
    pub fn blacken(&mut self, part: Rectangle) {
        self.own();
        let part = self.area.part(part, self.mirrored);
        let start = part.left as usize * self.channels;
        let length = part.width as usize * self.channels;
        let row = self.buffer.1 as usize * self.channels;
        let rows = self
            .work
            .front
            .chunks_exact_mut(row)
            .skip(part.top as usize);
        for line in rows.take(part.height as usize) {
            line[start..start + length].fill(0);
        }
    }

    /// Moves pixels within the image.
    pub fn affine(&mut self, affine: Affine) {
        self.own();
        // For an image that will be mirrored when it is written, the map is mirrored.
        let affine = if self.mirrored {
            affine.mirrored()
        } else {
            affine
        };
        let mut back = std::mem::take(&mut self.work.back);
        back.resize(self.work.front.len(), 0);
        affine.apply(
            &self.work.front,
            &mut back,
            self.buffer.0 as usize,
            self.channels,
            self.classes,
        );
        self.work.back = back;
        self.swap_in(self.buffer.0, self.buffer.1);
    }

    /// Changes values; `change` receives the bytes, the channels of a pixel and the pixels of a row.
    pub fn change(&mut self, change: impl FnOnce(&mut [u8], usize, usize)) {
        self.own();
        change(&mut self.work.front, self.channels, self.buffer.1 as usize);
    }

    /// Exchanges top and bottom.
    pub fn flip_rows(&mut self) {
        self.own();
        let row = self.buffer.1 as usize * self.channels;
        let half = self.buffer.0 as usize / 2 * row;
        let (above, below) = self.work.front.split_at_mut(half);
        let pairs = above
            .chunks_exact_mut(row)
            .zip(below.rchunks_exact_mut(row));
        pairs.for_each(|(above, below)| above.swap_with_slice(below));
    }

    /// Makes one channel from three.
    pub fn grey(&mut self) {
        if self.channels == 1 {
            return;
        }
        self.settle_size();
        let mut back = std::mem::take(&mut self.work.back);
        back.clear();
        for row in self.part().rows() {
            back.extend(
                row.as_chunks::<3>()
                    .0
                    .iter()
                    .map(|&pixel| colour::grey(pixel)),
            );
        }
        self.work.back = back;
        self.channels = 1;
        self.swap_in(self.area.height, self.area.width);
    }

    /// The pixels to write, after a pending resize.
    pub fn finished(&mut self) -> Part<'_> {
        self.settle_size();
        self.part()
    }

    /// Performs a pending resize straight into `out`, if nothing else remains to be done. Returns whether it did.
    pub fn resize_into(&mut self, channels: usize, out: &mut [u8]) -> bool {
        let Some(size) = self.resized else {
            return false;
        };
        if self.mirrored || self.channels != channels {
            return false;
        }
        self.run_resizer(size, out);
        true
    }

    /// The selected part within the buffer. Asserts that it was decoded.
    fn area_of_buffer(&self) -> Rectangle {
        let (area, held) = (self.area, self.held);
        let is_held = area.top >= held.top
            && area.left >= held.left
            && area.top + area.height <= held.top + held.height
            && area.left + area.width <= held.left + held.width;
        assert!(is_held, "another part was decoded than is looked at");
        Rectangle {
            top: area.top - held.top,
            left: area.left - held.left,
            ..area
        }
    }

    fn part(&self) -> Part<'_> {
        Part {
            data: if self.owned {
                &self.work.front
            } else {
                self.source.data()
            },
            row: self.buffer.1,
            channels: self.channels,
            area: self.area_of_buffer(),
            mirrored: self.mirrored,
        }
    }

    /// The image is now the whole of `work.back`.
    fn swap_in(&mut self, height: u32, width: u32) {
        std::mem::swap(&mut self.work.front, &mut self.work.back);
        self.owned = true;
        self.buffer = (height, width);
        self.held = Rectangle::all(height, width);
        self.area = self.held;
        self.resized = None;
    }

    /// Copies the image to the whole of `work.front`, so that its pixels can be changed.
    fn own(&mut self) {
        self.settle_size();
        if self.owned && self.area == self.held {
            return;
        }
        let mut back = std::mem::take(&mut self.work.back);
        back.clear();
        for row in self.part().rows() {
            back.extend_from_slice(row);
        }
        self.work.back = back;
        self.swap_in(self.area.height, self.area.width);
    }

    /// Performs a pending resize.
    fn settle_size(&mut self) {
        let Some((height, width)) = self.resized else {
            return;
        };
        let mut back = std::mem::take(&mut self.work.back);
        back.resize(height as usize * width as usize * self.channels, 0);
        self.run_resizer((height, width), &mut back);
        self.work.back = back;
        self.swap_in(height, width);
    }

    fn run_resizer(&mut self, size: (u32, u32), out: &mut [u8]) {
        if self.classes {
            self.part().nearest(size, out);
        } else if self.channels == 3 {
            self.run_resizer_on::<U8x3>(size, out);
        } else {
            self.run_resizer_on::<U8>(size, out);
        }
    }

    /// Bilinear with a support that grows with the scale, as in Pillow. The crop is treated as an image of its own,
    /// because a crop box would let the filter see pixels around it.
    fn run_resizer_on<P: InnerPixel + PixelTrait>(&mut self, size: (u32, u32), out: &mut [u8]) {
        const INSIDE: &str = "areas lie inside their buffer";
        let area = self.area_of_buffer();
        let Workspace { resizer, front, .. } = &mut *self.work;
        let data = if self.owned {
            front.as_slice()
        } else {
            self.source.data()
        };
        let (height, width) = self.buffer;
        let whole = TypedImageRef::<P>::from_buffer(width, height, data).expect(INSIDE);
        let part = TypedCroppedImage::new(whole, area.left, area.top, area.width, area.height);
        let (height, width) = size;
        let mut made = TypedImage::<P>::from_buffer(width, height, out).expect("out has the size");
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
            .use_alpha(false);
        resizer
            .resize_typed(&part.expect(INSIDE), &mut made, &options)
            .expect("an image resizes to its own type");
    }
}
