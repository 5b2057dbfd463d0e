//! The data as one byte space: the records of all files, one after the other.
//!
//! Bytes before the first record of a file and after its last are not in the space, and rare reads of them go to the
//! backend. So the space has exactly the bytes of the records, the size that users compare with memory.

use std::ops::Range;
use std::sync::Arc;

use pelton_format::{Dataset, RecordBytes};
use pelton_storage::{Storage, StorageError};

/// The records of all files as one run of bytes.
#[derive(Debug)]
pub(crate) struct Space {
    files: Vec<FileSpan>,
    bytes: u64,
    dataset: Dataset,
    /// Length of every record, if all have the same.
    record_bytes: Option<u64>,
}

/// A file's part of the space.
#[derive(Debug)]
pub(crate) struct FileSpan {
    /// Offset of the first record in the space.
    pub(crate) base: u64,
    /// Offset of the first record in the file.
    pub(crate) start: u64,
    /// End of the last record in the file.
    pub(crate) end: u64,
    /// Bytes of the file.
    pub(crate) size: u64,
    /// The file's storage, for bytes that are not in memory.
    pub(crate) backend: Arc<dyn Storage>,
}

impl FileSpan {
    /// The file's part of the space.
    pub(crate) fn range(&self) -> Range<u64> {
        self.base..self.base + (self.end - self.start)
    }
}

/// A piece of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilePiece {
    pub(crate) file: usize,
    /// First byte in the file.
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl Space {
    /// The space of a data set.
    pub(crate) fn new(dataset: &Dataset) -> Result<Space, StorageError> {
        let mut files = Vec::with_capacity(dataset.files().len());
        let mut base = 0;
        for file in dataset.files() {
            let (start, end) = match file.records() {
                0 => (0, 0),
                records => {
                    let last = dataset.locate(file.first_id() + records - 1);
                    (
                        dataset.locate(file.first_id()).offset,
                        last.offset + last.length,
                    )
                }
            };
            let backend = Arc::clone(file.storage());
            files.push(FileSpan {
                base,
                start,
                end,
                size: backend.size()?,
                backend,
            });
            base += end - start;
        }
        let record_bytes = match dataset.record_bytes() {
            RecordBytes::Fixed(bytes) if bytes > 0 => Some(bytes),
            _ => None,
        };
        Ok(Space {
            files,
            bytes: base,
            dataset: dataset.clone(),
            record_bytes,
        })
    }

    /// Bytes of all records.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of records.
    pub(crate) fn records(&self) -> u64 {
        self.dataset.records()
    }

    pub(crate) fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    pub(crate) fn files(&self) -> &[FileSpan] {
        &self.files
    }

    /// The range of a record in the space.
    #[inline]
    pub(crate) fn record(&self, id: u64) -> Range<u64> {
        let place = self.dataset.locate(id);
        let file = &self.files[place.file as usize];
        let start = file.base + (place.offset - file.start);
        start..start + place.length
    }

    /// The record that contains the byte at `at`.
    pub(crate) fn record_at(&self, at: u64) -> u64 {
        self.first_record_from(at + 1).saturating_sub(1)
    }

    /// The first record that starts at `at` or later; the number of records if there is none.
    pub(crate) fn first_record_from(&self, at: u64) -> u64 {
        let records = self.dataset.records();
        if let Some(bytes) = self.record_bytes {
            return at.div_ceil(bytes).min(records);
        }
        let (mut low, mut high) = (0, records);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.record(middle).start < at {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The first record that ends after `at`; the number of records if there is none.
    pub(crate) fn record_over(&self, at: u64) -> u64 {
        let next = self.first_record_from(at);
        // The record before may extend past `at`; empty records extend nowhere.
        match next.checked_sub(1) {
            Some(before) if self.record(before).end > at => before,
            _ => next,
        }
    }

    /// The file that contains a byte of the space.
    pub(crate) fn file_at(&self, at: u64) -> usize {
        // Files without records have the same offset as the next; the last one counts.
        self.files.partition_point(|file| file.base <= at) - 1
    }

    /// A range of the space as pieces of files, in order.
    pub(crate) fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = FilePiece> + '_ {
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let number = self.file_at(at);
            let file = &self.files[number];
            let length = range.end.min(file.range().end) - at;
            let offset = file.start + (at - file.base);
            at += length;
            Some(FilePiece {
                file: number,
                offset,
                length,
            })
        })
    }

    /// The largest offset up to `at` at which two direct reads of the backend can meet without reading a byte twice:
    /// a multiple of the backend's unit in the file, or the start of a file.
    pub(crate) fn cut_before(&self, at: u64) -> u64 {
        if at >= self.bytes {
            return self.bytes;
        }
        let file = &self.files[self.file_at(at)];
        let unit = u64::from(file.backend.granularity().offset_bytes);
        let offset = file.start + (at - file.base);
        at.saturating_sub(offset % unit).max(file.base)
    }

    /// Bytes that [`Space::begin`] may leave free.
    pub(crate) fn slack(&self, range: &Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let file = &self.files[self.file_at(range.start)];
        u64::from(file.backend.granularity().memory_bytes) - 1
    }

    /// The offset in `memory` for a range at which whole units of its first file are aligned for direct reads.
    pub(crate) fn begin(&self, range: &Range<u64>, memory: &[u8]) -> u64 {
        let Some(first) = self.pieces(range.clone()).next() else {
            return 0;
        };
        let unit = self.slack(range) + 1;
        let address = memory.as_ptr() as u64;
        (first.offset % unit + unit - address % unit) % unit
    }
}
