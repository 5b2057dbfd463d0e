//! A square from anywhere in an image.

use super::{Augment, Effect, MOST_SIDE, Move, Moves, SIDE, Step, crop, whole};
use crate::ImageError;

pub(super) static STEP: Step = Step {
    form: "randomcrop:SIDE[:PADDING]",
    does: "takes SIDE × SIDE pixels at a random position, after adding PADDING black pixels (0) on each side",
    examples: &["randomcrop:8", "randomcrop:12:3"],
    rule: "its parameters are a side (1 to 8192) and perhaps a padding (0 to 8192), whole numbers",
    parameters: &[SIDE, whole(0, MOST_SIDE)],
    evaluation: |step| vec![Augment::new(&crop::STEP, step.numbers[0])],
    effect: Effect::Move(Moves {
        fixes_size: true,
        size_after: |[side, padding, ..], (height, width)| {
            let (side, padding) = (side as u32, padding as u32);
            let (height, width) = (height + 2 * padding, width + 2 * padding);
            if side > height || side > width {
                return Err(ImageError::new(format!(
                    "randomcrop takes {side} x {side} pixels and the image has {width} x {height} with its padding: \
                     resize it first"
                )));
            }
            Ok((side, side))
        },
        draw: |[side, padding, ..], (height, width), rng| {
            let (side, padding) = (side as u32, padding as u32);
            let mut start = |length: u32| {
                let starts = u64::from(length + 2 * padding - side) + 1;
                rng.below(starts) as i64 - i64::from(padding)
            };
            Move::Crop(start(height), start(width), (side, side))
        },
    }),
};
