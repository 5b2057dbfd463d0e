//! Random changes of colours.

use super::{Augment, Effect, Step, number};
use crate::colour;

pub(super) static STEP: Step = Step {
    form: "jitter:BRIGHTNESS[:CONTRAST[:SATURATION[:HUE]]]",
    does: "changes brightness, contrast, saturation and hue, in random order, by factors from 1 ± the number, and hue by \
           ± HUE of the circle",
    examples: &["jitter:0.4", "jitter:0.4:0.4:0.4:0.1"],
    rule: "its parameters are brightness, contrast and saturation (0 to 100) and hue (0 to 0.5), as in \
           0.4:0.4:0.4:0.1",
    parameters: &[
        number(0.0, 100.0),
        number(0.0, 100.0),
        number(0.0, 100.0),
        number(0.0, 0.5),
    ],
    evaluation: Augment::dropped,
    effect: Effect::Change(|[brightness, contrast, saturation, hue, ..], frame, rng| {
        let strengths = [brightness, contrast, saturation, hue];
        for change in colour::draw_changes(strengths, rng).into_iter().flatten() {
            frame.change(|data, channels, _| colour::change(data, channels, change));
        }
    }),
};
