//! The part of every global batch that one rank takes.

use std::fmt;
use std::sync::{Arc, Mutex};

use pelton_plan::{assign_slots, local_slots};

/// The rank that holds a record in an epoch: (epoch, id) → rank, or any other number if none does. Must be the same
/// on all ranks.
pub type Holder = Arc<dyn Fn(u64, u64) -> u32 + Send + Sync>;

/// The rank that owns a record: id → rank. It does not depend on the epoch, so a rank reads the same records in every
/// epoch and can cache them. Must be the same on all ranks. Cheapest to read are owners of runs of neighbours, long
/// next to a page of the device.
pub type Owner = Arc<dyn Fn(u64) -> u32 + Send + Sync>;

/// Standard deviations above the mean, as the limit of a rank's own records in a batch; one batch in 30 000 has a
/// little more.
const DEVIATIONS: f64 = 4.0;

/// The slots of each global batch that a feed yields. The global batches are the same for any number of ranks; over
/// all ranks every slot is taken exactly once.
#[derive(Clone)]
pub struct Share {
    rank: u32,
    world_size: u32,
    rule: Rule,
}

/// How slots are assigned.
#[derive(Clone)]
enum Rule {
    Even,
    Near(Holder),
    Owned(Owned),
}

#[derive(Clone)]
struct Owned {
    owner: Owner,
    /// The last count; a share nearly always belongs to one data set.
    counted: Arc<Mutex<Option<Counted>>>,
}

/// How the records of a data set are spread over their owners.
#[derive(Clone, Copy)]
struct Counted {
    records: u64,
    /// Records of this rank.
    own: u64,
    /// Records of the rank that owns most.
    most: u64,
}

impl Share {
    /// The slots of `rank`, a run of neighbours: near-equal shares in the order of the ranks.
    ///
    /// Panics unless `rank < world_size`.
    pub fn new(rank: u32, world_size: u32) -> Share {
        assert!(rank < world_size, "rank {rank} of {world_size}");
        Share {
            rank,
            world_size,
            rule: Rule::Even,
        }
    }

    /// The same number of slots, preferring those with records that this rank holds ([`assign_slots`]), in the order
    /// of the global batch.
    pub fn near(self, holder: Holder) -> Share {
        Share {
            rule: Rule::Near(holder),
            ..self
        }
    }

    /// Strictly the slots with records that this rank owns, in the order of the global batch: a rank never reads
    /// another's record. Over all ranks every record is taken once, provided that `owner` names a rank for each; one
    /// without a rank is taken by none. Shares are as uneven as chance makes them ([`Share::most_of`]), and may be
    /// empty. `owner` is called for every record once before the first batch, and once an epoch.
    pub fn owned(self, owner: Owner) -> Share {
        let counted = Arc::default();
        Share {
            rule: Rule::Owned(Owned { owner, counted }),
            ..self
        }
    }

    /// Ranks there are.
    pub fn world_size(&self) -> u32 {
        self.world_size
    }

    /// Most records that a rank, any of them, takes of a batch of `batch_len` of `records` records; memory is divided
    /// by it. The same number on all ranks.
    ///
    /// With owners the bound is not certain. A batch of a random order is a sample without replacement: of
    /// n records a rank that owns the part q of all takes n·q on average with a variance below
    /// n·q·(1 − q). This is four standard deviations more than that for the rank that owns most, and never
    /// more than the batch or than it owns. A batch that has even more is served whole and takes more memory
    /// accordingly. So is one of an order that reads runs of neighbours; there a feed assumes n over the number of
    /// ranks, so batches should be multiples of the runs that ranks own in turn.
    pub fn most_of(&self, batch_len: u64, records: u64) -> u64 {
        let Rule::Owned(owned) = &self.rule else {
            return batch_len.div_ceil(u64::from(self.world_size));
        };
        let most = self.counted(owned, records).most;
        let part = most as f64 / records.max(1) as f64;
        let mean = batch_len as f64 * part;
        let bound = mean + DEVIATIONS * (mean * (1.0 - part)).sqrt();
        (bound.ceil() as u64).min(batch_len).min(most)
    }

    /// The longest batch of `records` records in which no rank takes more than `rows`, by [`Share::most_of`].
    pub fn longest_batch(&self, rows: u64, records: u64) -> u64 {
        if !matches!(self.rule, Rule::Owned(_)) {
            return rows.saturating_mul(u64::from(self.world_size));
        }
        // The bound grows with the length, and never exceeds it.
        let (mut fits, mut least_over) = (rows, records.max(rows) + 1);
        while least_over - fits > 1 {
            let middle = fits + (least_over - fits) / 2;
            if self.most_of(middle, records) <= rows {
                fits = middle;
            } else {
                least_over = middle;
            }
        }
        fits
    }

    /// The most records of `records` that a rank owns, if slots go strictly to owners.
    pub(crate) fn most_owned(&self, records: u64) -> Option<u64> {
        match &self.rule {
            Rule::Owned(owned) => Some(self.counted(owned, records).most),
            _ => None,
        }
    }

    /// Records of `records` that this rank owns, if slots go strictly to owners.
    pub(crate) fn own(&self, records: u64) -> Option<u64> {
        match &self.rule {
            Rule::Owned(owned) => Some(self.counted(owned, records).own),
            _ => None,
        }
    }

    /// Whether this rank owns the record, if owners decide.
    #[inline]
    pub(crate) fn may_take(&self, id: u64) -> bool {
        match &self.rule {
            Rule::Owned(owned) => (owned.owner)(id) == self.rank,
            _ => true,
        }
    }

    /// The part that this rank takes of the records it may take.
    pub(crate) fn wanted_share(&self) -> f64 {
        match self.rule {
            Rule::Owned(_) => 1.0,
            _ => 1.0 / f64::from(self.world_size),
        }
    }

    /// Keeps this rank's slots of the global batch `ids[start..]`, in their order; if owners decide, keeps all, and
    /// the rank takes those that it [may](Share::may_take).
    pub(crate) fn retain(&self, epoch: u64, ids: &mut Vec<u64>, start: usize) {
        match &self.rule {
            Rule::Even => {
                let slots = local_slots((ids.len() - start) as u64, self.rank, self.world_size);
                ids.truncate(start + slots.end as usize);
                ids.drain(start..start + slots.start as usize);
            }
            Rule::Near(holder) => {
                let holders: Vec<u32> = ids[start..].iter().map(|&id| holder(epoch, id)).collect();
                let takers = assign_slots(&holders, self.world_size);
                let mut taken = start;
                for (slot, taker) in (start..).zip(takers) {
                    if taker == self.rank {
                        ids[taken] = ids[slot];
                        taken += 1;
                    }
                }
                ids.truncate(taken);
            }
            Rule::Owned(_) => {}
        }
    }

    /// Counts the records of every owner, unless that was done last.
    fn counted(&self, owned: &Owned, records: u64) -> Counted {
        let mut last = owned.counted.lock().expect("no holder of this lock panics");
        if let Some(counted) = last.filter(|counted| counted.records == records) {
            return counted;
        }
        let mut owns = vec![0u64; self.world_size as usize];
        for id in 0..records {
            if let Some(owns) = owns.get_mut((owned.owner)(id) as usize) {
                *owns += 1;
            }
        }
        let counted = Counted {
            records,
            own: owns[self.rank as usize],
            most: owns.into_iter().max().unwrap_or(0),
        };
        *last = Some(counted);
        counted
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = match self.rule {
            Rule::Even => "",
            Rule::Near(_) => ", near",
            Rule::Owned(_) => ", owned",
        };
        write!(f, "Share({} of {}{rule})", self.rank, self.world_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_plan::{Catalog, Order, Place, Plan, PlanSpec, StepBatch};

    fn striped(rank: u32, ranks: u32, stripe: u64) -> Share {
        let owner = move |id| (id / stripe % u64::from(ranks)) as u32;
        Share::new(rank, ranks).owned(Arc::new(owner))
    }

    #[test]
    fn no_batch_of_a_random_order_is_over_the_bound() {
        for (records, batch, ranks, stripe) in [
            (100_000, 5_000, 2, 1_000),
            (100_000, 333, 7, 640),
            (10_007, 10_007, 3, 100),
            (10_000, 7, 4, 1),
        ] {
            let spec = PlanSpec::new(Order::Full, batch, 5);
            let plan = Plan::new(&spec, Catalog::new(records)).unwrap();
            for rank in 0..ranks {
                let share = striped(rank, ranks, stripe);
                let most = share.most_of(batch, records);
                assert!(most <= batch && most as f64 >= batch as f64 / f64::from(ranks));
                let mut walk = plan.walk(Place::default(), None);
                let mut step = StepBatch::default();
                while walk.place().epoch == 0 && walk.next(&mut step) {
                    let own = step.ids.iter().filter(|&&id| share.may_take(id)).count();
                    assert!(own as u64 <= most, "{own} over {most}");
                }
            }
        }
    }

    #[test]
    fn the_bound_is_near_the_mean_and_the_same_on_all_ranks() {
        // 100 stripes over 3 ranks: rank 0 owns 34 of them.
        let bound = |rank| striped(rank, 3, 1_000).most_of(30_000, 100_000);
        assert_eq!((bound(0), bound(1)), (bound(2), bound(2)));
        let mean: f64 = 0.34 * 30_000.0;
        let deviation = (mean * 0.66).sqrt();
        assert_eq!(bound(0), (mean + DEVIATIONS * deviation).ceil() as u64);
        // All records, and no more.
        assert_eq!(striped(1, 3, 1_000).most_of(100_000, 100_000), 34_000);
        assert_eq!(striped(0, 1, 10).most_of(50, 100), 50);
        assert_eq!(striped(0, 4, 10).most_of(0, 100), 0);
        assert_eq!(striped(0, 4, 10).most_of(0, 0), 0);
    }

    #[test]
    fn the_longest_batch_is_the_last_within_the_bound() {
        for (ranks, records, rows) in [(2, 100_000, 9_000), (3, 1_000, 5), (4, 10, 40), (7, 3, 0)] {
            let share = striped(0, ranks, 10);
            let longest = share.longest_batch(rows, records);
            assert!(longest >= rows && share.most_of(longest, records) <= rows);
            let all = longest >= records;
            assert!(all || share.most_of(longest + 1, records) > rows, "{rows}");
        }
        assert_eq!(Share::new(1, 3).longest_batch(10, 100), 30);
    }
}
