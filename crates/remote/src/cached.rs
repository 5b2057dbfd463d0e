//! A storage that keeps blocks on disk once they were read.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use pelton_key::Digest;
use pelton_storage::{Granularity, RangeRead, Storage, StorageError};

use crate::disk_cache::DiskCache;
use crate::segment::{BLOCK, BLOCKS, length_of};

/// Blocks fetched as one range.
const RUN: u64 = 64;

/// A storage behind a [`DiskCache`].
#[derive(Debug)]
pub struct Cached {
    inner: Arc<dyn Storage>,
    cache: Arc<DiskCache>,
    key: u64,
    size: u64,
}

/// Blocks in a row, and their bytes.
struct Run {
    first: u64,
    bytes: Vec<u8>,
}

impl DiskCache {
    /// The same storage behind the cache: the file `name`, without parts that may contain a key, of `size` bytes in
    /// the state `tag`. `inner` must read any range of bytes.
    pub fn over(
        self: &Arc<Self>,
        inner: Arc<dyn Storage>,
        name: &str,
        tag: u64,
        size: u64,
    ) -> Cached {
        let key = Digest::new("cached object").bytes(name.as_bytes());
        let key = key.words([tag, size]).value();
        Cached::new(inner, Arc::clone(self), key, size)
    }
}

impl Cached {
    pub(crate) fn new(
        inner: Arc<dyn Storage>,
        cache: Arc<DiskCache>,
        key: u64,
        size: u64,
    ) -> Cached {
        assert_eq!(inner.granularity(), Granularity::BYTE);
        Cached {
            inner,
            cache,
            key,
            size,
        }
    }

    /// Fills a range with cached blocks, and returns the missing ones.
    fn load(&self, read: &mut RangeRead<'_>, missing: &mut BTreeSet<u64>, scratch: &mut Vec<u8>) {
        let there = self.size.saturating_sub(read.offset);
        read.filled = (read.buffer.len() as u64).min(there) as usize;
        if read.filled == 0 {
            return;
        }
        let end = read.offset + read.filled as u64;
        let mut numbers = read.offset / BLOCK..end.div_ceil(BLOCK);
        while !numbers.is_empty() {
            let part = numbers.start..of_one_segment(&numbers);
            numbers.start = part.end;
            match self.cache.segment(self.key, part.start / BLOCKS) {
                None => missing.extend(part),
                Some(segment) => {
                    segment.read(part, self.size, scratch, |number, block| match block {
                        Some(block) => copy(number * BLOCK, block, read),
                        None => {
                            missing.insert(number);
                        }
                    })
                }
            }
        }
    }

    /// Fetches blocks; `None` if the file ends before they do.
    fn fetch(&self, missing: &BTreeSet<u64>) -> Result<Option<Vec<Run>>, StorageError> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for &number in missing {
            match runs.last_mut() {
                Some(run) if run.end == number && number - run.start < RUN => run.end += 1,
                _ => runs.push(number..number + 1),
            }
        }
        let mut runs: Vec<Run> = runs
            .into_iter()
            .map(|run| {
                let whole = (run.end - run.start - 1) * BLOCK;
                let bytes = whole as usize + length_of(run.end - 1, self.size);
                Run {
                    first: run.start,
                    bytes: vec![0; bytes],
                }
            })
            .collect();
        let mut reads: Vec<RangeRead<'_>> = runs
            .iter_mut()
            .map(|run| RangeRead {
                offset: run.first * BLOCK,
                buffer: &mut run.bytes,
                filled: 0,
            })
            .collect();
        self.inner.read_batch(&mut reads)?;
        let is_whole = reads.iter().all(|read| read.filled == read.buffer.len());
        Ok(is_whole.then_some(runs))
    }

    /// Stores fetched blocks, as far as possible.
    fn keep(&self, run: &Run, scratch: &mut Vec<u8>) {
        let blocks = (run.bytes.len() as u64).div_ceil(BLOCK);
        let mut numbers = run.first..run.first + blocks;
        while !numbers.is_empty() {
            let part = numbers.start..of_one_segment(&numbers);
            numbers.start = part.end;
            let from = (part.start - run.first) * BLOCK;
            let to = ((part.end - run.first) * BLOCK).min(run.bytes.len() as u64);
            let bytes = &run.bytes[from as usize..to as usize];
            let segment = part.start / BLOCKS;
            let Some(segment) = self
                .cache
                .segment_for(self.key, segment, bytes.len() as u64)
            else {
                return;
            };
            if let Err(error) = segment.write(part.start, bytes, scratch) {
                return self.cache.fail(&error);
            }
        }
    }
}

/// The end of the leading blocks that are in one segment.
fn of_one_segment(numbers: &Range<u64>) -> u64 {
    numbers.end.min((numbers.start / BLOCKS + 1) * BLOCKS)
}

/// Copies the part of a range that is in the bytes at `offset`.
fn copy(offset: u64, bytes: &[u8], read: &mut RangeRead<'_>) {
    let end = read.offset + read.filled as u64;
    let (from, to) = (
        offset.max(read.offset),
        (offset + bytes.len() as u64).min(end),
    );
    if from < to {
        let place = (from - read.offset) as usize..(to - read.offset) as usize;
        read.buffer[place]
            .copy_from_slice(&bytes[(from - offset) as usize..(to - offset) as usize]);
    }
}

impl Storage for Cached {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn size(&self) -> Result<u64, StorageError> {
        self.inner.size()
    }

    fn granularity(&self) -> Granularity {
        Granularity::BYTE
    }

    fn will_need(&self, offset: u64, length: u64) -> u64 {
        self.inner.will_need(offset, length)
    }

    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        let (mut missing, mut scratch) = (BTreeSet::new(), Vec::new());
        for read in reads.iter_mut() {
            self.load(read, &mut missing, &mut scratch);
        }
        if missing.is_empty() {
            return Ok(());
        }
        let Some(runs) = self.fetch(&missing)? else {
            // The slice has its own length.
            return self.inner.read_batch(reads);
        };
        for read in reads.iter_mut().filter(|read| read.filled > 0) {
            let end = read.offset + read.filled as u64;
            let after = |run: &Run| run.first * BLOCK + run.bytes.len() as u64 <= read.offset;
            let first = runs.partition_point(after);
            for run in &runs[first..] {
                if run.first * BLOCK >= end {
                    break;
                }
                copy(run.first * BLOCK, &run.bytes, read);
            }
        }
        for run in &runs {
            self.keep(run, &mut scratch);
        }
        Ok(())
    }
}
