//! The middle of an image.

use super::{Augment, Effect, Move, Moves, SIDE, Size, Step};
use crate::crop;

const RULE: &str =
    "its parameter is a side, or height x width as in 224x320, whole numbers from 1 to 8192";

pub(super) static SQUARE: Step = Step {
    form: "crop:SIDE",
    does: "takes the SIDE × SIDE pixels in the middle, with black around a smaller picture",
    examples: &["crop:13", "crop:60"],
    rule: RULE,
    parameters: &[SIDE],
    evaluation: Augment::kept,
    effect: Effect::Move(Moves::to_square(|[side, ..], size, _| {
        middle((side as u32, side as u32), size)
    })),
};

pub(super) static BOTH: Step = Step {
    form: "crop:HEIGHTxWIDTH",
    does: "takes this rectangle in the middle, in the same way",
    examples: &["crop:13x40"],
    rule: RULE,
    parameters: &[SIDE, SIDE.after('x')],
    evaluation: Augment::kept,
    effect: Effect::Move(Moves::to_size(|[height, width, ..], size, _| {
        middle((height as u32, width as u32), size)
    })),
};

fn middle(part: Size, (height, width): Size) -> Move {
    // torchvision pads images that are too small and takes the middle.
    let middle = |length: u32, side: u32| {
        let black = side.saturating_sub(length);
        i64::from(crop::middle(length + black, side)) - i64::from(black / 2)
    };
    Move::Crop(middle(height, part.0), middle(width, part.1), part)
}
