//! Changes of each value by itself, or by the histogram of its channel, as Pillow's `ImageOps` make them.

use super::{Augment, Effect, Numbers, Parameter, Step, number, whole};
use crate::colour::{self, Tone};
use crate::frame::Frame;
use pelton_key::KeyedRng;

const CHANCE: Parameter = number(0.0, 1.0).or(0.5);

fn with(chance: f64, tone: Tone, frame: &mut Frame<'_>, rng: &mut KeyedRng) {
    if rng.next_f64() < chance {
        frame.change(|data, channels, _| colour::tone(data, channels, tone));
    }
}

const fn step(
    [form, does, rule]: [&'static str; 3],
    examples: &'static [&'static str],
    parameters: &'static [Parameter],
    change: fn(Numbers, &mut Frame<'_>, &mut KeyedRng),
) -> Step {
    Step {
        form,
        does,
        examples,
        rule,
        parameters,
        evaluation: Augment::dropped,
        effect: Effect::Change(change),
    }
}

const RULE: &str = "its one parameter is a chance from 0 to 1";

pub(super) static SOLARISE: Step = step(
    [
        "solarise:LEAST[:CHANCE]",
        "inverts values of at least LEAST, with probability CHANCE (0.5)",
        "its parameters are a value (0 to 256) and perhaps a chance from 0 to 1",
    ],
    &["solarise:128", "solarise:100:1"],
    &[whole(0, 256), CHANCE],
    |[least, chance, ..], frame, rng| with(chance, Tone::Solarise(least as u16), frame, rng),
);

pub(super) static POSTERISE: Step = step(
    [
        "posterise:BITS[:CHANCE]",
        "keeps the BITS highest bits of values, with probability CHANCE (0.5)",
        "its parameters are a number of bits (1 to 8) and perhaps a chance from 0 to 1",
    ],
    &["posterise:3", "posterise:5:1"],
    &[whole(1, 8), CHANCE],
    |[bits, chance, ..], frame, rng| with(chance, Tone::Posterise(bits as u8), frame, rng),
);

pub(super) static EQUALISE: Step = step(
    [
        "equalise[:CHANCE]",
        "spreads the values of each channel evenly over all levels, with probability CHANCE (0.5)",
        RULE,
    ],
    &["equalise", "equalise:1"],
    &[CHANCE],
    |[chance, ..], frame, rng| with(chance, Tone::Equalise, frame, rng),
);

pub(super) static CONTRAST: Step = step(
    [
        "autocontrast[:CHANCE]",
        "stretches the values of each channel to 0 to 255, with probability CHANCE (0.5)",
        RULE,
    ],
    &["autocontrast", "autocontrast:1"],
    &[CHANCE],
    |[chance, ..], frame, rng| with(chance, Tone::AutoContrast, frame, rng),
);

pub(super) static INVERT: Step = step(
    [
        "invert[:CHANCE]",
        "inverts values with probability CHANCE (0.5)",
        RULE,
    ],
    &["invert", "invert:1"],
    &[CHANCE],
    |[chance, ..], frame, rng| with(chance, Tone::Solarise(0), frame, rng),
);

pub(super) static SHARPEN: Step = step(
    [
        "sharpen:FACTOR[:CHANCE]",
        "sharpens (FACTOR above 1) or blurs (below 1), with probability CHANCE (0.5)",
        "its parameters are a factor (0 to 100) and perhaps a chance from 0 to 1",
    ],
    &["sharpen:2", "sharpen:0.3:1"],
    &[number(0.0, 100.0), CHANCE],
    |[factor, chance, ..], frame, rng| {
        if rng.next_f64() < chance {
            frame.change(|data, channels, width| {
                colour::sharpen(data, channels, width, factor as f32);
            });
        }
    },
);

pub(super) static BLUR: Step = step(
    [
        "blur:SIDE[:MIN-MAX[:CHANCE]]",
        "blurs with a Gaussian kernel of SIDE × SIDE and a deviation from MIN to MAX (0.1-2), with probability CHANCE (1)",
        "its parameters are an odd side (1 to 99), perhaps deviations, MIN-MAX with 0 < MIN <= MAX <= 100, and a chance \
         from 0 to 1",
    ],
    &["blur:5", "blur:23:0.5-1.5", "blur:3:0.1-2:0.5"],
    &[
        whole(1, 99).odd(),
        number(f64::MIN_POSITIVE, 100.0).or(0.1),
        number(f64::MIN_POSITIVE, 100.0).or(2.0).after('-'),
        number(0.0, 1.0).or(1.0),
    ],
    |[side, least, most, chance, ..], frame, rng| {
        let deviation = crate::crop::between(least, most, rng);
        if rng.next_f64() < chance {
            frame.change(|data, channels, width| {
                colour::blur(data, channels, width, side as usize, deviation);
            });
        }
    },
);
