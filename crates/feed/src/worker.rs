//! The threads that make batches: decode, map, augment, and write each sample to its place.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, select_biased};
use pelton_format::{Contents, Row, RowTable, members};
use pelton_image::{Limits, Output, Pixels, Workspace};

use crate::building::{Building, Example, Piece, Slots, Source};
use crate::collate;
use crate::held::{Having, Held};
use crate::in_place;
use crate::options::EchoPoint;
use crate::shared::{Shared, order_of};
use crate::stages::{Appearance, Decode, Exif, Sample};

/// A part of a batch to be made.
pub(crate) struct Task {
    pub building: Arc<Building>,
    pub part: usize,
    pub examples: Range<usize>,
}

/// Where tasks go.
#[derive(Clone)]
pub(crate) struct Tasks {
    /// In the order of the batches.
    pub inorder: Sender<Task>,
    /// Before all others: somebody waits for them now.
    pub urgent: Sender<Task>,
}

/// Where tasks come from.
#[derive(Clone)]
pub(crate) struct TaskQueue {
    inorder: Receiver<Task>,
    urgent: Receiver<Task>,
}

pub(crate) fn task_queue() -> (Tasks, TaskQueue) {
    let ordinary = crossbeam_channel::unbounded();
    let urgent = crossbeam_channel::unbounded();
    let tasks = Tasks {
        inorder: ordinary.0,
        urgent: urgent.0,
    };
    let queue = TaskQueue {
        inorder: ordinary.1,
        urgent: urgent.1,
    };
    (tasks, queue)
}

impl TaskQueue {
    /// The next task; `None` once nobody can send more.
    fn next(&self) -> Option<Task> {
        select_biased! {
            recv(self.urgent) -> task => task.ok().or_else(|| self.inorder.recv().ok()),
            recv(self.inorder) -> task => task.ok(),
        }
    }
}

/// Works on tasks until there are none and nobody can send more.
pub(crate) fn run(shared: &Arc<Shared>, tasks: &TaskQueue) {
    let mut worker = Worker {
        shared: Arc::clone(shared),
        scratch: Sample::Bytes(Vec::new()),
        workspace: Workspace::new(),
        stored: Vec::new(),
        decoding: Duration::ZERO,
        mapping: Duration::ZERO,
        decoded: 0,
        first_epoch: true,
    };
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
            tracing::debug_span!("make", epoch = place.epoch, step = place.next, part).entered();
        let piece = catch_unwind(AssertUnwindSafe(|| worker.make(task)));
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

struct Worker {
    shared: Arc<Shared>,
    scratch: Sample,
    workspace: Workspace,
    /// Records as they lie in their files.
    stored: Vec<u8>,
    /// Time of the decoder and of the user's function behind it since they were last counted, and what they did.
    decoding: Duration,
    mapping: Duration,
    decoded: u64,
    /// Whether the batch that is made is of the first epoch of this run.
    first_epoch: bool,
}

impl Worker {
    fn make(&mut self, task: Task) -> Piece {
        let Task {
            building,
            part,
            examples,
        } = task;
        self.first_epoch = building.head.place.epoch == self.shared.options.start.epoch;
        let place = building.take_place(part, &self.shared.pool);
        let rows = building.rows.read().expect("no writer panics");
        let rows = rows.as_ref();
        let began = Instant::now();
        let (bytes, piece) = match (place, &self.shared.in_place) {
            (Some(mut place), Some(reads)) => {
                let scratch = &mut self.stored;
                in_place::read(
                    &self.shared,
                    reads,
                    &building,
                    examples,
                    &mut place,
                    scratch,
                );
                return Piece::Bytes(place);
            }
            (Some(mut place), None) => {
                self.fill(&building, rows, examples.clone(), &mut place);
                (place.len(), Piece::Bytes(place))
            }
            (None, _) => {
                let samples: Vec<_> = examples
                    .clone()
                    .map(|i| {
                        let made = self.sample(&building.examples[i], rows);
                        made.map_err(|problem| building.failed(i, problem)).ok()
                    })
                    .collect();
                let bytes = samples
                    .iter()
                    .flatten()
                    .map(|sample| sample.data_bytes())
                    .sum();
                (bytes, Piece::Samples(samples))
            }
        };
        self.count(began.elapsed(), examples.len() as u64, bytes as u64);
        piece
    }

    /// What is not decoding is augmentation, where there is any, and otherwise collation.
    fn count(&mut self, took: Duration, examples: u64, bytes: u64) {
        let counters = &self.shared.counters;
        let decoding = std::mem::take(&mut self.decoding);
        let mapping = std::mem::take(&mut self.mapping);
        let decoded = std::mem::take(&mut self.decoded);
        counters.decode.count(decoding, decoded, 0);
        counters.map.count(mapping, decoded, 0);
        let rest = took.saturating_sub(decoding + mapping);
        match self.shared.augments() {
            true => counters.augment.count(rest, examples, bytes),
            false => counters.collate.count(rest, examples, bytes),
        }
    }

    fn fill(
        &mut self,
        building: &Building,
        rows: Option<&RowTable>,
        examples: Range<usize>,
        mut place: &mut [u8],
    ) {
        for i in examples {
            let bytes = match &building.slots {
                Slots::Fixed { bytes, .. } => *bytes,
                Slots::Offsets(offsets) => offsets[i + 1] - offsets[i],
                Slots::Unknown => unreachable!("a place is given where sizes are known"),
            };
            let (slot, rest) = place.split_at_mut(bytes);
            place = rest;
            if let Err(problem) = self.write(&building.examples[i], rows, slot) {
                building.failed(i, problem);
            }
        }
    }

    /// Puts an example into its slot.
    fn write(
        &mut self,
        example: &Example,
        rows: Option<&RowTable>,
        slot: &mut [u8],
    ) -> Result<(), String> {
        let shared = Arc::clone(&self.shared);
        if let (Source::Row(row), true) = (&example.source, shared.copies()) {
            return copy_row(row_of(rows, *row), slot);
        }
        let after = shared.options.echo_point == EchoPoint::AfterAugment;
        match &example.source {
            Source::Held(held) if after => {
                let record = match held.get() {
                    Having::Sample(sample) => return copy_sample(&sample, false, slot),
                    Having::Record(record) => record,
                    Having::Failed(problem) => return Err(problem),
                };
                let sample = self.decode_held(held, &record, example)?;
                self.augment_into(&sample, example, slot)?;
                held.put(&Arc::new(Sample::Bytes(slot.to_vec())));
                Ok(())
            }
            Source::Held(held) => {
                let sample = self.decoded(held, example)?;
                self.augment_into(&sample, example, slot)
            }
            Source::Row(row) => {
                let mut scratch = std::mem::replace(&mut self.scratch, Sample::Bytes(Vec::new()));
                let result = self
                    .decode(row_of(rows, *row), example, &mut scratch)
                    .and_then(|()| self.augment_into(&scratch, example, slot));
                self.scratch = scratch;
                result
            }
            Source::InPlace => unreachable!("samples read in place are not made"),
            Source::Missing(problem) => Err(problem.clone()),
        }
    }

    /// An example as a sample of its own.
    fn sample(
        &mut self,
        example: &Example,
        rows: Option<&RowTable>,
    ) -> Result<Arc<Sample>, String> {
        let after = self.shared.options.echo_point == EchoPoint::AfterAugment;
        match &example.source {
            Source::Held(held) if after => {
                let record = match held.get() {
                    Having::Sample(sample) => return Ok(sample),
                    Having::Record(record) => record,
                    Having::Failed(problem) => return Err(problem),
                };
                let sample = self.decode_held(held, &record, example)?;
                let sample = self.augmented(sample, example)?;
                held.put(&sample);
                Ok(sample)
            }
            Source::Held(held) => {
                let sample = self.decoded(held, example)?;
                self.augmented(sample, example)
            }
            Source::Row(row) => {
                let mut sample = Sample::Bytes(Vec::new());
                self.decode(row_of(rows, *row), example, &mut sample)?;
                self.augmented(Arc::new(sample), example)
            }
            Source::InPlace => unreachable!("samples read in place are not made"),
            Source::Missing(problem) => Err(problem.clone()),
        }
    }

    /// The decoded sample of a held example, kept for its repeats.
    fn decoded(&mut self, held: &Held, example: &Example) -> Result<Arc<Sample>, String> {
        match held.get() {
            Having::Sample(sample) => Ok(sample),
            Having::Failed(problem) => Err(problem),
            Having::Record(record) => {
                let sample = self.decode_held(held, &record, example)?;
                held.put(&sample);
                Ok(sample)
            }
        }
    }

    fn decode_held(
        &mut self,
        held: &Held,
        record: &[u8],
        example: &Example,
    ) -> Result<Arc<Sample>, String> {
        let mut sample = Sample::Bytes(Vec::new());
        match self.decode(Row::Bytes(record), example, &mut sample) {
            Ok(()) => {
                if let Sample::Pixels(pixels) = &mut sample {
                    pixels.drop_scratch();
                }
                Ok(Arc::new(sample))
            }
            Err(problem) => {
                held.fail(&problem);
                Err(problem)
            }
        }
    }

    /// Decodes a record and gives it to the user's function.
    fn decode(
        &mut self,
        record: Row<'_>,
        example: &Example,
        sample: &mut Sample,
    ) -> Result<(), String> {
        let began = Instant::now();
        let result = self.decode_row(record, example, sample);
        self.decoding += began.elapsed();
        self.decoded += 1;
        result?;
        let Some(map) = &self.shared.stages.map else {
            return Ok(());
        };
        let began = Instant::now();
        let result = map(sample, &appearance(example, 0));
        self.mapping += began.elapsed();
        result.map_err(|failure| format!("the function over decoded samples failed: {failure}"))
    }

    fn decode_row(
        &mut self,
        record: Row<'_>,
        example: &Example,
        sample: &mut Sample,
    ) -> Result<(), String> {
        let shared = &self.shared;
        let bytes = match record {
            Row::Bytes(bytes) => bytes,
            Row::Dense(values) => {
                *sample = Sample::Values {
                    shape: vec![values.len()],
                    values: values.to_vec(),
                };
                return Ok(());
            }
            Row::Sparse { .. } => return Err("sparse rows have no samples".to_owned()),
        };
        let decode = &shared.stages.decode;
        let bytes = match shared.contents {
            Contents::Members if !decode.members().is_empty() => {
                member_of(bytes, decode.members())?
            }
            _ => bytes,
        };
        match (decode, shared.contents) {
            (
                Decode::Tokens {
                    vocabulary, ends, ..
                },
                _,
            ) => {
                let mut tokens = take_tokens(sample);
                vocabulary.encode(bytes, *ends, &mut tokens);
                *sample = Sample::Tokens(tokens);
            }
            (
                _,
                Contents::Pixels {
                    height,
                    width,
                    channels,
                    planar,
                },
            ) => {
                let layout = match planar {
                    true => pelton_image::Layout::Chw,
                    false => pelton_image::Layout::Hwc,
                };
                pixels_in(sample).set(height, width, channels as usize, layout, bytes);
            }
            (
                Decode::Image {
                    most_pixels, exif, ..
                },
                _,
            ) => {
                let limits = Limits {
                    most_pixels: *most_pixels,
                };
                let pixels = pixels_in(sample);
                pelton_image::decode(bytes, &limits, pixels).map_err(|error| error.to_string())?;
                let orientation = pelton_image::orientation(bytes);
                if orientation.is_upright() {
                    return Ok(());
                }
                if *exif == Exif::Apply {
                    pixels.turn_upright(orientation);
                }
                // Later epochs and copies meet the same pictures.
                if self.first_epoch && example.is_fresh() {
                    shared.counters.turned.fetch_add(1, Relaxed);
                }
            }
            (Decode::None | Decode::Member(_), _) => {
                let mut data = match sample {
                    Sample::Bytes(data) => std::mem::take(data),
                    _ => Vec::new(),
                };
                data.clear();
                data.extend_from_slice(bytes);
                *sample = Sample::Bytes(data);
            }
        }
        Ok(())
    }

    /// Augments a sample into its slot.
    fn augment_into(
        &mut self,
        sample: &Sample,
        example: &Example,
        slot: &mut [u8],
    ) -> Result<(), String> {
        let shared = Arc::clone(&self.shared);
        let (Some(pipeline), Sample::Pixels(pixels)) = (&shared.stages.augment, sample) else {
            return copy_sample(sample, shared.stages.planar, slot);
        };
        self.augment_pixels(pipeline, pixels, example, slot)
    }

    fn augment_pixels(
        &mut self,
        pipeline: &pelton_image::Pipeline,
        pixels: &Pixels,
        example: &Example,
        slot: &mut [u8],
    ) -> Result<(), String> {
        let output = match pipeline.normalises() {
            true => Output::Floats(
                bytemuck::try_cast_slice_mut(slot).map_err(|error| error.to_string())?,
            ),
            false => Output::Bytes(slot),
        };
        pipeline
            .apply(pixels, example.key, &mut self.workspace, output)
            .map_err(|error| error.to_string())
    }

    /// The sample as it enters the batch, where sizes are not known before.
    fn augmented(&mut self, sample: Arc<Sample>, example: &Example) -> Result<Arc<Sample>, String> {
        let shared = Arc::clone(&self.shared);
        let mut sample = sample;
        if let (Some(pipeline), Sample::Pixels(pixels)) = (&shared.stages.augment, &*sample) {
            let (height, width) = pipeline
                .output_size(pixels.height(), pixels.width())
                .map_err(|error| error.to_string())?;
            let channels = pipeline.channels();
            let shape = order_of([height, width, channels as u32], shared.stages.planar);
            let elements: usize = shape.iter().product();
            sample = Arc::new(if pipeline.normalises() {
                let mut values = vec![0.0_f32; elements];
                let slot = bytemuck::cast_slice_mut(&mut values);
                self.augment_pixels(pipeline, pixels, example, slot)?;
                Sample::Values { shape, values }
            } else {
                let mut bytes = vec![0; elements];
                self.augment_pixels(pipeline, pixels, example, &mut bytes)?;
                let mut out = Pixels::new();
                out.set(height, width, channels, pipeline.layout(), &bytes);
                Sample::Pixels(out)
            });
        }
        if let Some(map) = &shared.stages.map_each {
            // Held samples are shared; the function gets its own.
            let mut own = Arc::unwrap_or_clone(sample);
            map(&mut own, &appearance(example, example.copy)).map_err(|failure| {
                format!("the function over augmented samples failed: {failure}")
            })?;
            sample = Arc::new(own);
        }
        Ok(sample)
    }
}

fn appearance(example: &Example, copy: u32) -> Appearance {
    Appearance {
        id: example.id,
        label: example.label,
        copy,
        key: example.key,
    }
}

fn row_of(rows: Option<&RowTable>, row: u32) -> Row<'_> {
    rows.expect("the rows stay until the batch is made")
        .row(row as usize)
}

/// The member of a sample that is asked for.
fn member_of<'a>(sample: &'a [u8], wanted: &[String]) -> Result<&'a [u8], String> {
    let is_wanted = |member: &pelton_format::Member<'_>| wanted.iter().any(|w| member.is(w));
    if let Some(member) = members(sample).find(is_wanted) {
        return Ok(member.bytes);
    }
    let there: Vec<String> = members(sample)
        .take(8)
        .map(|member| format!(".{}", member.extension_text()))
        .collect();
    Err(format!(
        "the sample has no member .{}; it has {}",
        wanted.join(" or ."),
        there.join(", ")
    ))
}

fn copy_row(row: Row<'_>, slot: &mut [u8]) -> Result<(), String> {
    match row {
        Row::Bytes(bytes) => copy_bytes(bytes, slot),
        Row::Dense(values) => copy_bytes(bytemuck::cast_slice(values), slot),
        Row::Sparse { .. } => Err("sparse rows have no samples".to_owned()),
    }
}

/// The elements of a sample; of a picture all of one channel before the next where `planar`.
fn copy_sample(sample: &Sample, planar: bool, slot: &mut [u8]) -> Result<(), String> {
    match sample {
        Sample::Bytes(bytes) => copy_bytes(bytes, slot),
        Sample::Pixels(pixels) if planar => copy_planes(pixels, slot),
        Sample::Pixels(pixels) => copy_bytes(pixels.data(), slot),
        Sample::Tokens(tokens) => copy_bytes(bytemuck::cast_slice(tokens), slot),
        Sample::Values { values, .. } => copy_bytes(bytemuck::cast_slice(values), slot),
    }
}

fn copy_bytes(bytes: &[u8], slot: &mut [u8]) -> Result<(), String> {
    check_length(bytes.len(), slot.len())?;
    slot.copy_from_slice(bytes);
    Ok(())
}

fn check_length(found: usize, expected: usize) -> Result<(), String> {
    if found != expected {
        return Err(format!(
            "the sample has {found} bytes where the others have {expected}; put batches together with `ragged`, or resize"
        ));
    }
    Ok(())
}

fn copy_planes(pixels: &Pixels, slot: &mut [u8]) -> Result<(), String> {
    let data = pixels.data();
    check_length(data.len(), slot.len())?;
    match pixels.channels() {
        1 => slot.copy_from_slice(data),
        _ => pelton_image::separate(data, slot),
    }
    Ok(())
}

fn take_tokens(sample: &mut Sample) -> Vec<u32> {
    match sample {
        Sample::Tokens(tokens) => {
            let mut tokens = std::mem::take(tokens);
            tokens.clear();
            tokens
        }
        _ => Vec::new(),
    }
}

/// The picture in `sample`, which becomes one if it is none.
fn pixels_in(sample: &mut Sample) -> &mut Pixels {
    if !matches!(sample, Sample::Pixels(_)) {
        *sample = Sample::Pixels(Pixels::default());
    }
    match sample {
        Sample::Pixels(pixels) => pixels,
        _ => unreachable!("it was just made one"),
    }
}
