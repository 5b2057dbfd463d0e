//! The dispatcher thread: takes rows from the feed as they arrive and divides the work among threads.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use crossbeam_channel::Sender;
use pelton_format::{ContentSum, Row, RowTable};
use pelton_image::example_key;
use pelton_key::{Stage, key};
use pelton_plan::{Draw, Place, Plan};

use crate::building::{BatchHeader, Building, Example, Places, SampleSource};
use crate::error::FeedError;
use crate::held_sample::HeldSample;
use crate::in_place;
use crate::options::EchoPoint;
use crate::read_ahead::ReadAheadSteps;
use crate::shared::Shared;
use crate::steps::{Origin, PlannedStep, Queue};
use crate::worker::{Task, Tasks};
use pelton_fetch::Fetch;

/// Bytes that one task copies if samples are copies of records.
const COPY_BYTES: usize = 1 << 20;
/// Most examples of a task otherwise.
const MOST_EXAMPLES: usize = 16;
/// Most if the task reads small records itself, which is cheaper for many at a time.
const MOST_SMALL_EXAMPLES: usize = 64;

/// The source of a step's examples.
pub(crate) enum Input {
    /// A feed, and the steps that it reads.
    Fetch(Box<Fetch>, Queue),
    /// The files: the threads that make batches read them.
    InPlace(Box<ReadAheadSteps>),
}

/// Starts batches until there are none left, or they are no longer needed.
pub(crate) struct Dispatcher {
    shared: Arc<Shared>,
    stream: Arc<Plan>,
    input: Input,
    tasks: Tasks,
    /// Examples that will be repeated, by position in the epoch.
    held: HashMap<u64, Arc<HeldSample>>,
    held_epoch: u64,
    /// Checksum of the records that are held from this step on.
    content: ContentSum,
}

impl Dispatcher {
    pub fn new(shared: &Arc<Shared>, stream: &Arc<Plan>, input: Input, tasks: Tasks) -> Dispatcher {
        Dispatcher {
            shared: Arc::clone(shared),
            stream: Arc::clone(stream),
            input,
            tasks,
            held: HashMap::new(),
            held_epoch: 0,
            content: ContentSum::default(),
        }
    }

    pub fn run(mut self) {
        while self.shared.wait_for_room() {
            match self.begin_next() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    // Delivered in order, after the batches that were read before.
                    let failed = Building::new(
                        header_of(&PlannedStep::default()),
                        vec![],
                        None,
                        Places::none(),
                        1,
                    );
                    failed.finish(Err(error));
                    self.shared.push(Arc::new(failed));
                    break;
                }
            }
        }
        self.shared.end();
        self.report();
    }

    fn report(&self) {
        if let Input::Fetch(feed, _) = &self.input {
            *self.shared.feed_meters() = Some(feed.meters());
        }
    }

    /// Begins the next batch; false when there is none.
    fn begin_next(&mut self) -> Result<bool, FeedError> {
        let _span = tracing::debug_span!("begin").entered();
        let (feed, queue) = match &mut self.input {
            Input::Fetch(feed, queue) => (feed, queue),
            Input::InPlace(steps) => {
                let reads = self.shared.in_place.as_ref();
                let reads = reads.expect("it is read in place");
                let Some((step, bytes)) = steps.next(reads, &self.shared) else {
                    return Ok(false);
                };
                let batch = Arc::new(in_place_batch(&self.shared, &self.stream, &step));
                steps.began(Arc::clone(&batch), bytes);
                send(&self.shared, &self.tasks, batch);
                return Ok(true);
            }
        };
        if feed.next_batch()?.is_none() {
            return Ok(false);
        }
        let rows = feed.take_rows();
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        let step = queue
            .pop_front()
            .expect("a step for every batch of the feed");
        drop(queue);
        self.report();
        let examples = self.examples(&step, &rows);
        let places = self.places(&examples, &rows);
        let chunk = chunk_of(&self.shared, examples.len(), &places);
        let building = Building::new(header_of(&step), examples, Some(rows), places, chunk);
        building.add_content(std::mem::take(&mut self.content));
        send(&self.shared, &self.tasks, Arc::new(building));
        Ok(true)
    }

    fn examples(&mut self, step: &PlannedStep, rows: &RowTable) -> Vec<Example> {
        if step.place.epoch != self.held_epoch {
            self.held.clear();
            self.held_epoch = step.place.epoch;
        }
        let epoch_key = key(self.stream.seed(), step.place.epoch, Stage::Augment);
        // Records that the feed left out as bad are missing among its rows.
        let mut row_of_read = vec![None; step.reads.len()];
        let mut row = 0;
        for (read, &id) in step.reads.iter().enumerate() {
            if rows.ids().get(row) == Some(&id) {
                row_of_read[read] = Some(row as u32);
                row += 1;
            }
        }
        let mut examples = Vec::with_capacity(step.draws.len());
        for (i, &(draw, origin)) in step.draws.iter().enumerate() {
            let (label, source) = self.source(&draw, origin, &row_of_read, rows);
            examples.push(Example {
                id: draw.id,
                position: draw.position,
                label,
                copy: draw.copy,
                keys: keys_of(&self.shared, &self.stream, epoch_key, &draw),
                piece: step.pieces.get(i).cloned(),
                source,
            });
        }
        for position in &step.drops {
            self.held.remove(position);
        }
        examples
    }

    fn source(
        &mut self,
        draw: &Draw,
        origin: Origin,
        row_of_read: &[Option<u32>],
        rows: &RowTable,
    ) -> (u32, SampleSource) {
        match origin {
            Origin::Held => match self.held.get(&draw.position) {
                Some(held) => (held.label, SampleSource::Held(Arc::clone(held))),
                None => (0, self.missing(draw.id)),
            },
            Origin::Read { read, keep } => {
                if draw.copy > 0 {
                    self.shared.read_again.fetch_add(1, Relaxed);
                }
                let Some(row) = row_of_read[read as usize] else {
                    return (0, self.missing(draw.id));
                };
                let label = rows.label(row as usize);
                let for_anyone = self.shared.options.auto_echo.is_some();
                match rows.row(row as usize) {
                    Row::Bytes(record) if keep || for_anyone => {
                        if draw.copy == 0 {
                            self.content.add(draw.id, label, Row::Bytes(record));
                        }
                        let held = HeldSample::new(label, record, &self.shared.allowance);
                        if keep {
                            self.held.insert(draw.position, Arc::clone(&held));
                        }
                        (label, SampleSource::Held(held))
                    }
                    _ => (label, SampleSource::Row(row)),
                }
            }
        }
    }

    fn missing(&self, id: u64) -> SampleSource {
        let reason = match &self.input {
            Input::Fetch(feed, _) => feed.reason(id),
            Input::InPlace(..) => None,
        };
        SampleSource::Missing(reason.unwrap_or_else(|| {
            let error = self.shared.bad_example(id, "it could not be read");
            error.to_string()
        }))
    }

    /// The slots of a batch's samples, as far as known.
    fn places(&self, examples: &[Example], rows: &RowTable) -> Places {
        if examples.iter().any(|example| example.piece.is_some()) {
            return Places::none();
        }
        let places = self.shared.places();
        if !places.others() || !self.shared.copies_to_offsets() {
            return places;
        }
        let mut offsets = Vec::with_capacity(examples.len() + 1);
        let mut end = 0;
        offsets.push(0);
        for example in examples {
            end += match &example.source {
                SampleSource::Row(row) => match rows.row(*row as usize) {
                    Row::Bytes(bytes) => bytes.len(),
                    _ => return places,
                },
                SampleSource::Held(_) | SampleSource::InPlace => return places,
                SampleSource::Missing(_) => 0,
            };
            offsets.push(end);
        }
        Places::Offsets {
            name: self.shared.record_name(),
            offsets,
        }
    }
}

/// The batch of a step, for worker threads that read its records themselves.
fn in_place_batch(shared: &Shared, stream: &Plan, step: &PlannedStep) -> Building {
    let epoch_key = key(stream.seed(), step.place.epoch, Stage::Augment);
    let examples: Vec<Example> = step
        .draws
        .iter()
        .map(|(draw, _)| Example {
            id: draw.id,
            position: draw.position,
            label: 0,
            copy: draw.copy,
            keys: keys_of(shared, stream, epoch_key, draw),
            piece: None,
            source: SampleSource::InPlace,
        })
        .collect();
    let copied = shared.copies_in_place();
    let places = match shared.places() {
        places if copied && places.others() => {
            let ids = examples.iter().map(|example| example.id);
            Places::Offsets {
                name: shared.record_name(),
                offsets: in_place::offsets(shared, ids),
            }
        }
        places => places,
    };
    let chunk = chunk_of(shared, examples.len(), &places);
    let chunk = if copied {
        chunk.max(in_place::RECORDS_OF_TASK)
    } else {
        chunk
    };
    Building::new(header_of(step), examples, None, places, chunk)
}

/// The keys of the randomness of a draw.
pub(crate) fn keys_of(shared: &Shared, stream: &Plan, epoch_key: u64, draw: &Draw) -> [u64; 2] {
    let again = shared.options.echo_point != EchoPoint::AfterAugment;
    let again = again && stream.batch_echo().is_none();
    keys(epoch_key, draw.position, if again { draw.copy } else { 0 })
}

/// The keys of stages that run once for all copies, and of the others. Repeats after augmentation have copy 0.
pub(crate) fn keys(epoch_key: u64, position: u64, copy: u32) -> [u64; 2] {
    [0, copy].map(|copy| example_key(epoch_key, position, copy))
}

/// Examples in a task: few enough that every thread has several tasks of a batch, so a batch is soon ready.
pub(crate) fn chunk_of(shared: &Shared, examples: usize, places: &Places) -> usize {
    if shared.copies || shared.copied_fields.is_some() || shared.copies_in_place() {
        let bytes = (0..places.len()).map(|field| places.range(field, &(0..examples)).len());
        let mean = bytes.sum::<usize>() / examples.max(1);
        return (COPY_BYTES / mean.max(1)).max(1);
    }
    let threads = shared.options.threads.max(1);
    match &shared.in_place {
        Some(reads) if reads.small => examples.div_ceil(threads).clamp(1, MOST_SMALL_EXAMPLES),
        _ => examples.div_ceil(4 * threads).clamp(1, MOST_EXAMPLES),
    }
}

/// Queues a batch after the others, and its parts for the threads.
pub(crate) fn send(shared: &Arc<Shared>, tasks: &Tasks, building: Arc<Building>) {
    shared.push(Arc::clone(&building));
    send_parts(&tasks.inorder, building);
}

/// Sends the parts of a batch to the threads.
pub(crate) fn send_parts(tasks: &Sender<Task>, building: Arc<Building>) {
    for (part, examples) in building.parts() {
        let task = Task {
            building: Arc::clone(&building),
            part,
            examples,
        };
        // The receivers are gone once the loader is dropped.
        let _ = tasks.send(task);
    }
}

pub(crate) fn header_of(step: &PlannedStep) -> BatchHeader {
    let end = Place {
        step: step.place.step + 1,
        ..step.place
    };
    BatchHeader {
        place: step.place,
        end,
        ends_epoch: step.ends_epoch,
        bucket: step.bucket,
        padded_length: step.padded_length,
        second_length: step.second_length,
        global_examples: step.global_examples,
        row_draws: step.row_draws.clone(),
        fresh_batch: step.fresh_batch,
        keep_batch: step.keep_batch,
        batch_copy: step.batch_copy,
        drawn: step.drawn,
        is_repeat: step.is_repeat,
    }
}
