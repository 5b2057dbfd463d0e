//! Batches of one bucket each.
//!
//! The appearances of an epoch stream, in their order, into one queue a bucket; a queue that holds a full batch is
//! emitted and emptied. After the last appearance the queues that are not empty are emitted as smaller batches, in a
//! random order of their own (in the order of lengths where every epoch is the same). All appearances of an example
//! have its length and so its queue, and stay in their order.
//!
//! How many appearances a bucket has may differ from epoch to epoch, where examples are drawn from a mixture or some
//! of them once more than others; boundaries are made once, for what a mean epoch draws.
//!
//! *Seeking.* What the queues hold at a step follows from all appearances before it, so that a step is sought by
//! replaying the epoch. If a hint says how full each queue was at a step, the waiting appearances are the last
//! ones of each bucket before that step: a walk backwards finds them. Rejected: batches numbered by a separate
//! permutation, with O(1) seeks, which needs the examples sorted by bucket (4 to 8 bytes each) and loses the
//! order below, so neighbours would no longer be read together in a `page` order.
//!
//! Memory: one or two bytes an example for its bucket, and the appearances that wait.

use pelton_key::{Digest, KeyedRng, Stage, key};

use crate::buckets::{BucketLayout, BucketPolicy, LengthHistogram, PairHistogram, Table};
use crate::error::PlanError;
use crate::hint::Standing;
use crate::sequence::{Appearances, Sequence};
use crate::step_batch::{Draw, StepBatch};

/// Appearances looked up at a time.
const RUN: u64 = 1024;
/// Most appearances looked up at a time on the way back.
const MOST_BACK: u64 = 1 << 20;

/// Batches of one bucket each.
#[derive(Debug)]
pub(crate) struct Bucketed {
    layout: BucketLayout,
    /// The bucket of each example, by its number.
    bucket_of: Table,
    /// Whether every epoch is the same.
    same: bool,
    /// Whether each example has two lengths.
    of_pairs: bool,
}

/// The batches of an epoch from a step on.
#[derive(Debug)]
pub(crate) struct BucketedWalk {
    epoch: u64,
    /// Batches emitted, while they were full.
    step: u64,
    at: Appearances,
    run: Vec<Draw>,
    buckets: Vec<u32>,
    /// Appearances of the run that have been put into queues.
    taken: usize,
    queues: Vec<Vec<Draw>>,
    /// The batch that was emitted last.
    full: Vec<Draw>,
    /// The buckets whose remainders come, the next one last, once there are no more appearances.
    remainders: Option<Vec<u32>>,
}

impl Bucketed {
    /// Over a sequence of the examples `0..kept`.
    pub(crate) fn new(
        sequence: &Sequence,
        policy: &BucketPolicy,
        batch: u64,
        kept: u64,
        same: bool,
        length_of: impl Fn(u64) -> u32,
        second_of: Option<&dyn Fn(u64) -> u32>,
    ) -> Result<Bucketed, PlanError> {
        let pair_of = |number| [length_of(number), second_of.map_or(0, |of| of(number))];
        let layout = if second_of.is_none() {
            let histogram = match sequence.examples.expected() {
                None => LengthHistogram::new((0..kept).map(&length_of)),
                Some(of) => LengthHistogram::expected(of.map(|(n, draws)| (length_of(n), draws))),
            };
            BucketLayout::new(policy, batch, &histogram)?
        } else {
            let histogram = match sequence.examples.expected() {
                None => PairHistogram::new((0..kept).map(pair_of)),
                Some(of) => PairHistogram::expected(of.map(|(n, draws)| (pair_of(n), draws))),
            };
            BucketLayout::of_pairs(policy, batch, &histogram)?
        };
        let greatest = layout.buckets().len().saturating_sub(1) as u32;
        let bucket_of = Table::new(kept, greatest, |number| {
            let bucket = layout.bucket_of_pair(pair_of(number));
            // Examples that are never drawn may be longer, and are never looked up.
            bucket.map_or(greatest, |bucket| bucket as u32)
        });
        Ok(Bucketed {
            layout,
            bucket_of,
            same,
            of_pairs: second_of.is_some(),
        })
    }

    pub(crate) fn layout(&self) -> &BucketLayout {
        &self.layout
    }

    /// Batches of an epoch. A pass over it where examples are drawn, or some of them come once more than others.
    pub(crate) fn steps(&self, sequence: &Sequence, epoch: u64) -> u64 {
        let whole = sequence.echo.echo().whole();
        let drawn = sequence.examples.expected().is_some();
        let totals: Vec<u64> = match (drawn, whole) {
            (false, Some(times)) => {
                let buckets = self.layout.buckets().iter();
                buckets.map(|bucket| bucket.sentences * times).collect()
            }
            _ => self.count(sequence, epoch),
        };
        let buckets = self.layout.buckets().iter().zip(totals);
        buckets
            .map(|(bucket, total)| total.div_ceil(bucket.capacity))
            .sum()
    }

    /// Appearances of each bucket in an epoch.
    fn count(&self, sequence: &Sequence, epoch: u64) -> Vec<u64> {
        let mut totals = vec![0; self.layout.buckets().len()];
        let mut ids = sequence.examples.walk(epoch, 0);
        let (mut numbers, mut of_run) = ([0; RUN as usize], [0; RUN as usize]);
        for first in (0..sequence.examples.len).step_by(RUN as usize) {
            let len = (sequence.examples.len - first).min(RUN) as usize;
            ids.fill(&mut numbers[..len]);
            self.bucket_of.gather(&numbers[..len], &mut of_run[..len]);
            for (position, &bucket) in (first..).zip(&of_run[..len]) {
                totals[bucket as usize] += u64::from(sequence.echo.times_of(position));
            }
        }
        totals
    }

    /// The most draws of a batch.
    pub(crate) fn largest_batch(&self, sequence: &Sequence) -> u64 {
        let capacities = self.layout.buckets().iter().map(|bucket| bucket.capacity);
        capacities.max().unwrap_or(0).min(sequence.len())
    }

    /// The most appearances that wait in queues.
    pub(crate) fn most_waiting(&self, sequence: &Sequence) -> u64 {
        let buckets = self.layout.buckets().iter();
        let waiting = buckets.map(|bucket| bucket.capacity - 1);
        waiting.fold(0, u64::saturating_add).min(sequence.len())
    }

    pub(crate) fn memory_bytes(&self, sequence: &Sequence) -> u64 {
        let draw = size_of::<Draw>() as u64;
        self.bucket_of.bytes() + draw * self.most_waiting(sequence) + (draw + 4) * RUN
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        let capacities = self.layout.buckets().iter().map(|bucket| bucket.capacity);
        Digest::new(2)
            .word(self.bucket_of.digest())
            .words(capacities)
            .value()
    }

    /// From a step on; `None` where the epoch ends before it.
    pub(crate) fn walk(
        &self,
        sequence: &Sequence,
        epoch: u64,
        step: u64,
        hint: Option<&Standing>,
    ) -> Option<BucketedWalk> {
        let standing = hint.and_then(|hint| self.standing(sequence, epoch, hint));
        let mut walk = standing.unwrap_or_else(|| BucketedWalk {
            epoch,
            step: 0,
            at: sequence.walk(epoch, 0),
            run: Vec::with_capacity(RUN as usize),
            buckets: Vec::with_capacity(RUN as usize),
            taken: 0,
            queues: vec![Vec::new(); self.layout.buckets().len()],
            full: Vec::new(),
            remainders: None,
        });
        for _ in walk.step..step {
            walk.next_bucket(self, sequence)?;
        }
        walk.has_more(sequence).then_some(walk)
    }

    /// The walk at the position of a hint; `None` for a hint that cannot be.
    fn standing(&self, sequence: &Sequence, epoch: u64, hint: &Standing) -> Option<BucketedWalk> {
        let buckets = self.layout.buckets();
        let fits = |(count, capacity): (&u64, u64)| *count < capacity;
        let capacities = buckets.iter().map(|bucket| bucket.capacity);
        let is_possible = hint.counts.len() == buckets.len()
            && hint.place <= sequence.len()
            && hint.counts.iter().zip(capacities).all(fits);
        if !is_possible {
            return None;
        }
        let mut missing = hint.counts.clone();
        let mut left: u64 = missing.iter().sum();
        let mut queues = vec![Vec::new(); buckets.len()];
        let mut at = sequence.walk(epoch, hint.place);
        let (mut run, mut of_run) = (Vec::new(), Vec::new());
        let (mut end, mut len) = (hint.place, 4 * RUN);
        // Each stretch is longer than the one after it, since entering one may cost a pass over units.
        while left > 0 && end > 0 {
            let start = end.saturating_sub(len);
            run.clear();
            at.seek(sequence, start);
            at.read(sequence, end - start, &mut run);
            self.look_up(&run, &mut of_run);
            for (draw, &bucket) in run.iter().zip(&of_run).rev() {
                let missing = &mut missing[bucket as usize];
                if *missing > 0 {
                    *missing -= 1;
                    left -= 1;
                    queues[bucket as usize].push(*draw);
                }
            }
            (end, len) = (start, (2 * len).min(MOST_BACK));
        }
        if left > 0 {
            return None;
        }
        queues.iter_mut().for_each(|queue| queue.reverse());
        at.seek(sequence, hint.place);
        run.clear();
        Some(BucketedWalk {
            epoch,
            step: hint.step,
            at,
            run,
            buckets: of_run,
            taken: 0,
            queues,
            full: Vec::new(),
            remainders: None,
        })
    }

    fn look_up(&self, run: &[Draw], buckets: &mut Vec<u32>) {
        let mut numbers = [0; RUN as usize];
        buckets.resize(run.len(), 0);
        for (run, buckets) in run
            .chunks(numbers.len())
            .zip(buckets.chunks_mut(RUN as usize))
        {
            for (number, draw) in numbers.iter_mut().zip(run) {
                *number = draw.id;
            }
            self.bucket_of.gather(&numbers[..run.len()], buckets);
        }
    }
}

impl BucketedWalk {
    /// Puts the next batch into `out`; false after the last.
    pub(crate) fn next(
        &mut self,
        group: &Bucketed,
        sequence: &Sequence,
        out: &mut StepBatch,
    ) -> bool {
        let Some(bucket) = self.next_bucket(group, sequence) else {
            return false;
        };
        out.extend(&self.full);
        let shape = &group.layout.buckets()[bucket];
        out.bucket = Some(bucket as u32);
        out.padded_length = (!shape.alone).then_some(shape.longest);
        out.second_length = (group.of_pairs && !shape.alone).then_some(shape.second);
        true
    }

    pub(crate) fn has_more(&self, sequence: &Sequence) -> bool {
        self.place() < sequence.len()
            || match &self.remainders {
                Some(remainders) => !remainders.is_empty(),
                None => self.queues.iter().any(|queue| !queue.is_empty()),
            }
    }

    /// The position of the walk, while batches are full.
    pub(crate) fn standing(&self) -> Option<Standing> {
        let counts = self.queues.iter().map(|queue| queue.len() as u64);
        self.remainders.is_none().then(|| Standing {
            step: self.step,
            place: self.place(),
            counts: counts.collect(),
        })
    }

    /// The place of the next appearance that goes into a queue.
    fn place(&self) -> u64 {
        self.at.place() - (self.run.len() - self.taken) as u64
    }

    /// Takes the next batch out of its queue, and returns its bucket.
    fn next_bucket(&mut self, group: &Bucketed, sequence: &Sequence) -> Option<usize> {
        self.full.clear();
        let capacities = group.layout.buckets();
        while self.has_run(group, sequence) {
            let run = self.run.iter().zip(&self.buckets).skip(self.taken);
            for (&draw, &bucket) in run {
                let queue = &mut self.queues[bucket as usize];
                queue.push(draw);
                self.taken += 1;
                if queue.len() as u64 == capacities[bucket as usize].capacity {
                    std::mem::swap(queue, &mut self.full);
                    self.step += 1;
                    return Some(bucket as usize);
                }
            }
        }
        let (queues, epoch) = (&self.queues, self.epoch);
        let remainders = self.remainders.get_or_insert_with(|| {
            let waiting = (0_u32..).zip(queues).filter(|(_, queue)| !queue.is_empty());
            let mut order: Vec<u32> = waiting.map(|(bucket, _)| bucket).collect();
            if !group.same {
                let key = key(sequence.examples.seed, epoch, Stage::Remainders);
                KeyedRng::new(key).shuffle(&mut order);
            }
            order.reverse();
            order
        });
        let bucket = remainders.pop()? as usize;
        std::mem::swap(&mut self.queues[bucket], &mut self.full);
        Some(bucket)
    }

    /// Whether there are appearances that are in no queue yet; takes the next ones of the epoch if not.
    fn has_run(&mut self, group: &Bucketed, sequence: &Sequence) -> bool {
        if self.taken < self.run.len() {
            return true;
        }
        let count = (sequence.len() - self.at.place()).min(RUN);
        self.run.clear();
        self.taken = 0;
        self.at.read(sequence, count, &mut self.run);
        group.look_up(&self.run, &mut self.buckets);
        count > 0
    }
}
