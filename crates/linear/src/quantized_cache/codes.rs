//! The rows that a cache holds.

use super::quantizer::Quantizer;

/// The largest ‖x − x̂‖² over ‖x̂‖² of a row that is solved for: the correction at its next read must stay small
/// compared with the gain from keeping it.
pub(super) const MOST_ERROR: f32 = 1e-3;
/// The norm of a row with values out of range, too inaccurate when quantised.
pub(super) const UNFIT: f32 = -1.0;
/// Rows as one byte a value, kept in memory between blocks.
#[derive(Clone, Debug)]
pub struct QuantizedCache {
    pub(super) features: usize,
    pub(super) subproblems: usize,
    pub(super) capacity: usize,
    /// Made from the first block.
    pub(super) quantizer: Option<Quantizer>,
    /// Slot of each record.
    pub(super) slots: Vec<u32>,
    /// Record of each slot.
    pub(super) ids: Vec<u64>,
    /// Quantised values of each slot.
    pub(super) codes: Vec<u8>,
    /// r of each slot and subproblem.
    pub(super) residuals: Vec<f32>,
    /// ‖x̂‖² and the bias of each slot, or [`UNFIT`].
    pub(super) norms: Vec<f32>,
    pub(super) labels: Vec<u32>,
    /// Slack of each slot when it was last solved.
    pub(super) slack: Vec<f32>,
    /// For each subproblem and record, α when w was last exact in it; w contains the change since then through
    /// x̂; NaN elsewhere.
    pub(super) before: Vec<Vec<f32>>,
}
