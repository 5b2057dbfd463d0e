//! One random step of many: RandAugment (Cubuk et al., 2019) and TrivialAugment (Müller & Hutter, 2021), with the steps
//! and strengths of torchvision.

use pelton_key::KeyedRng;

use super::{Augment, Effect, Move, Moves, Numbers, Size, Step, whole};
use crate::affine::Affine;
use crate::colour::{self, Change, Tone};
use crate::frame::Frame;

/// The number of strengths; the strongest is one less.
const STRENGTHS: u32 = 31;

pub(super) static RAND: Step = Step {
    form: "randaugment[:STRENGTH]",
    does: "makes one of RandAugment's 14 changes, drawn at random, with STRENGTH (9) of 0 to 30; write it twice for the \
           usual two",
    examples: &["randaugment", "randaugment:17"],
    rule: "its one parameter is a strength, a whole number from 0 to 30",
    parameters: &[whole(0, STRENGTHS - 1).or(9.0)],
    evaluation: Augment::dropped,
    effect: Effect::MoveOrChange(
        Moves::keeping_size(|numbers, size, rng| moved(drawn_rand(numbers, size, rng))),
        |numbers, frame, rng| changed(drawn_rand(numbers, frame.size(), rng), frame),
    ),
};

pub(super) static TRIVIAL: Step = Step {
    form: "trivialaugment",
    does: "makes one of TrivialAugment's 14 changes of random strength (the wide space)",
    examples: &["trivialaugment"],
    rule: "it has no parameter",
    parameters: &[],
    evaluation: Augment::dropped,
    effect: Effect::MoveOrChange(
        Moves::keeping_size(|_, size, rng| moved(drawn_trivial(size, rng))),
        |_, frame, rng| changed(drawn_trivial(frame.size(), rng), frame),
    ),
};

/// A change that was drawn.
enum Drawn {
    Nothing,
    Move(Affine),
    Factor(Change),
    Sharpness(f32),
    Tone(Tone),
}

fn moved(drawn: Drawn) -> Move {
    match drawn {
        Drawn::Move(affine) => Move::Affine(affine),
        Drawn::Nothing | Drawn::Factor(_) | Drawn::Sharpness(_) | Drawn::Tone(_) => Move::Stay,
    }
}

fn changed(drawn: Drawn, frame: &mut Frame<'_>) {
    match drawn {
        Drawn::Nothing | Drawn::Move(_) => (),
        Drawn::Factor(change) => {
            frame.change(|data, channels, _| colour::change(data, channels, change))
        }
        Drawn::Sharpness(factor) => frame.change(|data, channels, width| {
            colour::sharpen(data, channels, width, factor);
        }),
        Drawn::Tone(tone) => frame.change(|data, channels, _| colour::tone(data, channels, tone)),
    }
}

/// The strongest of each kind of change.
struct Space {
    shear: f64,
    /// Pixels, along the rows and along the columns.
    shift: [f64; 2],
    degrees: f64,
    factor: f64,
    /// Bits that the strongest posterisation removes.
    bits: f64,
}

fn drawn_rand([strength, ..]: Numbers, (height, width): Size, rng: &mut KeyedRng) -> Drawn {
    let most = Space {
        shear: 0.3,
        shift: [width, height].map(|side| 150.0 / 331.0 * f64::from(side)),
        degrees: 30.0,
        factor: 0.9,
        bits: 4.0,
    };
    let kind = rng.below(14);
    drawn(kind, strength, &most, (height, width), rng)
}

fn drawn_trivial(size: Size, rng: &mut KeyedRng) -> Drawn {
    let most = Space {
        shear: 0.99,
        shift: [32.0; 2],
        degrees: 135.0,
        factor: 0.99,
        bits: 6.0,
    };
    let kind = rng.below(14);
    let strength = rng.below(u64::from(STRENGTHS)) as f64;
    drawn(kind, strength, &most, size, rng)
}

/// The strength as a part of the strongest, with the rounding of torchvision's list of 32-bit numbers, which is filled from
/// both ends, each by one rounded product and sum.
fn level(most: f64, strength: f64) -> f64 {
    let (most, strength, last) = (most as f32, strength as f32, (STRENGTHS - 1) as f32);
    let step = most / last;
    let level = if strength < last / 2.0 {
        step * strength
    } else {
        (-step).mul_add(last - strength, most)
    };
    f64::from(level)
}

fn drawn(
    kind: u64,
    strength: f64,
    most: &Space,
    (height, width): Size,
    rng: &mut KeyedRng,
) -> Drawn {
    let sign = if rng.next_f64() < 0.5 { -1.0 } else { 1.0 };
    let signed = |most: f64| sign * level(most, strength);
    let factor = (1.0 + signed(most.factor)) as f32;
    let nearest = |matrix: [[f64; 2]; 2], offset: [f64; 2]| {
        Drawn::Move(Affine {
            matrix: matrix.map(|row| row.map(|value| value as f32)),
            offset: offset.map(|value| value as f32),
            nearest: true,
        })
    };
    let unit = [[1.0, 0.0], [0.0, 1.0]];
    match kind {
        0 => Drawn::Nothing,
        // About the upper left corner, as torchvision shears for these policies.
        1 => {
            let slope = signed(most.shear);
            let offset = slope * f64::from(height) / 2.0;
            nearest([[1.0, slope], [0.0, 1.0]], [offset, 0.0])
        }
        2 => {
            let slope = signed(most.shear);
            let offset = slope * f64::from(width) / 2.0;
            nearest([[1.0, 0.0], [slope, 1.0]], [0.0, offset])
        }
        3 => nearest(unit, [-signed(most.shift[0]).trunc(), 0.0]),
        4 => nearest(unit, [0.0, -signed(most.shift[1]).trunc()]),
        5 => {
            let turn = signed(most.degrees).to_radians();
            let (sine, cosine) = (libm::sin(turn), libm::cos(turn));
            // Counter-clockwise, with rows that count downwards.
            nearest([[cosine, -sine], [sine, cosine]], [0.0, 0.0])
        }
        6 => Drawn::Factor(Change::Brightness(factor)),
        7 => Drawn::Factor(Change::Saturation(factor)),
        8 => Drawn::Factor(Change::Contrast(factor)),
        9 => Drawn::Sharpness(factor),
        10 => {
            let bits = 8.0 - level(most.bits, strength).round_ties_even();
            Drawn::Tone(Tone::Posterise(bits as u8))
        }
        11 => {
            let left = level(255.0, f64::from(STRENGTHS - 1) - strength);
            Drawn::Tone(Tone::Solarise(left.ceil() as u16))
        }
        12 => Drawn::Tone(Tone::AutoContrast),
        _ => Drawn::Tone(Tone::Equalise),
    }
}
