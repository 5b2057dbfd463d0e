//! State shared by the workers of the scatter path: the panes to load in order, the scratch file's space and the
//! unused buffers.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use pelton_storage::{AlignedBuffer, ScratchFile};

use super::buckets::{Block, BlockLayout, EpochBuckets};
use crate::error::FetchError;
use crate::kept_bitmap::KeptBitmap;
use crate::pane::PaneBuild;
use crate::reader::Shared;
use crate::share::Share;

/// The number and the sizes of buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferSizes {
    pub block_bytes: usize,
    /// Reads that a worker keeps in flight, or finished and not yet used.
    pub reads: usize,
    /// Writes that a worker keeps in flight.
    pub writes: usize,
    /// Buffers for tails and writes that are kept. In the first pass of a run that resumes inside an
    /// epoch two epochs have tails; the memory for the others is that of panes, which come later.
    pub kept: usize,
    /// Bytes of a worker's reads of the data set.
    pub task_bytes: usize,
    /// Bytes of records that are decoded into one segment.
    pub segment_bytes: usize,
}

/// The first pass, from the data set into buckets.
#[derive(Debug)]
pub(super) struct FirstPass {
    pub buckets: Arc<EpochBuckets>,
    /// Records before this position of the epoch were used by an earlier run: they belong to the
    /// epoch after it.
    pub passed: u64,
    pub after: Option<Arc<EpochBuckets>>,
    /// The share to read; `None` for all records.
    pub share: Option<Share>,
    /// Ids of the run that a worker takes on at a time.
    pub task_ids: u64,
    /// The first id that no worker has taken on.
    pub next_id: AtomicU64,
    /// Hole between records that is read over.
    pub gap_bytes: u64,
}

impl FirstPass {
    /// Whether a record is read.
    pub fn takes(&self, id: u64) -> bool {
        let share = self.share.as_ref();
        share.is_none_or(|share| share.may_take(id))
    }
}

/// A pane while its buckets are being read.
#[derive(Debug)]
pub(super) struct PaneLoad {
    pub build: PaneBuild,
    pub held: Arc<EpochBuckets>,
    /// The buckets with the pane's positions; the first and the last may hold other panes' too.
    pub buckets: Range<usize>,
    /// The pane's positions in the order by which its buckets were filled.
    pub covered: Range<u64>,
    /// Which of them have a row; `None` if the first ones do, as many as there are rows. Positions without a row that
    /// belong to other ranks are in no bucket here.
    pub kept: Option<KeptBitmap>,
    pub next: Option<Arc<EpochBuckets>>,
    /// Bucket and block that are the next to be taken on by a worker.
    pub claimed: Mutex<(usize, usize)>,
    /// Records that have yet to come out of a block.
    pub left: AtomicU64,
}

/// A block that a worker has taken on.
#[derive(Debug)]
pub(super) struct Claim {
    pub pane: Arc<PaneLoad>,
    pub bucket: usize,
    /// Its number in the bucket.
    pub number: usize,
    pub block: Block,
}

/// A pane's use of a record of one of its buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It is this row of the pane.
    Row(u32),
    /// Not used in this epoch; it is at this position and is passed to the next epoch.
    PassOver(u64),
    /// It is another pane's.
    Leave,
}

impl PaneLoad {
    /// The destination of the record in a slot of a bucket.
    #[inline]
    pub fn use_of(&self, bucket: usize, slot: u32) -> Result<Use, FetchError> {
        let Some(position) = self.held.map.position(bucket, slot) else {
            let broken = "a bucket holds a record of another bucket";
            return Err(FetchError::Panicked(broken.to_string()));
        };
        if !self.covered.contains(&position) {
            return Ok(Use::Leave);
        }
        let offset = position - self.covered.start;
        let row = match &self.kept {
            Some(kept) => kept.row_of(offset),
            None => (offset < self.build.ids.len() as u64).then_some(offset as u32),
        };
        Ok(row.map_or(Use::PassOver(position), Use::Row))
    }

    /// The next block to read, and whether it is the last.
    fn claim(&self) -> (Option<(usize, usize, Block)>, bool) {
        let sealed = self.held.is_sealed();
        let mut claimed = self.claimed.lock().expect("no holder of this lock panics");
        let (bucket, next) = &mut *claimed;
        while *bucket < self.buckets.end {
            let mut held = self.held.bucket(*bucket);
            if let Some(block) = held.claim(next) {
                return (Some((*bucket, *next - 1, block)), false);
            }
            if !sealed || held.writing > 0 {
                return (None, false);
            }
            drop(held);
            (*bucket, *next) = (*bucket + 1, 0);
        }
        (None, true)
    }
}

#[derive(Debug, Default)]
struct Queue {
    panes: VecDeque<Arc<PaneLoad>>,
    /// Panes below this number may take memory for their rows.
    permitted: u64,
    closed: bool,
    /// Counts everything that may give an idle worker something to do.
    events: u64,
    idle: usize,
}

#[derive(Debug, Default)]
struct Space {
    free: Vec<u64>,
    end: u64,
}

#[derive(Debug, Default)]
struct Spare {
    buffers: Vec<AlignedBuffer>,
    /// Buffers there are, in use or not.
    made: usize,
}

#[derive(Debug)]
pub(super) struct Stage {
    pub shared: Arc<Shared>,
    pub scratch: Arc<ScratchFile>,
    pub layout: BlockLayout,
    pub sizes: BufferSizes,
    pub first: FirstPass,
    /// Whether buckets are read again in every epoch.
    pub fixed: bool,
    queue: Mutex<Queue>,
    changed: Condvar,
    space: Mutex<Space>,
    spare: Mutex<Spare>,
}

impl Stage {
    pub fn new(
        shared: Arc<Shared>,
        scratch: Arc<ScratchFile>,
        layout: BlockLayout,
        sizes: BufferSizes,
        first: FirstPass,
        fixed: bool,
    ) -> Stage {
        Stage {
            shared,
            scratch,
            layout,
            sizes,
            first,
            fixed,
            queue: Mutex::default(),
            changed: Condvar::new(),
            space: Mutex::default(),
            spare: Mutex::default(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no holder of this lock panics")
    }

    fn change(&self, change: impl FnOnce(&mut Queue)) {
        let mut queue = self.queue();
        change(&mut queue);
        queue.events += 1;
        let idle = queue.idle > 0;
        drop(queue);
        if idle {
            self.changed.notify_all();
        }
    }

    /// Adds the next pane.
    pub fn add(&self, pane: PaneLoad) {
        self.change(|queue| queue.panes.push_back(Arc::new(pane)));
    }

    /// Lets panes below `number` be loaded.
    pub fn permit(&self, number: u64) {
        self.change(|queue| queue.permitted = number);
    }

    /// Sends the workers home.
    pub fn close(&self) {
        self.change(|queue| queue.closed = true);
    }

    /// Wakes workers that wait for a block or for a bucket to be sealed.
    pub fn wake(&self) {
        self.change(|_| ());
    }

    /// The count that [`Stage::wait`] returns; `None` when there is no more to do.
    pub fn events(&self) -> Option<u64> {
        let queue = self.queue();
        (!queue.closed).then_some(queue.events)
    }

    /// Waits until something has happened since `seen`.
    pub fn wait(&self, seen: u64) {
        let mut queue = self.queue();
        queue.idle += 1;
        while queue.events == seen {
            queue = self
                .changed
                .wait(queue)
                .expect("no holder of this lock panics");
        }
        queue.idle -= 1;
    }

    /// The next block to read. Blocks that cannot be unpacked yet are prefetched only when earlier panes need
    /// no more blocks: otherwise they could take every buffer from blocks that they wait for.
    pub fn claim(&self) -> Option<Claim> {
        let queue = self.queue();
        let mut exhausted = true;
        for pane in &queue.panes {
            let sealed = pane.held.is_sealed();
            if !(exhausted || sealed && pane.build.number < queue.permitted) {
                return None;
            }
            let (found, all) = pane.claim();
            if let Some((bucket, number, block)) = found {
                return Some(Claim {
                    pane: Arc::clone(pane),
                    bucket,
                    number,
                    block,
                });
            }
            exhausted &= all;
        }
        None
    }

    /// Notes that the pane that claimed a block has taken on `records` of its records.
    pub fn take_on(&self, claim: &Claim, records: u32) {
        // Fixed buckets are read again in every epoch.
        let done = claim
            .pane
            .held
            .bucket(claim.bucket)
            .take_on(claim.number, if self.fixed { 0 } else { records });
        if done {
            self.give_space(claim.block.offset);
        }
    }

    /// Whether rows of a pane may be decoded: there is memory for the pane and for the tails of the next
    /// epoch.
    pub fn may_unpack(&self, pane: &PaneLoad) -> bool {
        pane.held.is_sealed() && pane.build.number < self.queue().permitted
    }

    /// Counts records unpacked from a block of a pane; the last ones complete it.
    pub fn unpacked(&self, pane: Arc<PaneLoad>, records: u64) {
        if pane.left.fetch_sub(records, Ordering::AcqRel) == records {
            let mut queue = self.queue();
            let number = pane.build.number;
            queue.panes.retain(|other| other.build.number != number);
        }
        // Every worker that read from a pane drops its share here, after adding its rows.
        if let Some(pane) = Arc::into_inner(pane)
            && pane.left.load(Ordering::Acquire) == 0
        {
            self.shared.deliver(pane.build.finish());
        }
    }

    /// Room for one block in the scratch file.
    pub fn take_space(&self) -> u64 {
        let mut space = self.space.lock().expect("no holder of this lock panics");
        if let Some(offset) = space.free.pop() {
            return offset;
        }
        let offset = space.end;
        space.end += self.sizes.block_bytes as u64;
        offset
    }

    fn give_space(&self, offset: u64) {
        let mut space = self.space.lock().expect("no holder of this lock panics");
        space.free.push(offset);
    }

    /// A buffer of one block. Tails, one a bucket, and writes in flight bound their number.
    pub fn take_buffer(&self) -> AlignedBuffer {
        let mut spare = self.spare.lock().expect("no holder of this lock panics");
        if let Some(buffer) = spare.buffers.pop() {
            return buffer;
        }
        spare.made += 1;
        drop(spare);
        new_buffer(self.sizes.block_bytes)
    }

    pub fn give_buffer(&self, buffer: AlignedBuffer) {
        let mut spare = self.spare.lock().expect("no holder of this lock panics");
        if spare.made > self.sizes.kept {
            spare.made -= 1;
        } else {
            spare.buffers.push(buffer);
        }
    }
}

pub(super) fn new_buffer(bytes: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::with_capacity(4096, bytes);
    buffer.resize(bytes, 0);
    buffer
}
