//! The rows that a cache holds.

use super::quantizer::Quantizer;

/// The largest ‖x − x̂‖² over ‖x̂‖² of a row that is solved for: what is put right when it is read
/// next must stay small next to what it was held for.
pub(super) const MOST_ERROR: f32 = 1e-3;
/// Marks the norm of a row whose codes are too inaccurate, because its values are out of range.
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
    /// Codes of each slot.
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
