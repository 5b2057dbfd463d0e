//! Samples by index: the same as a loader's, on request.
//!
//! For libraries that draw indices themselves, and for inspecting one example or batch. A call reads its records
//! as one batch of reads and makes them on the thread that calls: no thread is started or waited for, so that it
//! also works in a process that was forked, and calls from several threads do not hinder each other. Read buffer,
//! rows and the state of stages are reused between calls.
//!
//! Use it if the next examples are not known beforehand. A [`Loader`](crate::Loader) reads ahead and
//! decodes on all threads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pelton_batch::{Array, Batch, Buffer, Fields, Shape};
use pelton_fetch::RecordReader;
use pelton_format::{Dataset, RowTable};
use pelton_key::{Stage, key};
use pelton_plan::{Draw, Place, Plan};

use crate::bad_seen::BadSeen;
use crate::building::{Building, Example, Places, SampleSource};
use crate::collate;
use crate::dispatch::{header_of, keys_of};
use crate::error::FeedError;
use crate::id_reader::{IdReader, RowsById};
use crate::known_fields::KnownFields;
use crate::loader;
use crate::options::{BadExamples, LoaderOptions};
use crate::sample::Value;
use crate::shared::Shared;
use crate::stage::Slots;
use crate::stages::Stages;
use crate::steps::{Origin, PlannedStep, StepPlanner};
use crate::worker::{Own, Task, Worker};

/// Samples of a data set by number, through the stages of a loader.
///
/// The randomness of a sample follows from seed, epoch, record and how often the call has the record before: the same
/// call gives the same pixels. It differs from a loader's randomness in that epoch, which depends on positions in its
/// order; [`Samples::batch_at`] equals a loader's.
///
/// Memory, in addition to the batches: for each concurrent caller, up to the threads of the options, a read buffer of
/// 4 MiB (more if a record is longer) and the encoded records of its longest call.
pub struct Samples {
    shared: Shared,
    plan: Arc<Plan>,
    /// Buffers of finished calls, for reuse.
    desks: Mutex<Vec<Desk>>,
    bad: Mutex<BadSeen>,
}

/// The working memory of one call.
struct Desk {
    own: Own,
    id_reader: IdReader,
}

impl Samples {
    /// Samples of a data set, as a loader with these arguments would make them; with several ranks,
    /// [`Samples::batch_at`] gives the share of the rank in the options.
    ///
    /// Errors: stages that do not match each other or the data.
    pub fn new(
        dataset: Arc<Dataset>,
        plan: Arc<Plan>,
        stages: Stages,
        options: &LoaderOptions,
    ) -> Result<Samples, FeedError> {
        loader::check(&dataset, &plan, &stages, options)?;
        let fields = KnownFields::from_stages(&dataset, &stages, plan.packing().is_some())?;
        let threads = options.threads.max(1);
        let options = options.clone();
        Ok(Samples {
            shared: Shared::new(dataset, stages, fields, options, (0, threads), None),
            plan,
            desks: Mutex::default(),
            bad: Mutex::default(),
        })
    }

    /// The counters of the stages, by name.
    pub fn counted(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let stages = self.shared.stages.list().iter();
        stages.flat_map(|stage| stage.counted())
    }

    /// Number of records; ids are below it.
    pub fn len(&self) -> u64 {
        self.shared.dataset.records()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The samples of some records in the order of `ids`, collated into a batch. An id may occur several
    /// times, and is augmented differently each time.
    ///
    /// Errors: an index out of range; bad records, according to the policy.
    pub fn batch(&self, epoch: u64, ids: &[u64]) -> Result<Batch, FeedError> {
        let mut times = HashMap::new();
        let draws = ids.iter().map(|&id| {
            let copy: &mut u32 = times.entry(id).or_default();
            *copy += 1;
            (draw_of(id, *copy - 1), Origin::Held)
        });
        let step = PlannedStep {
            place: Place { epoch, step: 0 },
            global_examples: ids.len() as u64,
            draws: draws.collect(),
            ..PlannedStep::default()
        };
        self.make(&step)
    }

    /// One sample in its own shape: each array contains only this one, `[1, …]`.
    ///
    /// Errors: an index out of range; a bad record, under any policy.
    pub fn sample(&self, epoch: u64, id: u64) -> Result<Fields, FeedError> {
        let mut desk = self.take_desk();
        let found = self.read(&mut desk, &[id], BadExamples::Fail)?;
        let step = PlannedStep {
            place: Place { epoch, step: 0 },
            draws: vec![(draw_of(id, 0), Origin::Held)],
            ..PlannedStep::default()
        };
        let examples = self.examples(&step, &found);
        let class = examples[0].label;
        let building = Building::new(header_of(&step), examples, None, Places::none(), 1);
        let row = match &building.examples[0].source {
            SampleSource::Row(row) => Some(found.rows.row(*row as usize)),
            _ => None,
        };
        let mut worker = Worker::new(&self.shared, desk.own);
        let made = worker.example(&building, 0, row, Slots::default());
        desk.own = worker.into_own();
        self.give_desk(desk, found.rows);
        let sample = made.map_err(|problem| self.shared.bad_example(id, &problem))?;
        let mut fields = Fields::default();
        for (name, value) in sample.iter() {
            fields.insert(Arc::clone(name), self.array_of(value));
        }
        self.shared.put_labels([class].into_iter(), &mut fields);
        Ok(fields)
    }

    /// The batch that a loader returns at a step, or an equal one; `None` if the epoch has no such step. Repeats
    /// caused by waiting are not part of the plan.
    ///
    /// Cost: the batch, and finding the step ([`Plan::walk`]): arithmetic for most orders, a replay of the epoch up
    /// to it for queue, bucketed and packed plans.
    pub fn batch_at(&self, place: Place) -> Result<Option<Batch>, FeedError> {
        let options = &self.shared.options;
        let ranks = (options.rank, options.world_size);
        let mut planner = StepPlanner::new(&self.plan, ranks, place, None, None)
            .near(options.near.as_ref().map(|near| Arc::clone(&near.0)));
        let step = planner.next_step().filter(|step| step.place == place);
        let Some(mut step) = step else {
            return Ok(None);
        };
        if !self.plan.batch_echo().is_none() {
            // A repeated batch is the same as the first one.
            step.draws.iter_mut().for_each(|(draw, _)| draw.copy = 0);
        }
        let mut batch = self.make(&step)?;
        if step.batch_copy > 0 {
            batch.copies.fill(step.batch_copy);
        }
        Ok(Some(batch))
    }

    /// Ids of the records skipped or replaced so far, in ascending order.
    pub fn bad_ids(&self) -> Vec<u64> {
        lock(&self.bad).ids()
    }

    fn make(&self, step: &PlannedStep) -> Result<Batch, FeedError> {
        let policy = self.shared.options.bad_examples;
        let mut desk = self.take_desk();
        let ids: Vec<u64> = step.draws.iter().map(|(draw, _)| draw.id).collect();
        let found = self.read(&mut desk, &ids, policy)?;
        let examples = self.examples(step, &found);
        let places = if step.pieces.is_empty() {
            self.shared.places()
        } else {
            Places::none()
        };
        let all = examples.len();
        let building = Building::new(header_of(step), examples, Some(found.rows), places, all);
        let building = Arc::new(building);
        let mut worker = Worker::new(&self.shared, desk.own);
        let piece = worker.make(Task {
            building: Arc::clone(&building),
            part: 0,
            examples: 0..all,
        });
        desk.own = worker.into_own();
        building.hand_in(0, piece);
        let rows = building.rows.write().expect("no reader panics").take();
        self.give_desk(desk, rows.unwrap_or_default());
        let made = collate::put_together(&self.shared, &building)?;
        lock(&self.bad).add(&made.bad, policy)?;
        Ok(made.batch)
    }

    /// Reads records, each once.
    fn read(
        &self,
        desk: &mut Desk,
        ids: &[u64],
        policy: BadExamples,
    ) -> Result<RowsById, FeedError> {
        let dataset = &self.shared.dataset;
        let records = dataset.records();
        if let Some(&id) = ids.iter().find(|&&id| id >= records) {
            return Err(FeedError::NoRecord { id, records });
        }
        let goes_on = policy != BadExamples::Fail;
        Ok(desk.id_reader.find(dataset, ids.to_vec(), goes_on)?)
    }

    fn examples(&self, step: &PlannedStep, found: &RowsById) -> Vec<Example> {
        let epoch_key = key(self.plan.seed(), step.place.epoch, Stage::Augment);
        let mut examples = Vec::with_capacity(step.draws.len());
        for (i, (draw, _)) in step.draws.iter().enumerate() {
            let (label, source) = match found.row_of(draw.id) {
                Ok(row) => (found.rows.label(*row as usize), SampleSource::Row(*row)),
                Err(problem) => (0, SampleSource::Missing(problem.clone())),
            };
            examples.push(Example {
                id: draw.id,
                position: draw.position,
                label,
                copy: draw.copy,
                keys: keys_of(&self.shared, &self.plan, epoch_key, draw),
                piece: step.pieces.get(i).cloned(),
                source,
            });
        }
        examples
    }

    /// The only sample of an array.
    fn array_of(&self, value: &Value<'_>) -> Array {
        let planar = self.shared.stages.planar;
        let mut bytes = self.shared.pool.take(value.bytes().len());
        let written = value.write(planar, &mut bytes);
        written.expect("the place has the size of the sample");
        let mut dims = value.dims();
        if planar && matches!(value, Value::Pixels(_)) {
            dims.rotate_right(1);
        }
        let buffer = Buffer::new(bytes, Some(&self.shared.pool));
        Array::new(value.dtype(), Shape::stacked(1, &dims), buffer)
    }

    fn take_desk(&self) -> Desk {
        lock(&self.desks).pop().unwrap_or_else(|| Desk {
            own: Own::new(&self.shared),
            id_reader: IdReader::new(
                &self.shared.dataset,
                RecordReader::new(&self.shared.options.device.speed()),
            ),
        })
    }

    fn give_desk(&self, mut desk: Desk, rows: RowTable) {
        desk.id_reader.give_back(rows);
        let mut desks = lock(&self.desks);
        if desks.len() < self.shared.options.threads.max(1) {
            desks.push(desk);
        }
    }
}

/// A record that no plan drew.
fn draw_of(id: u64, copy: u32) -> Draw {
    Draw {
        id,
        position: id,
        copy,
        last: true,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Samples {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Samples")
            .field("stages", &self.shared.stages)
            .finish_non_exhaustive()
    }
}
