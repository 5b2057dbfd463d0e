//! Where the queues of an epoch stand at a step, without putting every appearance through them.
//!
//! As for a plan (`buckets/seek.rs`), examples are taken by number, whose buckets lie side by side, and counted at the
//! positions that the inverse of the order gives: by slices of the epoch and by bucket. With an echo the appearances
//! up to a slice's end are those of all windows before it, but for the repeats of the last one, which are yet to
//! come; a slice is a number of whole windows. What each queue holds at the end of a slice is the last
//! appearances of its bucket, found by walking backwards over those slices that have some.

use super::batch::Draw;
use super::sequence::Sequence;
use crate::buckets::{BucketLayout, Table};

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
    /// Appearances of the examples of each slice, by slice, then by bucket.
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
        sequence.source().is_invertible() && APPEARANCES.contains(&sequence.appearances())
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
        let mut members = vec![0_u32; slices * buckets];
        let mut numbers_of = Vec::new();
        let whole = echo.echo().whole().map(|times| times as u32);
        sequence.source().by_number(epoch, |numbers, positions| {
            numbers_of.resize(numbers.len(), 0);
            bucket_of.gather(numbers, &mut numbers_of);
            for (&position, &bucket) in positions.iter().zip(&numbers_of) {
                let slice = (position / positions_a_slice) as usize;
                let times = whole.unwrap_or_else(|| echo.times_of(position));
                members[slice * buckets + bucket as usize] += times;
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
        self.before(self.len())
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
            let members = self.members_before(sequence, bucket_of, epoch, slice);
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
        let phase = low * self.windows;
        Standing {
            place: sequence.echo().phase(phase).start,
            step: emitted,
            queues: self.walk_back(sequence, bucket_of, epoch, phase, waiting.collect()),
        }
    }

    fn len(&self) -> u64 {
        (self.members.len() / self.buckets) as u64
    }

    fn of_slice(&self, slice: u64) -> &[u32] {
        &self.members[slice as usize * self.buckets..][..self.buckets]
    }

    /// Appearances of the examples of the slices before one, by bucket.
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

    /// Appearances before the first phase of a slice, by bucket: the repeats of the window before come later.
    fn members_before(
        &self,
        sequence: &Sequence,
        bucket_of: &Table,
        epoch: u64,
        slice: u64,
    ) -> Vec<u64> {
        let mut members = self.before(slice);
        let echo = sequence.echo();
        let Some(window) = (slice * self.windows).checked_sub(1) else {
            return members;
        };
        if echo.echo().is_none() {
            return members;
        }
        let positions = echo.window(window);
        let mut numbers = vec![0; (positions.end - positions.start) as usize];
        sequence.source().fill(epoch, positions.start, &mut numbers);
        let mut buckets = vec![0; numbers.len()];
        bucket_of.gather(&numbers, &mut buckets);
        for (position, bucket) in positions.zip(buckets) {
            members[bucket as usize] -= u64::from(echo.times_of(position)) - 1;
        }
        members
    }

    /// The last appearances of each bucket before a phase, as many as are waiting.
    fn walk_back(
        &self,
        sequence: &Sequence,
        bucket_of: &Table,
        epoch: u64,
        phase: u64,
        waiting: Vec<u64>,
    ) -> Vec<Vec<Draw>> {
        let mut missing = waiting;
        let mut queues = vec![Vec::new(); self.buckets];
        let (mut draws, mut numbers, mut buckets) = (Vec::new(), Vec::new(), Vec::new());
        for phase in (0..phase).rev() {
            let has_some = |window: u64, missing: &[u64]| {
                let of_slice = self.of_slice(window / self.windows).iter();
                let mut both = missing.iter().zip(of_slice);
                both.any(|(&missing, &members)| missing > 0 && members > 0)
            };
            if missing.iter().all(|&missing| missing == 0) {
                break;
            }
            // A phase has the fresh examples of its window and repeats of the one before.
            if !has_some(phase, &missing) && !has_some(phase.saturating_sub(1), &missing) {
                continue;
            }
            let of_phase = sequence.echo().phase(phase);
            draws.clear();
            sequence.fill(
                epoch,
                of_phase.start..of_phase.start + of_phase.len(),
                &mut draws,
            );
            numbers.clear();
            numbers.extend(draws.iter().map(|draw: &Draw| draw.id));
            buckets.resize(numbers.len(), 0);
            bucket_of.gather(&numbers, &mut buckets);
            for (&draw, &bucket) in draws.iter().zip(&buckets).rev() {
                let missing = &mut missing[bucket as usize];
                if *missing > 0 {
                    *missing -= 1;
                    queues[bucket as usize].push(draw);
                }
            }
        }
        queues
            .iter_mut()
            .for_each(|queue: &mut Vec<Draw>| queue.reverse());
        queues
    }

    pub(super) fn most_bytes(buckets: usize) -> u64 {
        4 * COUNTERS.max(LEAST_SLICES * buckets as u64)
    }
}
