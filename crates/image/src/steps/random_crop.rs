//! A part from anywhere in an image.

use pelton_key::KeyedRng;

use super::{Augment, Effect, MOST_SIDE, Move, Moves, SIDE, Size, Step, crop, whole};
use crate::ImageError;

const RULE: &str = "its parameters are a side, or height x width (1 to 8192), and perhaps a padding (0 to 8192), whole \
                    numbers";

pub(super) static SQUARE: Step = Step {
    form: "randomcrop:SIDE[:PADDING]",
    does: "takes SIDE × SIDE pixels at a random position, after adding PADDING black pixels (0) on each side",
    examples: &["randomcrop:8", "randomcrop:12:3"],
    rule: RULE,
    parameters: &[SIDE, whole(0, MOST_SIDE)],
    evaluation: |step| vec![Augment::new(&crop::SQUARE, [step.numbers[0], 0.0])],
    effect: Effect::Move(Moves {
        fixes_size: true,
        size_after: |[side, padding, ..], size| fitting([side, side], padding, size),
        draw: |[side, padding, ..], size, rng| anywhere([side, side], padding, size, rng),
    }),
};

pub(super) static BOTH: Step = Step {
    form: "randomcrop:HEIGHTxWIDTH[:PADDING]",
    does: "takes a rectangle of this size in the same way",
    examples: &["randomcrop:8x14", "randomcrop:12x5:3"],
    rule: RULE,
    parameters: &[SIDE, SIDE.after('x'), whole(0, MOST_SIDE)],
    evaluation: |step| {
        let [height, width, ..] = step.numbers;
        vec![Augment::new(&crop::BOTH, [height, width])]
    },
    effect: Effect::Move(Moves {
        fixes_size: true,
        size_after: |[height, width, padding, ..], size| fitting([height, width], padding, size),
        draw: |[height, width, padding, ..], size, rng| {
            anywhere([height, width], padding, size, rng)
        },
    }),
};

fn fitting(part: [f64; 2], padding: f64, (height, width): Size) -> Result<Size, ImageError> {
    let ([high, wide], padding) = (part.map(|side| side as u32), padding as u32);
    let (height, width) = (height + 2 * padding, width + 2 * padding);
    if high > height || wide > width {
        return Err(ImageError::new(format!(
            "randomcrop takes {wide} x {high} pixels and the image has {width} x {height} with its padding: resize it \
             first"
        )));
    }
    Ok((high, wide))
}

fn anywhere(part: [f64; 2], padding: f64, (height, width): Size, rng: &mut KeyedRng) -> Move {
    let ([high, wide], padding) = (part.map(|side| side as u32), padding as u32);
    let mut start = |length: u32, side: u32| {
        let starts = u64::from(length + 2 * padding - side) + 1;
        rng.below(starts) as i64 - i64::from(padding)
    };
    Move::Crop(start(height, high), start(width, wide), (high, wide))
}
