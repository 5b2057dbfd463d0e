//! The shuffle buffer of TensorFlow's input pipeline, simulated on ids.
//!
//! The buffer is filled with the first q records; each output is drawn uniformly from the buffer and
//! its slot taken by the next record of the file, until the file ends and the buffer runs empty. So an id can
//! come early by at most q positions: a file sorted by label stays nearly sorted.
//!
//! The id of output i follows from the outputs before it, so seeking replays the epoch from its start (a few ns an
//! id).

use std::sync::Arc;

use pelton_key::{KeyedRng, Stage, key};

use super::Queue;
use crate::error::PlanError;
use crate::ordering::{EpochWalk, Ids, Kind, Over, Spread, count_from};
use crate::permutation::Permutation;
use crate::randomness::Randomness;

/// Most slots of the buffer: each takes 8 bytes.
const MOST_SLOTS: u64 = 1 << 28;

impl Kind for Queue {
    fn spread(&self) -> Spread {
        Spread::Neighbours
    }

    fn randomness(&self, records: u64, _: u64) -> Randomness {
        Randomness::queue(records, self.examples)
    }

    fn over(&self, over: &Over<'_>) -> Result<Box<dyn Ids>, PlanError> {
        if self.examples == 0 {
            return Err(PlanError::EmptyQueue);
        }
        over.check_table(self.examples.min(over.records), MOST_SLOTS)?;
        Ok(Box::new(Arc::new(ShuffleBuffer::new(
            over.records,
            self.examples,
            self.initial_shuffle,
            over.seed,
        ))))
    }
}

/// All epochs of one shuffle buffer over one file.
#[derive(Debug)]
struct ShuffleBuffer {
    seed: u64,
    records: u64,
    /// Slots of the buffer; no more than there are records.
    slots: u64,
    /// The order of the file when it was shuffled once beforehand.
    file_order: Option<Permutation>,
}

/// Outputs made at a time.
const RUN: usize = 1024;

/// The buffer after some outputs of an epoch.
#[derive(Debug)]
struct Buffer {
    queue: Arc<ShuffleBuffer>,
    epoch: u64,
    position: u64,
    slots: Vec<u64>,
    rng: KeyedRng,
}

impl ShuffleBuffer {
    fn new(records: u64, examples: u64, initial_shuffle: bool, seed: u64) -> ShuffleBuffer {
        let file_key = key(seed, 0, Stage::InitialShuffle);
        ShuffleBuffer {
            seed,
            records,
            slots: examples.min(records),
            file_order: initial_shuffle.then(|| Permutation::new(records, file_key)),
        }
    }

    /// The buffer before the first output of an epoch.
    fn of_epoch(self: &Arc<Self>, epoch: u64) -> Buffer {
        let mut slots = vec![0; self.slots as usize];
        self.take(0, &mut slots);
        Buffer {
            queue: Arc::clone(self),
            epoch,
            position: 0,
            slots,
            rng: KeyedRng::new(key(self.seed, epoch, Stage::Queue)),
        }
    }

    /// The records of the file from position `first` on.
    fn take(&self, first: u64, out: &mut [u64]) {
        match &self.file_order {
            Some(file_order) => file_order.fill(first, out),
            None => count_from(first, out),
        }
    }
}

impl Ids for Arc<ShuffleBuffer> {
    fn walk(&self, epoch: u64) -> Box<dyn EpochWalk> {
        Box::new(self.of_epoch(epoch))
    }

    fn is_sought(&self) -> bool {
        false
    }

    fn memory_bytes(&self) -> u64 {
        self.slots * 8
    }
}

impl EpochWalk for Buffer {
    /// Discards outputs up to a position.
    fn seek(&mut self, position: u64) {
        if self.position > position {
            *self = self.queue.of_epoch(self.epoch);
        }
        let mut skipped = [0; RUN];
        while self.position < position {
            let count = (position - self.position).min(RUN as u64) as usize;
            self.advance(&mut skipped[..count]);
        }
    }

    fn fill(&mut self, _: u64, out: &mut [u64]) {
        for run in out.chunks_mut(RUN) {
            self.advance(run);
        }
    }
}

impl Buffer {
    /// The next at most [`RUN`] outputs.
    ///
    /// Slots are drawn for the whole run before any is touched, so that the loads of a buffer larger
    /// than the caches overlap.
    fn advance(&mut self, out: &mut [u64]) {
        let queue = &*self.queue;
        let taken = (queue.slots + self.position).min(queue.records);
        let refills = (queue.records - taken).min(out.len() as u64) as usize;
        let (refilled, drained) = out.split_at_mut(refills);
        queue.take(taken, refilled);
        let mut slots = [0; RUN];
        for slot in &mut slots[..refills] {
            *slot = self.rng.below(queue.slots) as usize;
        }
        for (&slot, id) in slots.iter().zip(&mut *refilled) {
            std::mem::swap(&mut self.slots[slot], id);
        }
        for id in &mut *drained {
            let slot = self.rng.below(self.slots.len() as u64) as usize;
            *id = self.slots.swap_remove(slot);
        }
        self.position += (refilled.len() + drained.len()) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn epoch_of(queue: &Arc<ShuffleBuffer>, epoch: u64) -> Vec<u64> {
        let mut ids = vec![0; queue.records as usize];
        queue.of_epoch(epoch).fill(0, &mut ids);
        ids
    }

    #[test]
    fn a_record_comes_at_most_a_buffer_early() {
        let queue = Arc::new(ShuffleBuffer::new(5000, 100, false, 1));
        for epoch in 0..5 {
            for (position, id) in epoch_of(&queue, epoch).into_iter().enumerate() {
                assert!(id < position as u64 + 100, "{id} at {position}");
            }
        }
    }

    #[test]
    fn the_initial_shuffle_is_one_relabelling_for_all_epochs() {
        let plain = Arc::new(ShuffleBuffer::new(3000, 50, false, 9));
        let shuffled = Arc::new(ShuffleBuffer::new(3000, 50, true, 9));
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
    fn skipping_gives_the_same_ids() {
        let queue = Arc::new(ShuffleBuffer::new(3000, 30, true, 3));
        let whole = epoch_of(&queue, 2);
        for start in [0, 1, 700, 1024, 1025, 2990, 3000] {
            let mut buffer = queue.of_epoch(2);
            buffer.seek(start);
            let mut rest = vec![0; 3000 - start as usize];
            buffer.fill(start, &mut rest);
            assert_eq!(rest, whole[start as usize..]);
        }
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
