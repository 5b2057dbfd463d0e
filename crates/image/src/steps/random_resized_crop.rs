//! A part of random size and ratio from anywhere in an image, resized.

use pelton_key::KeyedRng;

use super::{
    Augment, Effect, MOST_SIDE, Move, Moves, Parameter, SIDE, Size, Step, crop, number, resize,
};
use crate::crop::random_resized_crop;

const RULE: &str = "its parameters are a side, or height x width (1 to 8192), perhaps the parts of the area, MIN-MAX with \
                    0 < MIN <= MAX <= 1, and perhaps the ratios of width to height, LEAST-MOST (0.01 to 100)";
const LEAST_AREA: Parameter = number(f64::MIN_POSITIVE, 1.0).or(0.08);
const MOST_AREA: Parameter = number(f64::MIN_POSITIVE, 1.0).or(1.0).after('-');
const LEAST_RATIO: Parameter = number(0.01, 100.0).or(3.0 / 4.0);
const MOST_RATIO: Parameter = number(0.01, 100.0).or(4.0 / 3.0).after('-');

pub(super) static SQUARE: Step = Step {
    form: "rrc:SIDE[:MIN-MAX[:LEAST-MOST]]",
    does: "takes a crop with MIN to MAX (0.08-1) of the area and LEAST to MOST (3/4 to 4/3) as ratio of width to height, \
           resized to SIDE × SIDE",
    examples: &["rrc:16", "rrc:9:0.25-0.5", "rrc:9:0.08-1:0.5-2"],
    rule: RULE,
    parameters: &[SIDE, LEAST_AREA, MOST_AREA, LEAST_RATIO, MOST_RATIO],
    // The shorter side is resized to 256/224 of the crop's, as is usual for ImageNet.
    evaluation: |step| {
        let side = step.numbers[0];
        vec![
            Augment::new(&resize::SHORTER, [larger(side), 0.0]),
            Augment::new(&crop::SQUARE, [side, 0.0]),
        ]
    },
    effect: Effect::Move(Moves::to_square(|[_, a, b, c, d, ..], size, rng| {
        drawn([a, b, c, d], size, rng)
    })),
};

pub(super) static BOTH: Step = Step {
    form: "rrc:HEIGHTxWIDTH[:MIN-MAX[:LEAST-MOST]]",
    does: "the same, resized to HEIGHT × WIDTH",
    examples: &["rrc:16x24", "rrc:9x5:0.25-0.5"],
    rule: RULE,
    parameters: &[
        SIDE,
        SIDE.after('x'),
        LEAST_AREA,
        MOST_AREA,
        LEAST_RATIO,
        MOST_RATIO,
    ],
    evaluation: |step| {
        let [height, width, ..] = step.numbers;
        vec![
            Augment::new(&resize::BOTH, [larger(height), larger(width)]),
            Augment::new(&crop::BOTH, [height, width]),
        ]
    },
    effect: Effect::Move(Moves::to_size(|[_, _, a, b, c, d], size, rng| {
        drawn([a, b, c, d], size, rng)
    })),
};

fn larger(side: f64) -> f64 {
    (side * 256.0 / 224.0).ceil().min(f64::from(MOST_SIDE))
}

fn drawn([least, most, narrow, wide]: [f64; 4], (height, width): Size, rng: &mut KeyedRng) -> Move {
    let part = random_resized_crop(height, width, (least, most), (narrow, wide), rng);
    Move::Crop(part.top.into(), part.left.into(), (part.height, part.width))
}
