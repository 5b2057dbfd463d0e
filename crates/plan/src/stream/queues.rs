//! Batches of one bucket each, of any sequence.
//!
//! As in a [`BucketPlan`](crate::BucketPlan), whose batches these are where both can be made: appearances stream into
//! one queue a bucket, a full queue is a batch, and what is left at the end of the epoch comes in smaller batches in
//! an order of its own. All appearances of an example have its length and so its queue, and stay in their order.
//!
//! How many appearances a bucket has may differ from epoch to epoch, where examples are drawn from a mixture or some
//! of them once more than others; boundaries are made once, for what a mean epoch draws.

use std::sync::{Mutex, PoisonError};

use super::batch::{Draw, StreamBatch};
use super::sequence::{Sequence, Source};
use super::slices::Slices;
use crate::buckets::{BucketLayout, BucketPolicy, LengthHistogram, Table};
use crate::error::PlanError;
use pelton_key::KeyedRng;
use pelton_key::{GOLDEN_GAMMA, Stage, key, mix};

/// Appearances looked up at a time.
const RUN: u64 = 1024;

const CURSORS: usize = 2;
const EPOCHS: usize = 3;

/// Batches of one bucket each.
#[derive(Debug)]
pub(super) struct Queues {
    sequence: Sequence,
    layout: BucketLayout,
    /// The bucket of each example, by its number.
    bucket_of: Table,
    seed: u64,
    kept: Mutex<Kept>,
}

/// What was found out; most recently used first.
#[derive(Debug, Default)]
struct Kept {
    counts: Vec<Counts>,
    cursors: Vec<Cursor>,
}

/// Appearances of each bucket in an epoch.
#[derive(Debug)]
struct Counts {
    epoch: u64,
    totals: Vec<u64>,
    /// By slices, where they were counted.
    slices: Option<Slices>,
}

/// The queues of an epoch after some of its appearances.
#[derive(Debug)]
struct Cursor {
    epoch: u64,
    /// Batches emitted.
    step: u64,
    /// Where the run ends in the epoch.
    place: u64,
    run: Vec<Draw>,
    buckets: Vec<u32>,
    /// Appearances of the run that have been put into queues.
    taken: usize,
    queues: Vec<Vec<Draw>>,
}

impl Queues {
    /// Over a sequence of the examples `0..kept`.
    pub(super) fn new(
        sequence: Sequence,
        policy: &BucketPolicy,
        batch: u64,
        kept: u64,
        seed: u64,
        length_of: impl Fn(u64) -> u32,
    ) -> Result<Queues, PlanError> {
        let histogram = match sequence.source() {
            Source::Plan(_) => LengthHistogram::new((0..kept).map(&length_of)),
            Source::Mixture(mixture) => {
                LengthHistogram::weighted(mixture.expected().map(|(numbers, draws)| {
                    let len = (numbers.end - numbers.start) as f64;
                    (LengthHistogram::new(numbers.map(&length_of)), draws / len)
                }))
            }
        };
        let layout = BucketLayout::new(policy, batch, &histogram)?;
        let greatest = layout.buckets().len().saturating_sub(1) as u32;
        let longest = histogram.longest();
        // Examples that are in no part of a mixture may be longer, and are never looked up.
        let bucket_of = Table::new(kept, greatest, |number| {
            layout.bucket_of(length_of(number).min(longest)) as u32
        });
        Ok(Queues {
            sequence,
            layout,
            bucket_of,
            seed,
            kept: Mutex::default(),
        })
    }

    pub(super) fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    pub(super) fn layout(&self) -> &BucketLayout {
        &self.layout
    }

    /// Batches of an epoch.
    pub(super) fn steps(&self, epoch: u64) -> u64 {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let totals = &self.counts(&mut kept, epoch).totals;
        let buckets = self.layout.buckets().iter().zip(totals);
        buckets
            .map(|(bucket, count)| count.div_ceil(bucket.capacity))
            .sum()
    }

    /// The most draws of a batch.
    pub(super) fn largest_batch(&self) -> u64 {
        let capacities = self.layout.buckets().iter().map(|bucket| bucket.capacity);
        let most = capacities.max().unwrap_or(0);
        most.min(self.sequence.appearances())
    }

    /// The most appearances that wait in queues.
    pub(super) fn most_waiting(&self) -> u64 {
        let waiting = self
            .layout
            .buckets()
            .iter()
            .map(|bucket| bucket.capacity - 1);
        let most = waiting.fold(0, u64::saturating_add);
        most.min(self.sequence.appearances())
    }

    /// Puts the draws of a step into `out`. Asserts that the epoch has it.
    pub(super) fn fill(&self, epoch: u64, step: u64, out: &mut StreamBatch) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let totals = self.counts(&mut kept, epoch).totals.clone();
        let steps = |of: fn(u64, u64) -> u64| -> u64 {
            let buckets = self.layout.buckets().iter().zip(&totals);
            buckets
                .map(|(bucket, &total)| of(total, bucket.capacity))
                .sum()
        };
        let (full, all) = (
            steps(|total, capacity| total / capacity),
            steps(u64::div_ceil),
        );
        let best = (0..kept.cursors.len())
            .filter(|&index| kept.cursors[index].epoch == epoch)
            .filter(|&index| kept.cursors[index].step <= step)
            .max_by_key(|&index| kept.cursors[index].step);
        let known = best.map(|index| kept.cursors[index].step).unwrap_or(0);
        let is_far = step - known > all / 4;
        let is_counted = self.sequence.source().is_invertible()
            && kept.counts[0].slices.is_some()
            && step - known > all / 64;
        let mut cursor = if Slices::pay(&self.sequence) && (is_far || is_counted) {
            kept.cursors.truncate(CURSORS - 1);
            self.start_near(&mut kept.counts[0], step)
        } else if let Some(index) = best {
            kept.cursors.remove(index)
        } else {
            kept.cursors.truncate(CURSORS - 1);
            self.start(epoch)
        };
        let bucket = if step < full {
            let bucket = self.walk(&mut cursor, step + 1, &mut out.draws);
            bucket.expect("the epoch has the step")
        } else {
            // Walking to a remainder leaves the queues as they are, for the other remainders.
            self.walk(&mut cursor, full + 1, &mut out.draws);
            let bucket = self.remainder(epoch, step - full, &totals);
            out.draws.extend_from_slice(&cursor.queues[bucket]);
            bucket
        };
        kept.cursors.insert(0, cursor);
        let shape = &self.layout.buckets()[bucket];
        out.bucket = Some(bucket as u32);
        out.padded_length = (!shape.alone).then_some(shape.longest);
    }

    fn start(&self, epoch: u64) -> Cursor {
        Cursor {
            epoch,
            step: 0,
            place: 0,
            run: Vec::with_capacity(RUN as usize),
            buckets: Vec::with_capacity(RUN as usize),
            taken: 0,
            queues: vec![Vec::new(); self.layout.buckets().len()],
        }
    }

    /// Puts appearances into queues until `steps` batches have been emitted or the epoch has no more, appends the
    /// last of these batches to `draws` and returns its bucket.
    fn walk(&self, cursor: &mut Cursor, steps: u64, draws: &mut Vec<Draw>) -> Option<usize> {
        let buckets = self.layout.buckets();
        while cursor.step < steps && self.has_run(cursor) {
            let run = cursor.run.iter().zip(&cursor.buckets).skip(cursor.taken);
            for (&draw, &bucket) in run {
                let bucket = bucket as usize;
                let queue = &mut cursor.queues[bucket];
                queue.push(draw);
                cursor.taken += 1;
                if queue.len() as u64 == buckets[bucket].capacity {
                    cursor.step += 1;
                    if cursor.step == steps {
                        draws.append(queue);
                        return Some(bucket);
                    }
                    queue.clear();
                }
            }
        }
        None
    }

    /// Whether the cursor has appearances that are in no queue yet; takes the next ones of the epoch if not.
    fn has_run(&self, cursor: &mut Cursor) -> bool {
        if cursor.taken < cursor.run.len() {
            return true;
        }
        let end = self.sequence.appearances().min(cursor.place + RUN);
        cursor.run.clear();
        cursor.taken = 0;
        self.sequence
            .fill(cursor.epoch, cursor.place..end, &mut cursor.run);
        self.look_up(&cursor.run, &mut cursor.buckets);
        cursor.place = end;
        !cursor.run.is_empty()
    }

    fn look_up(&self, run: &[Draw], buckets: &mut Vec<u32>) {
        let mut numbers = [0; RUN as usize];
        for (number, draw) in numbers.iter_mut().zip(run) {
            *number = draw.id;
        }
        buckets.resize(run.len(), 0);
        self.bucket_of.gather(&numbers[..run.len()], buckets);
    }

    /// The bucket whose remainder is emitted as number `place` of an epoch.
    fn remainder(&self, epoch: u64, place: u64, totals: &[u64]) -> usize {
        let buckets = self.layout.buckets().iter().zip(totals);
        let with_remainder = (0_u32..)
            .zip(buckets)
            .filter(|(_, (bucket, total))| *total % bucket.capacity > 0);
        let mut order: Vec<u32> = with_remainder.map(|(number, _)| number).collect();
        if !self.sequence.source().is_same_every_epoch() {
            KeyedRng::new(key(self.seed, epoch, Stage::Remainders)).shuffle(&mut order);
        }
        order[place as usize] as usize
    }

    /// Appearances of each bucket in an epoch.
    fn counts<'a>(&self, kept: &'a mut Kept, epoch: u64) -> &'a mut Counts {
        let known = kept.counts.iter().position(|counts| counts.epoch == epoch);
        let counts = match known {
            Some(place) => kept.counts.remove(place),
            None => self.count(epoch),
        };
        kept.counts.truncate(EPOCHS - 1);
        kept.counts.insert(0, counts);
        &mut kept.counts[0]
    }

    fn count(&self, epoch: u64) -> Counts {
        let echo = self.sequence.echo();
        let buckets = self.layout.buckets();
        let mut slices = None;
        let totals =
            if let (Source::Plan(_), Some(times)) = (self.sequence.source(), echo.echo().whole()) {
                let totals = buckets.iter().map(|bucket| bucket.sentences * times);
                totals.collect()
            } else if Slices::pay(&self.sequence) {
                slices.insert(self.slices(epoch)).totals()
            } else {
                self.count_in_order(epoch)
            };
        Counts {
            epoch,
            totals,
            slices,
        }
    }

    fn slices(&self, epoch: u64) -> Slices {
        Slices::new(&self.sequence, &self.layout, &self.bucket_of, epoch)
    }

    fn count_in_order(&self, epoch: u64) -> Vec<u64> {
        let mut totals = vec![0; self.layout.buckets().len()];
        let (mut numbers, mut of_run) = ([0; RUN as usize], [0; RUN as usize]);
        let examples = self.sequence.source().examples();
        for first in (0..examples).step_by(RUN as usize) {
            let len = (examples - first).min(RUN) as usize;
            self.sequence
                .source()
                .fill(epoch, first, &mut numbers[..len]);
            self.bucket_of.gather(&numbers[..len], &mut of_run[..len]);
            for (position, &bucket) in (first..).zip(&of_run[..len]) {
                totals[bucket as usize] += u64::from(self.sequence.echo().times_of(position));
            }
        }
        totals
    }

    /// A cursor from which `step` is not far.
    fn start_near(&self, counts: &mut Counts, step: u64) -> Cursor {
        let epoch = counts.epoch;
        let slices = counts.slices.get_or_insert_with(|| self.slices(epoch));
        let standing = slices.standing(&self.sequence, &self.layout, &self.bucket_of, epoch, step);
        Cursor {
            step: standing.step,
            place: standing.place,
            queues: standing.queues,
            ..self.start(epoch)
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let draw = size_of::<Draw>() as u64;
        let queues = draw * self.most_waiting() + (draw + 4) * RUN;
        let buckets = self.layout.buckets().len();
        let counts = EPOCHS as u64 * (8 * buckets as u64 + Slices::most_bytes(buckets));
        self.sequence.memory_bytes() + self.bucket_of.bytes() + counts + CURSORS as u64 * queues
    }

    pub(super) fn fingerprint(&self) -> u64 {
        let capacities = self.layout.buckets().iter().map(|bucket| bucket.capacity);
        [self.bucket_of.digest()]
            .into_iter()
            .chain(capacities)
            .fold(2, |state, word| {
                mix(state ^ word).wrapping_mul(GOLDEN_GAMMA).rotate_left(7)
            })
    }
}
