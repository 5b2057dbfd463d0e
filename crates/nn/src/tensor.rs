//! Tensors: numbers that clones share, and a shape.

use std::ops::Deref;
use std::sync::Arc;

use pelton_batch::Array;
use rayon::prelude::*;

use crate::memory::Block;

/// Numbers that a thread adds at a time.
const CHUNK: usize = 1 << 14;

#[derive(Clone)]
pub(crate) struct Tensor {
    numbers: Arc<Numbers>,
    shape: Vec<usize>,
}

enum Numbers {
    Block(Block),
    /// Of f32, read in place from the batch.
    Batch(Array),
}

impl Tensor {
    /// Panics unless the length of `numbers` fits `shape`.
    pub(crate) fn new(numbers: Block, shape: &[usize]) -> Tensor {
        let tensor = Tensor {
            numbers: Arc::new(Numbers::Block(numbers)),
            shape: vec![],
        };
        tensor.reshape(shape)
    }

    /// A copy of `numbers`.
    pub(crate) fn from_slice(numbers: &[f32], shape: &[usize]) -> Tensor {
        Tensor::new(Block::from_slice(numbers), shape)
    }

    pub(crate) fn zeros(shape: &[usize]) -> Tensor {
        Tensor::new(Block::zeros(shape.iter().product()), shape)
    }

    /// Without numbers: stands for a parameter of another rank.
    pub(crate) fn empty() -> Tensor {
        Tensor::zeros(&[0])
    }

    /// The numbers of a batch, not copied. Panics unless they are f32.
    pub(crate) fn batch(array: &Array) -> Tensor {
        assert!(array.values::<f32>().is_some(), "a batch of f32");
        Tensor {
            numbers: Arc::new(Numbers::Batch(array.clone())),
            shape: array.shape().dims.clone(),
        }
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The size of the last axis.
    pub(crate) fn width(&self) -> usize {
        *self.shape.last().expect("an axis")
    }

    /// The same numbers under another shape.
    pub(crate) fn reshape(mut self, shape: &[usize]) -> Tensor {
        assert_eq!(
            self.len(),
            shape.iter().product::<usize>(),
            "numbers of a tensor of {shape:?}"
        );
        self.shape = shape.to_vec();
        self
    }

    /// Mutable numbers: in place if their memory is not shared, else in a copy.
    pub(crate) fn numbers_mut(&mut self) -> &mut [f32] {
        if !matches!(Arc::get_mut(&mut self.numbers), Some(Numbers::Block(_))) {
            self.numbers = Arc::new(Numbers::Block(Block::from_slice(self)));
        }
        match Arc::get_mut(&mut self.numbers) {
            Some(Numbers::Block(block)) => block,
            _ => unreachable!("the copy was just made"),
        }
    }

    /// The sum of two tensors of one shape, in the memory of the first if that is not shared.
    pub(crate) fn plus(mut self, other: &Tensor) -> Tensor {
        self.numbers_mut()
            .par_chunks_mut(CHUNK)
            .zip(other.par_chunks(CHUNK))
            .for_each(|(x, y)| {
                for (x, y) in x.iter_mut().zip(y) {
                    *x += y;
                }
            });
        self
    }
}

impl Deref for Tensor {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &*self.numbers {
            Numbers::Block(block) => block,
            Numbers::Batch(array) => array.values().expect("checked when the tensor was made"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_change_in_place_unless_they_are_shared() {
        let mut tensor = Tensor::from_slice(&[3.0; 6], &[2, 3]);
        let at = tensor.as_ptr();
        tensor.numbers_mut()[5] = 7.0;
        assert_eq!((tensor.as_ptr(), tensor[5]), (at, 7.0));
        let mut shared = tensor.clone().reshape(&[6]);
        assert_eq!(shared.as_ptr(), at);
        shared.numbers_mut()[0] = 1.0;
        assert_ne!(shared.as_ptr(), at);
        assert_eq!((shared[0], tensor[0]), (1.0, 3.0));

        let array = Array::from_slice(&[1.0f32, 2.0]);
        let mut batch = Tensor::batch(&array);
        assert_eq!(batch.as_ptr().cast(), array.bytes().as_ptr());
        batch.numbers_mut()[0] = 9.0;
        assert_eq!(array.values::<f32>(), Some(&[1.0, 2.0][..]));
    }
}
