//! A plan whose batches are of one bucket each.
//!
//! The ids of an epoch stream, in the order of the plan below, into one queue a bucket; a queue that
//! holds a full batch is emitted and emptied. After the last id the queues that are not empty are
//! emitted as smaller batches, in a random order of their own (in the order of lengths where every
//! epoch is the same). How many batches each bucket emits follows from its number of sentences, so
//! every epoch has the same number of steps.
//!
//! *Seeking.* What the queues hold at a step follows from all ids before it: one evaluation of the order
//! and one look into the table of bucket numbers an id, no I/O. An early step is sought by replaying
//! the ids, a later one by counting them (`seek`), where the order can be inverted; in 100 million ids that
//! takes about a second. Two cursors are kept, the reader's look-ahead and whatever trails it, so that this is paid
//! once when a run is resumed and never while it goes on. Rejected: queues saved at intervals, which
//! somebody must have walked the epoch to save and which a run's state would have to carry; and
//! batches numbered by a permutation of their own, sought in O(1), which needs the sentences sorted by
//! bucket (4 to 8 bytes each) and gives up the order below, so that neighbours would no longer be read
//! together in a `page` order.
//!
//! Memory: one or two bytes a sentence for its bucket, and the queues, 8 bytes a sentence waiting.

use std::sync::{Mutex, PoisonError};

use super::histogram::LengthHistogram;
use super::layout::BucketLayout;
use super::policy::BucketPolicy;
use super::seek;
use super::table::Table;
use crate::batching::Batching;
use crate::error::PlanError;
use crate::order::Order;
use crate::plan::Plan;
use pelton_key::KeyedRng;
use pelton_key::{GOLDEN_GAMMA, Stage, key, mix};

/// A plan whose batches are of one bucket each: a pure function of the plan below, the policy and the
/// lengths.
///
/// Shared between threads by reference; the cursors inside change speed, never results.
///
/// ```
/// use pelton_plan::{Batching, BucketPlan, Order, Plan};
///
/// let lengths = [3_u32, 9, 4, 8, 3, 9];
/// let plan = Plan::new(6, Order::Full, Batching::Examples(2), 7)?;
/// let buckets = BucketPlan::new(plan, &"static:5,10".parse()?, |id| lengths[id as usize])?;
/// let mut ids = Vec::new();
/// let bucket = buckets.batch_ids(3, 1, &mut ids); // epoch 3, step 1
/// let longest = buckets.layout().buckets()[bucket].longest; // to which the batch is padded
/// assert!(ids.iter().all(|&id| lengths[id as usize] <= longest));
/// # Ok::<(), pelton_plan::PlanError>(())
/// ```
#[derive(Debug)]
pub struct BucketPlan {
    plan: Plan,
    layout: BucketLayout,
    /// The bucket of each sentence.
    bucket_of: Table,
    /// A digest of `bucket_of`.
    digest: u64,
    /// Where the queue of each bucket begins among the slots of a cursor.
    queues: Vec<usize>,
    slots: usize,
    full_steps: u64,
    /// Buckets with a remainder, by length.
    remainders: Vec<u32>,
    /// Most recently used first.
    cursors: Mutex<Vec<Cursor>>,
}

const CURSORS: usize = 2;

/// Ids looked up at a time.
const RUN: usize = 1024;

/// The queues of an epoch after some of its ids.
#[derive(Debug, Clone)]
struct Cursor {
    epoch: u64,
    /// Batches emitted.
    step: u64,
    /// Where the run ends in the epoch.
    position: u64,
    /// Some ids with their buckets.
    run: Vec<u64>,
    buckets: Vec<u32>,
    /// Ids of the run that have been put into queues.
    taken: usize,
    slots: Vec<u64>,
    /// Sentences in each queue.
    waiting: Vec<usize>,
}

impl BucketPlan {
    /// Buckets over the sentences that `plan` numbers, `length_of` telling the length of each. It is
    /// called twice for every id; batches are the plan's, of a number of examples.
    pub fn new(
        plan: Plan,
        policy: &BucketPolicy,
        length_of: impl Fn(u64) -> u32,
    ) -> Result<BucketPlan, PlanError> {
        let batch = global_batch(&plan)?;
        let histogram = LengthHistogram::new((0..plan.records()).map(&length_of));
        let layout = BucketLayout::new(policy, batch, &histogram)?;
        let buckets = layout.buckets();
        let greatest = buckets.len().saturating_sub(1) as u32;
        let bucket_of = Table::new(plan.records(), greatest, |id| {
            layout.bucket_of(length_of(id)) as u32
        });
        let mut queues = Vec::with_capacity(buckets.len());
        let mut slots = 0;
        for bucket in buckets {
            queues.push(slots);
            slots += bucket.capacity.min(bucket.sentences) as usize;
        }
        let with_remainder = (0..)
            .zip(buckets)
            .filter(|(_, bucket)| bucket.remainder() > 0);
        Ok(BucketPlan {
            digest: bucket_of.digest(),
            bucket_of,
            queues,
            slots,
            full_steps: buckets.iter().map(|bucket| bucket.full_batches()).sum(),
            remainders: with_remainder.map(|(number, _)| number).collect(),
            cursors: Mutex::new(Vec::with_capacity(CURSORS)),
            plan,
            layout,
        })
    }

    /// The plan whose order the sentences come in.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The buckets and their figures.
    pub fn layout(&self) -> &BucketLayout {
        &self.layout
    }

    /// Batches an epoch has, the same in every epoch.
    pub fn steps(&self) -> u64 {
        self.layout.batches()
    }

    /// The exact randomness RL*: of `full` order as [`BucketLayout::rl_exact`] derives it, 0 where every
    /// epoch is the same; of other orders it is not known.
    pub fn rl_exact(&self) -> Option<f64> {
        match self.plan.order() {
            _ if self.plan.records() <= 1 => Some(1.0),
            Order::Full => Some(self.layout.rl_exact()),
            _ if self.plan.is_same_every_epoch() => Some(0.0),
            _ => None,
        }
    }

    /// Appends the ids of the global batch of a step, in the order they came, and returns the bucket
    /// it is of. A step after one asked for before costs the ids it takes; others replay the epoch.
    /// Asserts `step < steps`.
    pub fn batch_ids(&self, epoch: u64, step: u64, ids: &mut Vec<u64>) -> usize {
        assert!(
            step < self.steps(),
            "step {step} of {} an epoch",
            self.steps()
        );
        let mut cursors = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        let best = (0..cursors.len())
            .filter(|&index| cursors[index].epoch == epoch && cursors[index].step <= step)
            .max_by_key(|&index| cursors[index].step);
        let mut cursor = match best {
            Some(index) => cursors.remove(index),
            None => {
                cursors.truncate(CURSORS - 1);
                match seek::pays(&self.plan, step, self.steps()) {
                    true => self.start_near(epoch, step),
                    false => self.start(epoch),
                }
            }
        };
        // Walking to a remainder leaves the queues as they are, for the other remainders.
        let bucket = if step < self.full_steps {
            self.walk(&mut cursor, step + 1, ids)
        } else {
            self.walk(&mut cursor, self.full_steps + 1, ids);
            let bucket = self.remainder(epoch, step - self.full_steps);
            let waiting = &cursor.slots[self.queues[bucket]..][..cursor.waiting[bucket]];
            ids.extend_from_slice(waiting);
            bucket
        };
        cursors.insert(0, cursor);
        bucket
    }

    fn start(&self, epoch: u64) -> Cursor {
        Cursor {
            epoch,
            step: 0,
            position: 0,
            run: Vec::with_capacity(RUN),
            buckets: Vec::with_capacity(RUN),
            taken: 0,
            slots: vec![0; self.slots],
            waiting: vec![0; self.queues.len()],
        }
    }

    /// A cursor from which `step` is not far.
    fn start_near(&self, epoch: u64, step: u64) -> Cursor {
        let standing = seek::standing(&self.plan, &self.layout, &self.bucket_of, epoch, step);
        let mut cursor = self.start(epoch);
        cursor.step = standing.step;
        cursor.position = standing.position;
        for (bucket, queue) in standing.queues.iter().enumerate() {
            cursor.slots[self.queues[bucket]..][..queue.len()].copy_from_slice(queue);
            cursor.waiting[bucket] = queue.len();
        }
        cursor
    }

    /// Puts ids into queues until `steps` batches have been emitted or the epoch has no more, appends
    /// the last of these batches to `ids` and returns its bucket.
    fn walk(&self, cursor: &mut Cursor, steps: u64, ids: &mut Vec<u64>) -> usize {
        let buckets = self.layout.buckets();
        while cursor.step < steps && self.has_run(cursor) {
            let run = cursor.run.iter().zip(&cursor.buckets).skip(cursor.taken);
            for (&id, &bucket) in run {
                let bucket = bucket as usize;
                let queue = &mut cursor.slots[self.queues[bucket]..];
                let waiting = &mut cursor.waiting[bucket];
                queue[*waiting] = id;
                *waiting += 1;
                cursor.taken += 1;
                if *waiting as u64 == buckets[bucket].capacity {
                    let emitted = std::mem::take(waiting);
                    cursor.step += 1;
                    if cursor.step == steps {
                        ids.extend_from_slice(&queue[..emitted]);
                        return bucket;
                    }
                }
            }
        }
        0
    }

    /// Whether the cursor has ids that are in no queue yet; takes the next ones of the epoch if not.
    fn has_run(&self, cursor: &mut Cursor) -> bool {
        if cursor.taken < cursor.run.len() {
            return true;
        }
        let len = (self.plan.records() - cursor.position).min(RUN as u64) as usize;
        cursor.run.resize(len, 0);
        cursor.buckets.resize(len, 0);
        cursor.taken = 0;
        self.plan
            .fill_ids(cursor.epoch, cursor.position, &mut cursor.run);
        self.bucket_of.gather(&cursor.run, &mut cursor.buckets);
        cursor.position += len as u64;
        len > 0
    }

    /// The bucket whose remainder is emitted as number `place` of an epoch.
    fn remainder(&self, epoch: u64, place: u64) -> usize {
        let mut order = self.remainders.clone();
        if !self.plan.is_same_every_epoch() {
            KeyedRng::new(key(self.plan.seed(), epoch, Stage::Remainders)).shuffle(&mut order);
        }
        order[place as usize] as usize
    }

    /// Memory the plan may come to hold, beyond its own few hundred bytes.
    pub fn memory_bytes(&self) -> u64 {
        let queues = 8 * (self.slots + self.queues.len() + 2 * RUN) as u64;
        self.plan.memory_bytes() + self.bucket_of.bytes() + CURSORS as u64 * queues
    }

    /// A number that two plans share when they give the same batches by construction.
    pub fn fingerprint(&self) -> u64 {
        let capacities = self.layout.buckets().iter().map(|bucket| bucket.capacity);
        [self.plan.fingerprint(), self.digest]
            .into_iter()
            .chain(capacities)
            .fold(2, |state, word| {
                mix(state ^ word).wrapping_mul(GOLDEN_GAMMA).rotate_left(7)
            })
    }
}

/// The examples of a global batch.
pub(crate) fn global_batch(plan: &Plan) -> Result<u64, PlanError> {
    match plan.batching() {
        Batching::Examples(batch) => Ok(batch),
        batching => Err(PlanError::BucketBatching {
            batching: batching.to_string(),
        }),
    }
}
