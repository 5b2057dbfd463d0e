//! Decides whether the threads that make samples read the records themselves, and has the files.
//!
//! They do if the data is in memory, or if memory has room for it: the page cache then reads ahead for coming
//! batches, each part of a file once, and later epochs read nothing. A separate look-ahead would hold every record
//! twice, and read it again in every epoch.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pelton_fetch::{Access, DeviceSpeed, MeterCounters, Meters, RecordReader, Remedies};
use pelton_format::{Contents, DataFile, Dataset};
use pelton_plan::Plan;
use pelton_storage::{Resident, Storage, spare_memory};

use crate::known_fields::{KnownFields, as_stored};
use crate::options::LoaderOptions;
use crate::stages::Stages;
use crate::steps::PlannedStep;

/// Shorter ones are read faster many at a time, as a fetch does it, unless the files stay in memory.
const SHORTEST: f64 = 512.0;

/// Mean bytes of small records.
const SMALL_RECORD: f64 = 4096.0;

/// System calls copy longer ones almost as fast as from the process's memory.
const LONGEST_RESIDENT: f64 = 32_768.0;

/// The data that threads read themselves, and what they have read.
#[derive(Debug)]
pub(crate) struct InPlaceReads {
    pub counters: Arc<MeterCounters>,
    pub records: AtomicU64,
    /// The data; files that fit in memory stay there once they were read.
    pub dataset: Dataset,
    /// Bytes of those.
    pub resident_bytes: u64,
    pub way: Way,
    /// Whether records are so small that reading one costs as much as decoding it.
    pub small: bool,
    /// Epochs with read-ahead of files, and its number of records.
    cold_epochs: Range<u64>,
    pub asked_records: usize,
    /// Bytes that a thread reads at a time.
    round_bytes: usize,
}

/// How records in memory become samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// They are read straight into their slots in the batch.
    Copied(Layout),
    /// The thread that makes a part of a batch reads its records. Nothing is read ahead, and nothing waits.
    Made,
}

/// Records requested ahead: each brings a part of its file, and this number keeps a device busy.
const ASKED_RECORDS: usize = 128;

/// Records requested between two checks whether they are still needed.
const ASKED_AT_ONCE: usize = 32;

/// Bytes that a thread reads at a time, as far as the memory allows.
const ROUND_BYTES: usize = 1 << 20;

/// How samples relate to the bytes read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// The same bytes.
    AsStored,
    /// Pixels, from planar to interleaved channels.
    Interleaved,
    /// Pixels, from interleaved to planar channels.
    Separated,
}

impl Layout {
    fn new(dataset: &Dataset, stages: &Stages) -> Layout {
        match dataset.contents() {
            // Rows of fields are read directly if the only field is everything that is read.
            Contents::Fields => Layout::AsStored,
            _ if as_stored(dataset.contents(), stages) => Layout::AsStored,
            Contents::Pixels { planar: true, .. } => Layout::Interleaved,
            _ => Layout::Separated,
        }
    }
}

/// Data that worker threads can read themselves.
pub(crate) struct InPlaceData {
    way: Way,
    /// Its files are in memory, or read through the page cache, which has room for them.
    dataset: Dataset,
    /// Whether they are not in memory yet.
    cold: bool,
}

impl InPlaceData {
    /// The data of a loader for reads by worker threads, unless the feed is better or necessary.
    pub fn new(
        dataset: &Dataset,
        stream: &Plan,
        stages: &Stages,
        fields: &KnownFields,
        options: &LoaderOptions,
    ) -> Option<InPlaceData> {
        let once = stream.echo().is_none() && options.auto_echo.is_none();
        let serves = options.access == Access::Auto && once && stream.packing().is_none();
        if !serves {
            return None;
        }
        let way = if copies(dataset, stages, fields) && dataset.reads_in_place() {
            Way::Copied(Layout::new(dataset, stages))
        } else {
            Way::Made
        };
        let long = dataset.record_bytes().mean() >= SHORTEST;
        let kept = dataset.bytes() <= options.memory_bytes / 2
            && dataset.record_bytes().mean() <= LONGEST_RESIDENT;
        let has_room = kept || long && dataset.bytes() <= spare_memory() / 2;
        let cached = has_room.then(|| through_page_cache(dataset)).flatten();
        let is_fast = || long && is_like_memory(dataset, way, options);
        let (dataset, cold) = cached.or_else(|| is_fast().then(|| (dataset.clone(), false)))?;
        Some(InPlaceData { way, dataset, cold })
    }
}

/// Whether nothing needs to be read from a device.
fn is_like_memory(dataset: &Dataset, way: Way, options: &LoaderOptions) -> bool {
    let mut files = dataset.files().iter().map(DataFile::storage);
    let is_fast = match way {
        Way::Copied(_) => files.all(|file| file.granularity().offset_bytes == 1),
        Way::Made => files.all(|file| file.reads_page_cache()),
    };
    let like_memory = DeviceSpeed::PAGE_CACHE.random_reads_per_s;
    is_fast && options.device.speed().random_reads_per_s >= like_memory
}

/// The data with all files read through the page cache, if possible, and whether some may not be cached yet.
fn through_page_cache(dataset: &Dataset) -> Option<(Dataset, bool)> {
    let (refused, cold) = (Cell::new(false), Cell::new(false));
    let dataset = dataset.clone().with_storage(|file| {
        let buffered = file.buffered();
        cold.set(cold.get() || buffered.is_some());
        refused.set(refused.get() || buffered.is_none() && !file.reads_page_cache());
        buffered.unwrap_or(file)
    });
    (!refused.get()).then(|| (dataset, cold.get()))
}

impl InPlaceReads {
    /// For a loader of such data. Files of up to `resident_bytes` stay in memory.
    pub fn new(data: InPlaceData, options: &LoaderOptions, resident_bytes: u64) -> InPlaceReads {
        let InPlaceData { way, dataset, cold } = data;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let round = (resident_bytes as usize / 8 / options.threads.max(1)).min(ROUND_BYTES);
        let small = dataset.record_bytes().mean() <= SMALL_RECORD;
        let packing = dataset.files().iter().any(DataFile::is_text_of_numbers);
        let (dataset, resident_bytes) = with_residents(dataset, resident_bytes);
        InPlaceReads {
            counters: Arc::new(MeterCounters::new(Remedies {
                packing,
                threads: options.threads < processors,
                memory: false,
            })),
            records: AtomicU64::new(0),
            dataset,
            resident_bytes,
            way,
            small,
            // A resumed run reads part of an epoch first; the epoch after it needs the rest.
            cold_epochs: if cold {
                options.start.epoch..options.start.epoch + 2
            } else {
                0..0
            },
            asked_records: if cold { ASKED_RECORDS } else { 0 },
            round_bytes: round.max(64 << 10),
        }
    }

    /// Asks the system to start reading the records of a step that are not in memory yet. Returns their bytes. Stops
    /// early if `stop` returns true, since a slow device takes requests slowly.
    pub fn ask_for(&self, step: &PlannedStep, stop: impl Fn() -> bool) -> u64 {
        if !self.cold_epochs.contains(&step.place.epoch) {
            return 0;
        }
        let mut ids: Vec<u64> = step.draws.iter().map(|(draw, _)| draw.id).collect();
        // In file order, which is faster on disks that seek.
        ids.sort_unstable();
        let (mut bytes, mut places) = (0, Vec::new());
        for ids in ids.chunks(ASKED_AT_ONCE) {
            if stop() {
                break;
            }
            places.clear();
            self.dataset.locate_into(ids, &mut places);
            for place in &places {
                let file = &self.dataset.files()[place.file as usize];
                bytes += file.storage().will_need(place.offset, place.length);
            }
        }
        bytes
    }

    /// A thread's state for reading records into samples.
    pub fn reader(&self) -> Option<RecordReader> {
        let device = &DeviceSpeed::PAGE_CACHE;
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

/// The data, with each file kept in memory if it still fits in `room`, and the bytes of those.
fn with_residents(dataset: Dataset, room: u64) -> (Dataset, u64) {
    let room = if dataset.record_bytes().mean() <= LONGEST_RESIDENT {
        room
    } else {
        0
    };
    let used = Cell::new(0);
    let held = dataset.with_storage(|file| {
        let kept = || {
            let bytes = file.size().ok()?;
            let fits = file.reads_page_cache() && used.get() + bytes <= room;
            let resident = fits.then(|| Resident::new(Arc::clone(&file), Resident::PAYS_AFTER));
            let resident: Arc<dyn Storage> = Arc::new(resident?.ok()?);
            Some((resident, bytes))
        };
        match kept() {
            Some((resident, bytes)) => {
                used.set(used.get() + bytes);
                resident
            }
            None => file,
        }
    });
    let used = used.get();
    tracing::debug!(bytes = used, room, "files that stay in memory");
    (held, used)
}

/// Whether slots in the batch are known beforehand, and samples are exactly the bytes read.
fn copies(dataset: &Dataset, stages: &Stages, fields: &KnownFields) -> bool {
    let (_, fixed) = fields.bytes();
    let ragged = stages.collation.is_ragged();
    let as_stored = Layout::new(dataset, stages) == Layout::AsStored;
    stages.list().is_empty() && (fixed || (ragged && as_stored))
}
