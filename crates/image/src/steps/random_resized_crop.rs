//! A part of random size and ratio from anywhere in an image, resized.

use super::{Augment, Effect, MOST_SIDE, Move, Moves, SIDE, Step, crop, number, resize};
use crate::crop::random_resized_crop;

pub(super) static STEP: Step = Step {
    form: "rrc:SIDE[:MIN-MAX]",
    does: "takes a crop with MIN to MAX (0.08-1) of the area and an aspect ratio from 3/4 to 4/3, resized to \
           SIDE × SIDE",
    examples: &["rrc:16", "rrc:9:0.25-0.5"],
    rule: "its parameters are a side, a whole number from 1 to 8192, and perhaps the parts of the area, MIN-MAX with \
           0 < MIN <= MAX <= 1",
    parameters: &[
        SIDE,
        number(f64::MIN_POSITIVE, 1.0).or(0.08),
        number(f64::MIN_POSITIVE, 1.0).or(1.0).after('-'),
    ],
    // The shorter side is resized to 256/224 of the crop's, as is usual for ImageNet.
    evaluation: |step| {
        let side = step.numbers[0];
        let resized = (side * 256.0 / 224.0).ceil().min(f64::from(MOST_SIDE));
        vec![
            Augment::new(&resize::SHORTER, resized),
            Augment::new(&crop::STEP, side),
        ]
    },
    effect: Effect::Move(Moves::to_square(
        |[_, least, most, ..], (height, width), rng| {
            let part = random_resized_crop(height, width, (least, most), rng);
            Move::Crop(part.top.into(), part.left.into(), (part.height, part.width))
        },
    )),
};
