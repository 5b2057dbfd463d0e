//! Where the queues of an epoch stand at a step, without putting every id through them.
//!
//! Replaying the ids in order looks each one up in the table of bucket numbers, at random: nearly all of
//! its time is spent waiting for memory. Orders that can be inverted are counted the other way
//! round: ids in turn, whose buckets lie side by side, each at the position that the inverse gives.
//! Positions are counted by slices of the epoch and by bucket; sums over slices then tell how many batches
//! have been emitted at the end of each, and what each queue holds there is the last members of its
//! bucket, which are found by walking slices backwards. Members of rare buckets, for which that
//! could be far, are noted while counting. 100 million ids take 1.0 s on one core, a replay 2.6 s.

use super::layout::{Bucket, BucketLayout};
use super::table::Table;
use crate::plan::Plan;

/// Fewer ids are replayed faster; the members of a slice of more would not fit its counter.
const RECORDS: std::ops::Range<u64> = 1 << 16..1 << 37;

/// Most counters, 4 bytes each: about what a cache holds.
const COUNTERS: u64 = 1 << 20;

/// Slices of an epoch.
const LEAST_SLICES: u64 = 64;
const MOST_SLICES: u64 = 1024;

/// One in so many sentences is noted with its position because its bucket is rare.
const NOTED: u64 = 32;

/// Ids looked at together.
const RUN: usize = 1024;

/// The queues after the ids before a position.
pub(super) struct Standing {
    pub(super) position: u64,
    /// Batches emitted.
    pub(super) step: u64,
    /// For each bucket the ids in its queue, in the order they came.
    pub(super) queues: Vec<Vec<u64>>,
}

/// Whether counting is possible, and faster than replaying up to `step`.
pub(super) fn pays(plan: &Plan, step: u64, steps: u64) -> bool {
    plan.is_invertible() && RECORDS.contains(&plan.records()) && step >= steps / 5 * 2
}

/// The queues at the end of a slice at which at most `step` batches have been emitted, as late as
/// possible.
pub(super) fn standing(
    plan: &Plan,
    layout: &BucketLayout,
    bucket_of: &Table,
    epoch: u64,
    step: u64,
) -> Standing {
    let counts = Counts::new(plan, layout, bucket_of, epoch);
    let (slice, emitted, members) = counts.last_before(layout, step);
    let position = (slice << counts.shift).min(plan.records());
    let waiting = layout.buckets().iter().zip(&members);
    let waiting: Vec<u64> = waiting
        .map(|(bucket, members)| members % bucket.capacity)
        .collect();
    let mut queues = counts.noted_queues(position, &waiting);
    counts.walk_back(plan, bucket_of, epoch, slice, &waiting, &mut queues);
    Standing {
        position,
        step: emitted,
        queues,
    }
}

/// How the sentences of each bucket are spread over the slices of an epoch.
struct Counts {
    buckets: usize,
    /// Positions of a slice are those with the same value once so many bits are shifted out.
    shift: u32,
    /// By slice, then by bucket.
    members: Vec<u32>,
    is_rare: Vec<bool>,
    /// Positions, ids and buckets of sentences of rare buckets.
    noted: Vec<(u64, u64, u32)>,
}

impl Counts {
    fn new(plan: &Plan, layout: &BucketLayout, bucket_of: &Table, epoch: u64) -> Counts {
        let buckets = layout.buckets().len();
        let slices = (COUNTERS / buckets as u64).clamp(LEAST_SLICES, MOST_SLICES);
        let shift = plan.records().div_ceil(slices).next_power_of_two().ilog2();
        let slices = plan.records().div_ceil(1 << shift) as usize;
        let mut counts = Counts {
            buckets,
            shift,
            members: vec![0; slices * buckets],
            is_rare: rare(layout.buckets(), plan.records() / NOTED),
            noted: Vec::new(),
        };
        let (mut ids, mut numbers, mut positions) = ([0; RUN], [0; RUN], [0; RUN]);
        for first in (0..plan.records()).step_by(RUN) {
            let len = (plan.records() - first).min(RUN as u64) as usize;
            for (slot, id) in ids[..len].iter_mut().zip(first..) {
                *slot = id;
            }
            bucket_of.gather(&ids[..len], &mut numbers[..len]);
            plan.positions_of(epoch, first..first + len as u64, &mut positions[..len]);
            for (place, &position) in positions[..len].iter().enumerate() {
                let bucket = numbers[place];
                let slice = (position >> shift) as usize;
                counts.members[slice * buckets + bucket as usize] += 1;
                if counts.is_rare[bucket as usize] {
                    counts.noted.push((position, ids[place], bucket));
                }
            }
        }
        counts.noted.sort_unstable();
        counts
    }

    fn of_slice(&self, slice: u64) -> &[u32] {
        &self.members[slice as usize * self.buckets..][..self.buckets]
    }

    /// The most slices whose end is not past `step` batches: how many, the batches emitted by then, and
    /// the members of each bucket.
    fn last_before(&self, layout: &BucketLayout, step: u64) -> (u64, u64, Vec<u64>) {
        let mut members = vec![0_u64; self.buckets];
        let mut emitted = 0;
        let slices = (self.members.len() / self.buckets) as u64;
        for slice in 0..slices {
            let more = self.of_slice(slice).iter();
            let after: Vec<u64> = members
                .iter()
                .zip(more)
                .map(|(n, &more)| n + u64::from(more))
                .collect();
            let full = layout.buckets().iter().zip(&after);
            let emitted_after = full
                .map(|(bucket, members)| members / bucket.capacity)
                .sum();
            if emitted_after > step {
                return (slice, emitted, members);
            }
            (members, emitted) = (after, emitted_after);
        }
        (slices, emitted, members)
    }

    /// The queues of rare buckets before a position; others are left empty.
    fn noted_queues(&self, position: u64, waiting: &[u64]) -> Vec<Vec<u64>> {
        let mut queues = vec![Vec::new(); self.buckets];
        let before = self.noted.partition_point(|noted| noted.0 < position);
        for &(_, id, bucket) in self.noted[..before].iter().rev() {
            let queue: &mut Vec<u64> = &mut queues[bucket as usize];
            if (queue.len() as u64) < waiting[bucket as usize] {
                queue.push(id);
            }
        }
        queues.iter_mut().for_each(|queue| queue.reverse());
        queues
    }

    /// Finds the last members before a slice of the buckets that are not rare.
    fn walk_back(
        &self,
        plan: &Plan,
        bucket_of: &Table,
        epoch: u64,
        slice: u64,
        waiting: &[u64],
        queues: &mut [Vec<u64>],
    ) {
        let mut missing: Vec<u64> = waiting.to_vec();
        let rare = missing
            .iter_mut()
            .zip(&self.is_rare)
            .filter(|(_, is_rare)| **is_rare);
        rare.for_each(|(missing, _)| *missing = 0);
        let (mut ids, mut numbers) = (Vec::new(), Vec::new());
        for slice in (0..slice).rev() {
            let has_some = |(missing, &members): (&u64, &u32)| *missing > 0 && members > 0;
            if !missing.iter().zip(self.of_slice(slice)).any(has_some) {
                continue;
            }
            let first = slice << self.shift;
            let len = (plan.records() - first).min(1 << self.shift) as usize;
            ids.resize(len, 0);
            numbers.resize(len, 0);
            plan.fill_ids(epoch, first, &mut ids);
            bucket_of.gather(&ids, &mut numbers);
            for (&id, &bucket) in ids.iter().zip(&numbers).rev() {
                let missing = &mut missing[bucket as usize];
                if *missing > 0 {
                    *missing -= 1;
                    queues[bucket as usize].push(id);
                }
            }
        }
        let found = queues
            .iter_mut()
            .zip(&self.is_rare)
            .filter(|(_, is_rare)| !**is_rare);
        found.for_each(|(queue, _)| queue.reverse());
    }
}

/// Which buckets are so small that all of them together have at most `most` sentences.
fn rare(buckets: &[Bucket], most: u64) -> Vec<bool> {
    let mut by_size: Vec<usize> = (0..buckets.len()).collect();
    by_size.sort_by_key(|&bucket| buckets[bucket].sentences);
    let mut is_rare = vec![false; buckets.len()];
    let mut noted = 0;
    for bucket in by_size {
        noted += buckets[bucket].sentences;
        if noted > most {
            break;
        }
        is_rare[bucket] = true;
    }
    is_rare
}
