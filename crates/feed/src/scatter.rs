//! The scatter path: while one epoch is read, its records are appended to *buckets* by their place
//! in the next epoch's order, which the plan already knows; a bucket holds one pane and is put in
//! order in memory. One sequential read and one sequential write of the data an epoch, whatever the
//! budget, for disk space of about the data's size. Worth it for records far smaller than a page.
//!
//! Before the first epoch one sequential pass over the data fills its buckets. Orders whose blocks
//! never change ([`pelton_plan::Order::Block`]) are written once and read every epoch, which is how
//! block minimization prepares its data (Yu et al., TKDD 2012, section 3.1).
//!
//! A bucket is a list of blocks of one size in an unlinked scratch file; blocks of a consumed bucket
//! are used again. A block holds whole records: slot u32, length u32 where records differ in length,
//! the record's bytes. The slot is the place in the pane. Partial last blocks stay in memory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};
use pelton_format::{Dataset, RecordBytes, Rows};
use pelton_plan::{Order, Plan};
use pelton_storage::{AlignedBuffer, RangeRead, ScratchFile, Storage};

use crate::error::FeedError;
use crate::options::FeedOptions;
use crate::pane::{CellDivision, PaneBuild};
use crate::planner::PlannedPane;
use crate::reader::Shared;
use crate::sizing::{Sizes, pane_row_bytes};

const SMALLEST_BLOCK: u64 = 4096;
const LARGEST_BLOCK: u64 = 256 << 10;

/// Bytes of the budget that bucket buffers may take.
pub(crate) fn buffer_bytes(options: &FeedOptions) -> u64 {
    options.memory_bytes / 4
}

/// Whether the scatter path can serve this plan, or why not.
pub(crate) fn possible(
    dataset: &Dataset,
    plan: &Plan,
    options: &FeedOptions,
) -> Result<(), String> {
    if !matches!(plan.order(), Order::Full | Order::Block { .. }) {
        return Err("the order reads runs of neighbours; use window".to_string());
    }
    if options.epoch_barrier || options.refill {
        return Err("records are skipped from epoch to epoch; use direct or window".to_string());
    }
    if options.scratch_dir.is_none() {
        return Err("no scratch folder is given; name one with --scratch".to_string());
    }
    let row = pane_row_bytes(dataset);
    let pane_rows = (options.memory_bytes / 3 / row.max(1)).max(1);
    let buckets = dataset.records().div_ceil(pane_rows).max(1);
    let block = block_bytes(options, buckets);
    if block < SMALLEST_BLOCK.max(2 * dataset.record_bytes().max()) {
        return Err(format!(
            "the budget leaves {block} bytes for each of {} bucket buffers; raise --memory or use window",
            2 * buckets
        ));
    }
    Ok(())
}

fn block_bytes(options: &FeedOptions, buckets: u64) -> u64 {
    // Two sets of buckets: the epoch being read and the next one.
    let block = (buffer_bytes(options) / (2 * buckets)).min(LARGEST_BLOCK);
    block - block % SMALLEST_BLOCK
}

/// Loads panes from buckets.
#[derive(Debug)]
pub(crate) struct Scatter {
    requests: Option<Sender<PlannedPane>>,
    thread: Option<JoinHandle<()>>,
}

impl Scatter {
    pub fn new(
        shared: Arc<Shared>,
        plan: Arc<Plan>,
        options: &FeedOptions,
        sizes: Sizes,
    ) -> Result<Scatter, FeedError> {
        let (sender, receiver) = crossbeam_channel::unbounded();
        let mut coordinator = Coordinator::new(Arc::clone(&shared), plan, options, sizes);
        let thread = std::thread::spawn(move || {
            shared.guard(|| coordinator.serve(&receiver));
        });
        Ok(Scatter {
            requests: Some(sender),
            thread: Some(thread),
        })
    }

    pub fn step(&mut self, planned: Option<PlannedPane>) {
        if let Some(planned) = planned {
            let requests = self.requests.as_ref().expect("present until dropped");
            // The coordinator ends early only after a failure, which the consumer then gets.
            let _ = requests.send(planned);
        }
    }
}

impl Drop for Scatter {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Where the panes of one epoch begin, in positions.
#[derive(Debug)]
struct BucketMap {
    starts: Vec<u64>,
}

impl BucketMap {
    fn new(plan: &Plan, epoch: u64, pane_batches: u64) -> BucketMap {
        let mut starts = Vec::new();
        let mut position = 0;
        for step in 0..plan.steps() {
            if step % pane_batches == 0 {
                starts.push(position);
            }
            position += plan.step_len(epoch, step);
        }
        BucketMap { starts }
    }

    /// Bucket and slot of a position.
    fn place(&self, position: u64) -> (usize, u32) {
        let bucket = self.starts.partition_point(|&start| start <= position) - 1;
        (bucket, (position - self.starts[bucket]) as u32)
    }
}

/// One epoch's buckets.
#[derive(Debug)]
struct Buckets {
    map: BucketMap,
    buckets: Vec<Mutex<Bucket>>,
}

#[derive(Debug, Default)]
struct Bucket {
    /// Offsets of full blocks in the scratch file and the bytes used of each.
    blocks: Vec<(u64, u32)>,
    /// The block being filled.
    tail: Option<AlignedBuffer>,
}

struct Coordinator {
    shared: Arc<Shared>,
    plan: Arc<Plan>,
    sizes: Sizes,
    threads: usize,
    scratch_dir: PathBuf,
    block_bytes: usize,
    end_epoch: u64,
    start: crate::planner::Cursor,
    fixed: bool,
    /// Length of every record, where they are of one length.
    record_bytes: Option<usize>,
    scratch: Option<ScratchFile>,
    free_blocks: Mutex<Vec<u64>>,
    next_block: AtomicU64,
    spare_tails: Mutex<Vec<AlignedBuffer>>,
    epochs: BTreeMap<u64, Buckets>,
    panes_done: u64,
}

impl Coordinator {
    fn new(
        shared: Arc<Shared>,
        plan: Arc<Plan>,
        options: &FeedOptions,
        sizes: Sizes,
    ) -> Coordinator {
        let fixed = matches!(plan.order(), Order::Block { .. });
        let buckets = plan.steps().div_ceil(sizes.pane_batches).max(1);
        Coordinator {
            sizes,
            threads: options.threads,
            scratch_dir: options.scratch_dir.clone().unwrap_or_default(),
            block_bytes: block_bytes(options, buckets).max(SMALLEST_BLOCK) as usize,
            end_epoch: options.end_epoch.unwrap_or(u64::MAX),
            start: options.start,
            fixed,
            record_bytes: match shared.dataset.record_bytes() {
                RecordBytes::Fixed(bytes) => usize::try_from(bytes).ok(),
                RecordBytes::Variable { .. } => None,
            },
            scratch: None,
            free_blocks: Mutex::new(Vec::new()),
            next_block: AtomicU64::new(0),
            spare_tails: Mutex::new(Vec::new()),
            epochs: BTreeMap::new(),
            panes_done: 0,
            shared,
            plan,
        }
    }

    fn serve(&mut self, requests: &Receiver<PlannedPane>) -> Result<(), FeedError> {
        for planned in requests {
            if self.scratch.is_none() {
                self.prepare()?;
            }
            let shared = Arc::clone(&self.shared);
            let _loading = shared.meters.loading();
            self.load_pane(planned)?;
        }
        Ok(())
    }

    /// Fills the buckets of the first epoch in one sequential pass. Records before the starting
    /// place go to the buckets of the epoch after it.
    fn prepare(&mut self) -> Result<(), FeedError> {
        let bytes = self.shared.dataset.bytes()
            + self.shared.dataset.records() * self.header_bytes() as u64;
        self.scratch = Some(ScratchFile::create(&self.scratch_dir, bytes)?);
        let first = if self.fixed { 0 } else { self.start.epoch };
        self.open_epoch(first);
        let resume_from: u64 = (0..self.start.next)
            .map(|step| self.plan.step_len(first, step))
            .sum();
        let passed = if self.fixed { 0 } else { resume_from };
        if passed > 0 && first + 1 < self.end_epoch {
            self.open_epoch(first + 1);
        }
        let next_task = AtomicU64::new(0);
        self.on_threads(|this, buffer| this.prepare_tasks(&next_task, first, passed, buffer))?;
        self.shared.meters.prepared();
        Ok(())
    }

    fn open_epoch(&mut self, epoch: u64) {
        let map = BucketMap::new(&self.plan, epoch, self.sizes.pane_batches);
        let buckets = map.starts.iter().map(|_| Mutex::default()).collect();
        self.epochs.insert(epoch, Buckets { map, buckets });
    }

    /// Runs `work` on every thread; the first error is returned.
    fn on_threads(
        &self,
        work: impl Fn(&Coordinator, &mut AlignedBuffer) -> Result<(), FeedError> + Sync,
    ) -> Result<(), FeedError> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|_| {
                    scope.spawn(|| {
                        let mut buffer =
                            AlignedBuffer::with_capacity(4096, self.sizes.task_bytes as usize);
                        buffer.resize(self.sizes.task_bytes as usize, 0);
                        work(self, &mut buffer)
                    })
                })
                .collect();
            // Every thread is joined before the first error is returned.
            let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            results.into_iter().try_for_each(|result| {
                result.unwrap_or_else(|_| {
                    Err(FeedError::Panicked("while filling buckets".to_string()))
                })
            })
        })
    }

    fn prepare_tasks(
        &self,
        next_task: &AtomicU64,
        epoch: u64,
        passed: u64,
        buffer: &mut AlignedBuffer,
    ) -> Result<(), FeedError> {
        let records = self.shared.dataset.records();
        let mean = (self.shared.dataset.bytes() / records.max(1)).max(1);
        let per_task = (self.sizes.task_bytes / mean).max(1);
        loop {
            let from = next_task.fetch_add(per_task, Ordering::Relaxed);
            if from >= records {
                return Ok(());
            }
            let to = (from + per_task).min(records);
            let mut id = from;
            while id < to {
                id = self.prepare_run(id, to, epoch, passed, buffer)?;
            }
        }
    }

    /// Reads as many records from `from` on as fit the buffer and appends them to their buckets.
    fn prepare_run(
        &self,
        from: u64,
        to: u64,
        epoch: u64,
        passed: u64,
        buffer: &mut AlignedBuffer,
    ) -> Result<u64, FeedError> {
        let dataset = &self.shared.dataset;
        dataset.check_unchanged()?;
        let first = dataset.locate(from);
        let storage = dataset.files()[first.file as usize].storage();
        let mask = u64::from(storage.granularity().offset_bytes) - 1;
        let start = first.offset & !mask;
        let ids: Vec<u64> = (from..to).collect();
        let mut places = Vec::new();
        dataset.locate_into(&ids, &mut places);
        let fits = places
            .iter()
            .take_while(|place| {
                let end = (place.offset + place.length + mask) & !mask;
                place.file == first.file && end - start <= buffer.len() as u64
            })
            .count()
            .max(1);
        let last = places[fits - 1];
        let length = ((last.offset + last.length + mask) & !mask) - start;
        if length > buffer.len() as u64 {
            buffer.resize(length as usize, 0);
        }
        let began = Instant::now();
        let filled = read_pieces(storage.as_ref(), start, &mut buffer[..length as usize])?;
        self.shared.meters.count_read(1, filled, began.elapsed());
        for (id, place) in ids.iter().zip(&places[..fits]) {
            let begin = (place.offset - start) as usize;
            let end = begin + place.length as usize;
            if end as u64 > filled {
                return Err(FeedError::Shrunk {
                    path: storage.name(),
                    offset: place.offset,
                    expected: place.length,
                    found: filled.saturating_sub(begin as u64),
                });
            }
            self.append(epoch, passed, *id, &buffer[begin..end])?;
        }
        Ok(from + fits as u64)
    }

    /// Appends a record to its bucket of `epoch`, or of the epoch after it where its position is
    /// before `passed`.
    fn append(&self, epoch: u64, passed: u64, id: u64, bytes: &[u8]) -> Result<(), FeedError> {
        let mut epoch = epoch;
        let mut position = self.position(epoch, id);
        if position < passed {
            epoch += 1;
            if epoch >= self.end_epoch {
                return Ok(());
            }
            position = self.position(epoch, id);
        }
        let buckets = &self.epochs[&epoch];
        let (bucket, slot) = buckets.map.place(position);
        let mut bucket = buckets.buckets[bucket]
            .lock()
            .expect("no holder of this lock panics");
        let needed = self.header_bytes() + bytes.len();
        if bucket
            .tail
            .as_ref()
            .is_some_and(|tail| tail.len() + needed > self.block_bytes)
        {
            let tail = bucket.tail.take().expect("just seen");
            let block = self.write_block(tail)?;
            bucket.blocks.push(block);
        }
        let tail = bucket.tail.get_or_insert_with(|| self.take_tail());
        tail.extend_from_slice(&slot.to_le_bytes());
        if self.record_bytes.is_none() {
            tail.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        }
        tail.extend_from_slice(bytes);
        Ok(())
    }

    /// Bytes before each record in a block.
    fn header_bytes(&self) -> usize {
        if self.record_bytes.is_some() { 4 } else { 8 }
    }

    /// Takes one record off the front of a block: its slot, its bytes and the rest.
    fn split_record<'a>(&self, block: &'a [u8]) -> Option<(u32, &'a [u8], &'a [u8])> {
        let (slot, mut rest) = block.split_first_chunk()?;
        let length = match self.record_bytes {
            Some(length) => length,
            None => {
                let (length, after) = rest.split_first_chunk()?;
                rest = after;
                u32::from_le_bytes(*length) as usize
            }
        };
        let (bytes, rest) = rest.split_at(length);
        Some((u32::from_le_bytes(*slot), bytes, rest))
    }

    fn position(&self, epoch: u64, id: u64) -> u64 {
        self.plan
            .position_of(epoch, id)
            .expect("`possible` admits invertible orders only")
    }

    fn take_tail(&self) -> AlignedBuffer {
        self.spare_tails
            .lock()
            .expect("no holder of this lock panics")
            .pop()
            .unwrap_or_else(|| AlignedBuffer::with_capacity(4096, self.block_bytes))
    }

    fn write_block(&self, mut tail: AlignedBuffer) -> Result<(u64, u32), FeedError> {
        let used = tail.len() as u32;
        let reused = self
            .free_blocks
            .lock()
            .expect("no holder of this lock panics")
            .pop();
        let offset = reused.unwrap_or_else(|| {
            self.next_block
                .fetch_add(self.block_bytes as u64, Ordering::Relaxed)
        });
        tail.resize(self.block_bytes, 0);
        let scratch = self.scratch.as_ref().expect("created by `prepare`");
        scratch.write_at(offset, &tail)?;
        self.shared
            .meters
            .written_bytes
            .fetch_add(self.block_bytes as u64, Ordering::Relaxed);
        tail.clear();
        self.spare_tails
            .lock()
            .expect("no holder of this lock panics")
            .push(tail);
        Ok((offset, used))
    }

    fn load_pane(&mut self, planned: PlannedPane) -> Result<(), FeedError> {
        let first = planned.batches.first().expect("a pane has batches");
        let (epoch, step) = (first.epoch, first.step);
        let (held_epoch, bucket) = if self.fixed {
            let position = planned.ids.first().map_or(0, |&id| self.position(0, id));
            (0, self.epochs[&0].map.place(position).0)
        } else {
            // A run resumed inside a pane finds its records there too.
            (epoch, (step / self.sizes.pane_batches) as usize)
        };
        let scatter_next = !self.fixed && epoch + 1 < self.end_epoch;
        if scatter_next && !self.epochs.contains_key(&(epoch + 1)) {
            self.open_epoch(epoch + 1);
        }
        let division = CellDivision {
            from: 0,
            to: self.shared.dataset.records(),
            count: 1,
        };
        let first_slot = self.first_slot(held_epoch, step);
        let pane = PaneBuild::new(self.panes_done, planned, division);
        self.panes_done += 1;
        let (blocks, tail) = self.take_bucket(held_epoch, bucket);
        let load = PaneLoad {
            pane: &pane,
            first_slot,
            next_epoch: scatter_next.then_some(epoch + 1),
        };
        if let Some(tail) = &tail {
            self.unpack(&load, tail)?;
        }
        let next_block = AtomicUsize::new(0);
        self.on_threads(|this, buffer| this.load_blocks(&load, &blocks, &next_block, buffer))?;
        self.return_bucket(held_epoch, bucket, blocks, tail);
        self.shared.deliver(pane.finish());
        Ok(())
    }

    /// Slot of a pane's first row in its bucket: above 0 only where a run resumed inside the pane.
    fn first_slot(&self, epoch: u64, step: u64) -> u32 {
        if self.fixed {
            return 0;
        }
        let begin = step - step % self.sizes.pane_batches;
        (begin..step)
            .map(|step| self.plan.step_len(epoch, step) as u32)
            .sum()
    }

    fn take_bucket(&self, epoch: u64, bucket: usize) -> (Vec<(u64, u32)>, Option<AlignedBuffer>) {
        let mut bucket = self.epochs[&epoch].buckets[bucket]
            .lock()
            .expect("no holder of this lock panics");
        (std::mem::take(&mut bucket.blocks), bucket.tail.take())
    }

    fn return_bucket(
        &mut self,
        epoch: u64,
        number: usize,
        blocks: Vec<(u64, u32)>,
        tail: Option<AlignedBuffer>,
    ) {
        if self.fixed {
            let mut bucket = self.epochs[&epoch].buckets[number]
                .lock()
                .expect("no holder of this lock panics");
            bucket.blocks = blocks;
            bucket.tail = tail;
            return;
        }
        let mut free = self
            .free_blocks
            .lock()
            .expect("no holder of this lock panics");
        free.extend(blocks.iter().map(|&(offset, _)| offset));
        if let Some(mut tail) = tail {
            tail.clear();
            self.spare_tails
                .lock()
                .expect("no holder of this lock panics")
                .push(tail);
        }
        self.epochs.retain(|&held, _| held >= epoch);
    }

    fn load_blocks(
        &self,
        load: &PaneLoad<'_>,
        blocks: &[(u64, u32)],
        next: &AtomicUsize,
        buffer: &mut AlignedBuffer,
    ) -> Result<(), FeedError> {
        let at_once = (buffer.len() / self.block_bytes).max(1);
        buffer.resize((at_once * self.block_bytes).max(buffer.len()), 0);
        let scratch = self.scratch.as_ref().expect("created by `prepare`");
        loop {
            let from = next.fetch_add(at_once, Ordering::Relaxed);
            if from >= blocks.len() {
                return Ok(());
            }
            let blocks = &blocks[from..(from + at_once).min(blocks.len())];
            let began = Instant::now();
            let mut reads: Vec<_> = blocks
                .iter()
                .zip(buffer.chunks_exact_mut(self.block_bytes))
                .map(|(&(offset, _), buffer)| RangeRead {
                    offset,
                    buffer,
                    filled: 0,
                })
                .collect();
            scratch.read_batch(&mut reads)?;
            let bytes = (blocks.len() * self.block_bytes) as u64;
            self.shared
                .meters
                .count_read(blocks.len() as u64, bytes, began.elapsed());
            for (&(_, used), bytes) in blocks.iter().zip(buffer.chunks_exact(self.block_bytes)) {
                self.unpack(load, &bytes[..used as usize])?;
            }
        }
    }

    /// Decodes the records of one block into the pane and appends them to the next epoch's buckets.
    fn unpack(&self, load: &PaneLoad<'_>, block: &[u8]) -> Result<(), FeedError> {
        let began = Instant::now();
        let dataset: &Dataset = &self.shared.dataset;
        let mean_bytes = dataset.bytes() / dataset.records().max(1);
        let rows_in_block = block.len() / (mean_bytes as usize + self.header_bytes()) + 1;
        let mut rows: Rows = self.shared.take_rows(rows_in_block);
        let mut slots = Vec::new();
        let mut used = 0;
        let mut rest = block;
        while let Some((slot, bytes, after)) = self.split_record(rest) {
            rest = after;
            let slot = slot
                .checked_sub(load.first_slot)
                .expect("a bucket holds no record before the starting place");
            let id = load.pane.ids[slot as usize];
            match dataset.decode(id, bytes, &mut rows) {
                Ok(()) => slots.push(slot),
                Err(error) => self.shared.bad_record(id, error)?,
            }
            used += bytes.len() as u64;
            if let Some(epoch) = load.next_epoch {
                self.append(epoch, 0, id, bytes)?;
            }
        }
        load.pane.add(rows, &slots);
        self.shared.meters.count_decode(used, began.elapsed());
        Ok(())
    }
}

struct PaneLoad<'a> {
    pane: &'a PaneBuild,
    first_slot: u32,
    next_epoch: Option<u64>,
}

/// Reads one range as requests of 128 KiB; returns the bytes there were.
fn read_pieces(storage: &dyn Storage, start: u64, buffer: &mut [u8]) -> Result<u64, FeedError> {
    const PIECE: usize = 128 << 10;
    let mut offset = start;
    let mut reads: Vec<_> = buffer
        .chunks_mut(PIECE)
        .map(|buffer| {
            let read = RangeRead {
                offset,
                filled: 0,
                buffer,
            };
            offset += read.buffer.len() as u64;
            read
        })
        .collect();
    storage.read_batch(&mut reads)?;
    Ok(reads.iter().map(|read| read.filled as u64).sum())
}
