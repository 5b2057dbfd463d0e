//! State shared by the threads of a loader.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use pelton_batch::{DType, Fields, Pool};
use pelton_fetch::FetchError;
use pelton_format::{Contents, Dataset, Layout, RowTable};

use crate::building::{Building, FixedField, Made, Places};
use crate::error::FeedError;
use crate::held_sample::Allowance;
use crate::in_place_reads::{InPlaceReads, Way};
use crate::known_fields::{KnownFields, as_stored};
use crate::labels::Labels;
use crate::meters::{LoaderMeters, StageCounters, StageMeters};
use crate::options::LoaderOptions;
use crate::stages::{LABEL, Stages};
use pelton_fetch::Meters;
use pelton_fetch::Recycler;

/// How often a waiting thread checks whether to end.
const INTERRUPT_INTERVAL: Duration = Duration::from_millis(50);

/// A consumer that waits twice within this time is not woken for each batch: it sleeps this long once, and then finds
/// several.
const NAP: Duration = Duration::from_micros(100);

/// State shared by the threads of a loader.
pub(crate) struct Shared {
    pub dataset: Arc<Dataset>,
    pub contents: Contents,
    pub stages: Stages,
    pub options: LoaderOptions,
    pub counters: StageCounters,
    pub pool: Arc<Pool>,
    pub allowance: Arc<Allowance>,
    pub read_again: AtomicU64,
    pub began: Instant,
    pub recycler: OnceLock<Recycler>,
    /// The field of an undecoded record.
    pub record_fields: Vec<Arc<str>>,
    /// The bytes of each field of the records, if these are copied to the batch unchanged.
    pub copied_fields: Option<Vec<usize>>,
    /// Fields with known slots in every batch, and names and types of the others.
    pub fixed: Arc<[FixedField]>,
    pub others: Vec<(Arc<str>, DType)>,
    /// Whether there may be other fields.
    pub open: bool,
    /// Whether samples are the records' bytes, which are only copied.
    pub copies: bool,
    /// Whether fields without known dimensions should have one shape.
    pub one_shape: bool,
    /// How classes become labels, if the data has any.
    pub labels: Option<Labels>,
    /// Set if worker threads read the records themselves.
    pub in_place: Option<InPlaceReads>,
    feed_meters: Mutex<Option<Meters>>,
    state: Mutex<State>,
    /// The consumer waits for a batch.
    made: Condvar,
    /// The thread that begins batches waits for room.
    room: Condvar,
}

#[derive(Default)]
struct State {
    /// Batches in progress or ready, in the order of delivery.
    queue: VecDeque<Arc<Building>>,
    /// No batch follows those in the queue.
    ended: bool,
    failure: Option<FeedError>,
    closed: bool,
    /// The limit on batches that the consumer has not taken yet.
    room: usize,
    consumer_waits: bool,
    dispatcher_waits: bool,
    dispatcher_waits_for_made: bool,
    /// When the consumer last began to wait.
    waits_since: Option<Instant>,
}

/// How long the consumer waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// Not at all.
    Now,
    /// Until then.
    Time(Instant),
    /// As long as it takes.
    Made,
}

/// The head of the queue, as the consumer sees it.
pub(crate) enum Front {
    Made(Arc<Building>),
    /// The next batch is not ready.
    Pending,
    End,
}

/// The bytes of each field of rows that are these fields and nothing else.
fn copied_fields(dataset: &Dataset, stages: &Stages, known: &KnownFields) -> Option<Vec<usize>> {
    let (_, all_known) = known.bytes();
    let is_copied = dataset.contents() == Contents::Fields && stages.list().is_empty() && all_known;
    let specs = dataset.record_fields().specs().0.iter();
    is_copied.then(|| specs.map(|field| field.bytes().unwrap_or(0)).collect())
}

impl Shared {
    pub fn new(
        dataset: Arc<Dataset>,
        stages: Stages,
        fields: KnownFields,
        options: LoaderOptions,
        (allowance_bytes, room): (u64, usize),
        in_place: Option<InPlaceReads>,
    ) -> Shared {
        let arrays = fields.fixed.len() + fields.others.len();
        Shared {
            contents: dataset.contents(),
            labels: Labels::from_dataset(&dataset, options.by_class),
            options,
            counters: StageCounters::new(stages.list().len()),
            pool: Pool::new((room + 1) * arrays.max(1)),
            allowance: Allowance::new(allowance_bytes),
            read_again: AtomicU64::new(0),
            began: Instant::now(),
            recycler: OnceLock::new(),
            copied_fields: copied_fields(&dataset, &stages, &fields),
            record_fields: dataset
                .fields()
                .0
                .into_iter()
                .map(|field| field.name)
                .collect(),
            fixed: fields.fixed.into(),
            others: fields.others,
            open: fields.open,
            copies: stages.list().is_empty() && as_stored(dataset.contents(), &stages),
            one_shape: stages.list().iter().any(|stage| stage.makes_one_shape()),
            in_place,
            feed_meters: Mutex::new(None),
            dataset,
            stages,
            state: Mutex::new(State {
                room,
                ..State::default()
            }),
            made: Condvar::new(),
            room: Condvar::new(),
        }
    }

    /// The field of records with only one.
    pub fn record_name(&self) -> Arc<str> {
        Arc::clone(&self.record_fields[0])
    }

    /// The slots that are known for every batch.
    pub fn places(&self) -> Places {
        Places::Fixed {
            fields: Arc::clone(&self.fixed),
            others: self.open || !self.others.is_empty(),
        }
    }

    /// Whether a function has added a field.
    pub fn is_added(&self, name: &str) -> bool {
        let mut known = self.fixed.iter().map(|field| &field.name);
        let mut others = self.others.iter().map(|(name, _)| name);
        !known.any(|known| **known == *name) && !others.any(|other| **other == *name)
    }

    /// Whether samples are the records' bytes, of any length.
    pub fn copies_to_offsets(&self) -> bool {
        let ragged = self.stages.collation.is_ragged();
        self.copies && ragged && self.dataset.layout() == Layout::Bytes
    }

    /// Whether samples are read straight into the batch.
    pub fn copies_in_place(&self) -> bool {
        let mut way = self.in_place.iter().map(|reads| reads.way);
        way.any(|way| way != Way::Made)
    }

    pub fn feed_meters(&self) -> MutexGuard<'_, Option<Meters>> {
        self.feed_meters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The stages that were used, in the order in which records pass them.
    pub fn stage_meters(&self, meters: &LoaderMeters) -> Vec<StageMeters> {
        let counters = &self.counters;
        let threads = self.options.threads.max(1) as u64;
        let idle_s = counters.idle_ns.load(Relaxed) as f64 * 1e-9;
        let read_threads = match self.in_place {
            Some(_) => threads,
            None => self.options.read_threads.max(1) as u64,
        };
        let read_s = meters.feed.read_s + meters.feed.decode_s;
        let mut stages = vec![StageMeters {
            name: "read",
            threads: read_threads,
            busy_s: read_s,
            wait_s: (read_threads as f64 * meters.wall_s - read_s).max(0.0),
            records: meters.feed.records,
            bytes: meters.feed.read_bytes,
        }];
        let list = self.stages.list().iter().zip(&counters.stages);
        let counted = list.map(|(stage, counter)| (stage.name(), counter));
        for (name, counter) in counted.chain([("collate", &counters.collate)]) {
            let counted = counter.read(name, threads, idle_s);
            match stages.iter_mut().find(|stage| stage.name == name) {
                // Several stages of one name are one line.
                Some(stage) => {
                    stage.busy_s += counted.busy_s;
                    stage.records = stage.records.max(counted.records);
                    stage.bytes += counted.bytes;
                }
                None if counted.busy_s > 0.0 => stages.push(counted),
                None => {}
            }
        }
        stages
    }

    /// Adds the labels of examples of these classes, unless a stage has made labels. A field of the records with that
    /// name is dropped if another one is the label.
    pub fn put_labels(&self, classes: impl Iterator<Item = u32>, fields: &mut Fields) {
        let is_stored = self.record_fields.iter().any(|name| **name == *LABEL);
        if let Some(labels) = &self.labels
            && (is_stored || fields.get(LABEL).is_none())
        {
            fields.insert(LABEL.into(), labels.array(classes));
        }
    }

    /// The error of an example, with its position.
    pub fn bad_example(&self, id: u64, problem: &str) -> FeedError {
        let place = self.dataset.locate(id);
        let file = &self.dataset.files()[place.file as usize];
        let record = id - file.first_id();
        FeedError::Example {
            path: file.record_path(record),
            record,
            // Each record of a folder is a separate file.
            offset: if file.is_folder() { 0 } else { place.offset },
            problem: problem.to_owned(),
        }
    }

    /// Gives rows back to the feed they were taken from.
    pub fn recycle(&self, rows: RowTable) {
        if let Some(recycler) = self.recycler.get() {
            recycler.give(rows);
        }
    }

    pub fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Ends all work: the consumer is gone.
    pub fn close(&self) {
        self.state().closed = true;
        self.wake_all();
    }

    fn wake_all(&self) {
        self.made.notify_all();
        self.room.notify_all();
    }

    pub fn fail(&self, error: FeedError) {
        let mut state = self.state();
        if state.failure.is_none() {
            state.failure = Some(error);
        }
        state.closed = true;
        drop(state);
        self.wake_all();
    }

    pub fn panicked(&self, panic: &(dyn Any + Send)) {
        let message = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned());
        self.fail(FetchError::Panicked(message).into());
    }

    /// Waits until another batch may be begun; false when no more batches are needed. Once full, it waits until half
    /// is free, so it is not woken for every batch.
    pub fn wait_for_room(&self) -> bool {
        let mut state = self.state();
        if state.queue.len() >= state.room {
            while !state.closed && state.queue.len() > state.room / 2 {
                state.dispatcher_waits = true;
                state = wait_on(&self.room, state);
            }
            state.dispatcher_waits = false;
        }
        !state.closed
    }

    /// Waits until a batch that was begun is made; false when it is no longer needed.
    pub fn wait_until_made(&self, batch: &Building) -> bool {
        let mut state = self.state();
        while !state.closed && !batch.is_handed_in() {
            state.dispatcher_waits_for_made = true;
            state = wait_on(&self.room, state);
        }
        state.dispatcher_waits_for_made = false;
        !state.closed
    }

    /// Queues a batch after the others.
    pub fn push(&self, building: Arc<Building>) {
        self.state().queue.push_back(building);
    }

    /// No batch follows.
    pub fn end(&self) {
        self.state().ended = true;
        self.made.notify_all();
    }

    /// A batch is made.
    pub fn made(&self, building: &Building, made: Result<Made, FeedError>) {
        building.finish(made);
        // Under the lock, so that a consumer that has just looked is already waiting.
        let state = self.state();
        let is_next = state.queue.front().is_some_and(|front| front.is_made());
        // Repeats by waiting are in no queue.
        let wakes = state.consumer_waits && (is_next || self.options.auto_echo.is_some());
        let asks = state.dispatcher_waits_for_made;
        drop(state);
        if asks {
            self.room.notify_all();
        }
        if wakes {
            self.made.notify_all();
        }
    }

    /// The next batch, waited for until then at most; with `other`, a batch that is waited for instead if it comes
    /// earlier.
    pub fn front(&self, until: Until, other: Option<&Building>) -> Result<Front, FeedError> {
        let mut state = self.state();
        let mut may_nap = true;
        loop {
            if self.options.interrupt.load(Relaxed) {
                state.closed = true;
                drop(state);
                self.wake_all();
                return Err(FetchError::Interrupted.into());
            }
            if let Some(front) = state.queue.front()
                && front.is_made()
            {
                let front = state.queue.pop_front().expect("it was just seen");
                let room = state.dispatcher_waits && state.queue.len() <= state.room / 2;
                drop(state);
                if room {
                    self.room.notify_all();
                }
                return Ok(Front::Made(front));
            }
            if state.closed {
                let failure = state.failure.take();
                return Err(failure.unwrap_or_else(|| {
                    FetchError::Panicked("the loader was used after it had failed".to_owned())
                        .into()
                }));
            }
            if state.ended && state.queue.is_empty() {
                return Ok(Front::End);
            }
            let began = Instant::now();
            let over = match until {
                Until::Now => true,
                Until::Time(end) => began >= end,
                Until::Made => false,
            };
            if over || other.is_some_and(Building::is_made) {
                return Ok(Front::Pending);
            }
            let before = state.waits_since.replace(began);
            let comes_soon = before.is_some_and(|before| began - before < 2 * NAP);
            if may_nap && comes_soon {
                may_nap = false;
                drop(state);
                std::thread::sleep(NAP);
                state = self.state();
            } else {
                state.consumer_waits = true;
                state = wait_on(&self.made, state);
                state.consumer_waits = false;
            }
        }
    }

    /// Whether the next batch is ready.
    pub fn front_is_made(&self) -> bool {
        self.state()
            .queue
            .front()
            .is_some_and(|front| front.is_made())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait_on<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    let waited = condition.wait_timeout(state, INTERRUPT_INTERVAL);
    waited.unwrap_or_else(PoisonError::into_inner).0
}
