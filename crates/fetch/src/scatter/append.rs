//! Appends records to buckets: one worker's end of the writing.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use pelton_storage::{AlignedBuffer, ScratchQueue, Transfer};

use super::buckets::{Block, EpochBuckets, Tail};
use super::stage::{Claim, Stage};
use crate::error::FetchError;

/// Smallest unit of the scratch file.
pub(super) const UNIT_BYTES: usize = 4096;

/// The purpose of a transfer.
#[derive(Debug)]
pub(super) enum Errand {
    Read {
        claim: Claim,
        began: Instant,
    },
    Write {
        epoch: Arc<EpochBuckets>,
        bucket: u32,
        block: Block,
        records: u32,
    },
}

/// A block that was read.
#[derive(Debug)]
pub(super) struct Arrived {
    pub claim: Claim,
    pub buffer: AlignedBuffer,
}

/// One worker's transfers, and the arrays with which it sorts records by bucket.
#[derive(Debug)]
pub(super) struct Appender {
    stage: Arc<Stage>,
    queue: ScratchQueue<Errand>,
    reads: usize,
    writes: usize,
    done: Vec<Transfer<Errand>>,
    /// Blocks that were read, in the order in which they came.
    pub arrived: Vec<Arrived>,
    places: Vec<(u32, u32)>,
    ends: Vec<u32>,
    sorted: Vec<u32>,
}

impl Appender {
    pub fn new(stage: Arc<Stage>) -> Result<Appender, FetchError> {
        let depth = (stage.sizes.reads + stage.sizes.writes) as u32;
        Ok(Appender {
            queue: ScratchQueue::new(Arc::clone(&stage.scratch), depth)?,
            stage,
            reads: 0,
            writes: 0,
            done: Vec::new(),
            arrived: Vec::new(),
            places: Vec::new(),
            ends: Vec::new(),
            sorted: Vec::new(),
        })
    }

    pub fn in_flight(&self) -> usize {
        self.reads + self.writes
    }

    /// Starts reading a block.
    pub fn read(&mut self, claim: Claim, buffer: AlignedBuffer) -> Result<(), FetchError> {
        self.reads += 1;
        let block = claim.block;
        self.queue.start(Transfer {
            write: false,
            offset: block.offset,
            length: (block.used as usize).next_multiple_of(UNIT_BYTES),
            buffer,
            errand: Errand::Read {
                claim,
                began: Instant::now(),
            },
        })?;
        Ok(())
    }

    /// Submits started transfers, waits for `at_least` of them and collects the finished ones.
    pub fn turn(&mut self, at_least: usize) -> Result<(), FetchError> {
        let meters = &self.stage.shared.meters;
        let began = Instant::now();
        self.queue.turn(at_least, &mut self.done)?;
        if at_least > 0 {
            meters.count_wait(began.elapsed());
        }
        let mut written = false;
        for transfer in self.done.drain(..) {
            match transfer.errand {
                Errand::Read { claim, began } => {
                    meters.count_block_read(transfer.length as u64, began.elapsed());
                    self.reads -= 1;
                    self.arrived.push(Arrived {
                        claim,
                        buffer: transfer.buffer,
                    });
                }
                Errand::Write {
                    epoch,
                    bucket,
                    block,
                    records,
                } => {
                    meters.count_written(transfer.length as u64);
                    self.writes -= 1;
                    self.stage.give_buffer(transfer.buffer);
                    let mut bucket = epoch.bucket(bucket as usize);
                    bucket.writing -= 1;
                    bucket.written(block, records);
                    written = true;
                }
            }
        }
        if written {
            self.stage.wake();
        }
        Ok(())
    }

    /// Appends records, `ranges` of `bytes`, to the buckets of their positions. The records are
    /// sorted by bucket first: each bucket is locked once, and copying stays in few pages.
    pub fn append(
        &mut self,
        epoch: &Arc<EpochBuckets>,
        bytes: &[u8],
        ranges: &[Range<usize>],
        positions: &[u64],
    ) -> Result<(), FetchError> {
        if positions.is_empty() {
            return Ok(());
        }
        self.sort(epoch, positions);
        let sorted = std::mem::take(&mut self.sorted);
        let mut from = 0;
        while from < sorted.len() {
            let bucket = self.places[sorted[from] as usize].0;
            let to = self.ends[bucket as usize] as usize;
            self.fill_bucket(epoch, bucket, bytes, ranges, &sorted[from..to])?;
            from = to;
        }
        self.sorted = sorted;
        if epoch.appended(positions.len() as u64) {
            self.seal(epoch)?;
        }
        Ok(())
    }

    /// Lists the records by bucket (counting sort).
    fn sort(&mut self, epoch: &EpochBuckets, positions: &[u64]) {
        let map = &epoch.map;
        self.ends.clear();
        self.ends.resize(epoch.buckets.len(), 0);
        self.places.clear();
        for &position in positions {
            let place = map.place(position);
            self.ends[place.0 as usize] += 1;
            self.places.push(place);
        }
        let mut start = 0;
        for end in &mut self.ends {
            start += std::mem::replace(end, start);
        }
        self.sorted.clear();
        self.sorted.resize(positions.len(), 0);
        for (record, place) in self.places.iter().enumerate() {
            let end = &mut self.ends[place.0 as usize];
            self.sorted[*end as usize] = record as u32;
            *end += 1;
        }
    }

    fn fill_bucket(
        &mut self,
        epoch: &Arc<EpochBuckets>,
        number: u32,
        bytes: &[u8],
        ranges: &[Range<usize>],
        mut records: &[u32],
    ) -> Result<(), FetchError> {
        let layout = self.stage.layout;
        let block_bytes = self.stage.sizes.block_bytes;
        while !records.is_empty() {
            let mut bucket = epoch.bucket(number as usize);
            let tail = bucket.tail.get_or_insert_with(|| Tail {
                buffer: self.stage.take_buffer(),
                used: 0,
                records: 0,
            });
            let mut put = 0;
            let mut full = false;
            for &record in records {
                let bytes = &bytes[ranges[record as usize].clone()];
                if tail.used + layout.header_bytes() + bytes.len() > block_bytes {
                    full = true;
                    break;
                }
                let slot = self.places[record as usize].1;
                tail.used += layout.put(&mut tail.buffer[tail.used..], slot, bytes);
                put += 1;
            }
            tail.records += put as u32;
            records = &records[put..];
            if full {
                let tail = bucket.tail.take().expect("it was just filled");
                bucket.writing += 1;
                drop(bucket);
                self.write(epoch, number, tail)?;
            }
        }
        Ok(())
    }

    /// Starts writing a tail, once fewer than the worker's share of writes are in flight.
    fn write(
        &mut self,
        epoch: &Arc<EpochBuckets>,
        bucket: u32,
        tail: Tail,
    ) -> Result<(), FetchError> {
        while self.writes >= self.stage.sizes.writes {
            self.turn(1)?;
        }
        self.writes += 1;
        let block = Block {
            offset: self.stage.take_space(),
            used: tail.used as u32,
        };
        self.queue.start(Transfer {
            write: true,
            offset: block.offset,
            length: tail.used.next_multiple_of(UNIT_BYTES),
            buffer: tail.buffer,
            errand: Errand::Write {
                epoch: Arc::clone(epoch),
                bucket,
                block,
                records: tail.records,
            },
        })?;
        Ok(())
    }

    /// Writes the rest of the tails of an epoch after all its records were appended.
    fn seal(&mut self, epoch: &Arc<EpochBuckets>) -> Result<(), FetchError> {
        for number in 0..epoch.buckets.len() {
            let mut bucket = epoch.bucket(number);
            if let Some(tail) = bucket.tail.take() {
                bucket.writing += 1;
                drop(bucket);
                self.write(epoch, number as u32, tail)?;
            }
        }
        epoch.seal();
        if Arc::ptr_eq(epoch, &self.stage.first.buckets) {
            self.stage.shared.meters.prepared();
        }
        self.stage.wake();
        Ok(())
    }
}
