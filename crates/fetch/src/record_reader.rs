//! Records that are asked for by their ids, read on the thread that asks.

use std::sync::Arc;

use pelton_format::{Dataset, Location};

use crate::error::FetchError;
use crate::meters::{MeterCounters, Remedies};
use crate::options::DeviceSpeed;
use crate::ranges::{Merge, RangeBuffer};

/// Bytes that one round of reads takes: a deep queue of photographs. A longer record makes a reader's buffer grow.
const ROUND_BYTES: usize = 4 << 20;

/// Reads records by their ids: sorted by place, neighbours merged, as one batch of reads a round. It starts no thread,
/// and its buffer serves call after call; each thread that reads has one of its own.
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

    /// A reader from such a device, of `bytes` at a time, whose reads others count too.
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

    /// Reads the records `ids`, which rise, and gives the bytes of each to `take` by its place in `ids`.
    ///
    /// What cannot be read is an error of the call, or, with `alone`, given to `take` record by record; a file that
    /// is no longer as it was opened is an error all the same, as where its records lie is not known any more.
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
