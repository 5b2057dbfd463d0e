//! The input of a net, and its conversion to tensors.

use bytes::BytesMut;
use pelton_batch::{Array, Buffer, DType, Shape};

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
    /// Sequences of words.
    Words(&'a Words),
}

impl<'a> Input<'a> {
    /// The rows, with the numbers and the class of each.
    fn stacked(self) -> Option<(&'a Array, &'a [i64])> {
        match self {
            Input::Images { pixels, labels } => Some((pixels, labels)),
            Input::Vectors { values, labels } => Some((values, labels)),
            Input::Words(_) => None,
        }
    }

    /// The classes of images or vectors; empty for words.
    pub fn labels(self) -> &'a [i64] {
        self.stacked().map_or(&[], |(_, labels)| labels)
    }

    /// Some rows of images or vectors, as a separate batch.
    pub(crate) fn part(
        self,
        rows: impl ExactSizeIterator<Item = usize>,
    ) -> Option<(Array, Vec<i64>)> {
        let (all, labels) = self.stacked()?;
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
        Some((array, classes))
    }

    /// A part of this, as input.
    pub(crate) fn of_part<'p>(self, (array, labels): &'p (Array, Vec<i64>)) -> Input<'p> {
        match self {
            Input::Images { .. } => Input::Images {
                pixels: array,
                labels,
            },
            _ => Input::Vectors {
                values: array,
                labels,
            },
        }
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
    };
    (sequences, order().map(|at| words.targets[at]).collect())
}
