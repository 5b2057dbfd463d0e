//! A black square (DeVries & Taylor, "Improved regularization of convolutional neural networks with cutout", 2017).

use super::{Augment, Effect, SIDE, Step};
use crate::crop::Rectangle;

pub(super) static STEP: Step = Step {
    form: "cutout:SIDE",
    does: "blackens a square of SIDE × SIDE around a random pixel, as far as it is inside; after normalise, to 0",
    examples: &["cutout:5"],
    rule: "its parameter is a side, a whole number from 1 to 8192",
    parameters: &[SIDE],
    evaluation: Augment::dropped,
    effect: Effect::Blacken(|[side, ..], (height, width), rng| {
        let side = side as u32;
        let mut span = |length: u32| {
            let centre = rng.below(u64::from(length)) as u32;
            let start = centre.saturating_sub(side / 2);
            // From centre - side/2 on, `side` pixels, before clipping.
            let end = (centre + side - side / 2).min(length);
            (start, end - start)
        };
        let ((top, height), (left, width)) = (span(height), span(width));
        Rectangle {
            top,
            left,
            height,
            width,
        }
    }),
};
