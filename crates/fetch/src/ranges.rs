//! Reads records from the data set's files: neighbours are merged into ranges, and the ranges are read
//! as one batch.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use pelton_format::{DataFile, Dataset, Location};
use pelton_storage::{AlignedBuffer, RangeRead, huge_buffer, on_threads};

use crate::error::FetchError;
use crate::meters::MeterCounters;

/// Ranges longer than this are read as several requests, so that one sweep fills a deep queue.
const REQUEST_BYTES: usize = 128 << 10;

/// How neighbouring records become ranges.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Merge {
    /// Never: every record is its own read.
    Never,
    /// If the hole is at most this many bytes.
    Gap(u64),
}

struct Range {
    file: u32,
    offset: u64,
    length: u64,
    buffer_start: usize,
    filled: u64,
}

/// One thread's read buffer, and the records in it.
pub(crate) struct RangeBuffer {
    merge: Merge,
    buffer: AlignedBuffer,
    ranges: Vec<Range>,
    range_of: Vec<u32>,
}

impl RangeBuffer {
    /// A buffer of `bytes` bytes; a record that is longer makes it grow.
    pub fn new(merge: Merge, bytes: usize) -> RangeBuffer {
        RangeBuffer {
            merge,
            buffer: huge_buffer(bytes),
            ranges: Vec::new(),
            range_of: Vec::new(),
        }
    }

    /// Reads the records at `places`, which are in the order of the files, until the buffer is full, and gives each
    /// to `take` by its index in `places`; returns how many, at least one if there is one.
    ///
    /// Incomplete records are an error of the call, or, with `alone`, read again one by one after the others,
    /// to find the bad one.
    pub fn read_each(
        &mut self,
        dataset: &Dataset,
        places: &[Location],
        alone: bool,
        meters: &MeterCounters,
        mut take: impl FnMut(usize, Result<&[u8], FetchError>) -> Result<(), FetchError>,
    ) -> Result<usize, FetchError> {
        let mut again = Vec::new();
        match self.read(dataset, places, meters) {
            Ok(_) => {
                let began = Instant::now();
                let mut used_bytes = 0;
                for (i, place) in places.iter().take(self.range_of.len()).enumerate() {
                    match self.record(dataset, i, place) {
                        Ok(range) => take(i, Ok(&self.buffer[range]))?,
                        Err(_) if alone => again.push(i),
                        Err(error) => return Err(error),
                    }
                    used_bytes += place.length;
                }
                meters.count_decode(used_bytes, began.elapsed());
            }
            Err(error) if error.is_final() => return Err(error),
            Err(error) if alone => {
                tracing::debug!(%error, "reads are repeated one by one");
                again.extend(0..self.range_of.len());
            }
            Err(error) => return Err(error),
        }
        let taken = self.range_of.len();
        for i in again {
            let place = places[i];
            let read = self.read(dataset, &[place], meters);
            let found = read.and_then(|_| self.record(dataset, 0, &place));
            take(i, found.map(|range| &self.buffer[range]))?;
        }
        Ok(taken)
    }

    /// Reads the records at `places` until the buffer is full; returns how many.
    pub fn read(
        &mut self,
        dataset: &Dataset,
        places: &[Location],
        meters: &MeterCounters,
    ) -> Result<usize, FetchError> {
        self.cut(dataset, places);
        let began = Instant::now();
        let bytes = read_ranges(dataset, &mut self.ranges, &mut self.buffer)?;
        meters.count_read(self.ranges.len() as u64, bytes, began.elapsed());
        Ok(self.range_of.len())
    }

    /// The position in [`RangeBuffer::bytes`] of record `i` of the last read, at `place`.
    pub fn record(
        &self,
        dataset: &Dataset,
        i: usize,
        place: &Location,
    ) -> Result<std::ops::Range<usize>, FetchError> {
        let range = &self.ranges[self.range_of[i] as usize];
        let start = (place.offset - range.offset) as usize;
        let end = start + place.length as usize;
        if end as u64 > range.filled {
            return Err(FetchError::Shrunk {
                path: dataset.files()[place.file as usize].storage().name(),
                offset: place.offset,
                expected: place.length,
                found: range.filled.saturating_sub(start as u64),
            });
        }
        Ok(range.buffer_start + start..range.buffer_start + end)
    }

    /// The bytes of the last read.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Merges records into ranges until the buffer is full.
    fn cut(&mut self, dataset: &Dataset, places: &[Location]) {
        self.ranges.clear();
        self.range_of.clear();
        let mut used = 0usize;
        for (i, place) in places.iter().enumerate() {
            let unit = dataset.files()[place.file as usize].storage().granularity();
            let mask = u64::from(unit.offset_bytes) - 1;
            let start = place.offset & !mask;
            let end = (place.offset + place.length + mask) & !mask;
            let gap = match self.merge {
                Merge::Gap(gap) => Some(gap),
                Merge::Never => None,
            };
            let joins = |range: &Range| {
                let range_end = range.offset + range.length;
                range.file == place.file
                    && gap.is_some_and(|gap| start <= range_end.saturating_add(gap))
            };
            let grown = match self.ranges.last_mut() {
                Some(range) if joins(range) => {
                    let grown = end.saturating_sub(range.offset + range.length);
                    if used + grown as usize > self.buffer.len() {
                        return;
                    }
                    range.length += grown;
                    grown as usize
                }
                _ => {
                    let memory = unit.memory_bytes as usize;
                    let buffer_start = used.next_multiple_of(memory);
                    let needed = buffer_start + (end - start) as usize;
                    if needed > self.buffer.len() {
                        if i > 0 {
                            return;
                        }
                        self.buffer.resize(needed, 0);
                    }
                    self.ranges.push(Range {
                        file: place.file,
                        offset: start,
                        length: end - start,
                        buffer_start,
                        filled: 0,
                    });
                    needed - used
                }
            };
            used += grown;
            self.range_of.push(self.ranges.len() as u32 - 1);
        }
    }
}

/// The reads of one file.
struct OfFile<'r, 'b> {
    file: &'r DataFile,
    ranges: &'r mut [Range],
    reads: Vec<RangeRead<'b>>,
}

/// Reads ranges into their slices of `buffer`, each file's as one batch; returns the number of bytes read. Files on
/// servers are asked at the same time, as each takes a while to answer.
fn read_ranges(
    dataset: &Dataset,
    ranges: &mut [Range],
    buffer: &mut [u8],
) -> Result<u64, FetchError> {
    let mut rest = buffer;
    let mut rest_start = 0;
    let mut files = Vec::new();
    for group in ranges.chunk_by_mut(|a, b| a.file == b.file) {
        let mut reads = Vec::with_capacity(group.len());
        for range in group.iter() {
            let (_, after) = rest.split_at_mut(range.buffer_start - rest_start);
            let (mut bytes, after) = after.split_at_mut(range.length as usize);
            rest = after;
            rest_start = range.buffer_start + range.length as usize;
            let mut offset = range.offset;
            while !bytes.is_empty() {
                let (piece, others) = bytes.split_at_mut(REQUEST_BYTES.min(bytes.len()));
                reads.push(RangeRead {
                    offset,
                    filled: 0,
                    buffer: piece,
                });
                offset += reads.last().expect("just pushed").buffer.len() as u64;
                bytes = others;
            }
        }
        files.push(OfFile {
            file: &dataset.files()[group[0].file as usize],
            ranges: group,
            reads,
        });
    }
    let read = |of: &mut OfFile<'_, '_>| of.file.storage().read_batch(&mut of.reads);
    if files.first().is_some_and(|of| of.file.is_remote()) {
        // All at once, or as many as the system starts threads for.
        let threads = files.len();
        let waiting = Mutex::new(files.iter_mut());
        let next = || { waiting.lock().unwrap_or_else(PoisonError::into_inner) }.next();
        let outcomes = on_threads(threads, || std::iter::from_fn(next).try_for_each(read));
        outcomes.into_iter().collect::<Result<(), _>>()?;
    } else {
        files.iter_mut().try_for_each(read)?;
    }
    let mut total = 0;
    for OfFile { ranges, reads, .. } in files {
        let mut reads = reads.iter();
        for range in ranges {
            let mut left = range.length;
            while left > 0 {
                let read = reads.next().expect("a read for every piece");
                range.filled += read.filled as u64;
                left -= read.buffer.len() as u64;
            }
            total += range.filled;
        }
    }
    Ok(total)
}
