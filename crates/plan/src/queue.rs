//! The shuffle buffer of TensorFlow's input pipeline, simulated on ids.
//!
//! The buffer is filled with the first q records; each output is drawn uniformly from the buffer and
//! its slot taken by the next record of the file, until the file ends and the buffer runs empty. An
//! id can therefore come out early by at most q places: a file sorted by label stays nearly sorted.
//!
//! Whether `epoch`'s output number i is known needs the outputs before it, so seeking replays the
//! epoch from its start (a few ns an id) unless a cursor stands at or before the wanted place. Two
//! cursors are kept: the reader's look-ahead and whatever trails it.

use std::sync::{Mutex, PoisonError};

use crate::permutation::Permutation;
use pelton_key::KeyedRng;
use pelton_key::{Stage, key};

/// All epochs of one shuffle buffer over one file.
#[derive(Debug)]
pub(crate) struct Queue {
    seed: u64,
    records: u64,
    /// Slots of the buffer; no more than there are records.
    slots: u64,
    /// The order of the file when it was shuffled once beforehand.
    file_order: Option<Permutation>,
    /// Most recently used first.
    cursors: Mutex<Vec<Cursor>>,
}

const CURSORS: usize = 2;

/// Outputs made at a time.
const RUN: usize = 1024;

#[derive(Debug)]
struct Cursor {
    epoch: u64,
    /// Outputs already made.
    position: u64,
    buffer: Vec<u64>,
    rng: KeyedRng,
}

impl Queue {
    pub(crate) fn new(records: u64, examples: u64, initial_shuffle: bool, seed: u64) -> Queue {
        let file_order =
            initial_shuffle.then(|| Permutation::new(records, key(seed, 0, Stage::InitialShuffle)));
        let cursors = Mutex::new(Vec::with_capacity(CURSORS));
        Queue {
            seed,
            records,
            slots: examples.min(records),
            file_order,
            cursors,
        }
    }

    /// Memory of the buffers of all cursors.
    pub(crate) fn memory_bytes(&self) -> u64 {
        CURSORS as u64 * self.slots * 8
    }

    /// Outputs `start..start + out.len()` of `epoch`.
    pub(crate) fn fill(&self, epoch: u64, start: u64, out: &mut [u64]) {
        let mut cursors = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        let best = (0..cursors.len())
            .filter(|&index| cursors[index].epoch == epoch && cursors[index].position <= start)
            .max_by_key(|&index| cursors[index].position);
        let mut cursor = match best {
            Some(index) => cursors.remove(index),
            None => {
                cursors.truncate(CURSORS - 1);
                self.start(epoch)
            }
        };
        let mut skipped = [0; RUN];
        while cursor.position < start {
            let count = (start - cursor.position).min(RUN as u64) as usize;
            self.advance(&mut cursor, &mut skipped[..count]);
        }
        for run in out.chunks_mut(RUN) {
            self.advance(&mut cursor, run);
        }
        cursors.insert(0, cursor);
    }

    fn start(&self, epoch: u64) -> Cursor {
        let rng = KeyedRng::new(key(self.seed, epoch, Stage::Queue));
        let mut buffer = vec![0; self.slots as usize];
        self.take(0, &mut buffer);
        Cursor {
            epoch,
            position: 0,
            buffer,
            rng,
        }
    }

    /// The next at most [`RUN`] outputs.
    ///
    /// Slots are drawn for the whole run before any is touched, so that the loads of a buffer larger
    /// than the caches overlap.
    fn advance(&self, cursor: &mut Cursor, out: &mut [u64]) {
        let taken = (self.slots + cursor.position).min(self.records);
        let refills = (self.records - taken).min(out.len() as u64) as usize;
        let (refilled, drained) = out.split_at_mut(refills);
        self.take(taken, refilled);
        let mut slots = [0; RUN];
        for slot in &mut slots[..refills] {
            *slot = cursor.rng.below(self.slots) as usize;
        }
        for (&slot, id) in slots.iter().zip(&mut *refilled) {
            std::mem::swap(&mut cursor.buffer[slot], id);
        }
        for id in &mut *drained {
            let slot = cursor.rng.below(cursor.buffer.len() as u64) as usize;
            *id = cursor.buffer.swap_remove(slot);
        }
        cursor.position += (refilled.len() + drained.len()) as u64;
    }

    /// The records of the file from place `first` on.
    fn take(&self, first: u64, out: &mut [u64]) {
        match &self.file_order {
            Some(file_order) => file_order.fill(first, out),
            None => {
                for (id, place) in out.iter_mut().zip(first..) {
                    *id = place;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn epoch_of(queue: &Queue, epoch: u64) -> Vec<u64> {
        let mut ids = vec![0; queue.records as usize];
        queue.fill(epoch, 0, &mut ids);
        ids
    }

    #[test]
    fn a_record_comes_at_most_a_buffer_early() {
        let queue = Queue::new(5000, 100, false, 1);
        for epoch in 0..5 {
            for (position, id) in epoch_of(&queue, epoch).into_iter().enumerate() {
                assert!(id < position as u64 + 100, "{id} at {position}");
            }
        }
    }

    #[test]
    fn the_initial_shuffle_is_one_relabelling_for_all_epochs() {
        let plain = Queue::new(3000, 50, false, 9);
        let shuffled = Queue::new(3000, 50, true, 9);
        let file_order = Permutation::new(3000, key(9, 0, Stage::InitialShuffle));
        for epoch in 0..3 {
            let relabelled: Vec<u64> = epoch_of(&plain, epoch)
                .into_iter()
                .map(|place| file_order.get(place))
                .collect();
            assert_eq!(epoch_of(&shuffled, epoch), relabelled);
        }
    }

    #[test]
    fn any_access_pattern_gives_the_same_ids() {
        let queue = Queue::new(700, 30, true, 3);
        let whole: Vec<Vec<u64>> = (0..3).map(|epoch| epoch_of(&queue, epoch)).collect();
        let mut rng = KeyedRng::new(8);
        for _ in 0..300 {
            let epoch = rng.below(3);
            let start = rng.below(700);
            let len = rng.below(700 - start + 1) as usize;
            let mut out = vec![0; len];
            queue.fill(epoch, start, &mut out);
            assert_eq!(out, whole[epoch as usize][start as usize..][..len]);
        }
        assert!(queue.cursors.lock().unwrap().len() <= CURSORS);
    }

    /// The count behind the exact randomness of a queue: different draws give different outputs, so
    /// q^(N − q) · q! orders are reachable.
    #[test]
    fn reachable_orders_are_counted_exactly() {
        fn outputs(
            buffer: &[u64],
            next: u64,
            n: u64,
            made: &mut Vec<u64>,
            all: &mut HashSet<Vec<u64>>,
        ) {
            if buffer.is_empty() {
                all.insert(made.clone());
            }
            for drawn in 0..buffer.len() {
                let mut rest = buffer.to_vec();
                made.push(rest[drawn]);
                let refilled = next < n;
                if refilled {
                    rest[drawn] = next;
                } else {
                    rest.swap_remove(drawn);
                }
                outputs(&rest, next + u64::from(refilled), n, made, all);
                made.pop();
            }
        }
        for n in 1..=7_u64 {
            for q in 1..=n {
                let buffer: Vec<u64> = (0..q).collect();
                let mut all = HashSet::new();
                outputs(&buffer, q, n, &mut Vec::new(), &mut all);
                let expected = q.pow((n - q) as u32) * (1..=q).product::<u64>();
                assert_eq!(all.len() as u64, expected, "n {n}, q {q}");
                let exact = crate::randomness::Randomness::queue(n, q).rl_exact;
                let log = (expected as f64).ln();
                let all_orders = crate::randomness::ln_factorial(n as f64);
                if n > 1 {
                    assert!((exact - log / all_orders).abs() < 1e-12, "n {n}, q {q}");
                }
            }
        }
    }
}
