//! Batches of samples: a feed followed by stages.
//!
//! A [`Loader`] executes a [`Plan`]: records are prefetched by a [`Fetch`], decoded, augmented and collated
//! into batches by threads, and returned in exactly the plan's order. Reading order:
//!
//! * [`Stages`] process a record, [`LoaderOptions`] configure the loader;
//! * `steps` walks the plan and lists the reads of each step and the examples held for repeats;
//! * `dispatch`, one thread, takes rows from the feed and divides each batch among the `worker` threads, which
//!   write samples straight into the batch's buffer; the one that finishes last collates the batch (`collate`),
//!   so no thread waits for another;
//! * `in_place_reads`: those threads read data in memory themselves, without a feed: samples that are records' own
//!   bytes straight into their slots (`in_place`), others to make samples from (`id_reader`);
//! * [`Loader`] returns finished batches in order, and repeats while waiting (`auto_echo`).
//!
//! **Memory.** The budget is divided once, at the start: batches in progress, ready and lent; records and
//! samples held for repeats; the rest is the feed's look-ahead. Samples that do not fit are decoded again.
//!
//! **What is exact.** The sequence of examples, their augmentation and their grouping depend only on the plan,
//! never on threads, access path or timing. Only `auto` echo decides by the clock when to repeat;
//! even then the fresh examples keep their order, and each comes once.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::FeedError;
use pelton_batch::Batch;
use pelton_fetch::Fetch;
use pelton_fetch::FetchError;
use pelton_format::{ContentSum, Contents, DataFile, Dataset, Layout};
use pelton_plan::{Place, Plan};

use crate::auto_echo::Repeats;
use crate::bad_seen::BadSeen;
use crate::budget::{Case, Division};
use crate::building::{Building, Made};
use crate::dispatch::{Dispatcher, Input};
use crate::in_place_reads::{InPlaceData, InPlaceReads};
use crate::known_fields::{KnownFields, as_stored};
use crate::meters::LoaderMeters;
use crate::options::{BadExamples, LoaderOptions, Seen};
use crate::read_ahead::ReadAheadSteps;
use crate::shared::{Front, Shared, Until};
use crate::stages::{LABEL, Stages};
use crate::state::LoaderState;
use crate::steps::{self, Hints, QueuedSteps, StepPlanner};
use crate::worker::{self, Open, Tasks};

/// How long an ended loader waits for its last read.
const READER_GRACE: Duration = Duration::from_millis(500);
/// Bad examples that are kept for the report.
const MOST_BAD_KEPT: usize = 100;

/// Reads, decodes, augments and collates the batches of a plan within a memory budget.
///
/// Dropping it stops its threads.
///
/// ```
/// use std::sync::Arc;
///
/// use pelton_feed::{Function, Loader, LoaderOptions, LoaderState, Stages, Value};
/// use pelton_format::{Dataset, OpenOptions};
/// use pelton_plan::{Catalog, Order, Plan, PlanSpec};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("lines.txt");
/// # std::fs::write(&path, "three small words\n".repeat(100))?;
/// let dataset = Arc::new(Dataset::open(&[path], &OpenOptions::default())?);
/// // Batches of 32 in a full random order of every epoch, each example twice.
/// let spec = PlanSpec {
///     echo: "2".parse()?,
///     ..PlanSpec::new(Order::Full, 32, 7)
/// };
/// let plan = Arc::new(Plan::new(&spec, Catalog::new(dataset.records()))?);
/// // A custom function; errors that it returns are reported with the record's position.
/// let stages = Stages::default().then(Function::at_read(|sample, _| match sample.get_mut("text") {
///     Some(Value::Bytes(line)) => Ok(line.to_mut().make_ascii_uppercase()),
///     _ => Err("a line of text was expected".into()),
/// }));
/// let options = LoaderOptions {
///     end_epoch: Some(1),
///     ..LoaderOptions::with_memory(64 << 20)
/// };
/// let mut loader = Loader::new(dataset.clone(), plan.clone(), stages.clone(), &options)?;
/// let first = loader.next().transpose()?.expect("an epoch has batches");
/// assert_eq!(first.len(), 32);
/// assert!(first.values::<u8>("text").is_some_and(|text| text.starts_with(b"THREE SMALL WORDS")));
///
/// // The state is a line of JSON, from which another loader resumes exactly.
/// let state = LoaderState::from_json(&loader.state().to_json())?;
/// let options = state.resume(&dataset, &plan, &stages, &options)?;
/// let mut another = Loader::new(dataset, plan, stages, &options)?;
/// let (next, same) = (loader.next().transpose()?, another.next().transpose()?);
/// assert_eq!(next.map(|batch| batch.ids), same.map(|batch| batch.ids));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Loader {
    shared: Arc<Shared>,
    stream: Arc<Plan>,
    tasks: Option<Tasks>,
    open: Option<Open>,
    threads: Vec<JoinHandle<()>>,
    repeats: Option<Repeats>,
    /// Fresh batches that the plan repeats, by number.
    kept: HashMap<u64, Batch>,
    place: Place,
    /// Positions of the epoch's order before this were drawn by returned batches.
    drawn: u64,
    /// Hints of the plan for it.
    hints: Hints,
    /// Fingerprint of the stages, computed when a state first needs it.
    fingerprint: OnceLock<Option<u64>>,
    failed: bool,
    /// Checksum of this epoch's records so far, if known from its beginning.
    content: Option<ContentSum>,
    /// The same of the last epoch that ended.
    whole: Option<ContentSum>,
    /// Identifies the state of the files.
    files: u64,
    bad: BadSeen,
    meters: LoaderMeters,
    left_at: Option<Instant>,
}

impl Loader {
    /// A loader of `stream` over `dataset`, which must have as many records as the stream was made for.
    ///
    /// Errors: stages that do not match each other or the data; too small a budget.
    pub fn new(
        dataset: Arc<Dataset>,
        stream: Arc<Plan>,
        stages: Stages,
        options: &LoaderOptions,
    ) -> Result<Loader, FeedError> {
        check(&dataset, &stream, &stages, options)?;
        let fields = KnownFields::from_stages(&dataset, &stages, stream.packing().is_some())?;
        let in_place = InPlaceData::new(&dataset, &stream, &stages, &fields, options);
        let division = Case {
            dataset: &dataset,
            stream: &stream,
            stages: &stages,
            fields: &fields,
            options,
            in_place: in_place.is_some(),
        }
        .divide()?;
        tracing::info!(?division, ?stages, "loader begun");
        let in_place =
            in_place.map(|data| InPlaceReads::new(data, options, division.resident_bytes));
        let shared = Arc::new(Shared::new(
            Arc::clone(&dataset),
            stages,
            fields,
            options.clone(),
            (division.samples_bytes, division.room),
            in_place,
        ));
        let planner = StepPlanner::new(
            &stream,
            (options.rank, options.world_size),
            options.start,
            options.hint.as_ref(),
            options.end_epoch,
        )
        .of_part(options.part)
        .near(options.near.as_ref().map(|near| Arc::clone(&near.0)));
        let hints = planner.hints();
        let input = match &shared.in_place {
            Some(_) => Input::InPlace(Box::new(ReadAheadSteps::new(planner))),
            None => feed_of(dataset, planner, &division, options)?,
        };
        if let Input::Fetch(feed, _) = &input {
            let _ = shared.recycler.set(feed.recycler());
        }
        let (tasks, receiver, open) = worker::task_queue();
        let mut threads = Vec::new();
        for _ in 0..options.threads.max(1) {
            let (shared, receiver) = (Arc::clone(&shared), receiver.clone());
            let work = move || worker::run(&shared, &receiver);
            threads.push(spawn("pelton-make", work)?);
        }
        let dispatcher = Dispatcher::new(&shared, &stream, input, tasks.clone());
        threads.push(spawn("pelton-begin", move || dispatcher.run())?);
        Ok(Loader {
            repeats: options.auto_echo.map(|auto| {
                Repeats::new(
                    auto,
                    stream.seed(),
                    options.auto_batches,
                    division.rank_batch,
                )
            }),
            content: match options.start.step {
                0 => Some(ContentSum::default()),
                _ => options.seen.so_far,
            },
            whole: None,
            files: shared.dataset.files_state(),
            place: options.start,
            drawn: 0,
            hints,
            fingerprint: OnceLock::new(),
            shared,
            stream,
            tasks: Some(tasks),
            open: Some(open),
            threads,
            kept: HashMap::new(),
            failed: false,
            bad: BadSeen::default(),
            meters: LoaderMeters::default(),
            left_at: None,
        })
    }

    /// The plan that is executed.
    pub fn stream(&self) -> &Arc<Plan> {
        &self.stream
    }

    /// Epoch and step of the next batch.
    pub fn place(&self) -> Place {
        let Place { epoch, step: next } = self.place;
        if next < self.stream.steps(epoch) {
            self.place
        } else {
            Place {
                epoch: epoch + 1,
                step: 0,
            }
        }
    }

    /// The position of the epoch's order before which every example was drawn for the returned batches. Some of
    /// these may still wait in a bucket.
    pub fn drawn(&self) -> u64 {
        self.drawn
    }

    /// The next batch, if it is ready within `patience`; for callers with other work meanwhile.
    pub fn poll_next(&mut self, patience: Duration) -> Poll<Option<Result<Batch, FeedError>>> {
        if self.failed {
            return Poll::Ready(None);
        }
        match self.next_batch(Until::Time(Instant::now() + patience)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(batch)) => Poll::Ready(batch.map(Ok)),
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }

    fn next_batch(&mut self, until: Until) -> Result<Poll<Option<Batch>>, FeedError> {
        let asked_at = Instant::now();
        if let Some(left_at) = self.left_at.take() {
            self.meters.compute_s += (asked_at - left_at).as_secs_f64();
        }
        let next = self.take_front(until);
        self.failed = next.is_err();
        self.meters.wait_s += asked_at.elapsed().as_secs_f64();
        let made = match next? {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(None) => return Ok(Poll::Ready(None)),
            Poll::Ready(Some(made)) => made,
        };
        if self.meters.batches == 0 {
            self.meters.first_batch_s = self.shared.began.elapsed().as_secs_f64();
        }
        let batch = self.count(made)?;
        self.left_at = Some(Instant::now());
        Ok(Poll::Ready(Some(batch)))
    }

    /// The position of this loader, after everything that the consumer has received.
    pub fn state(&self) -> LoaderState {
        LoaderState::new(
            &self.shared.dataset,
            &self.stream,
            *self
                .fingerprint
                .get_or_init(|| self.shared.stages.fingerprint()),
            self.place,
            self.repeats.as_ref().map_or(0, Repeats::batches),
            steps::hint_at(&self.hints, self.place).as_ref(),
        )
        .having_seen(
            self.files,
            self.seen().first(),
            self.content.filter(|_| self.is_lone()),
        )
    }

    /// The data.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.shared.dataset
    }

    /// Checksums of records before this loader, and in the first whole epoch.
    pub fn seen(&self) -> &Seen {
        &self.shared.options.seen
    }

    /// Checksum of this epoch's records so far, if known from its beginning.
    pub fn content(&self) -> Option<ContentSum> {
        self.content
    }

    /// Checksum of the records of the last finished epoch on this rank; `None` if unknown, and from the second call
    /// on. A loader of all batches compares it itself.
    pub fn take_whole(&mut self) -> Option<ContentSum> {
        self.whole.take()
    }

    /// Whether all batches are made here.
    fn is_lone(&self) -> bool {
        let options = &self.shared.options;
        (options.world_size, options.part.1) == (1, 1)
    }

    /// Adds the checksum of a batch's records; at the end of an epoch compares the total with the first.
    fn count_content(&mut self, building: &Building) -> Result<(), FeedError> {
        if let Some(content) = &mut self.content {
            *content += building.content();
        }
        if building.head.ends_epoch {
            self.whole = self.content.replace(ContentSum::default());
            if let Some(whole) = self.whole.filter(|_| self.is_lone()) {
                self.seen().check(whole, &self.shared.dataset)?;
            }
        }
        Ok(())
    }

    /// Ids of the records skipped or replaced so far, in ascending order.
    pub fn bad_ids(&self) -> Vec<u64> {
        self.bad.ids()
    }

    /// The counters of the stages, by name.
    pub fn counted(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let stages = self.shared.stages.list().iter();
        stages.flat_map(|stage| stage.counted())
    }

    /// Counters since the loader began.
    pub fn meters(&self) -> LoaderMeters {
        let mut meters = self.meters.clone();
        if let Some(left_at) = self.left_at {
            meters.compute_s += left_at.elapsed().as_secs_f64();
        }
        meters.wall_s = self.shared.began.elapsed().as_secs_f64();
        meters.decoded_again = self.shared.allowance.again.load(Relaxed);
        meters.read_again = self.shared.read_again.load(Relaxed);
        meters.counted = self.counted().collect();
        let in_place = self.shared.in_place.as_ref();
        meters.resident_bytes = in_place.map_or(0, |reads| reads.resident_bytes);
        meters.feed = match in_place {
            Some(reads) => reads.meters(),
            None => self.shared.feed_meters().clone().unwrap_or_default(),
        };
        meters.stages = self.shared.stage_meters(&meters);
        meters
    }

    fn take_front(&mut self, until: Until) -> Result<Poll<Option<Made>>, FeedError> {
        let Some(repeats) = &mut self.repeats else {
            return match self.shared.front(until, None)? {
                Front::Made(building) => Ok(Poll::Ready(Some(self.taken(&building)?))),
                Front::Pending => Ok(Poll::Pending),
                Front::End => Ok(Poll::Ready(None)),
            };
        };
        let tasks = self.tasks.clone().expect("present until dropped");
        let front = match self.shared.front(Until::Now, None)? {
            Front::Pending => {
                let spare = repeats.prepare(&self.shared, &tasks, self.place);
                self.shared.front(until, spare.as_deref())?
            }
            front => front,
        };
        let made = match front {
            Front::Made(building) => Some(self.taken(&building)?),
            Front::End => None,
            Front::Pending => match self.repeats.as_mut().and_then(Repeats::take_spare) {
                Some(spare) => Some(spare?),
                None => return Ok(Poll::Pending),
            },
        };
        // Made while the consumer works, in case the next fresh batch is late again.
        if let Some(repeats) = &mut self.repeats
            && made.is_some()
            && !self.shared.front_is_made()
        {
            repeats.prepare(&self.shared, &tasks, self.place);
        }
        Ok(Poll::Ready(made))
    }

    /// A fresh batch, or one that the plan repeats, out of the queue.
    fn taken(&mut self, building: &Building) -> Result<Made, FeedError> {
        let mut made = building.take_made().expect("it was seen to be made")?;
        let head = &building.head;
        if head.is_repeat {
            let kept = if head.keep_batch {
                self.kept.get(&head.fresh_batch).cloned()
            } else {
                self.kept.remove(&head.fresh_batch)
            };
            let kept = kept.expect("a batch is kept while the plan repeats it");
            made.batch = Batch {
                epoch: head.place.epoch,
                step: head.place.step,
                ends_epoch: head.ends_epoch,
                copies: vec![head.batch_copy; kept.ids.len()],
                ..kept
            };
        } else if head.keep_batch {
            self.kept.insert(head.fresh_batch, made.batch.clone());
        }
        if head.ends_epoch {
            self.kept.clear();
        }
        self.count_content(building)?;
        self.place = head.end;
        self.drawn = head.drawn;
        steps::forget_before(&self.hints, self.place);
        if let Some(repeats) = &mut self.repeats {
            repeats.hold(std::mem::take(&mut made.held));
        }
        Ok(made)
    }

    fn count(&mut self, made: Made) -> Result<Batch, FeedError> {
        let Made {
            batch, bad, fresh, ..
        } = made;
        let meters = &mut self.meters;
        meters.batches += 1;
        meters.fresh_examples += fresh;
        meters.echoed_examples += (batch.len() as u64).saturating_sub(fresh);
        for (_, array) in batch.fields.iter().filter(|(name, _)| *name != LABEL) {
            meters.padded_elements += array.shape().padding() as u64;
            meters.elements += array.shape().elements() as u64;
            meters.batch_bytes += array.bytes().len() as u64;
        }
        match self.shared.options.bad_examples {
            BadExamples::Replace { .. } => meters.replaced_examples += bad.len() as u64,
            _ => meters.skipped_examples += bad.len() as u64,
        }
        let seen = self.bad.add(&bad, self.shared.options.bad_examples);
        self.failed = seen.is_err();
        seen?;
        let room = MOST_BAD_KEPT.saturating_sub(meters.bad_examples.len());
        meters.bad_examples.extend(bad.into_iter().take(room));
        Ok(batch)
    }
}

/// The batches; after the last epoch, and after an error, there are no more. An error is returned in order,
/// after the batches that were read before. The budget counts one batch in the consumer's hands.
impl Iterator for Loader {
    type Item = Result<Batch, FeedError>;

    fn next(&mut self) -> Option<Result<Batch, FeedError>> {
        if self.failed {
            None
        } else {
            match self.next_batch(Until::Made) {
                Ok(Poll::Ready(batch)) => batch.map(Ok),
                Ok(Poll::Pending) => None,
                Err(error) => Some(Err(error)),
            }
        }
    }
}

impl Drop for Loader {
    /// Joins the threads. Only a thread waiting for a server, possibly for a minute, is left to end on its own.
    fn drop(&mut self) {
        self.shared.close();
        self.tasks = None;
        self.open = None;
        let own = std::thread::current().id();
        let files = self.shared.dataset.files();
        let reader = if files.iter().any(DataFile::is_remote) {
            self.threads.pop()
        } else {
            None
        };
        for thread in self.threads.drain(..) {
            // A function called by one of them may have dropped the last owner of the loader, as Python's
            // collector does; that thread ends on its own. A panic was already turned into a failure.
            if thread.thread().id() != own {
                let _ = thread.join();
            }
        }
        let closed = Instant::now();
        while let Some(reader) = &reader
            && !reader.is_finished()
            && closed.elapsed() < READER_GRACE
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loader")
            .field("stages", &self.shared.stages)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, FeedError> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    Ok(thread.spawn(work).map_err(FetchError::Thread)?)
}

/// A feed for the steps of `planner`.
fn feed_of(
    dataset: Arc<Dataset>,
    planner: StepPlanner,
    division: &Division,
    options: &LoaderOptions,
) -> Result<Input, FeedError> {
    let queue = steps::Queue::default();
    let steps = QueuedSteps {
        planner,
        queue: Arc::clone(&queue),
        most: division.most_read(&dataset),
        spread: division.spread,
    };
    let feed_options = division.feed_options(options);
    let feed = Fetch::of_steps(dataset, Box::new(steps), &feed_options)?;
    Ok(Input::Fetch(Box::new(feed), queue))
}

/// Refuses settings that do not match before anything is read.
pub(crate) fn check(
    dataset: &Dataset,
    stream: &Plan,
    stages: &Stages,
    options: &LoaderOptions,
) -> Result<(), FeedError> {
    let refuse = |text: &str| Err(FeedError::Stages(text.to_owned()));
    assert_eq!(
        dataset.records(),
        stream.records(),
        "the plan was made for other data"
    );
    assert!(options.rank < options.world_size, "rank of the world");
    assert!(options.part.0 < options.part.1, "part of the steps");
    let of_bytes = dataset.layout() == Layout::Bytes;
    if !of_bytes
        && (!(stream.echo().is_none() && stream.batch_echo().is_none())
            || options.auto_echo.is_some())
    {
        return refuse(
            "echo does nothing for rows of features, which cost nothing to read twice; leave `echo` out",
        );
    }
    if let Contents::Pixels { channels, .. } = dataset.contents()
        && channels != 1
        && channels != 3
        && (stages.list().iter().any(|stage| stage.makes_one_shape())
            || !as_stored(dataset.contents(), stages))
    {
        return Err(FeedError::Stages(format!(
            "pictures of {channels} channels are returned as stored; only pictures of 1 or 3 channels can be augmented or used with `planar`",
        )));
    }
    let repeats = !(stream.echo().is_none() && stream.batch_echo().is_none());
    if options.part.1 > 1 && (repeats || options.auto_echo.is_some()) {
        return refuse(
            "echo needs a single worker, because repeats are made where the first copy was; use one worker, or leave `echo` out",
        );
    }
    if !stream.echo().is_none() && !stream.batch_echo().is_none() {
        return refuse("examples and batches cannot both be echoed; choose one of them");
    }
    Ok(())
}
