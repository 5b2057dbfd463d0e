//! The shares of all ranks are the global batches, however slots are dealt out and records are read; a
//! rank with records of its own reads those only.

use std::sync::Arc;

use crate::fixtures::{PATHS, batches, dense, options, planned, sparse};
use pelton_fetch::{Access, Fetch, FetchError, FetchOptions, Share, choose_path};
use pelton_plan::{Batching, Catalog, Last, Order, Place, Plan, PlanSpec};
use proptest::prelude::*;

/// With a rest that no batch takes, every epoch leaves out other records, which must come back.
/// Seven ranks take batches of 5 records too, so that some shares are empty.
#[test]
fn the_shares_of_all_ranks_are_the_global_batches() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = sparse(&folder, 1_203);
    for (batch, order) in [(256, "full"), (5, "full"), (100, "block:7:permute")] {
        let order = order.parse().unwrap();
        let plan = Plan::new(
            &PlanSpec::new(order, Batching::Examples(batch), 3),
            Catalog::new(1_203),
        )
        .unwrap();
        let plan = Arc::new(plan);
        let expected = planned(&plan, 0..3);
        for world_size in [1, 2, 3, 4, 7] {
            for access in &PATHS[..3] {
                let mut taken: Vec<_> = planned(&plan, 0..3);
                taken.iter_mut().for_each(|(_, _, ids)| ids.clear());
                for rank in 0..world_size {
                    let options = FetchOptions {
                        share: Some(Share::new(rank, world_size)),
                        // How far ahead is asked for changes nothing.
                        look_ahead: (world_size == 3).then_some(1),
                        ..options(&folder, *access, 3 << 20)
                    };
                    let mut feed = Fetch::new(dataset.clone(), plan.clone(), &options).unwrap();
                    for (taken, batch) in taken.iter_mut().zip(batches(&mut feed)) {
                        assert_eq!((taken.0, taken.1), (batch.0, batch.1));
                        taken.2.extend(batch.2);
                    }
                }
                assert!(taken == expected, "{order} by {access}, {world_size} ranks");
            }
        }
    }
}

/// Records in runs of 100 by rank: each rank takes as many as without holders, and most are its own.
#[test]
fn shares_near_their_holders_are_the_global_batches_too() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = dense(&folder, 2_000, 4);
    let plan = Plan::new(
        &PlanSpec::new(Order::Full, Batching::Examples(300), 3),
        Catalog::new(2_000),
    )
    .unwrap();
    let plan = Arc::new(plan);
    let holder = |epoch: u64, id: u64| ((id / 100 + epoch) % 4) as u32;
    let mut taken: Vec<Vec<u64>> = vec![Vec::new(); planned(&plan, 0..3).len()];
    let mut own = 0;
    for rank in 0..4 {
        let options = FetchOptions {
            share: Some(Share::new(rank, 4).near(Arc::new(holder))),
            ..options(&folder, Access::Direct, 3 << 20)
        };
        let mut feed = Fetch::new(dataset.clone(), plan.clone(), &options).unwrap();
        for (taken, (epoch, step, ids)) in taken.iter_mut().zip(batches(&mut feed)) {
            let expected = plan.step_len(epoch, step).unwrap().div_ceil(4);
            assert!(ids.len() as u64 + 1 >= expected && ids.len() as u64 <= expected);
            own += ids.iter().filter(|&&id| holder(epoch, id) == rank).count();
            taken.extend(ids);
        }
    }
    for (mut taken, (_, _, mut expected)) in taken.into_iter().zip(planned(&plan, 0..3)) {
        taken.sort_unstable();
        expected.sort_unstable();
        assert_eq!(taken, expected);
    }
    assert!(own > 3 * 2_000 * 9 / 10, "{own} of 6000 by their holders");
}

/// Stripes of `stripe` records, by rank in turn.
fn striped(rank: u32, world_size: u32, stripe: u64) -> Share {
    Share::new(rank, world_size).owned(Arc::new(move |id| owner(id, world_size, stripe)))
}

fn owner(id: u64, world_size: u32, stripe: u64) -> u32 {
    (id / stripe % u64::from(world_size)) as u32
}

/// The batches of a rank with such stripes according to the plan.
fn planned_stripes(plan: &Plan, rank: u32, world_size: u32, stripe: u64) -> Batches {
    let mut expected = planned(plan, 0..3);
    for (_, _, ids) in &mut expected {
        ids.retain(|&id| owner(id, world_size, stripe) == rank);
    }
    expected
}

type Batches = Vec<(u64, u64, Vec<u64>)>;

/// All ranks at once, as threads with one scratch folder. A rank of more than there are stripes owns
/// nothing.
#[test]
fn owned_shares_are_the_global_batches_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = sparse(&folder, 1_203);
    for (batch, order) in [
        (256, "full"),
        (5, "full"),
        (100, "block:7:permute"),
        (200, "sequential"),
        (64, "queue:300"),
    ] {
        let order: Order = order.parse().unwrap();
        let plan = Plan::new(
            &PlanSpec::new(order, Batching::Examples(batch), 3),
            Catalog::new(1_203),
        )
        .unwrap();
        let plan = Arc::new(plan);
        let scatters = matches!(order, Order::Full | Order::Block { .. });
        let paths = if scatters { &PATHS[..] } else { &PATHS[..3] };
        for (world_size, stripe) in [(1, 100), (2, 100), (3, 64), (4, 1), (7, 300)] {
            for &access in paths {
                let run = |rank| {
                    let options = FetchOptions {
                        share: Some(striped(rank, world_size, stripe)),
                        ..options(&folder, access, 3 << 20)
                    };
                    let mut feed = Fetch::new(dataset.clone(), plan.clone(), &options).unwrap();
                    assert!(
                        batches(&mut feed) == planned_stripes(&plan, rank, world_size, stripe),
                        "{order} by {access}, {rank} of {world_size}"
                    );
                };
                std::thread::scope(|scope| {
                    for rank in 0..world_size {
                        scope.spawn(move || run(rank));
                    }
                });
            }
        }
    }
}

fn any_order() -> impl Strategy<Value = Order> {
    prop_oneof![
        3 => Just(Order::Full),
        1 => (1u64..9, any::<bool>()).prop_map(|(blocks, permute)| Order::Block { blocks, permute }),
    ]
}

fn any_batching() -> impl Strategy<Value = (Batching, Last)> {
    let batching = prop_oneof![
        2 => (1u64..400).prop_map(Batching::Examples),
        1 => (1u64..9).prop_map(Batching::Batches),
    ];
    (
        batching,
        prop::sample::select(vec![Last::Even, Last::Short, Last::Drop]),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Any plan from any step on: what the ranks take of a batch is the batch, each its own records
    /// in their order. With a barrier a consumer may decline records, which have to be there in the
    /// epoch after.
    #[test]
    fn owned_shares_of_any_plan_are_its_batches(
        (order, (batching, last), seed) in (any_order(), any_batching(), any::<u64>()),
        records in prop_oneof![4 => 1u64..2_000, 1 => 1u64..9],
        dense_rows in any::<bool>(),
        world_size in prop::sample::select(vec![1u32, 2, 3, 4, 7]),
        stripe in prop_oneof![1u64..4, 4u64..300],
        start in 0.0f64..1.0,
        (barrier, declined) in (any::<bool>(), 0u64..10),
        memory in 18u32..23,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let dataset = if dense_rows {
            dense(&folder, records, 28)
        } else {
            sparse(&folder, records.max(2))
        };
        let records = dataset.records();
        // More blocks than records, or batches longer than all of them, make no plan with a step.
        let spec = PlanSpec { last, ..PlanSpec::new(order, batching, seed) };
        let plan = Plan::new(&spec, Catalog::new(records));
        let plan = Arc::new(plan.or_else(|_| Plan::new(&PlanSpec::new(Order::Full, Batching::Batches(1), seed), Catalog::new(records))).unwrap());
        prop_assume!(plan.steps(0) > 0);
        let done = (start * 3.0 * plan.steps(0) as f64) as u64;
        let declines = |epoch: u64, id: u64| barrier && (id + 3 * epoch) % 10 < declined;
        for (access, rank) in PATHS.into_iter().flat_map(|path| (0..world_size).map(move |r| (path, r))) {
            let mut expected = planned_stripes(&plan, rank, world_size, stripe).split_off(done as usize);
            for (epoch, _, ids) in &mut expected {
                ids.retain(|&id| !declines(*epoch, id));
            }
            let options = FetchOptions {
                share: Some(striped(rank, world_size, stripe)),
                start: Place { epoch: done / plan.steps(0), step: done % plan.steps(0) },
                epoch_barrier: barrier,
                ..options(&folder, access, 1 << memory)
            };
            let mut feed = match Fetch::new(dataset.clone(), plan.clone(), &options) {
                Ok(feed) => feed,
                // The budget may be too small for the batches, or for the buckets.
                Err(FetchError::BudgetTooSmall { .. } | FetchError::Unsupported { .. }) => continue,
                Err(error) => panic!("{error}"),
            };
            let mut epoch = done / plan.steps(0);
            let mut found = Vec::new();
            while let Some(batch) = feed
                .next_batch_where(&mut |_, id| !declines(epoch, id))
                .unwrap()
            {
                found.push((batch.epoch, batch.step, batch.rows.ids().to_vec()));
                epoch = batch.epoch + u64::from(batch.ends_epoch);
            }
            prop_assert!(found == expected, "{order} by {access}, {rank} of {world_size} from {done}");
        }
    }
}

/// One block that is read once: no rank reads over the stripes of others.
#[test]
fn a_rank_reads_its_own_stripes_only() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = dense(&folder, 100_000, 28);
    let plan = Plan::new(
        &PlanSpec::new(Order::Full, Batching::Batches(1), 1),
        Catalog::new(100_000),
    )
    .unwrap();
    let plan = Arc::new(plan);
    for (world_size, access) in [2, 3, 4]
        .into_iter()
        .flat_map(|w| PATHS[1..].iter().map(move |p| (w, p)))
    {
        let stripe = 1_000;
        for rank in 0..world_size {
            let options = FetchOptions {
                share: Some(striped(rank, world_size, stripe)),
                end_epoch: Some(1),
                ..options(&folder, *access, 64 << 20)
            };
            let mut feed = Fetch::new(dataset.clone(), plan.clone(), &options).unwrap();
            while feed.next_batch().unwrap().is_some() {}
            let meters = feed.meters();
            // A page at either end of a stripe of 30.
            let most = meters.used_bytes as f64 * 1.04;
            // Scatter reads it back once more.
            let passes = if *access == Access::Scatter { 2.0 } else { 1.0 };
            let read = meters.read_bytes as f64 / passes;
            assert_near(meters.used_bytes, dataset.bytes() / u64::from(world_size));
            assert!(
                read <= most,
                "{access}, {rank} of {world_size}: {read} over {most}"
            );
        }
    }
}

/// Within a stripe of each other.
fn assert_near(bytes: u64, expected: u64) {
    assert!(
        bytes.abs_diff(expected) <= 1_000 * 120,
        "{bytes}, not {expected}"
    );
}

/// One pass before the first epoch, then one read and one write an epoch: of the records of the rank.
#[test]
fn ranks_that_scatter_read_and_write_their_own_records_once_an_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = dense(&folder, 200_000, 28);
    let plan = Plan::new(
        &PlanSpec::new(Order::Full, Batching::Examples(1_500), 1),
        Catalog::new(200_000),
    )
    .unwrap();
    let plan = Arc::new(plan);
    for world_size in [2, 4] {
        let (mut reads, mut writes) = (0, 0);
        for rank in 0..world_size {
            let mut options = options(&folder, Access::Scatter, 8 << 20);
            options.share = Some(striped(rank, world_size, 5_000));
            options.end_epoch = Some(5);
            let mut feed = Fetch::new(dataset.clone(), plan.clone(), &options).unwrap();
            while feed.next_batch().unwrap().is_some() {}
            reads += feed.meters().read_bytes;
            writes += feed.meters().written_bytes;
        }
        let data = dataset.bytes() as f64;
        let (reads, writes) = (reads as f64 / data, writes as f64 / data);
        eprintln!(
            "{world_size} ranks, 5 epochs: {reads:.3} reads and {writes:.3} writes of the data"
        );
        assert!(reads <= 6.0 * 1.05 && writes <= 5.0 * 1.05);
        assert!(reads >= 6.0 && writes >= 5.0 * 0.99);
    }
}

/// All ranks take the same path, no matter who owns most: blocks are divided by it.
#[test]
fn every_rank_chooses_the_path_of_one_with_the_data_it_owns() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = dense(&folder, 200_000, 28);
    let choice = |share, batch| {
        let options = FetchOptions {
            share,
            ..options(&folder, Access::Auto, 2 << 20)
        };
        let plan = Plan::new(
            &PlanSpec::new(Order::Full, Batching::Examples(batch), 1),
            Catalog::new(200_000),
        )
        .unwrap();
        choose_path(&dataset, &plan, &options).unwrap()
    };
    let (alone, _) = choice(None, 5_000);
    assert_eq!(alone, Access::Scatter);
    let of = |rank| choice(Some(striped(rank, 3, 30_000)), 10_000);
    assert_eq!((of(0), of(1)), (of(2), of(2)));
    assert_eq!(of(0).0, Access::Scatter);
    // Equal shares are of other records in every epoch.
    assert_ne!(choice(Some(Share::new(0, 3)), 10_000).0, Access::Scatter);
}

#[test]
fn a_rank_without_records_has_empty_batches_on_every_path() {
    let folder = tempfile::tempdir().unwrap();
    for (dataset, world_size) in [(sparse(&folder, 500), 3), (dense(&folder, 3, 28), 7)] {
        let batching = Batching::Examples(100);
        let plan = Arc::new(
            Plan::new(
                &PlanSpec::new(Order::Full, batching, 3),
                Catalog::new(dataset.records()),
            )
            .unwrap(),
        );
        for (access, barrier) in PATHS.into_iter().flat_map(|p| [(p, false), (p, true)]) {
            let mut options = options(&folder, access, 3 << 20);
            options.share = Some(Share::new(world_size - 1, world_size).owned(Arc::new(|_| 0)));
            options.epoch_barrier = barrier;
            let mut feed = Fetch::new(dataset.clone(), plan.clone(), &options).unwrap();
            let found = batches(&mut feed);
            assert_eq!(found.len() as u64, 3 * plan.steps(0));
            assert!(found.iter().all(|batch| batch.2.is_empty()), "{access}");
            assert_eq!(feed.meters().read_bytes, 0);
        }
    }
}

#[test]
fn what_a_share_cannot_be_combined_with_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = sparse(&folder, 1_000);
    let plan = Plan::new(
        &PlanSpec::new(Order::Full, Batching::Examples(64), 3),
        Catalog::new(1_000),
    )
    .unwrap();
    let plan = Arc::new(plan);
    let scatter = options(&folder, Access::Scatter, 3 << 20);
    let near = Share::new(1, 2).near(Arc::new(|_, id| id as u32 % 2));
    for (shared, share) in [(&scatter, Share::new(1, 2)), (&scatter, near)] {
        let shared = FetchOptions {
            share: Some(share),
            ..shared.clone()
        };
        let refused = Fetch::new(dataset.clone(), plan.clone(), &shared).unwrap_err();
        assert!(
            matches!(refused, FetchError::Unsupported { .. }),
            "{refused}"
        );
    }
}
