//! Floats of bytes.

use super::parameters::Parameter;
use super::{Augment, Effect, Step, number};

const MEAN: Parameter = number(f32::MIN as f64, f32::MAX as f64);
/// So that 255 / (255 · deviation) stays finite.
const DEVIATION: Parameter = number(1e-30, 1e30);

pub(super) static STEP: Step = Step {
    form: "normalise[:MEANS:DEVIATIONS]",
    does: "converts to floats, (v/255 − mean) / deviation, with ImageNet's numbers, or one for all channels as in \
           0.5:0.25, or three as in 0.5/0.4/0.4:0.2/0.2/0.2",
    examples: &["normalise", "normalise:0.5:0.25/0.5/0.25"],
    rule: "its parameters are means and deviations (above 0) of the channels, as in \
           0.485/0.456/0.406:0.229/0.224/0.225 or 0.5:0.5",
    // The usual ones are those of the photos of ImageNet, red, green and blue.
    parameters: &[
        MEAN.or(0.485),
        MEAN.or(0.456).after('/'),
        MEAN.or(0.406).after('/'),
        DEVIATION.or(0.229),
        DEVIATION.or(0.224).after('/'),
        DEVIATION.or(0.225).after('/'),
    ],
    evaluation: Augment::kept,
    effect: Effect::Normalise,
};
