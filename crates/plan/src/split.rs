//! Which slots of a global batch belong to which rank.

use std::ops::Range;

/// The slots of a global batch of `batch_len` examples that rank `rank` of `world_size` takes.
///
/// A contiguous split in shares that differ by at most one; over all ranks every slot occurs exactly
/// once, also when there are more ranks than examples (some shares are then empty). The global batch
/// never depends on the number of ranks, only this split does.
/// Asserts `rank < world_size`.
pub fn local_slots(batch_len: u64, rank: u32, world_size: u32) -> Range<u64> {
    assert!(rank < world_size, "rank {rank} of {world_size}");
    let edge = |rank: u32| near_equal_start(batch_len, u64::from(world_size), u64::from(rank));
    edge(rank)..edge(rank + 1)
}

/// First item of part `part` of `items` cut into `parts` near-equal runs: floor(part·items/parts).
pub(crate) fn near_equal_start(items: u64, parts: u64, part: u64) -> u64 {
    (u128::from(part) * u128::from(items) / u128::from(parts)) as u64
}

/// Which of `parts` near-equal runs of `items` holds `item`: the inverse of [`near_equal_start`].
///
/// floor(p·items/parts) ≤ item  ⇔  p·items < (item + 1)·parts, and the largest such p is returned.
pub(crate) fn near_equal_part(items: u64, parts: u64, item: u64) -> u64 {
    (((u128::from(item) + 1) * u128::from(parts) - 1) / u128::from(items)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_belongs_to_exactly_one_rank() {
        for batch_len in 0..=70 {
            for world_size in 1..=80 {
                let mut next = 0;
                let mut shortest = u64::MAX;
                let mut longest = 0;
                for rank in 0..world_size {
                    let slots = local_slots(batch_len, rank, world_size);
                    assert_eq!(slots.start, next);
                    next = slots.end;
                    shortest = shortest.min(slots.end - slots.start);
                    longest = longest.max(slots.end - slots.start);
                }
                assert_eq!(next, batch_len);
                assert!(longest - shortest <= 1);
            }
        }
    }

    #[test]
    fn the_part_of_an_item_is_the_run_that_holds_it() {
        for items in 1..=60 {
            for parts in 1..=items {
                for item in 0..items {
                    let part = near_equal_part(items, parts, item);
                    assert!(near_equal_start(items, parts, part) <= item);
                    assert!(item < near_equal_start(items, parts, part + 1));
                }
            }
        }
    }

    #[test]
    fn huge_sizes_do_not_overflow() {
        let last = local_slots(u64::MAX, u32::MAX - 1, u32::MAX);
        assert_eq!(last.end, u64::MAX);
    }
}
