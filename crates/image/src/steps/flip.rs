//! Mirrors.

use super::{Augment, Effect, Move, Moves, Step, number};

pub(super) static STEP: Step = Step {
    form: "flip[:CHANCE]",
    does: "flips left and right with probability CHANCE (0.5)",
    examples: &["flip", "flip:1", "flip:0.25"],
    rule: "its one parameter is a chance from 0 to 1",
    parameters: &[number(0.0, 1.0).or(0.5)],
    evaluation: Augment::dropped,
    effect: Effect::Move(Moves::keeping_size(|[chance, ..], _, rng| {
        if rng.next_f64() < chance {
            Move::Flip
        } else {
            Move::Stay
        }
    })),
};

pub(super) static ROWS: Step = Step {
    form: "vflip[:CHANCE]",
    does: "flips top and bottom with probability CHANCE (0.5)",
    examples: &["vflip", "vflip:1"],
    rule: "its one parameter is a chance from 0 to 1",
    parameters: &[number(0.0, 1.0).or(0.5)],
    evaluation: Augment::dropped,
    effect: Effect::Move(Moves::keeping_size(|[chance, ..], _, rng| {
        if rng.next_f64() < chance {
            Move::FlipRows
        } else {
            Move::Stay
        }
    })),
};
