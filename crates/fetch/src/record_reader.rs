//! Reads records by id, on the calling thread.

use std::sync::Arc;

use pelton_format::{Dataset, Location};

use crate::error::FetchError;
use crate::meters::{MeterCounters, Remedies};
use crate::options::DeviceSpeed;
use crate::ranges::{Merge, RangeBuffer};

/// Bytes that one round of reads takes: a deep queue of photographs. A longer record makes a reader's buffer grow.
const ROUND_BYTES: usize = 4 << 20;

/// Reads records by their ids: sorted by location, neighbours merged, as one batch of reads a round. It starts no
/// thread and reuses its buffer between calls; each reading thread has its own.
pub struct RecordReader {
    buffer: RangeBuffer,
    places: Vec<Location>,
    meters: Arc<MeterCounters>,
}

impl RecordReader {
    /// A reader from such a device.
    pub fn new(device: &DeviceSpeed) -> RecordReader {
        let meters = Arc::new(MeterCounters::new(Remedies::default()));
        RecordReader::counted(device, ROUND_BYTES, &meters)
    }

    /// A reader from such a device, of `bytes` at a time, with shared counters.
    pub fn counted(
        device: &DeviceSpeed,
        bytes: usize,
        meters: &Arc<MeterCounters>,
    ) -> RecordReader {
        RecordReader {
            buffer: RangeBuffer::new(Merge::Gap(device.break_even_gap_bytes()), bytes),
            places: Vec::new(),
            meters: Arc::clone(meters),
        }
    }

    /// Reads the records `ids`, which must be ascending, and gives the bytes of each to `take` by its index in `ids`.
    ///
    /// Unreadable records are an error of the call, or, with `alone`, given to `take` one by one; a file that
    /// changed since it was opened is always an error, since the offsets of its records are no longer known.
    pub fn read(
        &mut self,
        dataset: &Dataset,
        ids: &[u64],
        alone: bool,
        mut take: impl FnMut(usize, Result<&[u8], FetchError>) -> Result<(), FetchError>,
    ) -> Result<(), FetchError> {
        self.places.clear();
        dataset.locate_into(ids, &mut self.places);
        for of_file in self.places.chunk_by(|a, b| a.file == b.file) {
            dataset.check_file_unchanged(of_file[0].file)?;
        }
        let mut from = 0;
        while from < ids.len() {
            let places = &self.places[from..];
            let take = |i: usize, found: Result<&[u8], FetchError>| {
                if found.is_err() {
                    dataset.check_file_unchanged(places[i].file)?;
                }
                take(from + i, found)
            };
            from += self
                .buffer
                .read_each(dataset, places, alone, &self.meters, take)?;
        }
        Ok(())
    }
}
