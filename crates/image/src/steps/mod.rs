//! The steps of an augmentation, one file each, and their list.
//!
//! A [`Step`] says everything about a step; help, errors, pipelines and tests read the list.
//! To add one: its file, with its `mod` line, and a line in the list below.

mod affine;
mod crop;
mod cutout;
mod effect;
mod flip;
mod grey;
mod jitter;
mod normalise;
mod parameters;
mod random_crop;
mod random_resized_crop;
mod resize;

use std::fmt;
use std::str::FromStr;

use crate::ImageError;
pub(crate) use affine::Affine;
pub(crate) use effect::{Effect, Move, Moves, Size};
pub(crate) use parameters::{MOST_SIDE, Numbers};
use parameters::{Parameter, SIDE, number, whole};

/// The steps, in the order in which help lists them.
const STEPS: &[&Step] = &[
    &resize::SHORTER,
    &resize::BOTH,
    &crop::STEP,
    &random_crop::STEP,
    &random_resized_crop::STEP,
    &flip::STEP,
    &jitter::STEP,
    &affine::STEP,
    &cutout::STEP,
    &grey::STEP,
    &normalise::STEP,
];

/// The name of a step, its spelling, and its effect.
///
/// Spelt `name:parameter:parameter`; inside a parameter `/` separates the values of channels, `x` the
/// sides and `-` the ends of a range. No parameter holds a comma, so commas separate steps.
pub struct Step {
    /// How it is written: its name, and parameters in capitals; optional parts are in brackets.
    pub form: &'static str,
    /// What it does, in the words of the form.
    pub does: &'static str,
    /// Examples of its text that are written exactly as they were read.
    pub examples: &'static [&'static str],
    /// The requirements on its parameters, for an error.
    rule: &'static str,
    parameters: &'static [Parameter],
    /// What it becomes without randomness, for validation.
    evaluation: fn(&Augment) -> Vec<Augment>,
    effect: Effect,
}

impl Step {
    /// Its name in spellings. Two steps may share one, if their forms differ.
    pub fn name(&self) -> &'static str {
        self.form.split([':', '[']).next().unwrap_or(self.form)
    }
}

/// One step of an augmentation, with its numbers.
///
/// Sizes, draws and rounding are those of torchvision's transforms on Pillow's images, except that hue is that of its
/// tensors, which has no steps, and `affine` interpolates between pixels.
#[derive(Clone, Copy)]
pub struct Augment {
    step: &'static Step,
    numbers: Numbers,
}

impl Augment {
    /// Every step.
    pub fn steps() -> &'static [&'static Step] {
        STEPS
    }

    /// Every step and what it does, for a help text.
    pub fn help() -> String {
        let line = |step: &&Step| format!("{} {}", step.form, step.does);
        let lines: Vec<String> = STEPS.iter().map(line).collect();
        lines.join("; ")
    }

    /// Its name in spellings.
    pub fn name(&self) -> &'static str {
        self.step.name()
    }

    /// Its numbers, in the order of its form.
    pub fn numbers(&self) -> &[f64] {
        &self.numbers[..self.step.parameters.len()]
    }

    /// What it becomes without randomness, for validation.
    pub(crate) fn evaluation(&self) -> Vec<Augment> {
        (self.step.evaluation)(self)
    }

    /// What it does to an image with its numbers.
    pub(crate) fn effect(&self) -> (&'static Effect, Numbers) {
        (&self.step.effect, self.numbers)
    }

    fn new(step: &'static Step, number: f64) -> Augment {
        let mut numbers = Numbers::default();
        numbers[0] = number;
        Augment { step, numbers }
    }

    /// The evaluation of a step without randomness.
    fn kept(&self) -> Vec<Augment> {
        vec![*self]
    }

    /// The evaluation of a step that only varies images.
    fn dropped(&self) -> Vec<Augment> {
        Vec::new()
    }
}

impl PartialEq for Augment {
    fn eq(&self, other: &Augment) -> bool {
        (self.step.form, self.numbers) == (other.step.form, other.numbers)
    }
}

impl FromStr for Augment {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Augment, ImageError> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let parts: Vec<&str> = parts.collect();
        let mut named = STEPS.iter().filter(|step| step.name() == name).peekable();
        let Some(rule) = named.peek().map(|step| step.rule) else {
            let forms: Vec<&str> = STEPS.iter().map(|step| step.form).collect();
            return Err(ImageError::new(format!(
                "augmentation '{text}' is not known: use {}, with commas between stages, for instance \
                 rrc:224,flip,normalise",
                forms.join(", ")
            )));
        };
        let mut read = named.filter_map(|step| {
            let numbers = parameters::read(step, &parts)?;
            Some(Augment { step, numbers })
        });
        let refused = || format!("'{text}' asks for what {name} cannot do: {rule}");
        read.next().ok_or_else(|| ImageError::new(refused()))
    }
}

impl fmt::Display for Augment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        parameters::write(self.step, &self.numbers, f)
    }
}

impl fmt::Debug for Augment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
