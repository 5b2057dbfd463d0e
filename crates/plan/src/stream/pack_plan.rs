//! A plan whose batches are rows of several sentences each: the rows of a stream without other stages.

use super::batch::StreamBatch;
use super::rows::Rows;
use super::sequence::{Sequence, Source};
use crate::buckets::{PackedRow, Packing, Segment, global_batch};
use crate::echo::Echo;
use crate::error::PlanError;
use crate::plan::Plan;
use pelton_key::{GOLDEN_GAMMA, mix};

/// A plan whose batches are rows of several sentences each: a pure function of the plan below, the
/// packing and the lengths.
///
/// The order of the plan below is taken in look-aheads of some thousand sentences, and those of one are packed into
/// rows ([`Packing`]). A row is a list of segments; whoever computes on it resets the state, and masks attention, at
/// the start of each.
///
/// Shared between threads by reference; what it keeps inside changes speed, never results.
#[derive(Debug)]
pub struct PackPlan {
    rows: Rows,
}

impl PackPlan {
    /// Rows of the sentences that `plan` numbers, `length_of` telling the length of each. It is called
    /// once for every id; batches are the plan's, of a number of rows.
    ///
    /// Errors: a batch that is not a number of examples, and sentences so long that the pieces of a look-ahead could
    /// not be counted.
    pub fn new(
        plan: Plan,
        packing: Packing,
        length_of: impl Fn(u64) -> u32,
    ) -> Result<PackPlan, PlanError> {
        let (batch, records, seed) = (global_batch(&plan)?, plan.records(), plan.seed());
        let sequence = Sequence::new(Source::Plan(plan), Echo::NONE, seed)?;
        let rows = Rows::new(sequence, packing, batch, records, seed, length_of)?;
        Ok(PackPlan { rows })
    }

    /// The plan whose order the sentences come in.
    pub fn plan(&self) -> &Plan {
        match self.rows.sequence().source() {
            Source::Plan(plan) => plan,
            Source::Mixture(_) => unreachable!("it is made over a plan"),
        }
    }

    /// The packing.
    pub fn packing(&self) -> Packing {
        self.rows.packing()
    }

    /// Rows of an epoch. Costs a pass over the epoch's ids, once.
    pub fn rows(&self, epoch: u64) -> u64 {
        self.rows.rows(epoch)
    }

    /// Batches of an epoch. Costs a pass over the epoch's ids, once.
    pub fn steps(&self, epoch: u64) -> u64 {
        self.rows.steps(epoch)
    }

    /// Cells that hold padding over all cells of an epoch; 0 where there are none.
    pub fn padded_fraction(&self, epoch: u64) -> f64 {
        self.rows.padded_fraction(epoch)
    }

    /// Appends the rows of the global batch of a step. A step of an epoch that was not looked at
    /// before costs a pass over the ids before it. Asserts `step < steps`.
    pub fn batch_rows(&self, epoch: u64, step: u64, rows: &mut Vec<PackedRow>) {
        let mut batch = StreamBatch::default();
        self.rows.fill(epoch, step, &mut batch);
        let mut pieces = batch.draws.iter().zip(&batch.pieces);
        rows.extend(batch.row_draws.iter().map(|&segments| {
            let of_row = pieces.by_ref().take(segments as usize);
            let segments = of_row.map(|(draw, piece)| Segment {
                id: draw.id,
                start: piece.start,
                length: piece.length,
            });
            PackedRow {
                segments: segments.collect(),
            }
        }));
    }

    /// The exact randomness RL* of an epoch over `full` order; 0 where every epoch is the same; not known of other
    /// orders. Costs a pass over the epoch's ids.
    pub fn rl_exact(&self, epoch: u64) -> Option<f64> {
        self.rows.rl_exact(epoch)
    }

    /// Memory the plan may come to hold, beyond its own few hundred bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.rows.memory_bytes()
    }

    /// A number that two plans share when they give the same rows by construction.
    pub fn fingerprint(&self) -> u64 {
        [
            self.plan().fingerprint(),
            self.rows.digest(),
            self.packing().row_length().into(),
            self.packing().look_ahead().into(),
        ]
        .into_iter()
        .fold(3, |state, word| {
            mix(state ^ word).wrapping_mul(GOLDEN_GAMMA).rotate_left(7)
        })
    }
}
