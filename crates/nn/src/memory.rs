//! Memory of tensors on a CPU, used again from step to step.
//!
//! A step takes and drops the same sizes as the one before. Memory fresh from the system costs a page fault each 4 KiB,
//! which is a third of a step of ResNet-20; the pool has none, and no zeros to write either.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use aligned_vec::{AVec, ConstAlign};
use burn_backend::DType;
use burn_flex::{FlexTensor, Layout};
use burn_std::{AllocationController, AllocationProperty, Bytes, Shape};

type Numbers = AVec<f32, ConstAlign<64>>;

/// What is spare, by length, and how much there is.
struct Pool {
    spare: BTreeMap<usize, Vec<Numbers>>,
    spare_numbers: usize,
    live_numbers: usize,
    most_live: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    spare: BTreeMap::new(),
    spare_numbers: 0,
    live_numbers: 0,
    most_live: 0,
});

fn pool() -> std::sync::MutexGuard<'static, Pool> {
    // Every change is done before anything can panic.
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives spare memory back to the system: that of a net which has ended is of no use to the next.
pub fn give_back_spare() {
    let mut pool = pool();
    pool.spare.clear();
    pool.spare_numbers = 0;
    pool.most_live = pool.live_numbers;
}

/// Memory for `len` numbers, whatever they are; it goes back to the pool once dropped.
pub(crate) struct Block {
    numbers: Numbers,
    len: usize,
}

impl Block {
    /// Takes memory; the numbers in it are those of an earlier user.
    pub(crate) fn new(len: usize) -> Block {
        let mut pool = pool();
        // A little larger is as good; twice as large is a waste.
        let found = pool
            .spare
            .range(len..=len + len / 4)
            .next()
            .map(|(&len, _)| len);
        let numbers = found.and_then(|found| {
            let list = pool.spare.get_mut(&found)?;
            let numbers = list.pop();
            if list.is_empty() {
                pool.spare.remove(&found);
            }
            numbers
        });
        if let Some(numbers) = &numbers {
            pool.spare_numbers -= numbers.len();
        }
        let numbers = numbers.unwrap_or_else(|| AVec::from_iter(64, std::iter::repeat_n(0.0, len)));
        pool.live_numbers += numbers.len();
        pool.most_live = pool.most_live.max(pool.live_numbers);
        Block { numbers, len }
    }

    /// A copy of some numbers.
    pub(crate) fn of(numbers: &[f32]) -> Block {
        let mut block = Block::new(numbers.len());
        block.copy_from_slice(numbers);
        block
    }

    /// Zeros.
    pub(crate) fn zeros(len: usize) -> Block {
        let mut block = Block::new(len);
        block.fill(0.0);
        block
    }

    /// As a tensor.
    pub(crate) fn tensor(self, shape: &[usize]) -> FlexTensor {
        assert_eq!(
            self.len,
            shape.iter().product::<usize>(),
            "numbers of a tensor"
        );
        let bytes = 4 * self.len;
        // SAFETY: all of a block is initialised, and it has `bytes` bytes.
        let bytes = unsafe { Bytes::from_controller(Box::new(self), bytes) };
        let layout = Layout::contiguous(Shape::from(shape.to_vec()));
        FlexTensor::new(bytes, layout, DType::F32)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let numbers = std::mem::replace(&mut self.numbers, AVec::new(64));
        let mut pool = pool();
        pool.live_numbers -= numbers.len();
        // With batches of many shapes, spare memory of one shape is no use to another.
        if pool.live_numbers + pool.spare_numbers + numbers.len() <= pool.most_live * 5 / 4 {
            pool.spare_numbers += numbers.len();
            pool.spare.entry(numbers.len()).or_default().push(numbers);
        }
    }
}

impl Deref for Block {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.numbers[..self.len]
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.numbers[..self.len]
    }
}

impl AllocationController for Block {
    fn alloc_align(&self) -> usize {
        64
    }

    fn property(&self) -> AllocationProperty {
        AllocationProperty::Other
    }

    unsafe fn memory_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(self);
        // SAFETY: the caller writes initialised bytes only, as the trait demands.
        unsafe { &mut *(std::ptr::from_mut(bytes) as *mut [MaybeUninit<u8>]) }
    }

    fn memory(&self) -> &[MaybeUninit<u8>] {
        let bytes: &[u8] = bytemuck::cast_slice(self);
        // SAFETY: what is initialised may be looked at as if it were not.
        unsafe { &*(std::ptr::from_ref(bytes) as *const [MaybeUninit<u8>]) }
    }
}

/// The numbers of a tensor, row by row; copied only where it is a view that is not.
pub(crate) fn contiguous(x: FlexTensor) -> FlexTensor {
    match x.as_slice::<f32>() {
        Some(_) => x,
        None => x.to_contiguous(),
    }
}

/// The numbers of a tensor that is contiguous.
pub(crate) fn slice(x: &FlexTensor) -> &[f32] {
    x.as_slice().expect("made contiguous before")
}

/// The numbers of a tensor to be written: its own memory where nothing else holds it, else a copy.
pub(crate) fn owned(x: FlexTensor) -> FlexTensor {
    let shape: Vec<usize> = x.layout().shape().to_vec();
    let x = contiguous(x);
    let whole = x.bytes().len() == 4 * shape.iter().product::<usize>();
    if x.is_unique() && whole {
        x
    } else {
        Block::of(slice(&x)).tensor(&shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_again_and_is_written_in_place() {
        // A length that no other test takes.
        let len = 123_457;
        let mut tensor = Block::of(&vec![3.0; len]).tensor(&[len]);
        let at = slice(&tensor).as_ptr();
        tensor.storage_mut::<f32>()[5] = 7.0;
        assert_eq!(slice(&tensor).as_ptr(), at);
        assert_eq!(at as usize % 64, 0);
        assert_eq!(slice(&tensor)[4..7], [3.0, 7.0, 3.0]);
        let shared = tensor.clone();
        let copy = owned(shared);
        assert_ne!(slice(&copy).as_ptr(), at);
        drop(copy);
        let kept = owned(tensor);
        assert_eq!(slice(&kept).as_ptr(), at);
    }
}
