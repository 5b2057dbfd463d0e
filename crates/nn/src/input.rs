//! The input of a net, and its conversion to tensors.

use bytes::BytesMut;
use pelton_batch::{Array, Buffer, DType, Shape};

use crate::bags::Bags;
use crate::error::NnError;
use crate::forward::Sequences;
use crate::memory::Block;
use crate::tensor::Tensor;

/// A batch.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Images [batch, height, width, channels], f32 or u8 (which is divided by 255), and their classes.
    Images {
        /// The images.
        pixels: &'a Array,
        /// A class each; in prediction none.
        labels: &'a [i64],
    },
    /// Vectors [batch, width], f32, and their classes.
    Vectors {
        /// The vectors.
        values: &'a Array,
        /// A class each; in prediction none.
        labels: &'a [i64],
    },
    /// Sparse rows.
    Bags(&'a Bags),
    /// Sequences of words.
    Words(&'a Words),
}

/// Some rows of a batch.
pub(crate) enum Part {
    Images(Array, Vec<i64>),
    Vectors(Array, Vec<i64>),
    Bags(Bags),
}

impl Part {
    pub(crate) fn input(&self) -> Input<'_> {
        match self {
            Part::Images(pixels, labels) => Input::Images { pixels, labels },
            Part::Vectors(values, labels) => Input::Vectors { values, labels },
            Part::Bags(bags) => Input::Bags(bags),
        }
    }
}

impl<'a> Input<'a> {
    /// The classes of images, vectors or sparse rows, row by row; empty for words.
    pub fn labels(self) -> &'a [i64] {
        match self {
            Input::Images { labels, .. } | Input::Vectors { labels, .. } => labels,
            Input::Bags(bags) => &bags.labels,
            Input::Words(_) => &[],
        }
    }

    /// The classes of each row.
    pub fn label_lists(self) -> impl Iterator<Item = &'a [i64]> {
        let mut rest = self.labels();
        let rows = self.counts().map_or(rest.len(), <[usize]>::len);
        (0..rows).map(move |row| {
            let count = self.counts().map_or(1, |counts| counts[row]);
            let (own, after) = rest.split_at(count);
            rest = after;
            own
        })
    }

    /// How many classes each row has, where that may be another number than one.
    pub(crate) fn counts(self) -> Option<&'a [usize]> {
        match self {
            Input::Bags(bags) => Some(&bags.counts),
            _ => None,
        }
    }

    /// Some rows of images, vectors or sparse rows, as a separate batch.
    pub(crate) fn part(self, rows: impl ExactSizeIterator<Item = usize>) -> Option<Part> {
        let (all, labels) = match self {
            Input::Images { pixels, labels } => (pixels, labels),
            Input::Vectors { values, labels } => (values, labels),
            Input::Bags(bags) => return Some(Part::Bags(bags.part(rows))),
            Input::Words(_) => return None,
        };
        let sizes = &all.shape().dims;
        let row = all.bytes().len() / sizes[0].max(1);
        let shape = Shape::stacked(rows.len(), &sizes[1..]);
        let mut bytes = BytesMut::with_capacity(rows.len() * row);
        let mut classes = Vec::with_capacity(rows.len());
        for at in rows {
            bytes.extend_from_slice(&all.bytes()[at * row..][..row]);
            classes.extend(labels.get(at));
        }
        let array = Array::new(all.dtype(), shape, Buffer::new(bytes, None));
        Some(match self {
            Input::Images { .. } => Part::Images(array, classes),
            _ => Part::Vectors(array, classes),
        })
    }
}

/// Sequences of words, row by row.
#[derive(Clone, Debug, Default)]
pub struct Words {
    /// Rows.
    pub batch: usize,
    /// Words of a row, padding included.
    pub steps: usize,
    /// [batch · steps]: words that are given.
    pub ids: Vec<i64>,
    /// [batch · steps]: words to be predicted, or [`NO_TARGET`](crate::NO_TARGET).
    pub targets: Vec<i64>,
    /// [batch · steps]: the index of the sequence within its row; empty if there is one a row.
    pub segments: Vec<u32>,
    /// The initial state of LSTM layers.
    pub carry: Carry,
}

/// The initial state of LSTM layers in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carry {
    /// Zeros.
    #[default]
    No,
    /// Zeros, and the next batch continues.
    Begin,
    /// Each row continues from its state after the last batch.
    GoOn,
}

/// Images or vectors as a tensor; f32 without a copy.
pub(crate) fn images(pixels: &Array) -> Result<Tensor, NnError> {
    match pixels.dtype() {
        DType::F32 => Ok(Tensor::batch(pixels)),
        DType::U8 => {
            let mut values = Block::new(pixels.bytes().len());
            for (value, &x) in values.iter_mut().zip(pixels.bytes()) {
                *value = f32::from(x) / 255.0;
            }
            Ok(Tensor::new(values, &pixels.shape().dims))
        }
        other => Err(NnError::Net(format!(
            "images must be f32 or u8, not {other}; let the augmentation end in normalise"
        ))),
    }
}

/// Words in the order of the layers, with their targets.
pub(crate) fn arrange(words: &Words, step_by_step: bool) -> (Sequences, Vec<i64>) {
    let (batch, steps) = (words.batch, words.steps);
    if !step_by_step {
        let sequences = Sequences {
            batch,
            steps,
            ids: words.ids.clone(),
            keep: None,
            segments: (!words.segments.is_empty()).then(|| words.segments.clone()),
            bags: Bags::default(),
        };
        return (sequences, words.targets.clone());
    }
    let order = || (0..steps).flat_map(|t| (0..batch).map(move |b| b * steps + t));
    let keep = |at: usize| {
        let begins = at.is_multiple_of(steps) || words.segments[at] != words.segments[at - 1];
        if begins { 0.0 } else { 1.0 }
    };
    let sequences = Sequences {
        batch,
        steps,
        ids: order().map(|at| words.ids[at]).collect(),
        keep: (!words.segments.is_empty()).then(|| order().map(keep).collect()),
        segments: None,
        bags: Bags::default(),
    };
    (sequences, order().map(|at| words.targets[at]).collect())
}
