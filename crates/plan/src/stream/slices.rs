//! Where the queues of an epoch stand at a step, without putting every appearance through them.
//!
//! As for a plan (`buckets/seek.rs`), examples are taken by number, whose buckets lie side by side, and counted at the
//! positions that the inverse of the order gives: by slices of the epoch and by bucket. Examples of an order without an
//! inverse are counted as they come, which pays where an echo brings each several times. A slice is a number of whole
//! windows of the echo, with the repeats that come out among them. What each queue holds at the end of a slice is the
//! last appearances of its bucket, found by walking over those slices that have them.

use super::batch::Draw;
use super::sequence::Sequence;
use crate::buckets::{BucketLayout, Table};
use crate::division::Divider;

/// Fewer appearances are replayed faster; of more, a slice would not fit its counter.
const APPEARANCES: std::ops::Range<u64> = 1 << 16..1 << 36;

/// Most counters of an epoch, 4 bytes each.
const COUNTERS: u64 = 1 << 19;

/// Slices of an epoch.
const LEAST_SLICES: u64 = 64;
const MOST_SLICES: u64 = 1024;

/// How the appearances of each bucket are spread over the slices of an epoch.
#[derive(Debug)]
pub(super) struct Slices {
    buckets: usize,
    /// Windows of a slice.
    windows: u64,
    /// Appearances in each slice, by slice, then by bucket; after the last slice, the repeats of its last window.
    members: Vec<u32>,
}

/// The queues before a phase of the echo.
pub(super) struct Standing {
    /// Appearances before.
    pub(super) place: u64,
    /// Batches emitted.
    pub(super) step: u64,
    /// For each bucket the appearances in its queue, in the order they came.
    pub(super) queues: Vec<Vec<Draw>>,
}

impl Slices {
    /// Whether counting is possible, and worth it for some place.
    pub(super) fn pay(sequence: &Sequence) -> bool {
        let comes_again = !sequence.echo().echo().is_none();
        APPEARANCES.contains(&sequence.appearances())
            && (sequence.source().is_invertible() || comes_again)
    }

    /// A pass over the examples of an epoch.
    pub(super) fn new(
        sequence: &Sequence,
        layout: &BucketLayout,
        bucket_of: &Table,
        epoch: u64,
    ) -> Slices {
        let buckets = layout.buckets().len();
        let echo = sequence.echo();
        let window = u64::from(echo.echo().window());
        let examples = sequence.source().examples();
        let slices = (COUNTERS / buckets as u64).clamp(LEAST_SLICES, MOST_SLICES);
        let windows = examples.div_ceil(slices).div_ceil(window);
        let positions_a_slice = windows * window;
        let slices = examples.div_ceil(positions_a_slice) as usize;
        let mut members = vec![0_u32; (slices + 1) * buckets];
        let mut numbers_of = Vec::new();
        let whole = echo.echo().whole().map(|times| times as u32);
        let slice_of = Divider::new(positions_a_slice, examples);
        let last_window = positions_a_slice - window;
        sequence.source().each(epoch, |numbers, positions| {
            numbers_of.resize(numbers.len(), 0);
            bucket_of.gather(numbers, &mut numbers_of);
            for (&position, &bucket) in positions.iter().zip(&numbers_of) {
                let slice = slice_of.divide(position);
                let cell = slice as usize * buckets + bucket as usize;
                let mut times = whole.unwrap_or_else(|| echo.times_of(position));
                // The repeats of a window come among the next one.
                if position - slice * positions_a_slice >= last_window {
                    members[cell + buckets] += times - 1;
                    times = 1;
                }
                members[cell] += times;
            }
        });
        Slices {
            buckets,
            windows,
            members,
        }
    }

    /// Appearances of each bucket in the epoch.
    pub(super) fn totals(&self) -> Vec<u64> {
        self.before(self.len() + 1)
    }

    /// The queues at the end of a slice at which at most `step` batches have been emitted, as late as possible.
    pub(super) fn standing(
        &self,
        sequence: &Sequence,
        layout: &BucketLayout,
        bucket_of: &Table,
        epoch: u64,
        step: u64,
    ) -> Standing {
        let state = |slice| {
            let members = self.before(slice);
            let buckets = layout.buckets().iter().zip(&members);
            let emitted: u64 = buckets.map(|(b, members)| members / b.capacity).sum();
            (members, emitted)
        };
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = high - (high - low) / 2;
            if state(middle).1 <= step {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        let (members, emitted) = state(low);
        let waiting = layout.buckets().iter().zip(&members);
        let waiting = waiting.map(|(bucket, members)| members % bucket.capacity);
        Standing {
            place: sequence.echo().phase(low * self.windows).start,
            step: emitted,
            queues: self.last_before(sequence, bucket_of, epoch, low, waiting.collect()),
        }
    }

    fn len(&self) -> u64 {
        (self.members.len() / self.buckets) as u64 - 1
    }

    fn of_slice(&self, slice: u64) -> &[u32] {
        &self.members[slice as usize * self.buckets..][..self.buckets]
    }

    /// Appearances in the slices before one, by bucket.
    fn before(&self, slice: u64) -> Vec<u64> {
        let mut members = vec![0; self.buckets];
        for slice in 0..slice {
            let of_slice = self.of_slice(slice).iter();
            members
                .iter_mut()
                .zip(of_slice)
                .for_each(|(sum, &more)| *sum += u64::from(more));
        }
        members
    }

    /// The last appearances of each bucket before a slice, as many as are waiting.
    fn last_before(
        &self,
        sequence: &Sequence,
        bucket_of: &Table,
        epoch: u64,
        slice: u64,
        waiting: Vec<u64>,
    ) -> Vec<Vec<Draw>> {
        // The slice from which on each bucket has as many.
        let mut first = vec![slice; self.buckets];
        for (bucket, first) in first.iter_mut().enumerate() {
            let mut found = 0;
            while found < waiting[bucket] {
                *first -= 1;
                found += u64::from(self.of_slice(*first)[bucket]);
            }
        }
        let mut queues = vec![Vec::new(); self.buckets];
        let (mut draws, mut numbers, mut buckets) = (Vec::new(), Vec::new(), Vec::new());
        for slice in first.iter().copied().min().unwrap_or(slice)..slice {
            let members = self.of_slice(slice);
            let is_asked = |bucket: usize| first[bucket] <= slice && members[bucket] > 0;
            if !(0..self.buckets).any(is_asked) {
                continue;
            }
            for phase in slice * self.windows..(slice + 1) * self.windows {
                let of_phase = sequence.echo().phase(phase);
                let places = of_phase.start..of_phase.start + of_phase.len();
                draws.clear();
                sequence.fill(epoch, places, &mut draws);
                numbers.clear();
                numbers.extend(draws.iter().map(|draw: &Draw| draw.id));
                buckets.resize(numbers.len(), 0);
                bucket_of.gather(&numbers, &mut buckets);
                for (&draw, &bucket) in draws.iter().zip(&buckets) {
                    if first[bucket as usize] <= slice {
                        queues[bucket as usize].push(draw);
                    }
                }
            }
        }
        for (queue, &waiting) in queues.iter_mut().zip(&waiting) {
            queue.drain(..queue.len() - waiting as usize);
        }
        queues
    }

    pub(super) fn most_bytes(buckets: usize) -> u64 {
        4 * COUNTERS.max(LEAST_SLICES * buckets as u64)
    }
}
