//! Fixed random blocks, for block minimization (Yu et al., TKDD 2012).
//!
//! The records are put in one random order with a key that does not know the epoch, and that order
//! is cut in near-equal runs: the blocks. Which records are together, and how they stand inside a
//! block, never changes; an epoch only chooses the order of the blocks, or not even that.
//!
//! Cost: one id is one permutation step; the order of the blocks is kept for the last epoch asked
//! for (24 bytes a block).

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::permutation::Permutation;
use crate::split::{near_equal_part, near_equal_start};
use pelton_key::{Stage, key};

#[derive(Debug)]
pub(crate) struct Blocks {
    seed: u64,
    records: u64,
    blocks: u64,
    permute: bool,
    /// Place → record; block b is a run of places.
    assignment: Permutation,
    last: Mutex<Option<Arc<EpochBlocks>>>,
}

/// The order of the blocks in one epoch.
#[derive(Debug)]
struct EpochBlocks {
    epoch: u64,
    /// Step → block.
    block_of_step: Vec<u64>,
    /// Step → position of its first record in the epoch; then the number of records.
    first_position: Vec<u64>,
    /// Block → step.
    step_of_block: Vec<u64>,
}

impl Blocks {
    pub(crate) fn new(records: u64, blocks: u64, permute: bool, seed: u64) -> Blocks {
        let assignment = Permutation::new(records, key(seed, 0, Stage::BlockAssignment));
        Blocks {
            seed,
            records,
            blocks,
            permute,
            assignment,
            last: Mutex::new(None),
        }
    }

    /// The block that `step` of `epoch` takes.
    pub(crate) fn block_of(&self, epoch: u64, step: u64) -> u64 {
        assert!(step < self.blocks, "step {step} of {} blocks", self.blocks);
        if self.permute {
            self.of_epoch(epoch).block_of_step[step as usize]
        } else {
            step
        }
    }

    /// The positions of an epoch that `step` covers.
    pub(crate) fn step_positions(&self, epoch: u64, step: u64) -> Range<u64> {
        assert!(step < self.blocks, "step {step} of {} blocks", self.blocks);
        if !self.permute {
            return self.start(step)..self.start(step + 1);
        }
        let first = &self.of_epoch(epoch).first_position;
        first[step as usize]..first[step as usize + 1]
    }

    pub(crate) fn block_len(&self, block: u64) -> u64 {
        self.start(block + 1) - self.start(block)
    }

    /// Appends the records of a block in their fixed order.
    pub(crate) fn append(&self, block: u64, ids: &mut Vec<u64>) {
        let filled = ids.len();
        ids.resize(filled + self.block_len(block) as usize, 0);
        self.assignment.fill(self.start(block), &mut ids[filled..]);
    }

    pub(crate) fn fill(&self, epoch: u64, start: u64, mut out: &mut [u64]) {
        if !self.permute {
            return self.assignment.fill(start, out);
        }
        let order = self.of_epoch(epoch);
        let mut step = order
            .first_position
            .partition_point(|&first| first <= start)
            - 1;
        let mut position = start;
        while !out.is_empty() {
            let offset = position - order.first_position[step];
            let here = (order.first_position[step + 1] - position).min(out.len() as u64);
            let (run, rest) = out.split_at_mut(here as usize);
            self.assignment
                .fill(self.start(order.block_of_step[step]) + offset, run);
            position += here;
            step += 1;
            out = rest;
        }
    }

    pub(crate) fn position_of(&self, epoch: u64, id: u64) -> u64 {
        let mut position = [0];
        self.fill_positions(epoch, id, &mut position);
        position[0]
    }

    pub(crate) fn fill_positions(&self, epoch: u64, first: u64, out: &mut [u64]) {
        self.assignment.fill_positions(first, out);
        if !self.permute {
            return;
        }
        let order = self.of_epoch(epoch);
        for position in out {
            let block = near_equal_part(self.records, self.blocks, *position);
            let offset = *position - self.start(block);
            let step = order.step_of_block[block as usize];
            *position = order.first_position[step as usize] + offset;
        }
    }

    fn start(&self, block: u64) -> u64 {
        near_equal_start(self.records, self.blocks, block)
    }

    fn of_epoch(&self, epoch: u64) -> Arc<EpochBlocks> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(order) if order.epoch == epoch => Arc::clone(order),
            _ => {
                let order = Arc::new(self.order_of(epoch));
                *last = Some(Arc::clone(&order));
                order
            }
        }
    }

    fn order_of(&self, epoch: u64) -> EpochBlocks {
        let permutation = Permutation::new(self.blocks, key(self.seed, epoch, Stage::BlockOrder));
        let mut block_of_step = vec![0; self.blocks as usize];
        permutation.fill(0, &mut block_of_step);
        let mut step_of_block = vec![0; self.blocks as usize];
        permutation.fill_positions(0, &mut step_of_block);
        let mut first_position = Vec::with_capacity(self.blocks as usize + 1);
        let mut position = 0;
        for &block in &block_of_step {
            first_position.push(position);
            position += self.block_len(block);
        }
        first_position.push(position);
        EpochBlocks {
            epoch,
            block_of_step,
            first_position,
            step_of_block,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership_and_inner_order_never_change() {
        let blocks = Blocks::new(1003, 10, true, 2);
        let mut first = vec![Vec::new(); 10];
        for epoch in 0..6 {
            let mut order = Vec::new();
            for step in 0..10 {
                let block = blocks.block_of(epoch, step);
                order.push(block);
                let mut ids = Vec::new();
                blocks.append(block, &mut ids);
                assert!((100..=101).contains(&ids.len()));
                if epoch == 0 {
                    first[block as usize] = ids;
                } else {
                    assert_eq!(ids, first[block as usize]);
                }
            }
            order.sort_unstable();
            assert_eq!(order, (0..10).collect::<Vec<_>>());
        }
        let orders: Vec<Vec<u64>> = (0..6)
            .map(|epoch| (0..10).map(|step| blocks.block_of(epoch, step)).collect())
            .collect();
        assert_ne!(orders[0], orders[1]);
    }

    #[test]
    fn without_permuting_every_epoch_is_the_same() {
        let blocks = Blocks::new(50, 7, false, 2);
        let mut first = [0; 50];
        let mut later = [0; 50];
        blocks.fill(0, 0, &mut first);
        blocks.fill(9, 0, &mut later);
        assert_eq!(first, later);
    }
}
