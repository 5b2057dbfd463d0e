//! The part of every global batch that one rank takes.

use std::fmt;
use std::sync::Arc;

use pelton_plan::{assign_slots, local_slots};

/// Which rank holds a record in an epoch: (epoch, id) → rank, or any number that is no rank where none
/// does. Must say the same on all ranks.
pub type Holder = Arc<dyn Fn(u64, u64) -> u32 + Send + Sync>;

/// Which slots of each global batch a feed yields. The global batches are the same for any number of
/// ranks; over all ranks every slot is taken exactly once.
#[derive(Clone)]
pub struct Share {
    rank: u32,
    world_size: u32,
    holder: Option<Holder>,
}

impl Share {
    /// The slots of `rank`, a run of neighbours: near-equal shares in the order of the ranks.
    ///
    /// Panics unless `rank < world_size`.
    pub fn of(rank: u32, world_size: u32) -> Share {
        assert!(rank < world_size, "rank {rank} of {world_size}");
        Share {
            rank,
            world_size,
            holder: None,
        }
    }

    /// The same number of slots, but as far as they go those whose records this rank holds
    /// ([`assign_slots`]), in the order of the global batch.
    pub fn near(self, holder: Holder) -> Share {
        Share {
            holder: Some(holder),
            ..self
        }
    }

    /// Ranks there are.
    pub fn world_size(&self) -> u32 {
        self.world_size
    }

    /// Most records that this rank takes of a batch of `batch_len`.
    pub fn most_of(&self, batch_len: u64) -> u64 {
        batch_len.div_ceil(u64::from(self.world_size))
    }

    /// The part of an epoch's records that this rank takes.
    pub(crate) fn fraction(&self) -> f64 {
        1.0 / f64::from(self.world_size)
    }

    /// Leaves of the global batch `ids[start..]` this rank's slots, in their order.
    pub(crate) fn retain(&self, epoch: u64, ids: &mut Vec<u64>, start: usize) {
        let Some(holder) = &self.holder else {
            let slots = local_slots((ids.len() - start) as u64, self.rank, self.world_size);
            ids.truncate(start + slots.end as usize);
            ids.drain(start..start + slots.start as usize);
            return;
        };
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
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let near = if self.holder.is_some() { ", near" } else { "" };
        write!(f, "Share({} of {}{near})", self.rank, self.world_size)
    }
}
