//! Fixed random blocks, for block minimization (Yu et al., TKDD 2012).
//!
//! The records are put in one random order with a key that does not know the epoch, and that order
//! is cut in near-equal runs: the blocks. The records of a block and their order never change; an epoch only
//! chooses the order of the blocks, or not even that.
//!
//! Cost: one id is one permutation step; the order of the blocks of an epoch takes 24 bytes a block.

use std::ops::Range;
use std::sync::Arc;

use pelton_key::{Stage, key};

use super::Block;
use crate::batching::{Batching, Last};
use crate::error::PlanError;
use crate::ordering::{EpochWalk, Ids, Inverse, Kind, Over, OwnSteps, Spread};
use crate::permutation::Permutation;
use crate::randomness::Randomness;
use crate::split::{near_equal_part, near_equal_start};

/// Most permuted blocks: each takes 24 bytes.
const MOST_PERMUTED: u64 = 1 << 28;

impl Kind for Block {
    fn spread(&self) -> Spread {
        Spread::Blocks
    }

    fn is_fixed(&self) -> bool {
        !self.permute
    }

    fn ignores_batching(&self) -> bool {
        true
    }

    fn randomness(&self, records: u64, _: u64) -> Randomness {
        if self.permute {
            Randomness::chunks(records, self.blocks)
        } else {
            Randomness::NONE
        }
    }

    fn over(&self, over: &Over<'_>) -> Result<Box<dyn Ids>, PlanError> {
        let Block { blocks, permute } = *self;
        let records = over.records;
        if blocks == 0 || blocks > records {
            return Err(PlanError::BlockCount { blocks, records });
        }
        over.check_table(if permute { blocks } else { 0 }, MOST_PERMUTED)?;
        let blocks = Blocks::new(records, blocks, permute, over.seed);
        Ok(Box::new(Arc::new(blocks)))
    }
}

#[derive(Debug)]
struct Blocks {
    seed: u64,
    records: u64,
    blocks: u64,
    permute: bool,
    /// Position → record; block b is a run of positions.
    assignment: Permutation,
}

/// The order of the blocks in one epoch.
#[derive(Debug)]
struct EpochBlocks {
    blocks: Arc<Blocks>,
    /// `None` if they are not permuted.
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
    fn new(records: u64, blocks: u64, permute: bool, seed: u64) -> Blocks {
        Blocks {
            seed,
            records,
            blocks,
            permute,
            assignment: Permutation::new(records, key(seed, 0, Stage::BlockAssignment)),
        }
    }

    fn of_epoch(self: &Arc<Self>, epoch: u64) -> EpochBlocks {
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

    fn order(&self, epoch: u64) -> Permutation {
        Permutation::new(self.blocks, key(self.seed, epoch, Stage::BlockOrder))
    }

    fn block_len(&self, block: u64) -> u64 {
        self.first_of(block + 1) - self.first_of(block)
    }

    fn first_of(&self, block: u64) -> u64 {
        near_equal_start(self.records, self.blocks, block)
    }
}

impl Ids for Arc<Blocks> {
    fn walk(&self, epoch: u64) -> Box<dyn EpochWalk> {
        Box::new(self.of_epoch(epoch))
    }

    fn inverse(&self, epoch: u64) -> Option<Box<dyn Inverse>> {
        Some(Box::new(self.of_epoch(epoch)))
    }

    /// Of an epoch's tables.
    fn memory_bytes(&self) -> u64 {
        if self.permute { 24 * self.blocks } else { 0 }
    }

    fn own_steps(&self, _: Batching, _: Last) -> Result<Option<Box<dyn OwnSteps>>, PlanError> {
        Ok(Some(Box::new(Arc::clone(self))))
    }
}

/// A block a step.
impl OwnSteps for Arc<Blocks> {
    fn steps(&self) -> u64 {
        self.blocks
    }

    fn longest(&self) -> u64 {
        self.records.div_ceil(self.blocks)
    }

    fn shortest(&self) -> Option<u64> {
        Some(self.records / self.blocks)
    }

    fn step_len(&self, epoch: u64, step: u64) -> u64 {
        let block = if self.permute {
            self.order(epoch).get(step)
        } else {
            step
        };
        self.block_len(block)
    }

    fn start(&self, epoch: u64, step: u64) -> u64 {
        self.of_epoch(epoch).positions(step).start
    }
}

impl EpochBlocks {
    /// The positions that a step covers.
    fn positions(&self, step: u64) -> Range<u64> {
        match &self.tables {
            Some(tables) => {
                let first = &tables.first_position;
                first[step as usize]..first[step as usize + 1]
            }
            None => self.blocks.first_of(step)..self.blocks.first_of(step + 1),
        }
    }
}

impl Inverse for EpochBlocks {
    fn step_positions(&self, step: u64) -> Option<Range<u64>> {
        Some(self.positions(step))
    }

    fn fill(&self, start: u64, mut out: &mut [u64]) {
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
            let place = self.blocks.first_of(tables.block_of_step[step]) + offset;
            self.blocks.assignment.fill(place, run);
            position += here;
            step += 1;
            out = rest;
        }
    }

    fn ids_of_each(&self, places: &mut [u64]) {
        if self.tables.is_none() {
            return self.blocks.assignment.get_each(places);
        }
        for place in places {
            Inverse::fill(self, *place, std::slice::from_mut(place));
        }
    }

    fn positions_of_each(&self, places: &mut [u64]) {
        self.blocks.assignment.positions_of_each(places);
        let Some(tables) = &self.tables else {
            return;
        };
        for position in places {
            let block = near_equal_part(self.blocks.records, self.blocks.blocks, *position);
            let offset = *position - self.blocks.first_of(block);
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
                let positions = of_epoch.positions(step);
                let len = positions.end - positions.start;
                assert_eq!(len, blocks.step_len(epoch, step));
                assert!((100..=101).contains(&len));
                let mut ids = vec![0; len as usize];
                Inverse::fill(&of_epoch, positions.start, &mut ids);
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
        Inverse::fill(&blocks.of_epoch(0), 0, &mut first);
        Inverse::fill(&blocks.of_epoch(9), 0, &mut later);
        assert_eq!(first, later);
    }
}
