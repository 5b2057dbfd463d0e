//! Whether records are read by the threads that make samples, and the files that they are read from.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pelton_fetch::{Access, DeviceSpeed, MeterCounters, Meters, RecordReader, Remedies};
use pelton_format::{Contents, DataFile, Dataset};
use pelton_plan::Plan;
use pelton_storage::{Resident, Storage};

use crate::known_fields::{KnownFields, as_stored};
use crate::options::LoaderOptions;
use crate::stages::{Collate, Stages};

/// Shorter ones are read faster many at a time, as a fetch does it, unless the files stay in memory. Files that do are
/// read in place also where they do not lie in the page cache yet: each block is then read once, as a whole, when the
/// first of its records is wanted, and later epochs read nothing.
const SHORTEST: f64 = 512.0;

/// Mean bytes of small records.
const SMALL_RECORD: f64 = 4096.0;

/// Longer ones are copied by system calls in little more time than from memory of one's own.
const LONGEST_RESIDENT: f64 = 32_768.0;

/// What was read in place.
#[derive(Debug)]
pub(crate) struct InPlaceReads {
    pub counters: Arc<MeterCounters>,
    pub records: AtomicU64,
    /// The data; files that there is memory for stay there once they were read.
    pub dataset: Dataset,
    /// Bytes of those.
    pub resident_bytes: u64,
    pub way: Way,
    /// Whether records are so small that reading one costs as much as making a sample of it.
    pub small: bool,
    /// Bytes that a thread reads at a time.
    round_bytes: usize,
}

/// How records that lie in memory become samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// They are read straight to their places in the batch.
    Copied(Layout),
    /// The thread that makes a part of a batch reads its records. There is nothing to read ahead, nor to wait for.
    Made,
}

/// Bytes that a thread reads at a time, as far as the memory allows.
const ROUND_BYTES: usize = 1 << 20;

/// What samples are of what is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// The same bytes.
    AsStored,
    /// Pixels, whose channels lie in planes and are put side by side.
    Interleaved,
    /// Pixels, whose channels lie side by side and are put into planes.
    Separated,
}

impl Layout {
    fn of(dataset: &Dataset, stages: &Stages) -> Layout {
        match dataset.contents() {
            // Rows of fields are read in place where the only field is all that is read.
            Contents::Fields => Layout::AsStored,
            _ if as_stored(dataset.contents(), stages) => Layout::AsStored,
            Contents::Pixels { planar: true, .. } => Layout::Interleaved,
            _ => Layout::Separated,
        }
    }
}

impl InPlaceReads {
    /// How all samples of a loader can be read in place, where the feed neither serves better nor must.
    pub fn way(
        dataset: &Dataset,
        stream: &Plan,
        stages: &Stages,
        fields: &KnownFields,
        options: &LoaderOptions,
    ) -> Option<Way> {
        let copied = copies(dataset, stages, fields) && dataset.reads_in_place();
        let way = match copied {
            true => Way::Copied(Layout::of(dataset, stages)),
            false => Way::Made,
        };
        let in_page_cache = || {
            let mut files = dataset.files().iter().map(DataFile::storage);
            let lie_there = match copied {
                true => files.all(|file| file.granularity().offset_bytes == 1),
                false => files.all(|file| file.reads_page_cache()),
            };
            lie_there
                && options.device.random_reads_per_s >= DeviceSpeed::PAGE_CACHE.random_reads_per_s
        };
        let once = stream.echo().is_none() && options.auto_echo.is_none();
        let serves = options.access == Access::Auto
            && once
            && stream.packing().is_none()
            && (fits(dataset, options)
                || dataset.record_bytes().mean() >= SHORTEST && in_page_cache());
        serves.then_some(way)
    }

    /// For a loader that they serve. So many bytes of files stay in memory as `resident_bytes` allows.
    pub fn new(
        dataset: &Dataset,
        way: Way,
        options: &LoaderOptions,
        resident_bytes: u64,
    ) -> InPlaceReads {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let round = (resident_bytes as usize / 8 / options.threads.max(1)).min(ROUND_BYTES);
        let small = dataset.record_bytes().mean() <= SMALL_RECORD;
        let (dataset, resident_bytes) = with_residents(dataset, resident_bytes);
        InPlaceReads {
            counters: Arc::new(MeterCounters::new(Remedies {
                packing: dataset.files().iter().any(DataFile::is_text_of_numbers),
                threads: options.threads < processors,
                memory: false,
            })),
            records: AtomicU64::new(0),
            dataset,
            resident_bytes,
            way,
            small,
            round_bytes: round.max(64 << 10),
        }
    }

    /// What a thread reads records with that samples are made of.
    pub fn reader(&self, device: &DeviceSpeed) -> Option<RecordReader> {
        let reader = || RecordReader::counted(device, self.round_bytes, &self.counters);
        (self.way == Way::Made).then(reader)
    }

    pub fn meters(&self) -> Meters {
        let mut meters = Meters {
            records: self.records.load(Relaxed),
            ..Meters::default()
        };
        self.counters.fill(&mut meters);
        meters
    }
}

/// The data, its files one after another kept in memory where there is still room for it, and the bytes of those.
fn with_residents(dataset: &Dataset, room: u64) -> (Dataset, u64) {
    let room = match dataset.record_bytes().mean() <= LONGEST_RESIDENT {
        true => room,
        false => 0,
    };
    let used = Cell::new(0);
    let held = dataset.clone().with_storage(|file| {
        let Some((storage, direct)) = through_page_cache(&file) else {
            return file;
        };
        let kept = || {
            let bytes = storage.size().ok()?;
            let fits = used.get() + bytes <= room;
            let resident = fits.then(|| Resident::new(Arc::clone(&storage), direct));
            let resident: Arc<dyn Storage> = Arc::new(resident?.ok()?);
            Some((resident, bytes))
        };
        match kept() {
            Some((resident, bytes)) => {
                used.set(used.get() + bytes);
                resident
            }
            None => storage,
        }
    });
    let used = used.get();
    tracing::debug!(bytes = used, room, "files that stay in memory");
    (held, used)
}

/// A file through the page cache, and how many ranges of a block are read by themselves before it is brought into
/// memory: where the page cache does not hold the file yet, none.
fn through_page_cache(storage: &Arc<dyn Storage>) -> Option<(Arc<dyn Storage>, u16)> {
    match storage.reads_page_cache() {
        true => Some((Arc::clone(storage), Resident::PAYS_AFTER)),
        false => Some((storage.buffered()?, 0)),
    }
}

/// Whether all files can be expected to stay in memory: the rest is for batches.
fn fits(dataset: &Dataset, options: &LoaderOptions) -> bool {
    let mut files = dataset.files().iter();
    dataset.bytes() <= options.memory_bytes / 2
        && dataset.record_bytes().mean() <= LONGEST_RESIDENT
        && files.all(|file| through_page_cache(file.storage()).is_some())
}

/// Whether places in the batch are known before samples are read, and samples have the bytes that are read.
fn copies(dataset: &Dataset, stages: &Stages, fields: &KnownFields) -> bool {
    let (_, fixed) = fields.bytes();
    let ragged = matches!(stages.collate, Collate::Auto | Collate::Ragged);
    let as_stored = Layout::of(dataset, stages) == Layout::AsStored;
    stages.list().is_empty() && (fixed || (ragged && as_stored))
}
