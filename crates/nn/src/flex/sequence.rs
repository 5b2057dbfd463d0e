//! Embeddings, LSTM, attention.

use burn_flex::FlexTensor;

use super::sizes;
use super::tape::{Taped, record};
use crate::memory::{Block, contiguous, slice};

pub(super) fn embedding(weight: &FlexTensor, ids: &[i64]) -> FlexTensor {
    let width = sizes(weight)[1];
    let weight = contiguous(weight.clone());
    let mut y = Block::new(ids.len() * width);
    for (row, &id) in y.chunks_exact_mut(width).zip(ids) {
        row.copy_from_slice(&slice(&weight)[id as usize * width..][..width]);
    }
    y.tensor(&[ids.len(), width])
}
