//! Samples that are their records' own bytes, read from memory straight into their slots in the batch.
//!
//! If the data is in the page cache and nothing is decoded, the feed would copy every record three times: to
//! its read buffer, its rows, and the batch. Here the threads that otherwise put samples together read them,
//! with the policy for bad records that the feed has.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::error::FeedError;
use pelton_fetch::FetchError;
use pelton_format::{ContentSum, InPlace, InPlaceClass, Row};
use pelton_storage::RangeRead;

use crate::building::Building;
use crate::in_place_reads::{InPlaceReads, Layout, Way};
use crate::options::BadExamples;
use crate::shared::Shared;

/// Minimum records of a task, if the batch has them: those not in memory after all are requested together.
pub(crate) const RECORDS_OF_TASK: usize = 32;

/// A record that is to be read.
struct Wanted {
    example: usize,
    id: u64,
    place: InPlace,
}

/// Makes the samples `examples` of a batch in `buffer`, which holds their slots contiguously; `scratch` is for
/// samples that differ from the bytes read.
pub(crate) fn read(
    shared: &Shared,
    reads: &InPlaceReads,
    building: &Building,
    examples: Range<usize>,
    buffer: &mut [u8],
    scratch: &mut Vec<u8>,
) {
    let rearrange = match reads.way {
        Way::Copied(Layout::Interleaved) => pelton_image::interleave,
        Way::Copied(Layout::Separated) => pelton_image::separate,
        _ => return read_stored(shared, reads, building, examples, buffer),
    };
    scratch.resize(buffer.len(), 0);
    let sample = (buffer.len() / examples.len().max(1)).max(1);
    let count = examples.len() as u64;
    read_stored(shared, reads, building, examples, scratch);
    let began = Instant::now();
    // Including those that failed, which are not used.
    for (from, to) in scratch.chunks(sample).zip(buffer.chunks_mut(sample)) {
        rearrange(from, to);
    }
    let collate = &shared.counters.collate;
    collate.count(began.elapsed(), count, buffer.len() as u64);
}

fn read_stored(
    shared: &Shared,
    reads: &InPlaceReads,
    building: &Building,
    examples: Range<usize>,
    buffer: &mut [u8],
) {
    let _loading = reads.counters.loading();
    reads.records.fetch_add(examples.len() as u64, Relaxed);
    let mut wanted = Vec::with_capacity(examples.len());
    let mut slots = Vec::with_capacity(examples.len());
    let mut rest = buffer;
    for example in examples {
        let bytes = building.places.bytes_of(example);
        let (slot, others) = std::mem::take(&mut rest).split_at_mut(bytes);
        rest = others;
        let id = building.examples[example].id;
        match place_of(shared, id, bytes) {
            Ok(place) => {
                if let InPlaceClass::Known(class) = place.class {
                    building.set_class(example, class);
                }
                wanted.push(Wanted { example, id, place });
                slots.push(slot);
            }
            Err(error) => failed(shared, building, example, error),
        }
    }
    let mut class_bytes = vec![0; wanted.iter().map(Wanted::class_bytes).sum()];
    let mut reader = Reader {
        shared,
        reads,
        building,
    };
    reader.all(&wanted, slots, &mut class_bytes);
}

fn place_of(shared: &Shared, id: u64, bytes: usize) -> Result<InPlace, FeedError> {
    let place = shared.dataset.in_place(id)?;
    let place = place.expect("the data was seen to be read in place");
    if place.length != bytes as u64 {
        let problem = format!("it has {} bytes, the others have {bytes}", place.length);
        return Err(shared.bad_example(id, &problem));
    }
    Ok(place)
}

/// Records that an example could not be read, or that the batch fails because of it.
fn failed(shared: &Shared, building: &Building, example: usize, error: FeedError) {
    match shared.options.bad_examples {
        BadExamples::Fail => building.fail(example, error),
        BadExamples::Skip { .. } | BadExamples::Replace { .. } => {
            building.failed(example, error.to_string());
        }
    }
}

impl Wanted {
    /// Bytes from the class byte to the row.
    fn class_bytes(&self) -> usize {
        match self.place.class {
            InPlaceClass::Known(_) => 0,
            InPlaceClass::Before(bytes) => bytes.into(),
        }
    }
}

/// The reads of one record: the bytes before its row, if they are wanted, and its row.
fn reads_of<'a>(
    wanted: &Wanted,
    slot: &'a mut [u8],
    before: &'a mut [u8],
) -> impl Iterator<Item = RangeRead<'a>> {
    let first = wanted.place.offset - before.len() as u64;
    let range = |offset, buffer| RangeRead {
        offset,
        buffer,
        filled: 0,
    };
    let before = (!before.is_empty()).then(|| range(first, before));
    before.into_iter().chain([range(wanted.place.offset, slot)])
}

/// Bytes that were read before the first that was not.
fn filled(reads: &[RangeRead<'_>]) -> u64 {
    let mut filled = 0;
    for read in reads {
        filled += read.filled as u64;
        if read.filled < read.buffer.len() {
            break;
        }
    }
    filled
}

struct Reader<'a> {
    shared: &'a Shared,
    reads: &'a InPlaceReads,
    building: &'a Building,
}

impl Reader<'_> {
    fn all(&mut self, wanted: &[Wanted], slots: Vec<&mut [u8]>, class_bytes: &mut [u8]) {
        let mut files: Vec<u32> = wanted.iter().map(|wanted| wanted.place.file).collect();
        files.sort_unstable();
        files.dedup();
        let mut per_file: Vec<Vec<RangeRead<'_>>> = files.iter().map(|_| Vec::new()).collect();
        if let [only] = per_file.as_mut_slice() {
            only.reserve(2 * wanted.len());
        }
        // The number of each record's first read in its file.
        let mut numbers = Vec::with_capacity(wanted.len());
        let mut rest = &mut *class_bytes;
        for (wanted, slot) in wanted.iter().zip(slots) {
            let (before, others) = std::mem::take(&mut rest).split_at_mut(wanted.class_bytes());
            rest = others;
            let file = files.partition_point(|&file| file < wanted.place.file);
            numbers.push((file, per_file[file].len()));
            per_file[file].extend(reads_of(wanted, slot, before));
        }
        let mut outcomes = Vec::with_capacity(files.len());
        for (file, reads) in files.iter().zip(&mut per_file) {
            outcomes.push(self.read_file(*file, reads));
        }
        let mut content = ContentSum::default();
        // Incomplete records are read again one by one, to find which of them is bad.
        for (wanted, (file, number)) in wanted.iter().zip(numbers) {
            let parts = 1 + usize::from(wanted.class_bytes() > 0);
            let reads = &mut per_file[file][number..number + parts];
            let mut outcome = match &outcomes[file] {
                Ok(()) => Ok(()),
                Err(_) => self.read_file(wanted.place.file, reads),
            };
            let before = wanted.class_bytes() as u64;
            let (expected, found) = (wanted.place.length + before, filled(reads));
            if outcome.is_ok() && found < expected {
                outcome = Err(FeedError::Fetch(FetchError::Shrunk {
                    path: self.name(wanted.place.file),
                    offset: wanted.place.offset - before,
                    expected,
                    found,
                }));
            }
            if let Err(error) = outcome {
                self.unreadable(wanted, error);
                continue;
            }
            if let InPlaceClass::Before(_) = wanted.place.class {
                match self
                    .shared
                    .dataset
                    .class_of_byte(wanted.id, reads[0].buffer[0])
                {
                    Ok(class) => self.building.set_class(wanted.example, class),
                    Err(error) => {
                        failed(self.shared, self.building, wanted.example, error.into());
                        continue;
                    }
                }
            }
            if let Some(row) = reads.last() {
                let class = self.building.label(wanted.example);
                content.add(wanted.id, class, Row::Bytes(row.buffer));
            }
        }
        self.building.add_content(content);
    }

    fn read_file(&self, file: u32, reads: &mut [RangeRead<'_>]) -> Result<(), FeedError> {
        let began = Instant::now();
        let dataset = &self.shared.dataset;
        dataset.check_file_unchanged(file)?;
        let file = &self.reads.dataset.files()[file as usize];
        file.storage().read_batch(reads)?;
        let bytes: usize = reads.iter().map(|read| read.filled).sum();
        let counters = &self.reads.counters;
        counters.count_read(reads.len() as u64, bytes as u64, began.elapsed());
        counters.used_bytes.fetch_add(bytes as u64, Relaxed);
        Ok(())
    }

    /// The policy for bad records applies to unreadable records; a file that changed since it was opened
    /// always ends the batch, since the offsets of its records are no longer known.
    fn unreadable(&self, wanted: &Wanted, error: FeedError) {
        let changed = self
            .shared
            .dataset
            .check_file_unchanged(wanted.place.file)
            .err();
        match changed {
            Some(changed) => self.building.fail(wanted.example, changed.into()),
            None => failed(self.shared, self.building, wanted.example, error),
        }
    }

    fn name(&self, file: u32) -> String {
        self.shared.dataset.files()[file as usize].storage().name()
    }
}

/// The bytes of each of `ids`, one after another, as offsets.
pub(crate) fn offsets(shared: &Shared, ids: impl Iterator<Item = u64>) -> Vec<usize> {
    let mut end = 0;
    let mut offsets = vec![0];
    offsets.extend(ids.map(|id| {
        // An unknown class is reported when the record is read.
        let place = shared.dataset.in_place(id);
        end += place
            .ok()
            .flatten()
            .map_or(0, |place| place.length as usize);
        end
    }));
    offsets
}
