//! The part of every global batch that one rank takes.

use pelton_plan::local_slots;

/// Which slots of each global batch a feed yields. The global batches are the same for any number of
/// ranks; over all ranks every slot is taken exactly once.
#[derive(Clone, Debug)]
pub struct Share {
    rank: u32,
    world_size: u32,
}

impl Share {
    /// The slots of `rank`, a run of neighbours: near-equal shares in the order of the ranks.
    ///
    /// Panics unless `rank < world_size`.
    pub fn of(rank: u32, world_size: u32) -> Share {
        assert!(rank < world_size, "rank {rank} of {world_size}");
        Share { rank, world_size }
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
    pub(crate) fn retain(&self, ids: &mut Vec<u64>, start: usize) {
        let slots = local_slots((ids.len() - start) as u64, self.rank, self.world_size);
        ids.truncate(start + slots.end as usize);
        ids.drain(start..start + slots.start as usize);
    }
}
