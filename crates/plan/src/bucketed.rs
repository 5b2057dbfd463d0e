//! Batches of one bucket each.
//!
//! The appearances of an epoch stream, in their order, into one queue a bucket; a queue that holds the next batch of its
//! bucket is emitted and emptied. The number of appearances of a bucket in the epoch is known in advance, so its last
//! two batches can be equally large ([`Last`]) and are emitted when complete. All appearances of an example have its
//! length and so its queue, and stay in their order.
//!
//! The number of appearances in a bucket may differ from epoch to epoch if examples are drawn from a mixture, or if
//! some appear once more than others: a pass over the order counts them. Boundaries are computed once, for the draws
//! of a mean epoch.
//!
//! *Seeking.* The contents of the queues at a step follow from all appearances before it, so a step is found by
//! replaying the epoch. If a hint has the number of appearances of each bucket before a step, the waiting ones are
//! the last of each bucket before that step: a walk backwards finds them. Rejected: batches numbered by a separate
//! permutation, with O(1) seeks, which needs the examples sorted by bucket (4 to 8 bytes each) and loses the order
//! below, so neighbours would no longer be read together in a `page` order; queues of up to two batches, which need
//! no count and twice the memory.
//!
//! Memory: one or two bytes an example for its bucket, and the appearances that wait.

use std::sync::Arc;

use pelton_key::Digest;

use crate::batching::{Cuts, Last};
use crate::buckets::{BucketLayout, BucketPolicy, LengthHistogram, PairHistogram, Table};
use crate::error::PlanError;
use crate::hint::Standing;
use crate::sequence::{Appearances, Sequence};
use crate::step_batch::{Draw, StepBatch};

/// Appearances looked up at a time.
const RUN: u64 = 1024;
/// Most appearances looked up at a time when searching backwards.
const MOST_BACK: u64 = 1 << 20;

/// Batches of one bucket each.
#[derive(Debug)]
pub(crate) struct Bucketed {
    layout: BucketLayout,
    /// The bucket of each example, by its number.
    bucket_of: Table,
    last: Last,
    /// The cuts of each bucket's appearances, if they are the same in every epoch.
    cuts: Option<Arc<[Cuts]>>,
    /// Whether each example has two lengths.
    of_pairs: bool,
}

/// The batches of an epoch from a step on.
#[derive(Debug)]
pub(crate) struct BucketedWalk {
    /// Batches emitted.
    step: u64,
    /// How the appearances of each bucket are cut, and how many of its batches were emitted.
    cuts: Arc<[Cuts]>,
    emitted: Vec<u64>,
    at: Appearances,
    run: Vec<Draw>,
    buckets: Vec<u32>,
    /// Appearances of the run that have been put into queues.
    taken: usize,
    queues: Vec<Vec<Draw>>,
    /// The batch that was emitted last.
    full: Vec<Draw>,
}

impl Bucketed {
    /// Over a sequence of the examples `0..kept`.
    pub(crate) fn new(
        sequence: &Sequence,
        policy: &BucketPolicy,
        (batch, last): (u64, Last),
        kept: u64,
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
        let mut bucketed = Bucketed {
            layout,
            bucket_of,
            last,
            cuts: None,
            of_pairs: second_of.is_some(),
        };
        let drawn = sequence.examples.expected().is_some();
        if let (false, Some(times)) = (drawn, sequence.echo.echo().whole()) {
            let buckets = bucketed.layout.buckets().iter();
            let totals = buckets.map(|bucket| bucket.sentences * times).collect();
            bucketed.cuts = Some(bucketed.cuts_of(totals));
        }
        Ok(bucketed)
    }

    pub(crate) fn layout(&self) -> &BucketLayout {
        &self.layout
    }

    /// Batches of an epoch. A pass over it if examples are drawn, or if some appear once more than others.
    pub(crate) fn steps(&self, sequence: &Sequence, epoch: u64) -> u64 {
        self.cuts(sequence, epoch).iter().map(Cuts::steps).sum()
    }

    /// The fewest draws of a batch of an epoch; costs what [`steps`](Self::steps) does.
    pub(crate) fn smallest_batch(&self, sequence: &Sequence, epoch: u64) -> Option<u64> {
        let cuts = self.cuts(sequence, epoch);
        cuts.iter().filter_map(Cuts::shortest).min()
    }

    fn cuts(&self, sequence: &Sequence, epoch: u64) -> Arc<[Cuts]> {
        match &self.cuts {
            Some(cuts) => Arc::clone(cuts),
            None => self.cuts_of(self.count(sequence, epoch)),
        }
    }

    /// Of these many appearances of each bucket.
    fn cuts_of(&self, totals: Vec<u64>) -> Arc<[Cuts]> {
        let capacities = self.layout.buckets().iter().map(|bucket| bucket.capacity);
        let cuts = totals.into_iter().zip(capacities);
        cuts.map(|(total, capacity)| Cuts::runs(total, capacity, self.last))
            .collect()
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
        Digest::new("buckets")
            .words([self.bucket_of.digest(), self.last as u64])
            .words(capacities)
            .value()
    }

    /// From a step on; `None` if the epoch ends before it.
    pub(crate) fn walk(
        &self,
        sequence: &Sequence,
        epoch: u64,
        step: u64,
        hint: Option<&Standing>,
    ) -> Option<BucketedWalk> {
        let cuts = self.cuts(sequence, epoch);
        let standing = hint.and_then(|hint| self.standing(sequence, (epoch, &cuts), hint));
        let mut walk = standing.unwrap_or_else(|| BucketedWalk {
            step: 0,
            emitted: vec![0; cuts.len()],
            queues: vec![Vec::new(); cuts.len()],
            cuts,
            at: sequence.walk(epoch, 0),
            run: Vec::with_capacity(RUN as usize),
            buckets: Vec::with_capacity(RUN as usize),
            taken: 0,
            full: Vec::new(),
        });
        for _ in walk.step..step {
            walk.next_bucket(self, sequence)?;
        }
        walk.has_more(sequence).then_some(walk)
    }

    /// The walk at the position of a hint; `None` for an impossible hint.
    fn standing(
        &self,
        sequence: &Sequence,
        (epoch, cuts): (u64, &Arc<[Cuts]>),
        hint: &Standing,
    ) -> Option<BucketedWalk> {
        let came = hint.counts.iter().zip(&**cuts);
        let is_possible = hint.counts.len() == cuts.len()
            && hint.place <= sequence.len()
            && came.clone().all(|(&came, cuts)| came <= cuts.end());
        if !is_possible {
            return None;
        }
        let emitted: Vec<u64> = came.map(|(&came, cuts)| cuts.steps_before(came)).collect();
        let waiting = hint.counts.iter().zip(&**cuts).zip(&emitted);
        let mut missing: Vec<u64> = waiting
            .map(|((came, cuts), &emitted)| came - cuts.start(emitted))
            .collect();
        if emitted.iter().sum::<u64>() != hint.step {
            return None;
        }
        let mut left: u64 = missing.iter().sum();
        let mut queues = vec![Vec::new(); cuts.len()];
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
            step: hint.step,
            cuts: Arc::clone(cuts),
            emitted,
            at,
            run,
            buckets: of_run,
            taken: 0,
            queues,
            full: Vec::new(),
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

    /// The last appearance completes the last batch of its bucket.
    pub(crate) fn has_more(&self, sequence: &Sequence) -> bool {
        self.place() < sequence.len()
    }

    /// The position of the walk.
    pub(crate) fn standing(&self) -> Standing {
        let waiting = self.queues.iter().map(|queue| queue.len() as u64);
        let before = self.cuts.iter().zip(&self.emitted);
        let before = before.map(|(cuts, &emitted)| cuts.start(emitted));
        Standing {
            step: self.step,
            place: self.place(),
            counts: before
                .zip(waiting)
                .map(|(before, waiting)| before + waiting)
                .collect(),
        }
    }

    /// The position of the next appearance that enters a queue.
    fn place(&self) -> u64 {
        self.at.place() - (self.run.len() - self.taken) as u64
    }

    /// Takes the next batch out of its queue, and returns its bucket.
    fn next_bucket(&mut self, group: &Bucketed, sequence: &Sequence) -> Option<usize> {
        self.full.clear();
        while self.has_run(group, sequence) {
            let run = self.run.iter().zip(&self.buckets).skip(self.taken);
            for (&draw, &bucket) in run {
                let bucket = bucket as usize;
                let queue = &mut self.queues[bucket];
                queue.push(draw);
                self.taken += 1;
                if queue.len() as u64 == self.cuts[bucket].len(self.emitted[bucket]) {
                    std::mem::swap(queue, &mut self.full);
                    self.emitted[bucket] += 1;
                    self.step += 1;
                    return Some(bucket);
                }
            }
        }
        None
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
