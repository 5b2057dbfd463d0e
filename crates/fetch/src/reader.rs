//! Loads panes from the data set's files: the direct and window paths.
//!
//! One *step* opens a new pane and sweeps one section of the files for every open pane; the pane
//! opened `sections` steps before is then complete. A section is cut into cells, and a cell is one
//! task: a thread gathers the rows that open panes want from it, sorts them by location, merges neighbours into
//! ranges, reads the ranges as one batch and decodes each row into the segment of its pane. Several threads do so at
//! once, so that the device's queue never drains between tasks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use pelton_format::{DataFile, Dataset, FormatError, Location, Rows};

use crate::error::FetchError;
use crate::meters::{MeterCounters, Remedies};
use crate::options::{FetchOptions, OnBadRecord};
use crate::pane::{CellDivision, Pane, PaneBuild};
use crate::planner::PlannedPane;
use crate::ranges::{Merge, RangeBuffer};
use crate::sizing::Sizes;

/// How often a waiting consumer checks whether to end.
const INTERRUPT_INTERVAL: Duration = Duration::from_millis(50);

/// State shared by the loading threads and the consumer.
#[derive(Debug)]
pub(crate) struct Shared {
    pub dataset: Arc<Dataset>,
    pub meters: MeterCounters,
    pub on_bad_record: OnBadRecord,
    interrupt: Arc<AtomicBool>,
    grace: Duration,
    delivery: Mutex<Delivery>,
    changed: Condvar,
    spare: Mutex<Vec<Rows>>,
    bad: Mutex<BadRecords>,
}

/// Reasons that are kept in words; of further bad records only the ids are.
const MOST_REASONS: usize = 10_000;

/// The records that could not be read or decoded.
#[derive(Debug, Default)]
struct BadRecords {
    ids: BTreeSet<u64>,
    /// File, location and reason in one sentence.
    reasons: BTreeMap<u64, String>,
}

#[derive(Debug, Default)]
struct Delivery {
    ready: BTreeMap<u64, Pane>,
    failure: Option<FetchError>,
    failed: bool,
}

impl Shared {
    pub fn new(dataset: Arc<Dataset>, options: &FetchOptions) -> Shared {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let remedies = Remedies {
            packing: dataset.files().iter().any(DataFile::is_text_of_numbers),
            threads: options.threads < processors,
            memory: true,
        };
        Shared {
            dataset,
            meters: MeterCounters::new(remedies),
            on_bad_record: options.on_bad_record,
            interrupt: Arc::clone(&options.interrupt),
            grace: options.grace,
            delivery: Mutex::new(Delivery::default()),
            changed: Condvar::new(),
            spare: Mutex::new(Vec::new()),
            bad: Mutex::default(),
        }
    }

    fn delivery(&self) -> std::sync::MutexGuard<'_, Delivery> {
        self.delivery.lock().expect("no holder of this lock panics")
    }

    /// Hands a complete pane to the consumer; after a failure it may lack rows and is dropped.
    pub fn deliver(&self, pane: Pane) {
        let mut delivery = self.delivery();
        if !delivery.failed {
            delivery.ready.insert(pane.number, pane);
        }
        drop(delivery);
        self.changed.notify_all();
    }

    pub fn fail(&self, error: FetchError) {
        let mut delivery = self.delivery();
        if !delivery.failed {
            delivery.failed = true;
            delivery.failure = Some(error);
        }
        self.changed.notify_all();
    }

    /// Ends all work that is not yet begun: its consumer is gone.
    fn close(&self) {
        self.delivery().failed = true;
    }

    pub fn has_failed(&self) -> bool {
        self.delivery().failed
    }

    /// Waits for a pane. After a failure was returned once, further calls return a plain repeat.
    pub fn wait_for(&self, number: u64) -> Result<Pane, FetchError> {
        let mut delivery = self.delivery();
        let mut asked_at = None;
        loop {
            if !delivery.failed
                && self.interrupt.load(Ordering::Relaxed)
                && asked_at.get_or_insert_with(Instant::now).elapsed() >= self.grace
            {
                delivery.failed = true;
                delivery.failure = Some(FetchError::Interrupted);
            }
            if let Some(pane) = delivery.ready.remove(&number) {
                return Ok(pane);
            }
            if delivery.failed {
                return Err(delivery.failure.take().unwrap_or_else(|| {
                    FetchError::Panicked("the feed was used after it had failed".to_string())
                }));
            }
            (delivery, _) = self
                .changed
                .wait_timeout(delivery, INTERRUPT_INTERVAL)
                .expect("no holder of this lock panics");
        }
    }

    /// An empty segment with room for `rows` rows of mean length, in the memory of a used one if one of about this
    /// size is spare. It does not enlarge a small one or use a large one for few rows: all segments would grow to the
    /// largest size ever needed.
    pub fn take_rows(&self, rows: usize) -> Rows {
        let values = rows as u128 * u128::from(self.dataset.nonzeros())
            / u128::from(self.dataset.records().max(1));
        // The mean of many rows of a random order varies little; rows that do not fit make it grow.
        let values = values as usize + values as usize / 64 + 16;
        let mut segment = Rows::new(self.dataset.layout());
        let needed = segment.bytes_for(rows, values);
        let mut spare = self.spare.lock().expect("no holder of this lock panics");
        let fits = |held: &Rows| held.heap_bytes() >= needed;
        let closest = (0..spare.len())
            .min_by_key(|&i| (!fits(&spare[i]), spare[i].heap_bytes().abs_diff(needed)));
        if let Some(closest) = closest {
            let held = spare.swap_remove(closest);
            if fits(&held) && held.heap_bytes() <= needed + needed / 8 {
                segment = held;
            }
        }
        drop(spare);
        segment.reserve(rows, values);
        segment
    }

    pub fn give_rows(&self, segments: Vec<Rows>) {
        let mut spare = self.spare.lock().expect("no holder of this lock panics");
        spare.extend(segments.into_iter().map(|mut rows| {
            rows.clear();
            rows
        }));
    }

    /// Applies the policy to a record that could not be decoded.
    pub fn bad_record(&self, id: u64, error: FormatError) -> Result<(), FetchError> {
        self.leave_out(id, error.into())
    }

    /// Applies the policy to a record that could not be read. A file of many records that changed since it was
    /// opened always ends the feed, since the offsets of its records are no longer known; so does a failing
    /// server, since the next record would fail too. In a folder only the record is lost, unless the folder is gone.
    pub fn unreadable(&self, id: u64, error: FetchError) -> Result<(), FetchError> {
        if self.on_bad_record == OnBadRecord::Fail {
            return Err(error);
        }
        self.dataset.check_unchanged()?;
        let file = &self.dataset.files()[self.dataset.locate(id).file as usize];
        if file.is_remote() || file.is_folder() && !file.path().is_dir() {
            return Err(error);
        }
        self.leave_out(id, error)
    }

    fn leave_out(&self, id: u64, error: FetchError) -> Result<(), FetchError> {
        let OnBadRecord::Skip { limit } = self.on_bad_record else {
            return Err(error);
        };
        // Every epoch has the same bad records; each counts once. The message names its location.
        let reason = error.to_string();
        let found = {
            let mut bad = self.bad();
            bad.ids.insert(id);
            if bad.reasons.len() < MOST_REASONS {
                bad.reasons.insert(id, reason.clone());
            }
            bad.ids.len() as u64
        };
        self.meters.skipped_records.store(found, Ordering::Relaxed);
        match limit {
            Some(limit) if found > limit => Err(FetchError::TooManyBadRecords {
                found,
                limit,
                last: reason,
            }),
            _ => Ok(()),
        }
    }

    fn bad(&self) -> std::sync::MutexGuard<'_, BadRecords> {
        self.bad.lock().expect("no holder of this lock panics")
    }

    /// Ids of the records skipped so far.
    pub fn bad_ids(&self) -> Vec<u64> {
        self.bad().ids.iter().copied().collect()
    }

    /// Why a record was left out: file, location and reason in one sentence.
    pub fn reason(&self, id: u64) -> Option<String> {
        self.bad().reasons.get(&id).cloned()
    }

    /// Runs one piece of loading work; a failure or panic of it ends the feed.
    pub fn guard(&self, work: impl FnOnce() -> Result<(), FetchError>) {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.fail(error),
            Err(panic) => {
                let message = panic
                    .downcast_ref::<String>()
                    .cloned()
                    .or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()))
                    .unwrap_or_default();
                self.fail(FetchError::Panicked(message));
            }
        }
    }
}

/// One cell for every open pane. A pane is shared by the tasks that still have rows to add to it,
/// so the task that drops the last share completes it.
struct Task {
    cell: usize,
    panes: Vec<Arc<PaneBuild>>,
}

/// Threads that load panes from the data set's files.
#[derive(Debug)]
pub(crate) struct Reader {
    shared: Arc<Shared>,
    tasks: Option<Sender<Task>>,
    threads: Vec<JoinHandle<()>>,
    open: VecDeque<Arc<PaneBuild>>,
    sections: u64,
    rows_per_task: u64,
    cells_per_section: u64,
    next_pane: u64,
    /// Panes that were read by themselves before the sweeps.
    alone: u64,
    section: u64,
}

impl Reader {
    /// With `threads` threads, or as many as the system starts.
    ///
    /// Errors: it starts none.
    pub fn new(
        shared: Arc<Shared>,
        sizes: Sizes,
        threads: usize,
        merge: Merge,
    ) -> Result<Reader, FetchError> {
        let (sender, receiver) = crossbeam_channel::unbounded();
        let start = || {
            let mut worker = Worker::new(Arc::clone(&shared), sizes.task_bytes, merge);
            let receiver: Receiver<Task> = receiver.clone();
            let thread = std::thread::Builder::new().name("pelton-read".into());
            thread.spawn(move || {
                for task in receiver {
                    worker.run(task);
                }
            })
        };
        let mut started = Vec::with_capacity(threads);
        while started.len() < threads {
            match start() {
                Ok(thread) => started.push(thread),
                Err(_) if !started.is_empty() => break,
                Err(error) => return Err(FetchError::Thread(error)),
            }
        }
        let threads = started;
        let mean_bytes = (shared.dataset.bytes() / shared.dataset.records().max(1)).max(1);
        let rows_per_task = (sizes.task_bytes / mean_bytes).max(1);
        // Rows of all open panes in a section.
        let pane_rows = sizes.pane_batches * sizes.batch_rows;
        let section_rows = pane_rows * (sizes.sections + 1) / 2 / sizes.sections;
        Ok(Reader {
            shared,
            tasks: Some(sender),
            threads,
            open: VecDeque::new(),
            sections: sizes.sections,
            rows_per_task,
            cells_per_section: section_rows.div_ceil(rows_per_task).max(1),
            next_pane: 0,
            alone: 0,
            section: 0,
        })
    }

    /// Number of steps before the first pane is complete.
    pub fn lead_steps(&self) -> u64 {
        self.sections - 1
    }

    /// Reads a pane separately, before the first step.
    pub fn read_alone(&mut self, planned: PlannedPane) {
        let mut division = self.division_of_one(&planned.ids);
        // Shared by all threads, since there is no other work.
        let threads = (self.threads.len() as u64).min(planned.ids.len() as u64);
        division.count = division.count.max(threads);
        let pane = PaneBuild::new(self.next_pane, planned, division);
        self.next_pane += 1;
        self.alone += 1;
        self.send(vec![Arc::new(pane)], 0..division.count);
    }

    /// Opens a pane (none at the end of the plan) and sweeps the next section.
    pub fn step(&mut self, planned: Option<PlannedPane>) {
        let mut cells = self.cells_per_section;
        if let Some(planned) = planned {
            let division = match self.sections {
                1 => self.division_of_one(&planned.ids),
                _ => self.division_of_sweep(),
            };
            cells = division.count / self.sections;
            let pane = PaneBuild::new(self.next_pane, planned, division);
            self.next_pane += 1;
            self.open.push_back(Arc::new(pane));
        }
        let panes: Vec<_> = self.open.iter().cloned().collect();
        // The pane opened `sections` steps ago has its last section now.
        if let Some(front) = self.open.front()
            && front.number - self.alone + self.sections <= self.section + 1
        {
            self.open.pop_front();
        }
        let first = (self.section % self.sections) * cells;
        self.section += 1;
        if !panes.is_empty() {
            self.send(panes, first..first + cells);
        }
    }

    /// Gives the threads a task for each of these cells of the panes.
    fn send(&self, panes: Vec<Arc<PaneBuild>>, cells: std::ops::Range<u64>) {
        // Created before the first is sent: from then on only tasks share the panes.
        let count = (cells.end - cells.start) as usize;
        let tasks: Vec<Task> = std::iter::repeat_n(panes, count)
            .zip(cells)
            .map(|(panes, cell)| Task {
                cell: cell as usize,
                panes,
            })
            .collect();
        let queue = self.tasks.as_ref().expect("present until dropped");
        for task in tasks {
            queue
                .send(task)
                .expect("threads live as long as the reader");
        }
    }

    /// Of a pane that is read alone.
    fn division_of_one(&self, ids: &[u64]) -> CellDivision {
        let from = ids.iter().copied().min().unwrap_or(0);
        let to = ids.iter().copied().max().map_or(1, |id| id + 1);
        let count = (ids.len() as u64).div_ceil(self.rows_per_task).max(1);
        CellDivision { from, to, count }
    }

    /// Of panes that share sweeps; all must be cut the same.
    fn division_of_sweep(&self) -> CellDivision {
        CellDivision {
            from: 0,
            to: self.shared.dataset.records(),
            count: self.cells_per_section * self.sections,
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Tasks that are no longer needed are not started.
        self.shared.close();
        self.tasks = None;
        for thread in self.threads.drain(..) {
            // A panic was already turned into a failure by `Shared::guard`.
            let _ = thread.join();
        }
    }
}

#[derive(Clone, Copy)]
struct Entry {
    id: u64,
    pane: u32,
    slot: u32,
}

/// One loading thread's buffers.
struct Worker {
    shared: Arc<Shared>,
    buffer: RangeBuffer,
    entries: Vec<Entry>,
    ids: Vec<u64>,
    locations: Vec<Location>,
}

impl Worker {
    fn new(shared: Arc<Shared>, task_bytes: u64, merge: Merge) -> Worker {
        Worker {
            shared,
            buffer: RangeBuffer::new(merge, task_bytes as usize),
            entries: Vec::new(),
            ids: Vec::new(),
            locations: Vec::new(),
        }
    }

    fn run(&mut self, task: Task) {
        let Task { cell, panes } = task;
        let shared = Arc::clone(&self.shared);
        if shared.has_failed() {
            return;
        }
        let _loading = shared.meters.loading();
        // A failure is recorded before this task drops its shares, so that no other task treats a pane that lacks
        // rows as complete.
        shared.guard(|| self.load(cell, &panes));
        shared.guard(|| {
            for pane in panes.into_iter().filter_map(Arc::into_inner) {
                shared.deliver(pane.finish());
            }
            Ok(())
        });
    }

    fn load(&mut self, cell: usize, panes: &[Arc<PaneBuild>]) -> Result<(), FetchError> {
        self.gather(cell, panes);
        if self.entries.is_empty() {
            return Ok(());
        }
        self.shared.dataset.check_unchanged()?;
        self.locations.clear();
        self.shared
            .dataset
            .locate_into(&self.ids, &mut self.locations);
        let mut segments: Vec<_> = panes
            .iter()
            .map(|pane| match pane.cells.slots(cell).len() {
                0 => None,
                rows => Some((self.shared.take_rows(rows), Vec::with_capacity(rows))),
            })
            .collect();
        let mut from = 0;
        while from < self.entries.len() {
            from += self.load_round(from, &mut segments)?;
        }
        for (pane, segment) in panes.iter().zip(segments) {
            if let Some((rows, slots)) = segment {
                pane.add(rows, &slots);
            }
        }
        Ok(())
    }

    fn gather(&mut self, cell: usize, panes: &[Arc<PaneBuild>]) {
        self.entries.clear();
        for (number, pane) in panes.iter().enumerate() {
            let wanted = pane.cells.slots(cell);
            self.entries.extend(wanted.iter().map(|&slot| Entry {
                id: pane.ids[slot as usize],
                pane: number as u32,
                slot,
            }));
        }
        radsort::sort_by_key(&mut self.entries, |entry| entry.id);
        self.ids.clear();
        self.ids.extend(self.entries.iter().map(|entry| entry.id));
    }

    /// Reads the entries from `from` on until the buffer is full and decodes them; returns how many.
    fn load_round(
        &mut self,
        from: usize,
        segments: &mut [Option<(Rows, Vec<u32>)>],
    ) -> Result<usize, FetchError> {
        let Worker {
            shared,
            buffer,
            entries,
            locations,
            ..
        } = self;
        let dataset = &shared.dataset;
        let alone = shared.on_bad_record != OnBadRecord::Fail;
        let places = &locations[from..];
        buffer.read_each(dataset, places, alone, &shared.meters, |i, found| {
            let entry = entries[from + i];
            let bytes = match found {
                Ok(bytes) => bytes,
                Err(error) => return shared.unreadable(entry.id, error),
            };
            let (rows, slots) = segments[entry.pane as usize]
                .as_mut()
                .expect("a segment for every pane with rows in the cell");
            match dataset.decode(entry.id, bytes, rows) {
                Ok(()) => slots.push(entry.slot),
                Err(error) => shared.bad_record(entry.id, error)?,
            }
            Ok(())
        })
    }
}
