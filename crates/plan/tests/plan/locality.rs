//! Slots go to the ranks that hold their elements.

use pelton_key::KeyedRng;
use pelton_plan::{Permutation, assign_slots, expected_remote_share, local_slots};

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
