//! The threads that make batches: run the stages, and write each sample to its slot.

use std::any::Any;
use std::borrow::Cow;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, select_biased};
use pelton_batch::DType;
use pelton_format::{ContentSum, Contents, Row};
use pelton_image::Layout;

use crate::building::{Building, Example, Piece, Places, SampleSource};
use crate::collate;
use crate::held_sample::{HeldSample, HeldState};
use crate::id_reader::{IdReader, RowsById};
use crate::in_place;
use crate::in_place_reads::Way;
use crate::options::BadExamples;
use crate::sample::{self, Sample, Spare, Value};
use crate::shared::Shared;
use crate::stage::{Appearance, Slots};

/// A part of a batch to be made.
pub(crate) struct Task {
    pub building: Arc<Building>,
    pub part: usize,
    pub examples: Range<usize>,
}

/// The queues' senders.
#[derive(Clone)]
pub(crate) struct Tasks {
    /// In the order of the batches.
    pub inorder: Sender<Task>,
    /// Before all others: the consumer is waiting for them.
    pub urgent: Sender<Task>,
}

/// The queues' receivers.
#[derive(Clone)]
pub(crate) struct TaskQueue {
    inorder: Receiver<Task>,
    urgent: Receiver<Task>,
    open: Receiver<()>,
}

/// Nothing is taken from a queue once its `Open` is dropped, even if senders remain.
pub(crate) type Open = Sender<()>;

pub(crate) fn task_queue() -> (Tasks, TaskQueue, Open) {
    let ordinary = crossbeam_channel::unbounded();
    let urgent = crossbeam_channel::unbounded();
    let open = crossbeam_channel::bounded(0);
    let tasks = Tasks {
        inorder: ordinary.0,
        urgent: urgent.0,
    };
    let queue = TaskQueue {
        inorder: ordinary.1,
        urgent: urgent.1,
        open: open.1,
    };
    (tasks, queue, open.0)
}

impl TaskQueue {
    /// The next task; `None` once there are no senders, or the queue was closed.
    fn next(&self) -> Option<Task> {
        select_biased! {
            recv(self.open) -> _ => None,
            recv(self.urgent) -> task => task.ok().or_else(|| self.inorder.recv().ok()),
            recv(self.inorder) -> task => task.ok(),
        }
    }
}

/// Works on tasks until there are none and no senders.
pub(crate) fn run(shared: &Shared, tasks: &TaskQueue) {
    let mut worker = Worker::new(shared, Own::new(shared));
    loop {
        let idle = Instant::now();
        let Some(task) = tasks.next() else { return };
        shared.counters.idle(idle.elapsed());
        if shared.is_closed() {
            continue;
        }
        let building = Arc::clone(&task.building);
        let part = task.part;
        let place = building.head.place;
        let _span =
            tracing::debug_span!("make", epoch = place.epoch, step = place.step, part).entered();
        let piece = catch_unwind(AssertUnwindSafe(|| worker.make(task)));
        if shared.is_closed() {
            // The batch is no longer needed, and may be incomplete.
            continue;
        }
        match piece {
            Ok(piece) => {
                if building.hand_in(part, piece) {
                    let made = catch_unwind(AssertUnwindSafe(|| {
                        collate::put_together(shared, &building)
                    }));
                    match made {
                        Ok(made) => shared.made(&building, made),
                        Err(panic) => shared.panicked(&*panic),
                    }
                }
            }
            Err(panic) => shared.panicked(&*panic),
        }
    }
}

/// Makes examples on one thread.
pub(crate) struct Worker<'s> {
    shared: &'s Shared,
    own: Own,
    /// Whether the batch belongs to the first epoch of this run.
    first_epoch: bool,
}

/// State of one thread between examples.
pub(crate) struct Own {
    /// This thread's state for each stage, the time each took since the last count, and how often it ran.
    work: Vec<Box<dyn Any + Send>>,
    took: Vec<Duration>,
    ran: Vec<u64>,
    /// Memory of the sample before.
    spare: Spare,
    /// Records in their files.
    stored: Vec<u8>,
    /// Reads the records, if samples are made from records in memory.
    id_reader: Option<IdReader>,
}

impl Own {
    pub fn new(shared: &Shared) -> Own {
        let stages = shared.stages.list();
        Own {
            work: stages.iter().map(|stage| stage.work()).collect(),
            took: vec![Duration::ZERO; stages.len()],
            ran: vec![0; stages.len()],
            spare: Spare::default(),
            stored: Vec::new(),
            id_reader: shared.in_place.as_ref().and_then(|reads| {
                let reader = reads.reader()?;
                Some(IdReader::new(&reads.dataset, reader))
            }),
        }
    }
}

impl<'s> Worker<'s> {
    pub fn new(shared: &'s Shared, own: Own) -> Worker<'s> {
        Worker {
            shared,
            own,
            first_epoch: true,
        }
    }

    /// The state kept for the next one.
    pub fn into_own(self) -> Own {
        self.own
    }

    pub fn make(&mut self, task: Task) -> Piece {
        let Task {
            building,
            part,
            examples,
        } = task;
        let shared = self.shared;
        self.first_epoch = building.head.place.epoch == shared.options.start.epoch;
        let mut places = building.take_memory(part, &shared.pool);
        let mut samples = Vec::new();
        let mut found = None;
        match (&shared.in_place, places.as_mut_slice()) {
            (Some(reads), _) if reads.way == Way::Made => {
                let id_reader = self.own.id_reader.as_mut().expect("it is read in place");
                found = id_reader.of_part(shared, reads, &building, &examples);
                if found.is_none() {
                    // The batch fails.
                    return Piece::default();
                }
            }
            (Some(reads), [place]) => {
                in_place::read(
                    shared,
                    reads,
                    &building,
                    examples,
                    place,
                    &mut self.own.stored,
                );
                return Piece { places, samples };
            }
            _ => {}
        }
        let began = Instant::now();
        let of_batch = building.rows.read().expect("no writer panics");
        let rows = found
            .as_ref()
            .map(|found| &found.rows)
            .or(of_batch.as_ref());
        let mut content = ContentSum::default();
        let mut free: Vec<&mut [u8]> = places.iter_mut().map(|place| &mut place[..]).collect();
        let together = shared.stages.together();
        let mut parts = Vec::with_capacity(together);
        for i in examples.clone() {
            if shared.is_closed() {
                return Piece::default();
            }
            let mut slots = Slots::default();
            for (field, free) in free.iter_mut().enumerate() {
                let bytes = building.places.range(field, &(i..i + 1)).len();
                let (slot, rest) = std::mem::take(free).split_at_mut(bytes);
                *free = rest;
                slots.push(building.places.name(field), slot);
            }
            let row = match (&building.examples[i].source, &found) {
                (SampleSource::InPlace, Some(found)) => {
                    found_row(&building, i, found, &mut content).map(Some)
                }
                (SampleSource::Row(row), _) => {
                    let row = rows.map(|rows| rows.row(*row as usize));
                    let example = &building.examples[i];
                    if let Some(row) = row.filter(|_| example.is_fresh()) {
                        content.add(example.id, example.label, row);
                    }
                    Ok(row)
                }
                _ => Ok(None),
            };
            parts.push((i, row, slots));
            if parts.len() < together && i + 1 < examples.end {
                continue;
            }
            let mut hand_in = |(i, made): (usize, Result<Sample<'static>, String>)| {
                let made = made.map_err(|problem| building.failed(i, problem));
                if building.places.others() {
                    samples.push(made.ok());
                }
            };
            match parts.pop() {
                Some((i, row, slots)) if parts.is_empty() => {
                    let made = row.and_then(|row| self.example(&building, i, row, slots));
                    hand_in((i, made));
                }
                Some(last) => {
                    parts.push(last);
                    self.examples(&building, &mut parts)
                        .into_iter()
                        .for_each(hand_in);
                }
                None => (),
            }
        }
        building.add_content(content);
        if let (Some(id_reader), Some(found)) = (&mut self.own.id_reader, found) {
            id_reader.give_back(found.rows);
        }
        let written: usize = places.iter().map(|place| place.len()).sum();
        let kept: usize = samples.iter().flatten().map(Sample::data_bytes).sum();
        self.count(
            began.elapsed(),
            examples.len() as u64,
            (written + kept) as u64,
        );
        Piece { places, samples }
    }

    /// Time outside stages is collation.
    fn count(&mut self, took: Duration, examples: u64, bytes: u64) {
        let counters = &self.shared.counters;
        let mut rest = took;
        let last = self.own.ran.len().checked_sub(1);
        for (i, counter) in counters.stages.iter().enumerate() {
            let took = std::mem::take(&mut self.own.took[i]);
            let ran = std::mem::take(&mut self.own.ran[i]);
            counter.count(took, ran, if Some(i) == last { bytes } else { 0 });
            rest = rest.saturating_sub(took);
        }
        counters.collate.count(rest, examples, bytes);
    }

    /// Makes examples, as many at once as the stages take together.
    fn examples(
        &mut self,
        building: &Building,
        parts: &mut Vec<Part<'_, '_>>,
    ) -> Vec<(usize, Result<Sample<'static>, String>)> {
        let stages = self.shared.stages.list();
        let (all, mut at) = (stages.len(), 0);
        // Only records that stages begin with are taken together.
        let begins = |i: usize| {
            let source = &building.examples[i].source;
            self.shared.stages.together() > 1
                && matches!(source, SampleSource::Row(_) | SampleSource::InPlace)
        };
        let (together, alone): (Vec<_>, Vec<_>) = parts
            .drain(..)
            .partition(|(i, row, _)| begins(*i) && row.is_ok());
        let mut made: Vec<_> = (alone.into_iter())
            .map(|(i, row, slots)| (i, row.and_then(|row| self.example(building, i, row, slots))))
            .collect();
        let mut going = Vec::with_capacity(together.len());
        for (i, row, slots) in together {
            let row = row
                .expect("it was asked")
                .expect("the rows stay until the batch is made");
            going.push((i, self.record(row), slots));
        }
        while at < all && !going.is_empty() {
            let next = (at..all).find(|&at| stages[at].together() > 1);
            let next = next.unwrap_or(all);
            for (i, sample, slots) in &mut going {
                if let Ok(given) = sample {
                    *sample = self.run(at..next, std::mem::take(given), slots, (building, *i));
                }
            }
            if next < all {
                self.run_together(next, building, &mut going);
            }
            at = next + 1;
        }
        for (i, sample, slots) in going {
            made.push((
                i,
                sample.and_then(|sample| self.finish(sample, slots, building)),
            ));
        }
        made.sort_unstable_by_key(|(i, _)| *i);
        made
    }

    /// Runs a stage on several samples at once.
    fn run_together(
        &mut self,
        stage: usize,
        building: &Building,
        going: &mut [(usize, Result<Sample<'_>, String>, Slots<'_>)],
    ) {
        let began = Instant::now();
        let mut places = Vec::with_capacity(going.len());
        let mut samples = Vec::with_capacity(going.len());
        for (place, (i, sample, _)) in going.iter_mut().enumerate() {
            if let Ok(sample) = sample {
                places.push(place);
                samples.push((sample, self.appearance(stage, building, *i)));
            }
        }
        let runs = &self.shared.stages.list()[stage];
        let mut results = Vec::with_capacity(samples.len());
        for some in samples.chunks_mut(runs.together()) {
            results.extend(runs.run_together(some));
        }
        self.own.took[stage] += began.elapsed();
        self.own.ran[stage] += places.len() as u64;
        for (place, result) in places.into_iter().zip(results) {
            if let Err(failure) = result {
                going[place].1 = Err(failure.to_string());
            }
        }
    }

    /// A problem with its place, of a record that only this thread has read and that does not end the run.
    fn placed(&self, example: &Example, problem: String) -> String {
        match self.shared.options.bad_examples {
            BadExamples::Fail => problem,
            _ if matches!(example.source, SampleSource::InPlace) => {
                self.shared.bad_example(example.id, &problem).to_string()
            }
            _ => problem,
        }
    }

    /// The appearance of an example in a stage.
    fn appearance(&self, stage: usize, building: &Building, i: usize) -> Appearance {
        let example = &building.examples[i];
        // Stages that run once run alike for whichever copy is made first.
        let once = stage < self.shared.stages.once(self.shared.options.echo_point);
        Appearance {
            id: example.id,
            label: building.label(i),
            copy: if once { 0 } else { example.copy },
            key: example.keys[usize::from(!once)],
            first: self.first_epoch && example.is_fresh(),
        }
    }

    /// Makes one example, from its record if it is not held: writes the fields with slots there and returns the rest.
    pub fn example(
        &mut self,
        building: &Building,
        i: usize,
        row: Option<Row<'_>>,
        slots: Slots<'_>,
    ) -> Result<Sample<'static>, String> {
        let made = self.made(building, i, row, slots);
        made.map_err(|problem| self.placed(&building.examples[i], problem))
    }

    fn made(
        &mut self,
        building: &Building,
        i: usize,
        row: Option<Row<'_>>,
        mut slots: Slots<'_>,
    ) -> Result<Sample<'static>, String> {
        let example = &building.examples[i];
        match &example.source {
            SampleSource::Row(_) | SampleSource::InPlace => {
                let row = row.expect("the rows stay until the batch is made");
                if self.shared.copies && !building.places.others() {
                    return copy_row(row, slots.take(building.places.name(0)));
                }
                if let (Some(lengths), Row::Bytes(row)) = (&self.shared.copied_fields, row)
                    && !building.places.others()
                {
                    return copy_fields(row, lengths, &self.shared.record_fields, &mut slots);
                }
                let sample = self.record(row)?;
                let all = 0..self.own.work.len();
                let sample = self.run(all, sample, &mut slots, (building, i))?;
                self.finish(sample, slots, building)
            }
            SampleSource::Held(held) => self.held(held, (building, i), slots),
            SampleSource::Missing(problem) => Err(problem.clone()),
        }
    }

    /// A repeated sample: work before its repeats is done once, and kept if memory allows.
    fn held(
        &mut self,
        held: &HeldSample,
        at: (&Building, usize),
        mut slots: Slots<'_>,
    ) -> Result<Sample<'static>, String> {
        let all = self.own.work.len();
        let once = self.shared.stages.once(self.shared.options.echo_point);
        let kept = match held.get() {
            HeldState::Sample(sample) => sample,
            HeldState::Failed(problem) => return Err(problem),
            HeldState::Record(record) if once == 0 => {
                let sample = self.record(Row::Bytes(&record))?;
                let sample = self.run(0..all, sample, &mut slots, at)?;
                return self.finish(sample, slots, at.0);
            }
            HeldState::Record(record) => {
                let made = self
                    .record(Row::Bytes(&record))
                    .and_then(|sample| self.run(0..once, sample, &mut Slots::default(), at));
                let sample = made.inspect_err(|problem| held.fail(problem))?;
                let (sample, spare) = sample.into_owned();
                self.own.spare = spare;
                let sample = Arc::new(sample);
                held.put(&sample);
                sample
            }
        };
        let sample = kept.view().with_spare(std::mem::take(&mut self.own.spare));
        let sample = self.run(once..all, sample, &mut slots, at)?;
        self.finish(sample, slots, at.0)
    }

    /// A record as a sample that no stage has seen yet.
    fn record<'r>(&mut self, row: Row<'r>) -> Result<Sample<'r>, String> {
        let value = match (row, self.shared.contents) {
            (Row::Bytes(bytes), Contents::Fields) => return self.fields_of(bytes),
            (Row::Sparse { indices, values }, _) => {
                let columns: Vec<i64> = indices.iter().map(|&index| index.into()).collect();
                let columns = Cow::Owned(bytemuck::cast_slice(&columns).to_vec());
                let columns = Value::Numbers(DType::I64, vec![indices.len()], columns);
                let names = Row::SPARSE_FIELDS.map(Arc::from);
                let mut sample = Sample::new(&names[0], columns);
                let values = Value::Floats(vec![values.len()], Cow::Borrowed(values));
                sample.set(&names[1], values);
                return Ok(sample.with_spare(std::mem::take(&mut self.own.spare)));
            }
            (Row::Dense(values), _) => Value::Floats(vec![values.len()], Cow::Borrowed(values)),
            (
                Row::Bytes(bytes),
                Contents::Pixels {
                    height,
                    width,
                    channels,
                    planar,
                },
            ) => {
                if channels != 1 && channels != 3 {
                    let dims = [height, width, channels].map(|n| n as usize).to_vec();
                    Value::Numbers(DType::U8, dims, Cow::Borrowed(bytes))
                } else {
                    let layout = if planar { Layout::Chw } else { Layout::Hwc };
                    let mut pixels = self.own.spare.take_pixels();
                    pixels.set(height, width, channels as usize, layout, bytes);
                    Value::Pixels(Cow::Owned(pixels))
                }
            }
            (Row::Bytes(bytes), _) => Value::Bytes(Cow::Borrowed(bytes)),
        };
        let sample = Sample::new(&self.shared.record_name(), value);
        Ok(sample.with_spare(std::mem::take(&mut self.own.spare)))
    }

    /// A record of several fields.
    fn fields_of<'r>(&mut self, row: &'r [u8]) -> Result<Sample<'r>, String> {
        let shared = self.shared;
        let mut sample = Sample::default();
        let mut names = shared.record_fields.iter();
        let fields = shared.dataset.record_fields();
        let split = fields.each(row, |dtype, dims, bytes| {
            let bytes = Cow::Borrowed(bytes);
            let value = match dtype {
                Some(dtype) => Value::Numbers(dtype, dims, bytes),
                None => Value::Bytes(bytes),
            };
            if let Some(name) = names.next() {
                sample.set(name, value);
            }
        });
        split.map_err(|fault| fault.to_string())?;
        Ok(sample.with_spare(std::mem::take(&mut self.own.spare)))
    }

    /// Runs some of the stages, in order.
    fn run<'r>(
        &mut self,
        stages: Range<usize>,
        mut sample: Sample<'r>,
        slots: &mut Slots<'_>,
        (building, example): (&Building, usize),
    ) -> Result<Sample<'r>, String> {
        let shared = self.shared;
        let all = self.own.work.len();
        let last = stages.end;
        for i in stages {
            let at = self.appearance(i, building, example);
            let next = (i + 1..last).next().map(|next| &shared.stages.list()[next]);
            let mut none = Slots::before(next.and_then(|next| next.augmentation()));
            let began = Instant::now();
            let (stage, work) = (&shared.stages.list()[i], &mut *self.own.work[i]);
            let result = if i + 1 == all {
                stage.run(&mut sample, slots, &at, work)
            } else {
                stage.run(&mut sample, &mut none, &at, work)
            };
            self.own.took[i] += began.elapsed();
            self.own.ran[i] += 1;
            result.map_err(|failure| failure.to_string())?;
        }
        Ok(sample)
    }

    /// Writes fields with a slot that are not written yet; returns the rest.
    fn finish(
        &mut self,
        mut sample: Sample<'_>,
        mut slots: Slots<'_>,
        building: &Building,
    ) -> Result<Sample<'static>, String> {
        let places = &building.places;
        for field in 0..places.len() {
            let name = places.name(field);
            let Some(slot) = slots.take(name) else {
                continue;
            };
            let value = sample
                .get(name)
                .ok_or_else(|| format!("the sample has no `{name}`"))?;
            let planar = self.shared.stages.planar;
            if let Places::Fixed { fields, .. } = places {
                let known = &fields[field];
                value.check(name, (known.dtype, &known.dims), planar)?;
            }
            value.write(planar, slot)?;
            sample.finish(name);
        }
        if !places.others() {
            self.own.spare = sample.into_spare();
            return Ok(Sample::default());
        }
        let (sample, spare) = sample.into_owned();
        self.own.spare = spare;
        Ok(sample)
    }
}

/// An example of a batch, with its record if it is at hand, and its slots.
type Part<'r, 's> = (usize, Result<Option<Row<'r>>, String>, Slots<'s>);

/// The record of an example, which this thread has read.
fn found_row<'r>(
    building: &Building,
    i: usize,
    found: &'r RowsById,
    content: &mut ContentSum,
) -> Result<Row<'r>, String> {
    let id = building.examples[i].id;
    let row = *found.row_of(id).as_ref().map_err(String::clone)? as usize;
    building.set_class(i, found.rows.label(row));
    content.add(id, found.rows.label(row), found.rows.row(row));
    Ok(found.rows.row(row))
}

/// Copies the fields of a row, with these lengths, to their slots.
fn copy_fields(
    mut row: &[u8],
    lengths: &[usize],
    names: &[Arc<str>],
    slots: &mut Slots<'_>,
) -> Result<Sample<'static>, String> {
    for (name, &length) in names.iter().zip(lengths) {
        let field = row.split_off(..length).unwrap_or_default();
        let slot = slots.take(name).expect("every field has a place");
        sample::copy(field, slot)?;
    }
    Ok(Sample::default())
}

/// A record that is a sample without change.
fn copy_row(row: Row<'_>, slot: Option<&mut [u8]>) -> Result<Sample<'static>, String> {
    let slot = slot.expect("the only field has a place");
    let bytes = match row {
        Row::Bytes(bytes) => bytes,
        Row::Dense(values) => bytemuck::cast_slice(values),
        Row::Sparse { .. } => return Err("sparse rows have no samples".to_owned()),
    };
    sample::copy(bytes, slot)?;
    Ok(Sample::default())
}
