//! One channel, ITU-R 601-2 luma.

use super::{Augment, Effect, Step};

pub(super) static STEP: Step = Step {
    form: "grey",
    does: "converts to one channel",
    examples: &["grey"],
    rule: "it has no parameter",
    parameters: &[],
    evaluation: Augment::kept,
    effect: Effect::Grey,
};
