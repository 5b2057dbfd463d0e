//! All data in the ranks' memory.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pelton_cache::{CacheError, CacheMeters, CacheOptions, PeerCache, Pipeline};
use pelton_comm::run_ranks;
use pelton_plan::{Batching, Catalog, Order, Plan, PlanSpec};
use pelton_storage::conformance::check_storage;
use support::{Data, bytes_read, even, ragged, received};

fn plan_of(data: &Data) -> Arc<Plan> {
    let records = data.dataset.records();
    Arc::new(
        Plan::new(
            &PlanSpec::new(Order::Full, Batching::Examples(16), 5),
            Catalog::new(records),
        )
        .unwrap(),
    )
}

fn options(data: &Data, ranks: usize) -> CacheOptions {
    CacheOptions {
        memory_bytes: data.dataset.bytes().div_ceil(ranks as u64),
        ..CacheOptions::default()
    }
}

/// Reads an epoch on every rank, each its batches and then all, and returns the meters by rank.
fn check(data: &Data, ranks: usize) -> Vec<CacheMeters> {
    let (dataset, backend) = data.metered();
    let plan = plan_of(data);
    let meters = run_ranks(ranks, |comm| {
        let cache = PeerCache::new(&comm, &dataset, &plan, &options(data, ranks))?;
        assert_eq!(cache.pipeline(), Pipeline::InMemory);
        let read = cache.dataset();
        let mut ids = Vec::new();
        for step in 0..plan.steps(0) {
            ids.clear();
            ids.extend(plan.step_ids(0, step));
            data.check(&read, &ids)?;
            received(&cache, &plan, (0, step));
        }
        let all: Vec<u64> = (0..plan.records()).collect();
        data.check(&read, &all)?;
        cache.finish(&comm)
    });
    let meters = meters.unwrap();
    assert_eq!(bytes_read(&backend), data.dataset.bytes(), "each byte once");
    for rank in &meters {
        assert_eq!(
            rank.local_bytes + rank.remote_bytes,
            2 * data.dataset.bytes()
        );
    }
    meters
}

#[test]
fn every_rank_reads_every_record_and_each_byte_leaves_the_backend_once() {
    for ranks in [1, 2, 3, 4, 7] {
        for data in [ragged(&[300]), ragged(&[5, 120, 1]), even(&[64, 3, 500], 9)] {
            let meters = check(&data, ranks);
            assert_eq!(meters.iter().any(|rank| rank.remote_bytes > 0), ranks > 1);
        }
    }
}

#[test]
fn more_ranks_than_records() {
    check(&ragged(&[2]), 7);
    check(&even(&[1], 3), 4);
}

#[test]
fn files_conform_as_storages() {
    for data in [ragged(&[90, 40]), even(&[3000], 5)] {
        let plan = plan_of(&data);
        let dataset = data.behind(|storage| storage);
        run_ranks(3, |comm| {
            let cache = PeerCache::new(&comm, &dataset, &plan, &options(&data, 3))?;
            for (file, bytes) in cache.dataset().files().iter().zip(&data.bytes) {
                check_storage(&**file.storage(), bytes);
            }
            cache.finish(&comm)
        })
        .unwrap();
    }
}

#[test]
fn holders_are_equal_everywhere_and_hold_the_record() {
    let data = ragged(&[200, 30]);
    let plan = plan_of(&data);
    let dataset = data.behind(|storage| storage);
    let holders = run_ranks(4, |comm| {
        let cache = PeerCache::new(&comm, &dataset, &plan, &options(&data, 4))?;
        let placement = cache.placement();
        let mut holders = Vec::new();
        let ids: Vec<u64> = (0..230).collect();
        placement.holders(0, &ids, &mut holders);
        // This rank reads the records that it holds whole without the others.
        let own = |id: &u64| placement.holder(0, *id) == Some(comm.rank() as u32);
        // Parts of the first and the last may be on its neighbours.
        let own: Vec<u64> = ids.iter().copied().filter(own).collect();
        data.check(&cache.dataset(), &own[1..own.len() - 1])?;
        assert_eq!(cache.meters().remote_bytes, 0);
        cache.finish(&comm)?;
        Ok::<_, CacheError>(holders)
    });
    let holders = holders.unwrap();
    assert!(holders.iter().all(|of_rank| *of_rank == holders[0]));
    let count = |rank| {
        holders[0]
            .iter()
            .filter(|holder| **holder == Some(rank))
            .count()
    };
    assert!((0..4).all(|rank| count(rank) > 30));
}

/// Cuts between ranks are at units of the backend, so that none is read by two.
#[test]
fn each_unit_of_a_device_is_read_once() {
    for ranks in [1, 2, 3, 7] {
        for data in [
            ragged(&[900]),
            ragged(&[700, 1, 300]),
            even(&[40_000, 64], 9),
        ] {
            let (dataset, devices) = data.on_devices();
            let plan = plan_of(&data);
            run_ranks(ranks, |comm| {
                let cache = PeerCache::new(&comm, &dataset, &plan, &options(&data, ranks))?;
                assert_eq!(cache.pipeline(), Pipeline::InMemory);
                let all: Vec<u64> = (0..plan.records()).collect();
                data.check(&cache.dataset(), &all)?;
                cache.finish(&comm)
            })
            .unwrap();
            for device in devices {
                assert!(
                    device
                        .reads
                        .iter()
                        .all(|reads| reads.load(Ordering::Relaxed) == 1)
                );
            }
        }
    }
}
