//! One epoch's buckets: the bucket of each position, and the blocks of each bucket.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pelton_plan::{EpochOrder, Plan};
use pelton_storage::AlignedBuffer;

use crate::error::FetchError;

/// Cells of the table of guesses for each bucket, at least.
const CELLS_PER_BUCKET: u64 = 2;

/// How the positions of an epoch are cut into buckets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Grid {
    /// One bucket for each pane of this many batches.
    Panes(u64),
    /// This many positions a bucket: the starts of panes are unknown when their buckets are filled.
    Positions(u64),
}

impl Grid {
    /// The first position of every bucket.
    fn starts(self, plan: &Plan, order: &EpochOrder) -> Vec<u64> {
        match self {
            Grid::Panes(batches) => (0..plan.steps(order.epoch()))
                .step_by(batches as usize)
                .filter_map(|step| order.step_positions(step))
                .map(|positions| positions.start)
                .collect(),
            Grid::Positions(positions) => (0..plan.records()).step_by(positions as usize).collect(),
        }
    }

    pub fn buckets(self, plan: &Plan) -> u64 {
        match self {
            Grid::Panes(batches) => plan.steps(0).div_ceil(batches),
            Grid::Positions(positions) => plan.records().div_ceil(positions),
        }
        .max(1)
    }
}

/// The order of an epoch of a plan that is scattered.
pub(super) fn order_of(plan: &Plan, epoch: u64) -> EpochOrder {
    let order = plan.epoch_order(epoch);
    order.expect("only orders with an inverse are scattered")
}

/// The first positions of the buckets of one epoch.
#[derive(Debug)]
pub(super) struct BucketMap {
    pub order: EpochOrder,
    /// The first position of every bucket, and the number of positions.
    starts: Vec<u64>,
    /// The bucket of the first position of each cell of 2^shift positions.
    guesses: Vec<u32>,
    shift: u32,
}

impl BucketMap {
    pub fn new(plan: &Plan, epoch: u64, grid: Grid) -> BucketMap {
        let order = order_of(plan, epoch);
        let mut starts = grid.starts(plan, &order);
        let cell = plan.records() / (CELLS_PER_BUCKET * starts.len().max(1) as u64);
        let shift = cell.max(1).ilog2();
        let cells = (plan.records() >> shift) + 1;
        let mut bucket = 0;
        let guesses = (0..cells)
            .map(|cell| {
                while bucket + 1 < starts.len() && starts[bucket + 1] <= cell << shift {
                    bucket += 1;
                }
                bucket as u32
            })
            .collect();
        starts.push(plan.records());
        BucketMap {
            order,
            starts,
            guesses,
            shift,
        }
    }

    /// Bucket and slot of a position. Positions that no batch takes count to the last bucket.
    #[inline]
    pub fn place(&self, position: u64) -> (u32, u32) {
        let mut bucket = self.guesses[(position >> self.shift) as usize];
        while self.starts[bucket as usize + 1] <= position {
            bucket += 1;
        }
        (bucket, (position - self.starts[bucket as usize]) as u32)
    }

    /// The position of a slot of a bucket, if the bucket has that slot.
    #[inline]
    pub fn position(&self, bucket: usize, slot: u32) -> Option<u64> {
        let position = self.starts[bucket] + u64::from(slot);
        (position < self.starts[bucket + 1]).then_some(position)
    }

    fn buckets(&self) -> usize {
        self.starts.len() - 1
    }
}

/// Records of one bucket that are together in the scratch file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub offset: u64,
    /// Bytes of records, without the padding of the last unit.
    pub used: u32,
}

/// A block that is being filled.
#[derive(Debug)]
pub(super) struct Tail {
    pub buffer: AlignedBuffer,
    pub used: usize,
    pub records: u32,
}

/// A written block, and who still needs it.
#[derive(Debug)]
pub(super) struct Written {
    block: Block,
    /// Records that no pane has taken on; those of a block at a pane's end are the next pane's.
    left: u32,
    readers: u32,
}

#[derive(Debug, Default)]
pub(super) struct Bucket {
    pub tail: Option<Tail>,
    /// Blocks being written.
    pub writing: u32,
    /// Blocks written. They stay listed until all are done; a pane counts which it has claimed.
    blocks: Vec<Written>,
    done: usize,
}

impl Bucket {
    /// Lists a block of `records` records.
    pub fn written(&mut self, block: Block, records: u32) {
        self.blocks.push(Written {
            block,
            left: records,
            readers: 0,
        });
    }

    /// The next block from index `next` on with records that no pane has taken on; its index is one below the new
    /// `next`.
    pub fn claim(&mut self, next: &mut usize) -> Option<Block> {
        while let Some(written) = self.blocks.get_mut(*next) {
            *next += 1;
            if written.left > 0 {
                written.readers += 1;
                return Some(written.block);
            }
        }
        None
    }

    /// A reader has the block's bytes and takes on `records` of them; true when the block is no longer needed. The
    /// epoch must be sealed.
    pub fn take_on(&mut self, number: usize, records: u32) -> bool {
        let written = &mut self.blocks[number];
        written.readers -= 1;
        written.left -= records;
        let done = written.left == 0 && written.readers == 0;
        self.done += usize::from(done);
        // Blocks that are still being written will be listed after these.
        if self.done == self.blocks.len() && self.writing == 0 {
            self.blocks = Vec::new();
        }
        done
    }
}

/// One epoch's buckets, filled while the epoch before is read.
#[derive(Debug)]
pub(super) struct EpochBuckets {
    pub map: BucketMap,
    pub buckets: Vec<Mutex<Bucket>>,
    /// Records that have yet to be appended.
    missing: AtomicU64,
    sealed: AtomicBool,
}

impl EpochBuckets {
    /// Buckets that `records` records will be appended to.
    pub fn new(map: BucketMap, records: u64) -> EpochBuckets {
        EpochBuckets {
            buckets: (0..map.buckets()).map(|_| Mutex::default()).collect(),
            map,
            missing: AtomicU64::new(records),
            sealed: AtomicBool::new(records == 0),
        }
    }

    /// Takes note of appended records; true for the call after which none is missing.
    pub fn appended(&self, records: u64) -> bool {
        self.missing.fetch_sub(records, Ordering::AcqRel) == records
    }

    /// No tail is filled any more; every block is written or being written.
    pub fn seal(&self) {
        self.sealed.store(true, Ordering::Release);
    }

    pub fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    pub fn bucket(&self, number: usize) -> std::sync::MutexGuard<'_, Bucket> {
        self.buckets[number]
            .lock()
            .expect("no holder of this lock panics")
    }
}

/// The layout of records in a block: slot u32, length u32 if lengths differ, the record's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockLayout {
    /// Length of every record, if all have the same.
    pub record_bytes: Option<usize>,
}

impl BlockLayout {
    /// Bytes before each record in a block.
    pub fn header_bytes(self) -> usize {
        if self.record_bytes.is_some() { 4 } else { 8 }
    }

    /// Puts one record at the front of `space`, which has room; returns the bytes it takes.
    #[inline]
    pub fn put(self, space: &mut [u8], slot: u32, record: &[u8]) -> usize {
        let header = self.header_bytes();
        let taken = header + record.len();
        let space = &mut space[..taken];
        space[..4].copy_from_slice(&slot.to_le_bytes());
        if header == 8 {
            space[4..8].copy_from_slice(&(record.len() as u32).to_le_bytes());
        }
        space[header..].copy_from_slice(record);
        taken
    }

    /// Slot and range of every record of a block.
    pub fn split(
        self,
        block: &[u8],
        found: &mut Vec<(u32, Range<usize>)>,
    ) -> Result<(), FetchError> {
        let broken = || FetchError::Panicked("a bucket block came back changed".to_string());
        let header = self.header_bytes();
        let word = |at: usize| {
            let bytes = block.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
        };
        let mut at = 0;
        while at < block.len() {
            let slot = word(at).ok_or_else(broken)?;
            let length = match self.record_bytes {
                Some(length) => length,
                None => word(at + 4).ok_or_else(broken)? as usize,
            };
            let start = at + header;
            at = start + length;
            if at > block.len() {
                return Err(broken());
            }
            found.push((slot, start..at));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_plan::{Batching, Catalog, Last, Order, PlanSpec};

    #[test]
    fn every_position_finds_its_bucket() {
        for (records, batching, last, pane_batches) in [
            (10_000, Batching::Examples(300), Last::Even, 7),
            (10_007, Batching::Examples(1000), Last::Drop, 3),
            (5_000, Batching::Batches(4_999), Last::Even, 1),
            (3, Batching::Examples(1), Last::Even, 1),
            (1 << 20, Batching::Examples(1 << 19), Last::Even, 1),
        ] {
            let spec = PlanSpec {
                last,
                ..PlanSpec::new(Order::Full, batching, 1)
            };
            let plan = Plan::new(&spec, Catalog::new(records)).unwrap();
            let order = order_of(&plan, 0);
            let map = BucketMap::new(&plan, 0, Grid::Panes(pane_batches));
            let (mut bucket, mut start) = (0, 0);
            for position in 0..records {
                let begins = (0..plan.steps(0))
                    .step_by(pane_batches as usize)
                    .skip(bucket as usize + 1)
                    .map(|step| order.step_positions(step).unwrap().start)
                    .next();
                if begins == Some(position) {
                    (bucket, start) = (bucket + 1, position);
                }
                let slot = (position - start) as u32;
                assert_eq!(map.place(position), (bucket, slot));
                assert_eq!(map.position(bucket as usize, slot), Some(position));
            }
        }
    }

    #[test]
    fn a_block_is_kept_until_every_record_and_reader_is_done() {
        let block = |offset| Block { offset, used: 9 };
        let mut bucket = Bucket::default();
        bucket.written(block(0), 5);
        bucket.written(block(1), 3);
        let (mut first, mut second) = (0, 0);
        assert_eq!(bucket.claim(&mut first).unwrap().offset, 0);
        assert_eq!(bucket.claim(&mut second).unwrap().offset, 0);
        assert!(!bucket.take_on(0, 5));
        assert!(bucket.take_on(0, 0));
        // Its space may be reused, so it must not be claimed.
        assert_eq!(bucket.claim(&mut 0).unwrap().offset, 1);
        assert_eq!(bucket.claim(&mut first).unwrap().offset, 1);
        assert!(bucket.claim(&mut first).is_none());
        assert!(!bucket.take_on(1, 1));
        assert!(!bucket.take_on(1, 1));
        assert_eq!(bucket.claim(&mut second).unwrap().offset, 1);
        assert!(bucket.take_on(1, 1));
        assert!(bucket.claim(&mut second).is_none());
    }

    #[test]
    fn records_come_back_from_a_block() {
        let records: [&[u8]; 3] = [b"abcd", b"efgh", b"ijkl"];
        for record_bytes in [Some(4), None] {
            let layout = BlockLayout { record_bytes };
            let mut block = [0; 64];
            let mut used = 0;
            for (slot, record) in (7u32..).zip(records) {
                used += layout.put(&mut block[used..], slot, record);
            }
            let mut found = Vec::new();
            layout.split(&block[..used], &mut found).unwrap();
            let expected = (7u32..).zip(records);
            assert!(
                found
                    .iter()
                    .map(|(slot, at)| (*slot, &block[at.clone()]))
                    .eq(expected)
            );
            assert!(layout.split(&block[..used - 1], &mut found).is_err());
        }
    }
}
