//! The list of steps.

use std::str::FromStr;

use super::parameters::read;
use super::step::{Augment, Step};
use super::{
    affine, crop, cutout, flip, grey, jitter, normalise, policies, random_crop,
    random_resized_crop, resize, tones,
};
use crate::ImageError;

/// The steps, in the order in which help lists them.
const STEPS: &[&Step] = &[
    &resize::SHORTER,
    &resize::BOTH,
    &crop::SQUARE,
    &crop::BOTH,
    &random_crop::SQUARE,
    &random_crop::BOTH,
    &random_resized_crop::SQUARE,
    &random_resized_crop::BOTH,
    &flip::STEP,
    &flip::ROWS,
    &jitter::STEP,
    &tones::SOLARISE,
    &tones::POSTERISE,
    &tones::EQUALISE,
    &tones::CONTRAST,
    &tones::INVERT,
    &tones::SHARPEN,
    &tones::BLUR,
    &policies::RAND,
    &policies::TRIVIAL,
    &affine::STEP,
    &cutout::STEP,
    &grey::STEP,
    &normalise::STEP,
];

impl Augment {
    /// Every step that there is.
    pub fn steps() -> &'static [&'static Step] {
        STEPS
    }

    /// Every step and what it does, for a help text.
    pub fn help() -> String {
        let line = |step: &&Step| format!("{} {}", step.form, step.does);
        let lines: Vec<String> = STEPS.iter().map(line).collect();
        lines.join("; ")
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
            let numbers = read(step.form, step.parameters, &parts)?;
            Some(Augment { step, numbers })
        });
        let refused = || format!("'{text}' asks for what {name} cannot do: {rule}");
        read.next().ok_or_else(|| ImageError::new(refused()))
    }
}
