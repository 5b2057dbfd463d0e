//! Memory of tensors, used again from step to step.
//!
//! A step takes and drops the same sizes as the one before. Memory fresh from the system costs a page fault each 4 KiB,
//! a third of a step of ResNet-20; the pool avoids these, and writing zeros.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use aligned_vec::{AVec, ConstAlign};

type Numbers = AVec<f32, ConstAlign<64>>;

/// Spare memory, by length and in the order in which it came, and its size.
struct Pool {
    spare: BTreeMap<usize, Vec<(u64, Numbers)>>,
    spare_numbers: usize,
    came: u64,
    live_numbers: usize,
    most_live: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    spare: BTreeMap::new(),
    spare_numbers: 0,
    came: 0,
    live_numbers: 0,
    most_live: 0,
});

impl Pool {
    /// Gives the memory that has waited longest back to the system: with batches of many shapes, that of a shape which has not
    /// come again.
    fn give_back_oldest(&mut self) {
        let oldest = self.spare.iter().map(|(&len, list)| (list[0].0, len)).min();
        let Some((_, len)) = oldest else { return };
        if let Some(list) = self.spare.get_mut(&len) {
            list.remove(0);
            self.spare_numbers -= len;
            if list.is_empty() {
                self.spare.remove(&len);
            }
        }
    }
}

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

/// The size of memory for so many numbers: one of few, so that batches of other lengths use it too. At most an eighth more.
fn whole(len: usize) -> usize {
    let grain = len.next_power_of_two() / 16;
    len.next_multiple_of(grain.max(1))
}

/// Memory for `len` numbers, with arbitrary contents; it returns to the pool when dropped.
pub(crate) struct Block {
    numbers: Numbers,
    len: usize,
}

impl Block {
    /// Takes memory; the numbers in it are those of an earlier user.
    pub(crate) fn new(len: usize) -> Block {
        Block::with_room(len, len)
    }

    /// The same with room for more numbers, so that others with this room use it too.
    pub(crate) fn with_room(len: usize, room: usize) -> Block {
        let wanted = room.max(len);
        let mut pool = pool();
        // A little larger is as good; twice as large is a waste.
        let found = pool
            .spare
            .range(wanted..=wanted + wanted / 4)
            .next()
            .map(|(&len, _)| len);
        let numbers = found.and_then(|found| {
            let list = pool.spare.get_mut(&found)?;
            let numbers = list.pop().map(|(_, numbers)| numbers);
            if list.is_empty() {
                pool.spare.remove(&found);
            }
            numbers
        });
        if let Some(numbers) = &numbers {
            pool.spare_numbers -= numbers.len();
        }
        let numbers =
            numbers.unwrap_or_else(|| AVec::from_iter(64, std::iter::repeat_n(0.0, whole(wanted))));
        pool.live_numbers += numbers.len();
        pool.most_live = pool.most_live.max(pool.live_numbers);
        Block { numbers, len }
    }

    /// A copy of some numbers.
    pub(crate) fn from_slice(numbers: &[f32]) -> Block {
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
}

impl Drop for Block {
    fn drop(&mut self) {
        let numbers = std::mem::replace(&mut self.numbers, AVec::new(64));
        let mut pool = pool();
        pool.live_numbers -= numbers.len();
        let most = pool.most_live * 2;
        while pool.spare_numbers > 0
            && pool.live_numbers + pool.spare_numbers + numbers.len() > most
        {
            pool.give_back_oldest();
        }
        pool.came += 1;
        let came = pool.came;
        pool.spare_numbers += numbers.len();
        pool.spare
            .entry(numbers.len())
            .or_default()
            .push((came, numbers));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_again() {
        // A length that no other test takes.
        let block = Block::from_slice(&vec![3.0; 123_457]);
        let at = block.as_ptr();
        assert_eq!(at as usize % 64, 0);
        drop(block);
        let block = Block::new(123_450);
        assert_eq!((block.as_ptr(), block.len()), (at, 123_450));
    }
}
