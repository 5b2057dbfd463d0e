//! Resizing, bilinearly as Pillow does.

use super::{Augment, Effect, MOST_SIDE, Move, Moves, SIDE, Step};
use crate::{ImageError, crop};

const RULE: &str =
    "its parameter is the shorter side, or height x width as in 224x320, of 1 to 8192 pixels";

pub(super) static SHORTER: Step = Step {
    form: "resize:SHORTER_SIDE",
    does: "makes the shorter side SHORTER_SIDE, keeping the proportions",
    examples: &["resize:24"],
    rule: RULE,
    parameters: &[SIDE],
    evaluation: Augment::kept,
    effect: Effect::Move(Moves {
        fixes_size: false,
        size_after: |[side, ..], (height, width)| {
            /// Most pixels that a resize makes.
            const MOST: u64 = (MOST_SIDE as u64).pow(2);
            let (to_height, to_width) = crop::shorter_to(side as u32, height, width);
            // The shorter side is bounded, so the product does not overflow.
            if to_height * to_width > MOST {
                return Err(ImageError::new(format!(
                    "resize would make {to_width} x {to_height} pixels of a {width} x {height} image, more than {MOST}: \
                     give both sides, for instance resize:256x256"
                )));
            }
            Ok((to_height as u32, to_width as u32))
        },
        draw: |_, _, _| Move::Stay,
    }),
};

pub(super) static BOTH: Step = Step {
    form: "resize:HEIGHTxWIDTH",
    does: "makes the picture HEIGHT high and WIDTH wide",
    examples: &["resize:32x48"],
    rule: RULE,
    parameters: &[SIDE, SIDE.after('x')],
    evaluation: Augment::kept,
    effect: Effect::Move(Moves::to_size(|_, _, _| Move::Stay)),
};
