//! The records of a table one after another, as bytes that are assembled when they are read.
//!
//! [`DecodedBlocks`] decodes a block of records whole, up to [`BLOCK_BYTES`] of them if the table allows it, and keeps
//! blocks in a cache of [`CACHE_BYTES`] for the whole process: the windows of a random order read in the order of the
//! file, so each block is decoded once a window. A single record costs a block. [`InPlace`] needs no blocks: it reads
//! the values of each record in place.
//!
//! Rejected: a decoded copy of the whole file on disk, as for compressed text. Two epochs over 24 million records of 24
//! bytes took 14.6 CPU seconds from Parquet and 11.2 from such a copy if memory held them all. With an eighth of it,
//! many windows decode everything many times (45 seconds), but the path `scatter` decodes once an epoch: 14.4 from
//! Parquet, 14.3 from the copy.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pelton_storage::{Granularity, RangeRead, Storage, StorageError, StorageErrorKind};

use crate::columns::record::RecordLayout;
use crate::columns::table::{Table, Wrong, group_of};
use crate::columns::values::Values;
use crate::locate::places::Places;

/// Bytes of the records of a block, as far as groups can be divided.
pub(crate) const BLOCK_BYTES: u64 = 16 << 20;
/// Bytes of decoded blocks in the cache.
pub(crate) const CACHE_BYTES: u64 = 128 << 20;

/// Records of a table by byte offset.
#[derive(Clone)]
pub(crate) struct Records {
    pub(crate) name: String,
    pub(crate) table: Arc<dyn Table>,
    pub(crate) layout: Arc<RecordLayout>,
    /// The columns of the table that records hold.
    pub(crate) columns: Vec<usize>,
    pub(crate) places: Places,
    pub(crate) count: u64,
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records")
            .field("name", &self.name)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl Records {
    /// Bytes of all records.
    fn size(&self) -> u64 {
        match self.count {
            0 => 0,
            count => {
                let (offset, length) = self.places.get(count - 1);
                offset + length
            }
        }
    }

    /// The record that contains byte `offset`, which is within the records.
    fn record_at(&self, offset: u64) -> u64 {
        if let Places::Fixed { bytes, .. } = &self.places {
            return offset / bytes;
        }
        let (mut low, mut high) = (0, self.count);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.places.get(middle).0 <= offset {
                low = middle
            } else {
                high = middle
            }
        }
        low
    }

    /// The byte range of the records `rows`.
    fn range(&self, rows: &Range<u64>) -> Range<u64> {
        let (last, length) = self.places.get(rows.end - 1);
        self.places.get(rows.start).0..last + length
    }

    fn error(&self, wrong: Wrong) -> StorageError {
        match wrong {
            Wrong::Storage(error) => error,
            Wrong::Damaged(what) => {
                let what = format!("{what}; fetch or write it again");
                StorageError::new(StorageErrorKind::System, &self.name, what)
            }
        }
    }
}

/// The records of a table that are decoded by blocks.
#[derive(Debug)]
pub(crate) struct DecodedBlocks {
    records: Records,
    /// Most records of a block, if groups can be divided.
    block_records: u64,
    cache: Arc<BlockCache>,
    /// Distinguishes its blocks from those of others in the cache.
    number: u64,
}

impl DecodedBlocks {
    pub(crate) fn new(records: Records, cache: Arc<BlockCache>) -> DecodedBlocks {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mean = records.size() / records.count.max(1);
        let block_records = if records.table.divides() {
            (BLOCK_BYTES / mean.max(1)).max(1)
        } else {
            u64::MAX
        };
        DecodedBlocks {
            records,
            block_records,
            cache,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The records of the block of record `record`.
    fn block_of(&self, record: u64) -> Range<u64> {
        let groups = self.records.table.groups();
        let group = group_of(groups, record);
        let (first, end) = (groups[group], groups[group + 1]);
        // Blocks of a group have one size, except the last.
        let blocks = (end - first).div_ceil(self.block_records);
        let size = (end - first).div_ceil(blocks);
        let from = first + (record - first) / size * size;
        from..end.min(from + size)
    }

    /// How many blocks there are.
    pub(crate) fn blocks(&self) -> u64 {
        let groups = self.records.table.groups().windows(2);
        groups
            .map(|group| {
                let rows = group[1] - group[0];
                let size = rows.div_ceil(rows.div_ceil(self.block_records));
                rows.div_ceil(size)
            })
            .sum()
    }

    fn decode(&self, rows: Range<u64>) -> Result<Vec<u8>, Wrong> {
        let range = self.records.range(&rows);
        let length = (range.end - range.start) as usize;
        // A damaged file may promise more than it has.
        let mut block = Vec::with_capacity(length.min(2 * BLOCK_BYTES as usize));
        let (layout, columns) = (&self.records.layout, &self.records.columns);
        let mut add = |values: &[Values], count: usize| {
            layout.encode(values, count, &mut block)?;
            if block.len() <= length {
                Ok(())
            } else {
                Err("its records are longer than when it was opened".into())
            }
        };
        self.records.table.read(columns, rows, &mut add)?;
        if block.len() == length {
            Ok(block)
        } else {
            Err(Wrong::Damaged(
                "its records are shorter than when it was opened".into(),
            ))
        }
    }
}

impl Storage for DecodedBlocks {
    fn name(&self) -> String {
        self.records.name.clone()
    }

    fn size(&self) -> Result<u64, StorageError> {
        Ok(self.records.size())
    }

    fn granularity(&self) -> Granularity {
        Granularity::BYTE
    }

    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        let size = self.records.size();
        let mut held: (Range<u64>, Arc<Vec<u8>>) = (0..0, Arc::default());
        for read in reads {
            let there = size.saturating_sub(read.offset);
            read.filled = there.min(read.buffer.len() as u64) as usize;
            let (mut rest, mut offset) = (&mut read.buffer[..read.filled], read.offset);
            while !rest.is_empty() {
                if !held.0.contains(&offset) {
                    let rows = self.block_of(self.records.record_at(offset));
                    let block = self
                        .cache
                        .get((self.number, rows.start), || self.decode(rows.clone()));
                    let block = block.map_err(|wrong| self.records.error(wrong))?;
                    held = (self.records.range(&rows), block);
                }
                let part = &held.1[(offset - held.0.start) as usize..];
                let length = part.len().min(rest.len());
                let (now, later) = rest.split_at_mut(length);
                now.copy_from_slice(&part[..length]);
                (rest, offset) = (later, offset + length as u64);
            }
        }
        Ok(())
    }
}

impl Drop for DecodedBlocks {
    fn drop(&mut self) {
        self.cache.forget(self.number);
    }
}

/// The id of the file of a block, and its first record.
type Key = (u64, u64);

/// A block, or its error; empty until it is needed.
type Slot = Arc<Mutex<Option<Result<Arc<Vec<u8>>, String>>>>;

/// Decoded blocks; those used least recently are dropped.
#[derive(Debug)]
pub(crate) struct BlockCache {
    most_bytes: u64,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// Each with its bytes, once they are known, and when it was used last.
    slots: HashMap<Key, (Slot, u64, u64)>,
    bytes: u64,
    now: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BlockCache {
    pub(crate) fn new(most_bytes: u64) -> BlockCache {
        BlockCache {
            most_bytes,
            held: Mutex::default(),
        }
    }

    /// The block of this key, made by `make` unless it is cached. A caller that needs a block that another thread is
    /// making waits for it.
    fn get(
        &self,
        key: Key,
        make: impl FnOnce() -> Result<Vec<u8>, Wrong>,
    ) -> Result<Arc<Vec<u8>>, Wrong> {
        let slot = {
            let mut held = lock(&self.held);
            held.now += 1;
            let now = held.now;
            let (slot, _, used) = held.slots.entry(key).or_default();
            *used = now;
            Arc::clone(slot)
        };
        let mut block = lock(&slot);
        if let Some(made) = &*block {
            return made.clone().map_err(Wrong::Damaged);
        }
        let made = match make() {
            Ok(made) => Ok(Arc::new(made)),
            // A device error may be temporary.
            Err(Wrong::Storage(error)) => return Err(Wrong::Storage(error)),
            Err(Wrong::Damaged(what)) => Err(what),
        };
        *block = Some(made.clone());
        drop(block);
        self.count(key, made.as_ref().map_or(0, |made| made.capacity() as u64));
        made.map_err(Wrong::Damaged)
    }

    /// Counts a new block, and drops those used least recently.
    fn count(&self, key: Key, bytes: u64) {
        /// Bytes of an entry in addition to its block.
        const ENTRY: u64 = 256;
        let mut held = lock(&self.held);
        if let Some((_, counted, _)) = held.slots.get_mut(&key) {
            *counted = bytes + ENTRY;
            held.bytes += bytes + ENTRY;
        }
        while held.bytes > self.most_bytes {
            let made = held
                .slots
                .iter()
                .filter(|(of, (_, bytes, _))| **of != key && *bytes > 0);
            let oldest = made
                .min_by_key(|(_, (_, _, used))| *used)
                .map(|(of, _)| *of);
            let Some(oldest) = oldest else { break };
            let dropped = held.slots.remove(&oldest);
            held.bytes -= dropped.map_or(0, |(_, bytes, _)| bytes);
        }
    }

    fn forget(&self, number: u64) {
        let mut held = lock(&self.held);
        held.slots.retain(|(of, _), _| *of != number);
        held.bytes = held.slots.values().map(|(_, bytes, _)| bytes).sum();
    }
}

/// The records of a table that can be read in place.
#[derive(Debug)]
pub(crate) struct InPlace(pub(crate) Records);

impl Storage for InPlace {
    fn name(&self) -> String {
        self.0.name.clone()
    }

    fn size(&self) -> Result<u64, StorageError> {
        Ok(self.0.size())
    }

    fn granularity(&self) -> Granularity {
        Granularity::BYTE
    }

    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        let InPlace(records) = self;
        let (size, groups) = (records.size(), records.table.groups());
        for read in reads.iter_mut() {
            let there = size.saturating_sub(read.offset);
            read.filled = there.min(read.buffer.len() as u64) as usize;
        }
        // A long record is read in several adjacent ranges, which are gathered once.
        let adjacent =
            |a: &RangeRead<'_>, b: &RangeRead<'_>| a.offset + a.filled as u64 == b.offset;
        // The runs of records within one group that each stretch of adjacent ranges needs.
        let (mut runs, mut runs_of) = (Vec::new(), Vec::with_capacity(reads.len()));
        for stretch in reads.chunk_by(adjacent) {
            let (start, end) = ends_of(stretch);
            let before = runs.len();
            if start < end {
                let mut first = records.record_at(start);
                let end = records.record_at(end - 1) + 1;
                while first < end {
                    let to = groups[group_of(groups, first) + 1].min(end);
                    runs.push(first..to);
                    first = to;
                }
            }
            runs_of.push(runs.len() - before);
        }
        let gathered = records.table.gather(&records.columns, &runs);
        let gathered = gathered.map_err(|wrong| records.error(wrong))?;
        let mut gathered = runs.iter().zip(gathered);
        let mut bytes = Vec::new();
        for (stretch, count) in reads.chunk_by_mut(adjacent).zip(runs_of) {
            bytes.clear();
            let (start, end) = ends_of(stretch);
            let mut from = None;
            for (rows, values) in gathered.by_ref().take(count) {
                from.get_or_insert(records.places.get(rows.start).0);
                let made =
                    records
                        .layout
                        .encode(&values, (rows.end - rows.start) as usize, &mut bytes);
                made.map_err(|what| records.error(Wrong::Damaged(what)))?;
            }
            let skip = from.map_or(0, |from| (start - from) as usize);
            let wanted = bytes.get(skip..skip + (end - start) as usize);
            let mut wanted = wanted.ok_or_else(|| {
                let what = "its records are shorter than when it was opened";
                records.error(Wrong::Damaged(what.into()))
            })?;
            for read in stretch {
                let (now, later) = wanted.split_at(read.filled);
                read.buffer[..read.filled].copy_from_slice(now);
                wanted = later;
            }
        }
        Ok(())
    }
}

/// The offsets of the first byte of adjacent ranges and of the first after them.
fn ends_of(stretch: &[RangeRead<'_>]) -> (u64, u64) {
    let bytes: u64 = stretch.iter().map(|read| read.filled as u64).sum();
    (stretch[0].offset, stretch[0].offset + bytes)
}
