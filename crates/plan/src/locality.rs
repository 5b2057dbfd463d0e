//! Which rank takes which slot of a global batch, so that most elements are where they are used.
//!
//! In synchronous training a step uses the whole global batch, whoever computes which part of it:
//! handing its slots to the ranks that hold their elements leaves the batch, its randomness and the
//! step's result alone and only changes what travels. DeepIO's ranks take a fixed run of slots each,
//! and (R − 1)/R of the bytes are remote.

use crate::split::local_slots;

/// The rank that takes each slot of a global batch: its holder as far as shares allow.
///
/// `holders[i]` is the rank that holds the element of slot i; a number from `world_size` on means
/// that no rank does. Every rank takes as many slots as [`local_slots`] gives it, so that ranks stay
/// equally loaded. Slots go, in order, to their holders while these have room; those left over go, in
/// order, to the ranks with room, in rank order. No other assignment with these shares makes more
/// slots local: a rank takes at most min(its share, what it holds) of its own, and here takes just
/// that. Deterministic; every rank computes the same from the same batch.
///
/// **How much stays remote.** Let B slots have holders that are equally likely to be any of R ranks,
/// as when the ranks hold equal shares of the data and the batch is a uniformly random sample of it.
/// h_r slots have the holder r, Σ h_r = B, E h_r = B/R. Were shares exactly B/R, then Σ (h_r − B/R)⁺
/// slots would be remote, half of Σ |h_r − B/R| because the deviations sum to 0. Each h_r has at most
/// the binomial variance B·(R − 1)/R² (less when sampling without replacement), so that by Jensen
/// E |h_r − B/R| ≤ √(B·(R − 1))/R, and the expected remote share is at most
///
/// ½ · R/B · √(B·(R − 1))/R = ½·√((R − 1)/B).
///
/// Shares are whole numbers: with x = B mod R, R − x ranks take x/R less than B/R, which adds at
/// most x·(R − x)/(R·B) ≤ R/(4·B). [`expected_remote_share`] is this sum. Without the assignment
/// (R − 1)/R are remote.
///
/// Cost: O(B + R). Asserts `world_size > 0`.
///
/// ```
/// use pelton_plan::assign_slots;
/// // Rank 1 holds three elements and takes two of them; slot 3, held by nobody, and slot 2 go where
/// // room is left.
/// assert_eq!(assign_slots(&[1, 1, 1, 9, 0, 2], 3), [1, 1, 0, 2, 0, 2]);
/// ```
pub fn assign_slots(holders: &[u32], world_size: u32) -> Vec<u32> {
    assert!(world_size > 0, "a batch needs a rank to take it");
    let mut room: Vec<u64> = (0..world_size)
        .map(|rank| {
            let slots = local_slots(holders.len() as u64, rank, world_size);
            slots.end - slots.start
        })
        .collect();
    let mut takers = vec![world_size; holders.len()];
    for (taker, &holder) in takers.iter_mut().zip(holders) {
        if let Some(room) = room.get_mut(holder as usize).filter(|room| **room > 0) {
            *room -= 1;
            *taker = holder;
        }
    }
    let mut rank = 0;
    for taker in takers.iter_mut().filter(|taker| **taker == world_size) {
        // Rooms sum to the slots, so that some rank has room while a slot is left.
        while room[rank] == 0 {
            rank += 1;
        }
        room[rank] -= 1;
        *taker = rank as u32;
    }
    takers
}

/// The most, on average, of a global batch that [`assign_slots`] leaves remote when holders are
/// equally likely to be any of the ranks: ½·√((R − 1)/B) and the rounding of shares, and never more
/// than the (R − 1)/R of a fixed split. 0 for one rank or an empty batch.
pub fn expected_remote_share(batch: u64, ranks: u32) -> f64 {
    if batch == 0 || ranks <= 1 {
        return 0.0;
    }
    let (b, r) = (batch as f64, f64::from(ranks));
    let longer = (batch % u64::from(ranks)) as f64;
    let rounding = longer * (r - longer) / (r * b);
    let bound = 0.5 * ((r - 1.0) / b).sqrt() + rounding;
    bound.min((r - 1.0) / r)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Permutation;
    use pelton_key::KeyedRng;

    fn remote(holders: &[u32], takers: &[u32]) -> usize {
        holders.iter().zip(takers).filter(|(h, t)| h != t).count()
    }

    fn check(holders: &[u32], world_size: u32) -> usize {
        let takers = assign_slots(holders, world_size);
        assert_eq!(takers.len(), holders.len());
        let mut best = 0;
        for rank in 0..world_size {
            let share = local_slots(holders.len() as u64, rank, world_size);
            let share = (share.end - share.start) as usize;
            assert_eq!(takers.iter().filter(|&&taker| taker == rank).count(), share);
            let held = holders.iter().filter(|&&holder| holder == rank).count();
            best += share.min(held);
        }
        let remote = remote(holders, &takers);
        assert_eq!(
            remote,
            holders.len() - best,
            "{holders:?} over {world_size}"
        );
        remote
    }

    #[test]
    fn shares_are_exact_and_as_local_as_can_be() {
        let mut rng = KeyedRng::new(1);
        for world_size in 1..=9 {
            for slots in 0..=40 {
                let any: Vec<u32> = (0..slots)
                    .map(|_| rng.below(u64::from(world_size) + 2) as u32)
                    .collect();
                check(&any, world_size);
                check(&vec![0; slots], world_size);
                assert_eq!(check(&vec![u32::MAX; slots], world_size), slots);
            }
        }
    }

    #[test]
    fn a_batch_that_lies_as_it_is_shared_stays_local() {
        for world_size in 1..=7 {
            let holders: Vec<u32> = (0..world_size)
                .flat_map(|rank| local_slots(23, rank, world_size).map(move |_| rank))
                .collect();
            assert_eq!(assign_slots(&holders, world_size), holders);
        }
    }

    /// Batches of a shuffled epoch over ranks that hold equal runs of the records.
    fn mean_remote_share(batch: u64, ranks: u32) -> f64 {
        let batches = 400;
        let records = u64::from(ranks) * batch * 20;
        let (mut remote_slots, mut slots) = (0, 0);
        for epoch in 0..batches / 20 {
            let order = Permutation::new(records, epoch);
            let mut ids = vec![0; batch as usize];
            for step in 0..20 {
                order.fill(step * batch, &mut ids);
                let held = records / u64::from(ranks);
                let holders: Vec<u32> = ids.iter().map(|id| (id / held) as u32).collect();
                remote_slots += remote(&holders, &assign_slots(&holders, ranks));
                slots += holders.len();
            }
        }
        remote_slots as f64 / slots as f64
    }

    #[test]
    fn the_measured_remote_share_is_below_the_bound_and_not_far_below() {
        for ranks in [2, 3, 4, 7, 16, 64] {
            for batch in [64, 100, 1024, 4096] {
                let measured = mean_remote_share(batch, ranks);
                let bound = expected_remote_share(batch, ranks);
                assert!(
                    measured <= bound,
                    "{ranks} ranks, {batch}: {measured} > {bound}"
                );
                // |deviation| is √(2/π) = 0.80 of its standard deviation when that is large.
                assert!(
                    measured >= 0.5 * bound,
                    "{ranks} ranks, {batch}: {measured} of {bound}"
                );
            }
        }
    }

    #[test]
    fn the_bound_at_its_ends() {
        assert_eq!(expected_remote_share(0, 4), 0.0);
        assert_eq!(expected_remote_share(100, 1), 0.0);
        assert_eq!(expected_remote_share(1, 2), 0.5);
        assert_eq!(expected_remote_share(4096, 5 * 4096), 1.0 - 1.0 / 20_480.0);
        let bound = expected_remote_share(4096, 4);
        assert!((bound - 0.5 * (3.0_f64 / 4096.0).sqrt()).abs() < 1e-12);
    }
}
