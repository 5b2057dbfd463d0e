//! The scatter path: while one epoch is read, its records are appended to *buckets* by their position in the next
//! epoch's order, which the plan already knows; a bucket holds one pane and is put in order in memory. One sequential
//! read and one sequential write of the data an epoch, with any budget, for disk space of about the data's size.
//! Worth it for records far smaller than a page.
//!
//! Before the first epoch one sequential pass over the data fills its buckets. Orders with fixed blocks
//! ([`pelton_plan::Order::Block`]) are written once and read every epoch, as block minimization prepares its data (Yu
//! et al., TKDD 2012, section 3.1).
//!
//! A consumer that declines records (`epoch_barrier`) does so when a batch is planned, after the buckets of
//! its epoch were filled. So every record is in a bucket, wanted or not. Buckets then
//! are even runs of positions, and a batch reads as many as it covers; declined records are skipped when their block
//! is unpacked, and go to the next epoch's buckets like the rest. The bucket in which a batch ends is read again for
//! the next one. Keeping it in memory was rejected: that memory would be taken from the batches. So was a file of
//! needed rows only: rows are skipped for one to eight epochs, and each of these would need a separate file.
//!
//! With several ranks, each has its own scratch file and buckets for the records that it owns; its first pass
//! reads the runs of the files that contain them. That needs owners which stay the same from epoch to
//! epoch ([`crate::Share::owned`]): a rank that takes an equal part of each batch would have to send
//! records to others between epochs. Slots count all ranks' records, and a bit each marks this rank's: a
//! record's position among the rank's own could not be computed without a pass over those before it.
//!
//! A bucket is a list of blocks of one size in an unlinked scratch file (`buckets`); a block is reused once
//! panes have taken all its records. Partial last blocks are written when the
//! last record of their epoch was appended, so that only the tails of one epoch are in memory.
//!
//! Every worker (`worker`) does all stages of a block: it keeps several reads and writes in flight on its own
//! queue (`append`), and decodes and scatters blocks as they arrive. Blocks of
//! the pane after the last that there is memory for are read ahead, so the disk does not wait at the
//! ends of panes. A thread for each stage was rejected: the load of two cores is then as uneven as the stages.

mod append;
mod buckets;
mod stage;
mod worker;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use pelton_format::{Dataset, RecordBytes};
use pelton_plan::{Place, Plan, Spread};
use pelton_storage::ScratchFile;

use self::append::UNIT_BYTES;
use self::buckets::{BlockLayout, BucketMap, EpochBuckets, Grid, order_of};
use self::stage::{BufferSizes, FirstPass, PaneLoad, Stage};
use self::worker::Worker;
use crate::access::ScatterCase;
use crate::error::FetchError;
use crate::options::FetchOptions;
use crate::pane::PaneBuild;
use crate::planner::PlannedPane;
use crate::reader::Shared;
use crate::scatter_budget::{buffer_bytes, panes_ahead, tail_bytes};
use crate::share::Share;
use crate::sizing::{Sizes, pane_row_bytes};

const LARGEST_BLOCK: u64 = 256 << 10;
/// Most bytes that a worker reads of the data set at a time.
const LARGEST_FIRST_READ: u64 = 1 << 20;
/// Most reads, and most writes, that one worker keeps in flight.
const MOST_IN_FLIGHT: u64 = 8;
/// Most buckets of a batch, if panes do not end with buckets.
const BUCKETS_PER_BATCH: u64 = 8;
/// Smallest block of such buckets.
const SMALLEST_BLOCK: u64 = 8 << 10;
/// Most bytes of records in a segment to which several blocks add rows.
const LARGEST_SHARED_SEGMENT: u64 = 64 << 10;

/// How epochs are cut into buckets. With a barrier panes are single batches, possibly more than there are
/// buckets in the budget: a bucket that two of them share is read for both.
fn grid(dataset: &Dataset, plan: &Plan, options: &FetchOptions, pane_batches: u64) -> Grid {
    if !options.epoch_barrier || plan.spread() != Spread::Everywhere {
        return Grid::Panes(pane_batches);
    }
    let block = SMALLEST_BLOCK.max(2 * dataset.record_bytes().max());
    let most = (tail_bytes(options) / block).max(1);
    let buckets = most.min(BUCKETS_PER_BATCH * plan.steps(0).max(1));
    Grid::Positions(plan.records().div_ceil(buckets).max(1))
}

/// The cost inputs of the scatter path for this plan, or why it cannot serve it.
pub(crate) fn case(
    dataset: &Dataset,
    plan: &Plan,
    options: &FetchOptions,
    wanted_share: f64,
) -> Result<ScatterCase, String> {
    let records = match &options.share {
        None => dataset.records(),
        Some(share) => share.most_owned(dataset.records()).ok_or(
            "with batches divided equally, a rank reads different records in each epoch; use direct or window",
        )?,
    };
    let is_random = matches!(plan.spread(), Spread::Everywhere | Spread::Blocks);
    if !is_random || plan.epoch_order(0).is_none() {
        return Err("the order reads runs of neighbours; use window".to_string());
    }
    if options.scratch_dir.is_none() {
        return Err("no scratch folder is given; give one with `scratch`".to_string());
    }
    let row = pane_row_bytes(dataset);
    let pane_rows = (options.memory_bytes / 3 / row.max(1)).max(1);
    let buckets = records.div_ceil(pane_rows).max(1);
    let block = block_bytes(options, buckets);
    if block < (UNIT_BYTES as u64).max(2 * dataset.record_bytes().max()) {
        return Err(format!(
            "the budget leaves {block} bytes for each of {buckets} bucket buffers; raise `memory` or use window"
        ));
    }
    let shared = match grid(dataset, plan, options, 1) {
        grid @ Grid::Positions(_) => grid.buckets(plan),
        Grid::Panes(_) => {
            return Ok(ScatterCase {
                block_bytes: block as f64,
                rereads: 0.0,
            });
        }
    };
    Ok(ScatterCase {
        block_bytes: block_bytes(options, shared) as f64,
        rereads: plan.steps(0) as f64 * wanted_share / shared as f64,
    })
}

fn block_bytes(options: &FetchOptions, buckets: u64) -> u64 {
    let block = (tail_bytes(options) / buckets).min(LARGEST_BLOCK);
    block - block % UNIT_BYTES as u64
}

fn buffer_sizes(
    dataset: &Dataset,
    options: &FetchOptions,
    sizes: Sizes,
    buckets: u64,
) -> BufferSizes {
    let longest = (dataset.record_bytes().max() + 8).next_multiple_of(UNIT_BYTES as u64);
    let block = block_bytes(options, buckets).max(longest);
    let rest = buffer_bytes(options).saturating_sub(buckets * block);
    let share = rest / 2 / options.threads as u64;
    // The memory of panes is free in the first pass, and the buffers of that pass are freed before the first
    // block is read.
    let free = options.memory_bytes / 4 / options.threads as u64;
    let first_pass = free
        .min(LARGEST_FIRST_READ)
        .next_multiple_of(UNIT_BYTES as u64);
    // Blocks that hold few rows of a pane share segments.
    let segment = if options.epoch_barrier {
        LARGEST_SHARED_SEGMENT.min(options.memory_bytes / 64)
    } else {
        0
    };
    let reads = (share + sizes.task_bytes) / block;
    let writes = (share / block).clamp(1, MOST_IN_FLIGHT);
    BufferSizes {
        block_bytes: block as usize,
        reads: reads.clamp(1, MOST_IN_FLIGHT) as usize,
        writes: writes as usize,
        kept: (buckets + options.threads as u64 * writes) as usize,
        task_bytes: first_pass.max(sizes.task_bytes) as usize,
        segment_bytes: segment.max(block) as usize,
    }
}

/// Records of `records` that a feed with these options reads.
fn own_records(options: &FetchOptions, records: u64) -> u64 {
    let share = options.share.as_ref();
    share
        .and_then(|share| share.own(records))
        .unwrap_or(records)
}

/// Loads panes from buckets.
#[derive(Debug)]
pub(crate) struct Scatter {
    shared: Arc<Shared>,
    plan: Arc<Plan>,
    grid: Grid,
    share: Option<Share>,
    /// Records of this rank in an epoch: those in buckets.
    own: u64,
    threads: usize,
    buffers: BufferSizes,
    gap_bytes: u64,
    scratch_dir: PathBuf,
    /// Epoch and step of the first batch; it exists.
    start: Place,
    end_epoch: u64,
    fixed: bool,
    epochs: BTreeMap<u64, Arc<EpochBuckets>>,
    panes: u64,
    panes_ahead: u64,
    permitted: u64,
    stage: Option<Arc<Stage>>,
    workers: Vec<JoinHandle<()>>,
}

impl Scatter {
    pub fn new(
        shared: Arc<Shared>,
        plan: Arc<Plan>,
        options: &FetchOptions,
        sizes: Sizes,
    ) -> Scatter {
        let grid = grid(&shared.dataset, &plan, options, sizes.pane_batches);
        let start = if options.start.step >= plan.steps(options.start.epoch) {
            Place {
                epoch: options.start.epoch + 1,
                step: 0,
            }
        } else {
            options.start
        };
        Scatter {
            grid,
            own: own_records(options, plan.records()),
            share: options.share.clone(),
            threads: options.threads,
            gap_bytes: options.device.break_even_gap_bytes(),
            buffers: buffer_sizes(&shared.dataset, options, sizes, grid.buckets(&plan)),
            scratch_dir: options.scratch_dir.clone().unwrap_or_default(),
            start,
            end_epoch: options.end_epoch.unwrap_or(u64::MAX),
            fixed: plan.spread() == Spread::Blocks,
            epochs: BTreeMap::new(),
            panes: 0,
            panes_ahead: panes_ahead(options),
            permitted: 0,
            stage: None,
            workers: Vec::new(),
            shared,
            plan,
        }
    }

    /// Panes that are planned beyond those there is memory for.
    pub fn panes_ahead(&self) -> u64 {
        self.panes_ahead
    }

    /// Lets panes below `number` take memory for their rows.
    pub fn permit(&mut self, number: u64) {
        self.permitted = number;
        if let Some(stage) = &self.stage {
            stage.permit(number);
        }
    }

    /// Loads one more pane; the first call begins the first pass.
    pub fn step(&mut self, planned: Option<PlannedPane>) {
        let Some(planned) = planned else { return };
        if self.stage.is_none()
            && let Err(error) = self.begin()
        {
            self.shared.fail(error);
        }
        // Only the first pass reads the files. A job that reads them again at its end would be refused then, after all
        // its work.
        if let Err(error) = self.shared.dataset.check_unchanged() {
            self.shared.fail(error.into());
        }
        let pane = self.pane_load(planned);
        if pane.left.load(Ordering::Relaxed) == 0 {
            // No block has records of it.
            self.shared.deliver(pane.build.finish());
            return;
        }
        // Without a stage the feed has failed, and its consumer is about to receive the error.
        if let Some(stage) = &self.stage {
            stage.add(pane);
        }
    }

    fn begin(&mut self) -> Result<(), FetchError> {
        let epoch = if self.fixed { 0 } else { self.start.epoch };
        let passed = match self.start.step {
            step if step > 0 && !self.fixed => {
                let positions = order_of(&self.plan, epoch).step_positions(step);
                positions.map_or(0, |positions| positions.start)
            }
            _ => 0,
        };
        let left = self.own - self.own_at(epoch, 0..passed);
        let buckets = self.buckets_of(epoch, left);
        let first = FirstPass {
            buckets,
            passed,
            after: (passed > 0 && epoch + 1 < self.end_epoch)
                .then(|| self.buckets_of(epoch + 1, self.own)),
            share: self.share.clone(),
            task_ids: self.task_ids(),
            next_id: AtomicU64::new(0),
            gap_bytes: self.gap_bytes,
        };
        let record_bytes = match self.shared.dataset.record_bytes() {
            RecordBytes::Fixed(bytes) => usize::try_from(bytes).ok(),
            RecordBytes::Variable { .. } => None,
        };
        let layout = BlockLayout { record_bytes };
        let scratch = ScratchFile::create(&self.scratch_dir, self.scratch_bytes(layout, &first))?;
        let stage = Arc::new(Stage::new(
            Arc::clone(&self.shared),
            Arc::new(scratch),
            layout,
            self.buffers,
            first,
            self.fixed,
        ));
        stage.permit(self.permitted);
        for _ in 0..self.threads {
            let stage = Arc::clone(&stage);
            let thread = std::thread::Builder::new().name("pelton-scatter".into());
            let started = thread.spawn(move || {
                let shared = Arc::clone(&stage.shared);
                shared.guard(|| Worker::new(Arc::clone(&stage))?.run());
                // Other workers stop after a failure.
                stage.close();
            });
            match started {
                Ok(worker) => self.workers.push(worker),
                // Fewer do the same, later.
                Err(_) if !self.workers.is_empty() => break,
                Err(error) => return Err(FetchError::Thread(error)),
            }
        }
        self.stage = Some(stage);
        Ok(())
    }

    /// The number of ids that contain about as many of a rank's own records as a worker reads at a time.
    fn task_ids(&self) -> u64 {
        let dataset = &self.shared.dataset;
        let mean = (dataset.bytes() / dataset.records().max(1)).max(1);
        let wanted = (self.buffers.task_bytes as u64 / mean).max(1);
        let scale = dataset.records() / self.own.max(1);
        wanted.saturating_mul(scale.max(1))
    }

    /// Records of this rank among the positions of an epoch.
    fn own_at(&self, epoch: u64, positions: Range<u64>) -> u64 {
        const CHUNK: u64 = 1024;
        let Some(share) = &self.share else {
            return positions.end - positions.start;
        };
        let order = order_of(&self.plan, epoch);
        let mut ids = [0; CHUNK as usize];
        let mut own = 0;
        for from in positions.clone().step_by(CHUNK as usize) {
            let ids = &mut ids[..CHUNK.min(positions.end - from) as usize];
            order.fill(from, ids);
            own += ids.iter().filter(|&&id| share.may_take(id)).count();
        }
        own as u64
    }

    /// Bytes of this rank's records in the data set.
    fn own_bytes(&self) -> u64 {
        let dataset = &self.shared.dataset;
        match (&self.share, dataset.record_bytes()) {
            (None, _) => dataset.bytes(),
            (Some(_), RecordBytes::Fixed(bytes)) => self.own * bytes,
            (Some(share), RecordBytes::Variable { .. }) => (0..dataset.records())
                .filter(|&id| share.may_take(id))
                .map(|id| dataset.locate(id).length)
                .sum(),
        }
    }

    /// Space for all records, for the partial last blocks of an epoch and for blocks in flight.
    fn scratch_bytes(&self, layout: BlockLayout, first: &FirstPass) -> u64 {
        let records = self.own_bytes() + self.own * layout.header_bytes() as u64;
        let block = self.buffers.block_bytes as u64;
        let unfilled = match layout.record_bytes {
            Some(bytes) => (bytes + layout.header_bytes()) as u64,
            None => records / self.own.max(1),
        };
        let in_flight = (self.threads * self.buffers.writes) as u64;
        let buckets = first.buckets.buckets.len() as u64;
        let partial = buckets + in_flight;
        // Buckets at the ends of panes are kept until the next pane has read its part of them.
        let records = match self.grid {
            Grid::Panes(_) => records,
            Grid::Positions(_) => records + 2 * records / buckets.max(1),
        };
        records + records / block * unfilled + partial * block
    }

    fn buckets_of(&mut self, epoch: u64, records: u64) -> Arc<EpochBuckets> {
        let opened = self.epochs.entry(epoch).or_insert_with(|| {
            let map = BucketMap::new(&self.plan, epoch, self.grid);
            Arc::new(EpochBuckets::new(map, records))
        });
        Arc::clone(opened)
    }

    fn pane_load(&mut self, mut planned: PlannedPane) -> PaneLoad {
        let first = planned.batches.first().expect("a pane has batches").place;
        let last = planned.batches.last().expect("a pane has batches");
        let epoch = first.epoch;
        let (records, own) = (self.plan.records(), self.own);
        let order = order_of(&self.plan, epoch);
        let of_step = |step| order.step_positions(step).unwrap_or_default();
        let mut covered = of_step(first.step).start..of_step(last.place.step).end;
        let mut left = planned.own;
        let (held, next) = if self.fixed {
            // In the first epoch blocks have other offsets, since they were written in its order.
            let mut first = [covered.start];
            order.ids_of_each(&mut first);
            order_of(&self.plan, 0).positions_of_each(&mut first);
            covered = first[0]..first[0] + (covered.end - covered.start);
            (self.buckets_of(0, own), None)
        } else {
            if last.ends_epoch {
                // Records that no batch of this epoch takes go to the next one.
                left += self.own_at(epoch, covered.end..records);
                covered.end = records;
            }
            self.epochs.retain(|&held, _| held >= epoch);
            let next = (epoch + 1 < self.end_epoch).then(|| self.buckets_of(epoch + 1, own));
            (self.buckets_of(epoch, own), next)
        };
        let first = held.map.place(covered.start).0 as usize;
        let buckets = first..held.map.place(covered.end - 1).0 as usize + 1;
        let number = self.panes;
        self.panes += 1;
        PaneLoad {
            left: AtomicU64::new(left),
            kept: planned.kept.take(),
            build: PaneBuild::whole(number, planned),
            held,
            claimed: Mutex::new((first, 0)),
            buckets,
            covered,
            next,
        }
    }
}

impl Drop for Scatter {
    fn drop(&mut self) {
        if let Some(stage) = &self.stage {
            stage.close();
        }
        for worker in self.workers.drain(..) {
            // A panic was already turned into a failure by `Shared::guard`.
            let _ = worker.join();
        }
    }
}
