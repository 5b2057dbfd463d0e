//! Fixed random blocks, for block minimization (Yu et al., TKDD 2012).
//!
//! The records are put in one random order with a key that does not know the epoch, and that order
//! is cut in near-equal runs: the blocks. Which records are together, and how they stand inside a
//! block, never changes; an epoch only chooses the order of the blocks, or not even that.
//!
//! Cost: one id is one permutation step; the order of the blocks of an epoch takes 24 bytes a block.

use std::ops::Range;
use std::sync::Arc;

use pelton_key::{Stage, key};

use crate::permutation::Permutation;
use crate::split::{near_equal_part, near_equal_start};

#[derive(Debug)]
pub(crate) struct Blocks {
    seed: u64,
    records: u64,
    blocks: u64,
    permute: bool,
    /// Place → record; block b is a run of places.
    assignment: Permutation,
}

/// The order of the blocks in one epoch.
#[derive(Debug)]
pub(crate) struct EpochBlocks {
    blocks: Arc<Blocks>,
    /// `None` where they are not permuted.
    tables: Option<Tables>,
}

#[derive(Debug)]
struct Tables {
    /// Step → block.
    block_of_step: Vec<u64>,
    /// Step → position of its first record in the epoch; then the number of records.
    first_position: Vec<u64>,
    /// Block → step.
    step_of_block: Vec<u64>,
}

impl Blocks {
    pub(crate) fn new(records: u64, blocks: u64, permute: bool, seed: u64) -> Blocks {
        Blocks {
            seed,
            records,
            blocks,
            permute,
            assignment: Permutation::new(records, key(seed, 0, Stage::BlockAssignment)),
        }
    }

    /// Examples of the block that `step` of `epoch` takes.
    pub(crate) fn step_len(&self, epoch: u64, step: u64) -> u64 {
        self.block_len(match self.permute {
            true => self.order(epoch).get(step),
            false => step,
        })
    }

    pub(crate) fn of_epoch(self: &Arc<Self>, epoch: u64) -> EpochBlocks {
        if !self.permute {
            let blocks = Arc::clone(self);
            return EpochBlocks {
                blocks,
                tables: None,
            };
        }
        let order = self.order(epoch);
        let mut block_of_step = vec![0; self.blocks as usize];
        order.fill(0, &mut block_of_step);
        let mut step_of_block = vec![0; self.blocks as usize];
        order.fill_positions(0, &mut step_of_block);
        let mut first_position = Vec::with_capacity(self.blocks as usize + 1);
        let mut position = 0;
        for &block in &block_of_step {
            first_position.push(position);
            position += self.block_len(block);
        }
        first_position.push(position);
        EpochBlocks {
            blocks: Arc::clone(self),
            tables: Some(Tables {
                block_of_step,
                first_position,
                step_of_block,
            }),
        }
    }

    /// The number of blocks.
    pub(crate) fn len(&self) -> u64 {
        self.blocks
    }

    /// Examples of the longest block.
    pub(crate) fn longest(&self) -> u64 {
        self.records.div_ceil(self.blocks)
    }

    /// Memory of an epoch's tables.
    pub(crate) fn memory_bytes(&self) -> u64 {
        if self.permute { 24 * self.blocks } else { 0 }
    }

    fn order(&self, epoch: u64) -> Permutation {
        Permutation::new(self.blocks, key(self.seed, epoch, Stage::BlockOrder))
    }

    fn block_len(&self, block: u64) -> u64 {
        self.start(block + 1) - self.start(block)
    }

    fn start(&self, block: u64) -> u64 {
        near_equal_start(self.records, self.blocks, block)
    }
}

impl EpochBlocks {
    /// The positions that a step covers.
    pub(crate) fn step_positions(&self, step: u64) -> Range<u64> {
        match &self.tables {
            Some(tables) => {
                let first = &tables.first_position;
                first[step as usize]..first[step as usize + 1]
            }
            None => self.blocks.start(step)..self.blocks.start(step + 1),
        }
    }

    pub(crate) fn fill(&self, start: u64, mut out: &mut [u64]) {
        let Some(tables) = &self.tables else {
            return self.blocks.assignment.fill(start, out);
        };
        let first = &tables.first_position;
        let mut step = first.partition_point(|&first| first <= start) - 1;
        let mut position = start;
        while !out.is_empty() {
            let offset = position - first[step];
            let here = (first[step + 1] - position).min(out.len() as u64);
            let (run, rest) = out.split_at_mut(here as usize);
            let place = self.blocks.start(tables.block_of_step[step]) + offset;
            self.blocks.assignment.fill(place, run);
            position += here;
            step += 1;
            out = rest;
        }
    }

    pub(crate) fn ids_of_each(&self, places: &mut [u64]) {
        if self.tables.is_none() {
            return self.blocks.assignment.get_each(places);
        }
        for place in places {
            self.fill(*place, std::slice::from_mut(place));
        }
    }

    pub(crate) fn positions_of_each(&self, places: &mut [u64]) {
        self.blocks.assignment.positions_of_each(places);
        let Some(tables) = &self.tables else {
            return;
        };
        for position in places {
            let block = near_equal_part(self.blocks.records, self.blocks.blocks, *position);
            let offset = *position - self.blocks.start(block);
            let step = tables.step_of_block[block as usize];
            *position = tables.first_position[step as usize] + offset;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership_and_inner_order_never_change() {
        let blocks = Arc::new(Blocks::new(1003, 10, true, 2));
        let mut whole = vec![0; 1003];
        blocks.assignment.fill(0, &mut whole);
        let mut orders = Vec::new();
        for epoch in 0..6 {
            let of_epoch = blocks.of_epoch(epoch);
            let mut order = Vec::new();
            for step in 0..10 {
                let positions = of_epoch.step_positions(step);
                let len = positions.end - positions.start;
                assert_eq!(len, blocks.step_len(epoch, step));
                assert!((100..=101).contains(&len));
                let mut ids = vec![0; len as usize];
                of_epoch.fill(positions.start, &mut ids);
                let block = whole.windows(ids.len()).position(|run| run == ids);
                order.push(block.expect("a run of the assignment"));
            }
            orders.push(order.clone());
            order.sort_unstable();
            order.dedup();
            assert_eq!(order.len(), 10);
        }
        assert_ne!(orders[0], orders[1]);
    }

    #[test]
    fn without_permuting_every_epoch_is_the_same() {
        let blocks = Arc::new(Blocks::new(50, 7, false, 2));
        let (mut first, mut later) = ([0; 50], [0; 50]);
        blocks.of_epoch(0).fill(0, &mut first);
        blocks.of_epoch(9).fill(0, &mut later);
        assert_eq!(first, later);
    }
}
