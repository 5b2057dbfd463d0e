//! The batch of a step in columns, and the part of one that a rank takes.

use crate::locality::assign_slots;
use crate::split::local_slots;

/// One appearance of an example in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Draw {
    /// The record in the data set.
    pub id: u64,
    /// The position of the example in the epoch's order, which has every example once.
    pub position: u64,
    /// 0 for its fresh appearance in this epoch, then 1, 2 …
    pub copy: u32,
    /// Whether it appears no more in this epoch.
    pub last: bool,
}

/// The tokens of an example in one slot of a packed row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// The first token; 0 unless the example is longer than a row.
    pub start: u32,
    /// How many.
    pub length: u32,
}

/// The global batch of one step, a column for each thing that is known of its draws. Reused between steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepBatch {
    /// The epoch.
    pub epoch: u64,
    /// The step within the epoch.
    pub step: u64,
    /// Whether it is the last of its epoch.
    pub ends_epoch: bool,
    /// The record of each draw, in order.
    pub ids: Vec<u64>,
    /// The position of each draw's example in the epoch's order, which has every example once.
    pub positions: Vec<u64>,
    /// How often each draw's example appeared before in the epoch.
    pub copies: Vec<u32>,
    /// Whether each draw's example appears no more in the epoch.
    pub lasts: Vec<bool>,
    /// Packing: how many of the draws each row holds, in order; empty otherwise.
    pub row_draws: Vec<u32>,
    /// Packing: the tokens of each draw; empty otherwise. An example that is longer than a row
    /// has a draw for each piece it is cut into, with the same id, position and copy.
    pub pieces: Vec<Piece>,
    /// The number of the bucket.
    pub bucket: Option<u32>,
    /// Buckets: the length that the batch is padded to; packing: the length of a row. `None` in a bucket of
    /// examples that are batches by themselves and are not padded.
    pub padded_length: Option<u32>,
    /// Buckets of pairs: the length that their second sides are padded to.
    pub second_length: Option<u32>,
    /// The number, within the epoch, of the fresh batch that this is or repeats.
    pub fresh_batch: u64,
    /// Batch echo: how often the batch came out before in this epoch; 0 for a fresh one.
    pub batch_copy: u32,
    /// Whether no later step of the epoch repeats this batch.
    pub last: bool,
}

impl StepBatch {
    /// Draws of the batch.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether nothing is drawn.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// One draw. Asserts `index < len`.
    pub fn draw(&self, index: usize) -> Draw {
        Draw {
            id: self.ids[index],
            position: self.positions[index],
            copy: self.copies[index],
            last: self.lasts[index],
        }
    }

    /// The draws in order.
    pub fn draws(&self) -> impl Iterator<Item = Draw> {
        (0..self.len()).map(|index| self.draw(index))
    }

    pub(crate) fn clear(&mut self) {
        self.ids.clear();
        self.positions.clear();
        self.copies.clear();
        self.lasts.clear();
        self.row_draws.clear();
        self.pieces.clear();
        (self.bucket, self.padded_length, self.second_length) = (None, None, None);
    }

    /// As a clone of `other`, in the memory that there is.
    pub(crate) fn copy_from(&mut self, other: &StepBatch) {
        self.ids.clone_from(&other.ids);
        self.positions.clone_from(&other.positions);
        self.copies.clone_from(&other.copies);
        self.lasts.clone_from(&other.lasts);
        self.row_draws.clone_from(&other.row_draws);
        self.pieces.clone_from(&other.pieces);
        (self.bucket, self.padded_length) = (other.bucket, other.padded_length);
        self.second_length = other.second_length;
    }

    pub(crate) fn extend(&mut self, draws: &[Draw]) {
        self.ids.extend(draws.iter().map(|draw| draw.id));
        self.positions
            .extend(draws.iter().map(|draw| draw.position));
        self.copies.extend(draws.iter().map(|draw| draw.copy));
        self.lasts.extend(draws.iter().map(|draw| draw.last));
    }
}

/// The draws of a batch that a rank takes, as indices into its columns; for a packed batch the rows, as indices into
/// [`row_draws`](StepBatch::row_draws). Replaces the contents of `out`.
///
/// Every draw, or row, is of one rank, and shares differ by at most one. They are runs of neighbours
/// ([`local_slots`]) unless the batch holds examples that appear more than once: these have a rank, their position
/// modulo the ranks, which takes them as far as shares allow ([`assign_slots`]), so that most repeats are on the rank
/// that read and decoded the example. A pure function of the batch.
///
/// Asserts `rank < world_size`.
pub fn share_of(batch: &StepBatch, rank: u32, world_size: u32, out: &mut Vec<u32>) {
    out.clear();
    let is_packed = !batch.row_draws.is_empty();
    let repeats = batch.copies.iter().any(|&copy| copy > 0) || !batch.lasts.iter().all(|&l| l);
    if is_packed || !repeats {
        let slots = if is_packed {
            batch.row_draws.len()
        } else {
            batch.len()
        };
        let mine = local_slots(slots as u64, rank, world_size);
        out.extend(mine.start as u32..mine.end as u32);
        return;
    }
    assert!(rank < world_size, "rank {rank} of {world_size}");
    let holder = |position: &u64| (position % u64::from(world_size)) as u32;
    let holders: Vec<u32> = batch.positions.iter().map(holder).collect();
    let takers = (0..).zip(assign_slots(&holders, world_size));
    let mine = takers.filter(|&(_, taker)| taker == rank);
    out.extend(mine.map(|(slot, _)| slot));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(draws: &[(u64, u32, bool)], row_draws: &[u32]) -> StepBatch {
        let draw = |&(position, copy, last)| Draw {
            id: 100 - position,
            position,
            copy,
            last,
        };
        let draws: Vec<Draw> = draws.iter().map(draw).collect();
        let mut batch = StepBatch::default();
        batch.extend(&draws);
        batch.row_draws.extend(row_draws);
        batch
    }

    fn shares(batch: &StepBatch, world_size: u32) -> Vec<Vec<u32>> {
        let mut share = Vec::new();
        (0..world_size)
            .map(|rank| {
                share_of(batch, rank, world_size, &mut share);
                share.clone()
            })
            .collect()
    }

    #[test]
    fn fresh_examples_are_split_in_runs() {
        let batch = batch(&[(7, 0, true), (8, 0, true), (9, 0, true)], &[]);
        assert_eq!(shares(&batch, 2), [vec![0], vec![1, 2]]);
        assert_eq!(shares(&batch, 4), [vec![], vec![0], vec![1], vec![2]]);
    }

    #[test]
    fn examples_that_appear_again_have_a_rank() {
        let draws = [(3, 0, false), (2, 1, true), (4, 0, false), (1, 1, false)];
        assert_eq!(shares(&batch(&draws, &[]), 2), [vec![1, 2], vec![0, 3]]);
        // Rank 0 holds three of four and takes two of them.
        let draws = [(2, 0, false), (4, 1, true), (6, 0, false), (1, 1, false)];
        assert_eq!(shares(&batch(&draws, &[]), 2), [vec![0, 1], vec![2, 3]]);
    }

    #[test]
    fn packed_rows_stay_whole() {
        let draws = [(3, 0, false), (2, 1, true), (4, 0, true), (1, 0, true)];
        assert_eq!(shares(&batch(&draws, &[1, 2, 1]), 2), [vec![0], vec![1, 2]]);
    }
}
