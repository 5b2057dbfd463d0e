//! The middle of an image.

use super::{Augment, Effect, Move, Moves, SIDE, Step};
use crate::crop;

pub(super) static STEP: Step = Step {
    form: "crop:SIDE",
    does: "takes the SIDE × SIDE pixels in the middle, with black around a smaller picture",
    examples: &["crop:13", "crop:60"],
    rule: "its parameter is a side, a whole number from 1 to 8192",
    parameters: &[SIDE],
    evaluation: Augment::kept,
    effect: Effect::Move(Moves::to_square(|[side, ..], (height, width), _| {
        let side = side as u32;
        // torchvision pads images that are too small and takes the middle.
        let middle = |length: u32| {
            let black = side.saturating_sub(length);
            i64::from(crop::middle(length + black, side)) - i64::from(black / 2)
        };
        Move::Crop(middle(height), middle(width), (side, side))
    })),
};
