//! A batch in progress: its examples are divided among threads, and the last one collates it.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::error::FeedError;
use bytes::BytesMut;
use pelton_batch::{Batch, DType, Pool};
use pelton_format::{ContentSum, RowTable};
use pelton_plan::Place;

use crate::held_sample::HeldSample;
use crate::sample::Sample;

/// The source of an example's bytes.
#[derive(Debug)]
pub(crate) enum SampleSource {
    /// A row of the batch's own rows.
    Row(u32),
    /// A held sample, since its first appearance or from now on.
    Held(Arc<HeldSample>),
    /// In the files; it is read straight into its slot.
    InPlace,
    /// It could not be read; file, offset and reason in one sentence.
    Missing(String),
}

/// One example of a batch.
#[derive(Debug)]
pub(crate) struct Example {
    pub id: u64,
    pub position: u64,
    pub label: u32,
    pub copy: u32,
    /// Keys of its randomness: of the stages that run once for all its copies, and of the others.
    pub keys: [u64; 2],
    /// Packing: the elements of the sample that are put here, if not all.
    pub piece: Option<Range<usize>>,
    pub source: SampleSource,
}

impl Example {
    /// Whether it is the first appearance of the example in its epoch.
    pub fn is_fresh(&self) -> bool {
        self.copy == 0 && self.piece.as_ref().is_none_or(|piece| piece.start == 0)
    }
}

/// A field with samples of one shape.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FixedField {
    pub name: Arc<str>,
    pub dtype: DType,
    pub dims: Vec<usize>,
    /// Bytes of a sample.
    pub bytes: usize,
}

/// The slots of samples in the batch, as far as known before they are made.
#[derive(Clone, Debug)]
pub(crate) enum Places {
    /// These fields have slots; `others`: whether there are more fields, collated at the end.
    Fixed {
        fields: Arc<[FixedField]>,
        others: bool,
    },
    /// The only field is of bytes, from one offset to the next.
    Offsets { name: Arc<str>, offsets: Vec<usize> },
}

impl Places {
    /// No slot is known.
    pub fn none() -> Places {
        Places::Fixed {
            fields: Arc::new([]),
            others: true,
        }
    }

    /// Whether samples are kept until all are made.
    pub fn others(&self) -> bool {
        matches!(self, Places::Fixed { others: true, .. })
    }

    /// Fields with slots.
    pub fn len(&self) -> usize {
        match self {
            Places::Fixed { fields, .. } => fields.len(),
            Places::Offsets { .. } => 1,
        }
    }

    pub fn name(&self, field: usize) -> &str {
        match self {
            Places::Fixed { fields, .. } => &fields[field].name,
            Places::Offsets { name, .. } => name,
        }
    }

    /// The bytes of a field's samples `range`.
    pub fn range(&self, field: usize, range: &Range<usize>) -> Range<usize> {
        match self {
            Places::Fixed { fields, .. } => {
                range.start * fields[field].bytes..range.end * fields[field].bytes
            }
            Places::Offsets { offsets, .. } => offsets[range.start]..offsets[range.end],
        }
    }

    /// Bytes of one sample in all its slots.
    pub fn bytes_of(&self, example: usize) -> usize {
        let bytes = |field| self.range(field, &(example..example + 1)).len();
        (0..self.len()).map(bytes).sum()
    }
}

/// The samples of a thread's part of a batch.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    /// The bytes of each field with slots.
    pub places: Vec<BytesMut>,
    /// Its examples' other fields, if there are others.
    pub samples: Vec<Option<Sample<'static>>>,
}

/// The step of a batch.
#[derive(Clone, Debug)]
pub(crate) struct BatchHeader {
    pub place: Place,
    pub end: Place,
    pub ends_epoch: bool,
    pub bucket: Option<u32>,
    pub padded_length: Option<u32>,
    /// Pairs: that of their second sides.
    pub second_length: Option<u32>,
    pub global_examples: u64,
    pub row_draws: Vec<u32>,
    /// Number of the fresh batch, and whether it is kept for repeats.
    pub fresh_batch: u64,
    pub keep_batch: bool,
    pub batch_copy: u32,
    /// Positions of the epoch's order before this were drawn by now.
    pub drawn: u64,
    /// The batch repeats that one, which the consumer's side has kept.
    pub is_repeat: bool,
}

/// An example that could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadExample {
    /// Record id.
    pub id: u64,
    /// File, offset and reason in one sentence.
    pub problem: String,
}

/// An example that repeats by waiting may draw.
#[derive(Clone, Debug)]
pub(crate) struct HeldExample {
    pub id: u64,
    pub position: u64,
    pub epoch: u64,
    pub held: Arc<HeldSample>,
}

/// A finished batch.
#[derive(Debug)]
pub(crate) struct Made {
    pub batch: Batch,
    pub bad: Vec<BadExample>,
    pub fresh: u64,
    /// Keeps its examples, for repeats while waiting.
    pub held: Vec<HeldExample>,
}

/// The parts of a batch in order, and the failures by example.
pub(crate) type Parts = (Vec<Piece>, Vec<(usize, String)>);

/// A batch while it is made.
#[derive(Debug)]
pub(crate) struct Building {
    pub head: BatchHeader,
    pub examples: Vec<Example>,
    pub rows: RwLock<Option<RowTable>>,
    pub places: Places,
    /// Examples of each part but the last.
    chunk: usize,
    pieces: Mutex<Vec<Option<Piece>>>,
    failures: Mutex<Vec<(usize, String)>>,
    /// The error of the batch, and its example.
    fatal: Mutex<Option<(usize, FeedError)>>,
    /// Classes of examples that the threads read themselves, set after the read.
    classes: Vec<AtomicU32>,
    /// Of its records, each once.
    content: Mutex<ContentSum>,
    /// The slots of the parts' samples, from the start of the first part on.
    memory: Mutex<Option<Vec<Vec<BytesMut>>>>,
    remaining: AtomicUsize,
    made: Mutex<Option<Result<Made, FeedError>>>,
}

impl Building {
    pub fn new(
        head: BatchHeader,
        examples: Vec<Example>,
        rows: Option<RowTable>,
        places: Places,
        chunk: usize,
    ) -> Building {
        let chunk = chunk.max(1);
        // An empty batch has one part, so that a thread collates it.
        let parts = examples.len().div_ceil(chunk).max(1);
        let in_place = matches!(
            examples.first(),
            Some(Example {
                source: SampleSource::InPlace,
                ..
            })
        );
        let classes = if in_place {
            examples.iter().map(|_| AtomicU32::new(0)).collect()
        } else {
            Vec::new()
        };
        Building {
            head,
            examples,
            rows: RwLock::new(rows),
            places,
            chunk,
            pieces: Mutex::new((0..parts).map(|_| None).collect()),
            failures: Mutex::new(Vec::new()),
            fatal: Mutex::new(None),
            classes,
            content: Mutex::default(),
            memory: Mutex::new(None),
            remaining: AtomicUsize::new(parts),
            made: Mutex::new(None),
        }
    }

    /// The parts of the batch with the examples of each.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = (usize, Range<usize>)> + use<> {
        let (chunk, examples) = (self.chunk, self.examples.len());
        (0..examples.div_ceil(chunk).max(1))
            .map(move |part| (part, part * chunk..((part + 1) * chunk).min(examples)))
    }

    /// The memory for the samples of a part, field by field. The batch's memory is taken from `pool` when its first
    /// part is begun, so that only batches in progress or ready use memory.
    pub fn take_memory(&self, part: usize, pool: &Pool) -> Vec<BytesMut> {
        let mut memory = lock(&self.memory);
        let memory = memory.get_or_insert_with(|| self.divided(pool));
        std::mem::take(&mut memory[part])
    }

    fn divided(&self, pool: &Pool) -> Vec<Vec<BytesMut>> {
        let fields = self.places.len();
        let mut parts: Vec<Vec<BytesMut>> = self.parts().map(|_| Vec::new()).collect();
        for field in 0..fields {
            let whole = self.places.range(field, &(0..self.examples.len()));
            let mut whole = pool.take(whole.len());
            for (part, examples) in self.parts() {
                let bytes = self.places.range(field, &examples).len();
                parts[part].push(whole.split_to(bytes));
            }
        }
        parts
    }

    /// Notes that an example could not be made.
    pub fn failed(&self, example: usize, problem: String) {
        lock(&self.failures).push((example, problem));
    }

    /// Notes that the batch fails for an example.
    pub fn fail(&self, example: usize, error: FeedError) {
        let mut fatal = lock(&self.fatal);
        if fatal.as_ref().is_none_or(|(first, _)| example < *first) {
            *fatal = Some((example, error));
        }
    }

    /// The error of the batch; of several, that of the first example.
    pub fn take_fatal(&self) -> Option<FeedError> {
        lock(&self.fatal).take().map(|(_, error)| error)
    }

    /// Sets the class of an example that a thread read itself.
    pub fn set_class(&self, example: usize, class: u32) {
        self.classes[example].store(class, Ordering::Relaxed);
    }

    /// The class of an example, once it was made.
    pub fn label(&self, example: usize) -> u32 {
        match self.classes.get(example) {
            Some(class) => class.load(Ordering::Relaxed),
            None => self.examples[example].label,
        }
    }

    /// Adds what records said.
    pub fn add_content(&self, content: ContentSum) {
        *lock(&self.content) += content;
    }

    /// Checksum of its records, once it is made.
    pub fn content(&self) -> ContentSum {
        *lock(&self.content)
    }

    /// Completes a part; true for the last one: its thread collates the batch.
    pub fn hand_in(&self, part: usize, piece: Piece) -> bool {
        lock(&self.pieces)[part] = Some(piece);
        self.remaining.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether all parts are complete, even if the batch was taken.
    pub fn is_handed_in(&self) -> bool {
        self.remaining.load(Ordering::Acquire) == 0
    }

    /// The parts in order and the failures by example; for the thread that handed in the last.
    pub fn take_parts(&self) -> Parts {
        let pieces = std::mem::take(&mut *lock(&self.pieces));
        let mut failures = std::mem::take(&mut *lock(&self.failures));
        failures.sort();
        (pieces.into_iter().flatten().collect(), failures)
    }

    pub fn finish(&self, made: Result<Made, FeedError>) {
        *lock(&self.made) = Some(made);
    }

    pub fn is_made(&self) -> bool {
        lock(&self.made).is_some()
    }

    pub fn take_made(&self) -> Option<Result<Made, FeedError>> {
        lock(&self.made).take()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
