//! What a step of augmentation is.

use std::fmt;

use super::effect::Effect;
use super::parameters::{Numbers, Parameter, write};

/// What a step is called, how it is written, and what it does.
///
/// Spelt `name:parameter:parameter`; inside a parameter `/` separates the values of channels, `x` the
/// sides and `-` the ends of a range. No parameter holds a comma, so commas separate steps.
pub struct Step {
    /// How it is written: its name, and parameters in capitals; optional parts are in brackets.
    pub form: &'static str,
    /// What it does, in the words of the form.
    pub does: &'static str,
    /// Texts of it that are written as they are read.
    pub examples: &'static [&'static str],
    /// What its parameters must be, for an error.
    pub(super) rule: &'static str,
    pub(super) parameters: &'static [Parameter],
    /// What it becomes without randomness, for validation.
    pub(super) evaluation: fn(&Augment) -> Vec<Augment>,
    pub(super) effect: Effect,
}

impl Step {
    /// Its name in spellings. Two steps may share one, if their forms differ.
    pub fn name(&self) -> &'static str {
        self.form.split([':', '[']).next().unwrap_or(self.form)
    }
}

/// One step of an augmentation, with its numbers.
///
/// Sizes, draws and rounding are those of torchvision's transforms on Pillow's images. Hue alone is that
/// of its tensors, which has no steps, and `affine` looks between pixels.
#[derive(Clone, Copy)]
pub struct Augment {
    pub(super) step: &'static Step,
    pub(super) numbers: Numbers,
}

impl Augment {
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

    pub(super) fn new(step: &'static Step, first: [f64; 2]) -> Augment {
        let mut numbers = Numbers::default();
        numbers[..2].copy_from_slice(&first);
        Augment { step, numbers }
    }

    /// The evaluation of a step without randomness.
    pub(super) fn kept(&self) -> Vec<Augment> {
        vec![*self]
    }

    /// The evaluation of a step that only varies images.
    pub(super) fn dropped(&self) -> Vec<Augment> {
        Vec::new()
    }
}

impl PartialEq for Augment {
    fn eq(&self, other: &Augment) -> bool {
        (self.step.form, self.numbers) == (other.step.form, other.numbers)
    }
}

impl fmt::Display for Augment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        write(self.step.form, self.step.parameters, &self.numbers, f)
    }
}

impl fmt::Debug for Augment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
