//! The common interface of Parquet and Arrow files: columns of values in groups of records.

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use pelton_storage::{AlignedBuffer, RangeRead, Storage, StorageError};

use crate::columns::column::Column;
use crate::columns::values::{Items, Values};

/// Why values cannot be read.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// The storage failed.
    Storage(StorageError),
    /// The parts of the file are inconsistent.
    Damaged(String),
}

impl From<StorageError> for Wrong {
    fn from(error: StorageError) -> Wrong {
        Wrong::Storage(error)
    }
}

impl From<String> for Wrong {
    fn from(what: String) -> Wrong {
        Wrong::Damaged(what)
    }
}

/// Takes the values of columns of some records, and how many they are.
pub(crate) type TakeValues<'a> = dyn FnMut(&[Values], usize) -> Result<(), String> + 'a;

/// Columns of values in groups of records: row groups of Parquet, batches of Arrow.
pub(crate) trait Table: fmt::Debug + Send + Sync {
    /// The columns that were chosen.
    fn columns(&self) -> &[Column];

    /// The first record of each non-empty group, followed by the number of records.
    fn groups(&self) -> &[u64];

    /// Whether parts of a group can be read without the rest of it.
    fn divides(&self) -> bool;

    /// Calls `take` with the values of `columns` for consecutive runs of records that cover `rows`; these are in one
    /// group.
    fn read(
        &self,
        columns: &[usize],
        rows: Range<u64>,
        take: &mut TakeValues<'_>,
    ) -> Result<(), Wrong>;

    /// Calls `take` with the byte length of each value of a variable column in `rows`, which are in one group.
    fn lengths(
        &self,
        column: usize,
        rows: Range<u64>,
        take: &mut dyn FnMut(usize),
    ) -> Result<(), Wrong> {
        self.read(&[column], rows, &mut |values, _| {
            if let Items::Variable(starts, _) = &values[0].items {
                starts.windows(2).for_each(|run| take(run[1] - run[0]));
            }
            Ok(())
        })
    }

    /// Reads the values of `columns` of many runs of records, each within one group, at once; only if the table can be
    /// read in place.
    fn gather(&self, columns: &[usize], runs: &[Range<u64>]) -> Result<Vec<Vec<Values>>, Wrong> {
        let _ = (columns, runs);
        Err(Wrong::Damaged(
            "its values do not lie in the file as they are".into(),
        ))
    }

    /// Whether values are in the file uncompressed.
    fn in_place(&self) -> bool {
        false
    }

    /// Mean bytes of the file a group.
    fn group_bytes(&self) -> f64;
}

/// Index of the group with record `record`.
pub(crate) fn group_of(groups: &[u64], record: u64) -> usize {
    groups.partition_point(|first| *first <= record) - 1
}

/// A file that tables are read from.
#[derive(Clone, Debug)]
pub(crate) struct TableFile {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) size: u64,
}

impl TableFile {
    pub(crate) fn new(storage: Arc<dyn Storage>) -> Result<TableFile, StorageError> {
        let size = storage.size()?;
        Ok(TableFile { storage, size })
    }

    /// The bytes of ranges given by offset and length, read as one batch.
    pub(crate) fn read(&self, ranges: &[(u64, u64)]) -> Result<Vec<Vec<u8>>, Wrong> {
        let units = self.storage.granularity();
        let mut buffers = Vec::with_capacity(ranges.len());
        for &(offset, length) in ranges {
            let within = offset
                .checked_add(length)
                .is_some_and(|end| end <= self.size);
            let aligned = units.align_out(offset, length).filter(|_| within);
            let Some((start, length)) = aligned else {
                return Err(Wrong::Damaged(format!(
                    "{length} bytes at {offset} are named, and the file has {}",
                    self.size
                )));
            };
            buffers.push((start, Aligned::new(units.offset_bytes, length as usize)));
        }
        let mut reads: Vec<RangeRead<'_>> = buffers
            .iter_mut()
            .map(|(offset, buffer)| RangeRead {
                offset: *offset,
                buffer: buffer.bytes(),
                filled: 0,
            })
            .collect();
        self.storage.read_batch(&mut reads)?;
        let filled: Vec<usize> = reads.iter().map(|read| read.filled).collect();
        let whole = buffers.into_iter().zip(ranges).zip(filled);
        let whole = whole.map(|(((start, buffer), &(offset, length)), filled)| {
            let skip = (offset - start) as usize;
            if skip + length as usize <= filled {
                Ok(buffer.cut(skip, length as usize))
            } else {
                Err(Wrong::Damaged(format!(
                    "it has become shorter than {} bytes: leave files alone while they are read",
                    offset + length
                )))
            }
        });
        whole.collect()
    }
}

/// Memory that a storage can read into; without a copy afterwards if it needs no alignment.
enum Aligned {
    Plain(Vec<u8>),
    Whole(AlignedBuffer),
}

impl Aligned {
    fn new(unit: u32, length: usize) -> Aligned {
        match unit {
            1 => Aligned::Plain(vec![0; length]),
            _ => {
                let mut buffer = AlignedBuffer::with_capacity(4096, length);
                buffer.resize(length, 0);
                Aligned::Whole(buffer)
            }
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Aligned::Plain(bytes) => bytes,
            Aligned::Whole(bytes) => bytes,
        }
    }

    fn cut(self, skip: usize, length: usize) -> Vec<u8> {
        match self {
            Aligned::Plain(bytes) => bytes,
            Aligned::Whole(bytes) => bytes[skip..skip + length].to_vec(),
        }
    }
}

thread_local! {
    static GUARDED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Runs a library's code on untrusted bytes: if it panics, the bytes are reported as damaged, without a panic message.
///
/// The libraries that read these files promise errors for damaged ones and mostly keep the promise. A separate process
/// was rejected: it would have to copy decoded values.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, Wrong>) -> Result<T, Wrong> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if GUARDED.get() {
                tracing::debug!(%panic, "a library gave up on a damaged file")
            } else {
                before(panic)
            }
        }));
    });
    let outer = GUARDED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(outer);
    done.unwrap_or_else(|_| {
        Err(Wrong::Damaged(
            "what it says of itself does not hold together".into(),
        ))
    })
}
