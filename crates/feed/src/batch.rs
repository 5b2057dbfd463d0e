//! What the consumer gets.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;

use pelton_fetch::Cursor;

/// What the elements of a batch are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Bytes.
    U8,
    /// Numbers of tokens, little-endian in memory as the machine has them.
    U32,
    /// Single precision.
    F32,
}

impl Element {
    /// Bytes of one.
    pub fn bytes(self) -> usize {
        match self {
            Element::U8 => 1,
            Element::U32 | Element::F32 => 4,
        }
    }
}

/// How the samples of a batch lie in its elements.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Each of one shape, one after another.
    Stacked {
        /// Lengths of the dimensions of one sample.
        sample: Vec<usize>,
    },
    /// Each padded with zeros (the pad token) to `length` along its first dimension.
    Padded {
        /// Elements along the first dimension.
        length: usize,
        /// Lengths of the other dimensions.
        sample: Vec<usize>,
        /// Elements along the first dimension that are the sample's own.
        lengths: Vec<u32>,
    },
    /// One after another, sample i from element `offsets[i]` to `offsets[i + 1]`.
    Ragged {
        /// One more than there are samples.
        offsets: Vec<u64>,
    },
    /// Rows of several samples each.
    Packed {
        /// Elements of a row.
        length: usize,
        /// Samples of each row, in order.
        row_samples: Vec<u32>,
        /// Elements of each sample, in order.
        lengths: Vec<u32>,
    },
}

/// The elements of a batch, shared by those that repeat it.
#[derive(Debug)]
pub struct Data {
    bytes: BytesMut,
    /// What the elements are.
    pub element: Element,
    /// How the samples lie in them.
    pub shape: Shape,
    pool: Option<Arc<Pool>>,
}

impl Data {
    pub(crate) fn new(bytes: BytesMut, element: Element, shape: Shape, pool: &Arc<Pool>) -> Data {
        Data {
            bytes,
            element,
            shape,
            pool: Some(Arc::clone(pool)),
        }
    }

    /// The elements as bytes; they begin at a multiple of 64.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The elements where they are numbers of tokens.
    pub fn tokens(&self) -> Option<&[u32]> {
        (self.element == Element::U32).then(|| bytemuck::cast_slice(&self.bytes))
    }

    /// The elements where they are of single precision.
    pub fn values(&self) -> Option<&[f32]> {
        (self.element == Element::F32).then(|| bytemuck::cast_slice(&self.bytes))
    }

    /// Elements that are padding, and all elements.
    pub fn padding(&self) -> (u64, u64) {
        let all = (self.bytes.len() / self.element.bytes()) as u64;
        let of = |lengths: &[u32], each: usize| -> u64 {
            lengths.iter().map(|&n| u64::from(n) * each as u64).sum()
        };
        let used = match &self.shape {
            Shape::Padded {
                lengths, sample, ..
            } => of(lengths, sample.iter().product()),
            Shape::Packed { lengths, .. } => of(lengths, 1),
            Shape::Stacked { .. } | Shape::Ragged { .. } => all,
        };
        (all - used, all)
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.give(std::mem::take(&mut self.bytes));
        }
    }
}

/// One batch: what one rank uses in one step.
#[derive(Clone, Debug)]
pub struct SampleBatch {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Step of the epoch's plan; repeats chosen by waiting (`auto`) have the step of the batch after them.
    pub step: u64,
    /// Where to go on after this batch.
    pub end: Cursor,
    /// Whether it is the last of its epoch.
    pub ends_epoch: bool,
    /// Record ids in order.
    pub ids: Vec<u64>,
    /// Indices into the data set's label list.
    pub labels: Vec<u32>,
    /// How often each example came out before in this epoch, 0 for a fresh one.
    pub copies: Vec<u32>,
    /// Number of the bucket, where there are buckets.
    pub bucket: Option<u32>,
    /// Examples in the step over all ranks, bad ones included.
    pub global_examples: u64,
    /// The samples.
    pub data: Arc<Data>,
}

impl SampleBatch {
    /// Number of examples.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether every example of it was left out as bad.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Examples that come out for the first time in this epoch.
    pub fn fresh(&self) -> u64 {
        self.copies.iter().filter(|&&copy| copy == 0).count() as u64
    }
}

/// Buffers of batches that are used again.
#[derive(Debug)]
pub(crate) struct Pool {
    spare: Mutex<Vec<BytesMut>>,
    /// Spare buffers that are kept.
    most_spare: usize,
}

/// Alignment of a batch's first element: what vector instructions and other libraries like.
const ALIGNMENT: usize = 64;

impl Pool {
    /// A pool that keeps `most_spare` spare buffers: as many as there are batches at a time.
    pub fn new(most_spare: usize) -> Arc<Pool> {
        Arc::new(Pool {
            spare: Mutex::default(),
            most_spare,
        })
    }

    /// A buffer of `len` bytes of any content.
    pub fn take(&self, len: usize) -> BytesMut {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |buffer: &BytesMut| {
            buffer.capacity() >= len && buffer.capacity() <= len + len / 4 + 4096
        };
        // The one given back last, which may still lie in the processor's cache.
        let found = spare.iter().rposition(fits);
        let held = found.map(|i| spare.swap_remove(i));
        // One that does not fit makes room for the new one.
        if held.is_none() && !spare.is_empty() {
            spare.remove(0);
        }
        drop(spare);
        let mut buffer = held.unwrap_or_else(|| aligned(len));
        buffer.resize(len, 0);
        buffer
    }

    fn give(&self, buffer: BytesMut) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < self.most_spare && buffer.capacity() > 0 {
            spare.push(buffer);
        }
    }
}

fn aligned(len: usize) -> BytesMut {
    let mut buffer = BytesMut::zeroed(len + ALIGNMENT);
    let skip = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    drop(buffer.split_to(skip));
    buffer.truncate(len);
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_used_again() {
        let pool = Pool::new(4);
        for len in [1, 63, 64, 65, 100_000] {
            let mut buffer = pool.take(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr().align_offset(64), 0);
            let first = buffer.as_ptr();
            let mut parts = Vec::new();
            while buffer.len() > 7 {
                parts.push(buffer.split_to(7));
            }
            parts.push(buffer);
            let mut whole = parts.remove(0);
            parts.into_iter().for_each(|part| whole.unsplit(part));
            assert_eq!((whole.as_ptr(), whole.len()), (first, len), "no copy");
            drop(Data::new(
                whole,
                Element::U8,
                Shape::Ragged { offsets: vec![] },
                &pool,
            ));
            assert_eq!(pool.take(len).as_ptr(), first, "used again");
        }
    }
}
