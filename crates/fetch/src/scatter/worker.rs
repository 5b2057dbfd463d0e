//! One thread of the scatter path: keeps reads in flight, and turns each block that has come into
//! rows of its pane and records of the next epoch's buckets.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use pelton_storage::AlignedBuffer;

use super::append::{Appender, Arrived};
use super::stage::{Stage, Use, new_buffer};
use crate::error::FetchError;
use crate::pane::{PaneBuild, Segment};
use crate::ranges::{Merge, RangeBuffer};

pub(super) struct Worker {
    stage: Arc<Stage>,
    appender: Appender,
    read_buffers: Vec<AlignedBuffer>,
    found: Vec<(u32, Range<usize>)>,
    ranges: Vec<Range<usize>>,
    ids: Vec<u64>,
    passed_over: Vec<u64>,
    passed_ranges: Vec<Range<usize>>,
}

impl Worker {
    pub fn new(stage: Arc<Stage>) -> Result<Worker, FetchError> {
        Ok(Worker {
            appender: Appender::new(Arc::clone(&stage))?,
            stage,
            read_buffers: Vec::new(),
            found: Vec::new(),
            ranges: Vec::new(),
            ids: Vec::new(),
            passed_over: Vec::new(),
            passed_ranges: Vec::new(),
        })
    }

    /// Works until the stage is closed.
    pub fn run(mut self) -> Result<(), FetchError> {
        let stage = Arc::clone(&self.stage);
        let loading = stage.shared.meters.loading();
        self.prepare()?;
        let sizes = stage.sizes;
        self.read_buffers
            .resize_with(sizes.reads, || new_buffer(sizes.block_bytes));
        drop(loading);
        while let Some(events) = stage.events() {
            let loading = stage.shared.meters.loading();
            while let Some(buffer) = self.read_buffers.pop() {
                let Some(claim) = stage.claim() else {
                    self.read_buffers.push(buffer);
                    break;
                };
                self.appender.read(claim, buffer)?;
            }
            self.appender.turn(0)?;
            let arrived = &mut self.appender.arrived;
            let usable = arrived
                .iter()
                .position(|arrived| stage.may_unpack(&arrived.claim.pane));
            match usable {
                Some(first) => {
                    let arrived = arrived.remove(first);
                    self.unpack(arrived)?;
                }
                None if self.appender.in_flight() > 0 => self.appender.turn(1)?,
                None => {
                    drop(loading);
                    stage.wait(events);
                }
            }
        }
        Ok(())
    }

    /// Decodes the records of one block that a pane needs, and appends all at the pane's positions to the next
    /// epoch's buckets.
    fn unpack(&mut self, arrived: Arrived) -> Result<(), FetchError> {
        let began = Instant::now();
        let Arrived { claim, buffer } = arrived;
        let stage = Arc::clone(&self.stage);
        let shared = &stage.shared;
        let pane = &claim.pane;
        let bytes = &buffer[..claim.block.used as usize];
        self.found.clear();
        stage.layout.split(bytes, &mut self.found)?;
        self.ids.clear();
        self.ranges.clear();
        self.passed_over.clear();
        self.passed_ranges.clear();
        let mut segment = None;
        let mut used = 0;
        for (slot, range) in &self.found {
            match pane.use_of(claim.bucket, *slot)? {
                Use::Leave => {}
                Use::PassOver(position) => {
                    self.passed_over.push(position);
                    self.passed_ranges.push(range.clone());
                }
                Use::Row(row) => {
                    let id = pane.build.ids[row as usize];
                    let open = open_segment(&stage, &pane.build, &mut segment, range.len());
                    match shared
                        .dataset
                        .decode(id, &bytes[range.clone()], &mut open.rows)
                    {
                        Ok(()) => open.slots.push(row),
                        Err(error) => shared.bad_record(id, error)?,
                    }
                    used += range.len() as u64;
                    self.ids.push(id);
                    self.ranges.push(range.clone());
                }
            }
        }
        if let Some(open) = segment {
            pane.build.put_open(open);
        }
        let records = (self.ids.len() + self.passed_over.len()) as u32;
        stage.take_on(&claim, records);
        if let Some(next) = &pane.next {
            pane.held.map.order.ids_of_each(&mut self.passed_over);
            self.ids.append(&mut self.passed_over);
            self.ranges.append(&mut self.passed_ranges);
            next.map.order.positions_of_each(&mut self.ids);
            self.appender.append(next, bytes, &self.ranges, &self.ids)?;
        }
        self.read_buffers.push(buffer);
        // Counted first: a complete pane may be the last that the consumer waits for.
        shared.meters.count_decode(used, began.elapsed());
        stage.unpacked(claim.pane, u64::from(records));
        Ok(())
    }

    /// Takes its part in the first pass: reads runs of records from the data set and appends them.
    fn prepare(&mut self) -> Result<(), FetchError> {
        let stage = Arc::clone(&self.stage);
        let first = &stage.first;
        let records = stage.shared.dataset.records();
        let mut buffer = RangeBuffer::new(Merge::Gap(first.gap_bytes), stage.sizes.task_bytes);
        let mut wanted = Vec::new();
        loop {
            let from = first.next_id.fetch_add(first.task_ids, Ordering::Relaxed);
            if from >= records || stage.shared.has_failed() {
                return Ok(());
            }
            wanted.clear();
            wanted.extend((from..records.min(from + first.task_ids)).filter(|&id| first.takes(id)));
            self.prepare_records(&wanted, &mut buffer)?;
        }
    }

    /// Reads the records `ids`, which ascend, and appends them to their buckets.
    fn prepare_records(&mut self, ids: &[u64], buffer: &mut RangeBuffer) -> Result<(), FetchError> {
        let stage = Arc::clone(&self.stage);
        let dataset = &stage.shared.dataset;
        let mut places = Vec::new();
        dataset.locate_into(ids, &mut places);
        let mut from = 0;
        while from < ids.len() {
            dataset.check_unchanged()?;
            let count = buffer.read(dataset, &places[from..], &stage.shared.meters)?;
            self.ranges.clear();
            for (i, place) in places[from..from + count].iter().enumerate() {
                self.ranges.push(buffer.record(dataset, i, place)?);
            }
            self.append_first(&ids[from..from + count], buffer.bytes())?;
            self.appender.turn(0)?;
            from += count;
        }
        Ok(())
    }

    /// Appends the records `ids` at `self.ranges` to the buckets of the first epoch, or of the next if an
    /// earlier run has used them.
    fn append_first(&mut self, ids: &[u64], bytes: &[u8]) -> Result<(), FetchError> {
        let stage = Arc::clone(&self.stage);
        let first = &stage.first;
        self.ids.resize(ids.len(), 0);
        let mut positions = self.ids.as_mut_slice();
        for run in ids.chunk_by(|id, next| id + 1 == *next) {
            let (here, rest) = positions.split_at_mut(run.len());
            let end = run[0] + run.len() as u64;
            first.buckets.map.order.positions_of(run[0]..end, here);
            positions = rest;
        }
        if first.passed == 0 {
            return self
                .appender
                .append(&first.buckets, bytes, &self.ranges, &self.ids);
        }
        let (mut ranges, mut positions) = (Vec::new(), Vec::new());
        let (mut later_ranges, mut later) = (Vec::new(), Vec::new());
        for ((&id, &position), range) in ids.iter().zip(&self.ids).zip(&self.ranges) {
            if position < first.passed {
                later.push(id);
                later_ranges.push(range.clone());
            } else {
                positions.push(position);
                ranges.push(range.clone());
            }
        }
        self.appender
            .append(&first.buckets, bytes, &ranges, &positions)?;
        if let Some(after) = &first.after {
            after.map.order.positions_of_each(&mut later);
            self.appender.append(after, bytes, &later_ranges, &later)?;
        }
        Ok(())
    }
}

/// The segment for the next record of a pane. Segments of equal size can reuse each other's memory, so a record that
/// does not fit starts another one.
fn open_segment<'a>(
    stage: &Stage,
    build: &PaneBuild,
    open: &'a mut Option<Segment>,
    bytes: usize,
) -> &'a mut Segment {
    let taken = bytes + stage.layout.header_bytes();
    let fits = |segment: &Segment| segment.bytes + taken <= stage.sizes.segment_bytes;
    if !open.as_ref().is_some_and(fits) {
        for full in [open.take(), build.take_open()].into_iter().flatten() {
            if open.is_none() && fits(&full) {
                *open = Some(full);
            } else {
                build.add(full.rows, &full.slots);
            }
        }
    }
    let open = open.get_or_insert_with(|| new_segment(stage));
    open.bytes += taken;
    open
}

fn new_segment(stage: &Stage) -> Segment {
    let dataset = &stage.shared.dataset;
    let mean = (dataset.bytes() / dataset.records().max(1)) as usize;
    let rows = (stage.sizes.segment_bytes / (mean + stage.layout.header_bytes())).max(1);
    Segment {
        rows: stage.shared.take_rows(rows),
        slots: Vec::with_capacity(rows),
        bytes: 0,
    }
}
