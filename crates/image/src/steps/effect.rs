//! The effect of a step on pixels, and on their masks and boxes.

use pelton_key::KeyedRng;

use super::Numbers;
use crate::ImageError;
use crate::affine::Affine;
use crate::boxes::{self, Corners};
use crate::crop::Rectangle;
use crate::frame::Frame;

/// Height and width.
pub(crate) type Size = (u32, u32);

/// The kinds of steps.
pub(crate) enum Effect {
    /// Moves pixels, and masks and boxes with them.
    Move(Moves),
    /// Changes values of bytes.
    Change(fn(Numbers, &mut Frame<'_>, &mut KeyedRng)),
    /// Either, from the same draws: what does not move changes values.
    MoveOrChange(Moves, fn(Numbers, &mut Frame<'_>, &mut KeyedRng)),
    /// Makes one channel.
    Grey,
    /// Blackens a part; floats become 0, the mean.
    Blacken(fn(Numbers, Size, &mut KeyedRng) -> Rectangle),
    /// Converts bytes to floats when the image is written: three means and three deviations.
    Normalise,
}

type Draw = fn(Numbers, Size, &mut KeyedRng) -> Move;

/// How pixels move.
pub(crate) struct Moves {
    /// Whether the result has the same size for every image.
    pub fixes_size: bool,
    /// The size of the result for an image of this size.
    ///
    /// Errors: it cannot be done with such an image.
    pub size_after: fn(Numbers, Size) -> Result<Size, ImageError>,
    /// Draws the new positions of the pixels of an image of this size; the image is then resized to `size_after`.
    pub draw: Draw,
}

impl Moves {
    /// Images stay as large as they are.
    pub const fn keeping_size(draw: Draw) -> Moves {
        Moves {
            fixes_size: false,
            size_after: |_, size| Ok(size),
            draw,
        }
    }

    /// Images become squares, and the first number is their side.
    pub const fn to_square(draw: Draw) -> Moves {
        Moves {
            fixes_size: true,
            size_after: |[side, ..], _| Ok((side as u32, side as u32)),
            draw,
        }
    }

    /// The first two numbers are the height and width of all images.
    pub const fn to_size(draw: Draw) -> Moves {
        Moves {
            fixes_size: true,
            size_after: |[height, width, ..], _| Ok((height as u32, width as u32)),
            draw,
        }
    }
}

/// The new positions of pixels.
pub(crate) enum Move {
    Stay,
    /// The part with this top, left and size, which may extend beyond the image, is the new image.
    Crop(i64, i64, Size),
    Flip,
    FlipRows,
    Affine(Affine),
}

impl Move {
    /// Moves pixels or the values of a mask, and resizes them.
    pub fn act(self, frame: &mut Frame<'_>, (height, width): Size) {
        match self {
            Move::Stay => (),
            Move::Crop(top, left, part) => frame.crop_beyond(top, left, part),
            Move::Flip => frame.flip(),
            Move::FlipRows => frame.flip_rows(),
            Move::Affine(affine) => frame.affine(affine),
        }
        frame.resize(height, width);
    }

    /// Moves a box of an image of this size, and stretches it with the image.
    pub fn corners(&self, corners: Corners, size: Size, to: Size) -> Corners {
        let (moved, size) = match *self {
            Move::Stay => (corners, size),
            Move::Crop(top, left, part) => (boxes::shifted(corners, (top, left), part), part),
            Move::Flip => (boxes::mirrored(corners, size.1), size),
            Move::FlipRows => {
                let ([x1, y1, x2, y2], height) = (corners, size.0 as f32);
                ([x1, height - y2, x2, height - y1], size)
            }
            Move::Affine(affine) => (boxes::mapped(corners, affine, size), size),
        };
        boxes::stretched(moved, size, to)
    }
}
