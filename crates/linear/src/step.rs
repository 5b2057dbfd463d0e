//! The update of one dual variable in one visit.

use crate::visit::Visit;

/// Outcome of a visit.
#[derive(Clone, Copy)]
pub(crate) struct Outcome {
    /// Add this times x_i to w.
    pub(crate) scale: f32,
    /// Whether the row may rest.
    pub(crate) settled: bool,
}

/// The rule for one variable; a pass calls it for each active row with w·x_i.
pub(crate) trait Step {
    fn step(&mut self, visit: &mut Visit, dot: f32) -> Outcome;
}
