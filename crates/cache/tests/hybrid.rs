//! Memory for a part of the data: opportunistic order in loads, and any other order with a fixed part.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pelton_cache::{CacheError, CacheMeters, CacheOptions, PeerCache, Pipeline, loads_for};
use pelton_comm::run_ranks;
use pelton_format::Dataset;
use pelton_plan::{Batching, Catalog, Order, Plan, PlanSpec};
use pelton_storage::conformance::check_storage;
use support::{
    Data, bytes_read, consume, even, plan_in_loads, position_of, quarter, ragged, received,
    units_of,
};

const UNIT_BYTES: u64 = 512;

fn options(memory_bytes: u64, epochs: u64) -> CacheOptions {
    CacheOptions {
        memory_bytes,
        end_epoch: Some(epochs),
        ..CacheOptions::default()
    }
}

/// Reads everything three times in `more` loads an epoch than as few as fit; returns the meters.
fn check_loads(data: &Data, ranks: usize, more: u64) -> Vec<CacheMeters> {
    const EPOCHS: u64 = 3;
    let (memory, fewest) = quarter(data, ranks, UNIT_BYTES);
    let loads = fewest + more;
    let (dataset, backend) = data.metered();
    let plan = plan_in_loads(&dataset, loads, UNIT_BYTES, 16);
    let results = run_ranks(ranks, |comm| {
        let options = options(memory, EPOCHS);
        let cache = PeerCache::new(&comm, &dataset, &plan, &options)?;
        let pipeline = cache.pipeline();
        consume(&comm, data, &cache, &plan, ((0, 0), EPOCHS), |_, _| Ok(()))?;
        Ok::<_, CacheError>((pipeline, cache.finish(&comm)?))
    });
    let (pipelines, meters): (Vec<_>, Vec<_>) = results.unwrap().into_iter().unzip();
    let made = Pipeline::Opportunistic { loads };
    assert!(pipelines.iter().all(|pipeline| *pipeline == made));
    let sum = |of: fn(&CacheMeters) -> u64| meters.iter().map(of).sum::<u64>();
    let (read, kept) = (bytes_read(&backend), sum(|rank| rank.kept_bytes));
    let bytes = data.dataset.bytes();
    assert_eq!(read + kept, EPOCHS * bytes, "{kept} kept");
    assert_eq!(sum(|rank| rank.backend_bytes), read);
    assert_eq!(sum(|rank| rank.early_bytes), 0);
    let served = sum(|rank| rank.local_bytes + rank.remote_bytes);
    assert_eq!(served, EPOCHS * bytes);
    // In many loads or on many ranks a load may be a unit or two of each.
    assert!(
        kept > 0 || ranks > 2 || more > 0,
        "the epochs' borders keep something"
    );
    meters
}

#[test]
fn loads_serve_every_record_and_bytes_leave_the_backend_at_most_once_an_epoch() {
    for ranks in [1, 2, 3, 4, 7] {
        for data in [
            ragged(&[2000]),
            ragged(&[50, 1700, 1]),
            even(&[2000, 3, 1000], 9),
        ] {
            for more in [0, 9, 40] {
                let meters = check_loads(&data, ranks, more);
                assert_eq!(meters.iter().any(|rank| rank.remote_bytes > 0), ranks > 1);
            }
        }
    }
}

#[test]
fn a_run_goes_on_in_the_middle() {
    let data = ragged(&[2500]);
    let (memory, loads) = quarter(&data, 3, UNIT_BYTES);
    let (dataset, backend) = data.metered();
    let plan = plan_in_loads(&dataset, loads, UNIT_BYTES, 16);
    let steps = plan.steps(0);
    for start in [
        (0, 1),
        (1, steps / 2),
        (1, steps - 1),
        (0, steps),
        (1, steps),
    ] {
        let before = bytes_read(&backend);
        run_ranks(3, |comm| {
            let options = CacheOptions {
                start: position_of(&plan, start),
                ..options(memory, 2)
            };
            let cache = PeerCache::new(&comm, &dataset, &plan, &options)?;
            consume(&comm, &data, &cache, &plan, (start, 2), |_, _| Ok(()))?;
            cache.finish(&comm)
        })
        .unwrap();
        let read = bytes_read(&backend) - before;
        let position = start.0 * steps + start.1;
        // The rest of the epoch, with the rest of its first load.
        let left = (2 * steps - position) as f64 / steps as f64 + 1.5 / loads as f64;
        assert!(
            read as f64 <= left * dataset.bytes() as f64,
            "{start:?}: {read}"
        );
        assert_eq!(read == 0, start == (1, steps));
    }
}

#[test]
fn holders_are_where_records_are_read_from() {
    let data = ragged(&[2000]);
    let (memory, loads) = quarter(&data, 4, UNIT_BYTES);
    let dataset = data.behind(|storage| storage);
    let plan = plan_in_loads(&dataset, loads, UNIT_BYTES, 16);
    run_ranks(4, |comm| {
        let cache = PeerCache::new(&comm, &dataset, &plan, &options(memory, 2))?;
        let (read, placement) = (cache.dataset(), cache.placement());
        let (mut ids, mut holders) = (Vec::new(), Vec::new());
        for epoch in 0..2 {
            for step in 0..plan.steps(0) {
                ids.clear();
                holders.clear();
                ids.extend(plan.step_ids(epoch, step));
                placement.holders(epoch, &ids, &mut holders);
                let own = Some(comm.rank() as u32);
                let of_own = ids
                    .iter()
                    .zip(&holders)
                    .filter(|(_, holder)| **holder == own);
                let own: Vec<u64> = of_own.map(|(id, _)| *id).collect();
                data.check(&read, &own)?;
                assert_eq!(cache.holder(epoch, ids[0]), holders[0]);
                received(&cache, &plan, (epoch, step));
            }
        }
        let meters = cache.finish(&comm)?;
        // Units of the epoch before may still be on another rank when they are read.
        assert!(meters.remote_bytes < meters.local_bytes / 10, "{meters:?}");
        Ok::<_, CacheError>(())
    })
    .unwrap();
}

#[test]
fn readers_may_be_ahead_of_the_consumer() {
    let data = even(&[4000], 9);
    let (memory, loads) = quarter(&data, 2, UNIT_BYTES);
    let dataset = data.behind(|storage| storage);
    let plan = plan_in_loads(&dataset, loads, UNIT_BYTES, 16);
    let steps = plan.steps(0);
    // Less than a load.
    let ahead = steps / loads - 1;
    let meters = run_ranks(2, |comm| {
        let cache = PeerCache::new(&comm, &dataset, &plan, &options(memory, 2))?;
        let (read, done) = (cache.dataset(), AtomicU64::new(0));
        let taken = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let reader = || {
                let mut ids = Vec::new();
                for number in 0..2 * steps {
                    while number > taken.load(Ordering::Acquire) + ahead {
                        std::thread::yield_now();
                    }
                    ids.clear();
                    ids.extend(plan.step_ids(number / steps, number % steps));
                    data.check(&read, &ids).unwrap();
                    done.fetch_add(1, Ordering::Release);
                }
            };
            scope.spawn(reader);
            for number in 0..2 * steps {
                while done.load(Ordering::Acquire) <= number {
                    std::thread::yield_now();
                }
                received(&cache, &plan, (number / steps, number % steps));
                taken.store(number + 1, Ordering::Release);
            }
        });
        cache.finish(&comm)
    });
    assert!(meters.unwrap().iter().all(|rank| rank.early_bytes == 0));
}

#[test]
fn loads_that_do_not_fit_are_refused_with_a_number_that_does() {
    let data = ragged(&[2000]);
    let dataset = data.behind(|storage| storage);
    let memory = dataset.bytes() / 8;
    let try_loads = |loads: u64| {
        let plan = plan_in_loads(&dataset, loads, UNIT_BYTES, 16);
        run_ranks(2, |comm| {
            let cache = PeerCache::new(&comm, &dataset, &plan, &options(memory, 1))?;
            cache.finish(&comm)
        })
    };
    let error = try_loads(3).unwrap_err().source;
    let message = error.to_string();
    let CacheError::LoadTooLarge {
        needed,
        memory: has,
        ..
    } = error
    else {
        panic!("{message}")
    };
    assert!(needed > has && has <= memory, "{message}");
    let fitting: u64 = message
        .split_once("use ")
        .and_then(|(_, rest)| rest.split_once(" loads"))
        .and_then(|(number, _)| number.parse().ok())
        .expect(&message);
    assert!(fitting > 8 && fitting < 40, "{message}");
    try_loads(fitting).unwrap();
}

#[test]
fn a_quarter_of_the_data_takes_eight_loads_where_units_divide_evenly() {
    let data = even(&[1 << 16], 15);
    let units = units_of(&data.dataset, 4096);
    for ranks in [1, 2, 4] {
        let memory = data.dataset.bytes() / 4;
        let fewest = |units| loads_for(&data.dataset, units, memory, ranks);
        assert_eq!(fewest(&units), Some(8));
        // 1021 units: some loads have one more than others.
        let odd = units_of(&data.dataset, 4097);
        assert_eq!(fewest(&odd), Some(9));
    }
    assert_eq!(loads_for(&data.dataset, &units, 4000, 1), None);
}

fn ordered(data: &Data, ranks: usize, share: u64) -> (Dataset, Arc<Plan>, CacheOptions) {
    let dataset = data.behind(|storage| storage);
    let records = dataset.records();
    let plan = Plan::new(
        &PlanSpec::new(Order::Full, Batching::Examples(16), 5),
        Catalog::new(records),
    )
    .unwrap();
    let memory = dataset.bytes() / share / ranks as u64;
    (dataset, Arc::new(plan), options(memory, u64::MAX))
}

#[test]
fn a_fixed_part_serves_its_share_of_every_epoch() {
    for ranks in [1, 2, 3, 7] {
        for (data, share) in [(ragged(&[2000, 300]), 2), (even(&[3, 2000], 9), 4)] {
            let (dataset, plan, options) = ordered(&data, ranks, share);
            run_ranks(ranks, |comm| {
                let cache = PeerCache::new(&comm, &dataset, &plan, &options)?;
                let Pipeline::Ordered { resident_bytes } = cache.pipeline() else {
                    panic!("{}", cache.pipeline());
                };
                let limit = data.dataset.bytes() / share;
                assert!(resident_bytes <= limit && resident_bytes * 10 > limit * 7);
                let loaded = cache.meters().backend_bytes;
                let mut ids = Vec::new();
                for step in 0..plan.steps(0) {
                    ids.clear();
                    ids.extend(plan.step_ids(1, step));
                    data.check(&cache.dataset(), &ids)?;
                }
                let meters = cache.meters();
                assert_eq!(meters.local_bytes + meters.remote_bytes, resident_bytes);
                let rest = data.dataset.bytes() - resident_bytes;
                assert_eq!(meters.backend_bytes - loaded, rest);
                for (file, bytes) in cache.dataset().files().iter().zip(&data.bytes) {
                    check_storage(&**file.storage(), bytes);
                }
                cache.finish(&comm)
            })
            .unwrap();
        }
    }
}

/// The rest of the data comes from a device in whole units, through other memory than the reader's.
#[test]
fn devices_are_read_in_units_for_what_is_not_resident() {
    let data = ragged(&[2000, 300]);
    let (_, plan, options) = ordered(&data, 3, 2);
    let (dataset, devices) = data.on_devices();
    run_ranks(3, |comm| {
        let cache = PeerCache::new(&comm, &dataset, &plan, &options)?;
        let mut ids = Vec::new();
        for step in 0..plan.steps(0) {
            ids.clear();
            ids.extend(plan.step_ids(0, step));
            data.check(&cache.dataset(), &ids)?;
        }
        for (file, bytes) in cache.dataset().files().iter().zip(&data.bytes) {
            check_storage(&**file.storage(), bytes);
        }
        cache.finish(&comm)
    })
    .unwrap();
    assert!(
        devices
            .iter()
            .flat_map(|device| &device.reads)
            .all(|reads| reads.load(Ordering::Relaxed) > 0)
    );
}

#[test]
fn loads_come_from_devices_in_units() {
    let data = ragged(&[50, 2000]);
    let (memory, loads) = quarter(&data, 3, UNIT_BYTES);
    let (dataset, devices) = data.on_devices();
    let plan = plan_in_loads(&dataset, loads, UNIT_BYTES, 16);
    run_ranks(3, |comm| {
        let cache = PeerCache::new(&comm, &dataset, &plan, &options(memory, 2))?;
        consume(&comm, &data, &cache, &plan, ((0, 0), 2), |_, _| Ok(()))?;
        cache.finish(&comm)
    })
    .unwrap();
    // A unit of the device with the end of one load's unit and the begin of another's is read for both.
    let most = devices
        .iter()
        .flat_map(|device| &device.reads)
        .map(|reads| reads.load(Ordering::Relaxed));
    assert!(most.max().unwrap() <= 2 * 3);
}

/// Each rank holds in proportion to its memory.
#[test]
fn memory_may_differ_between_ranks() {
    const SHARES: [u64; 4] = [1, 4, 2, 3];
    let data = even(&[6000], 9);
    for (kind, part) in [(0, 1), (1, 3), (2, 3)] {
        let total = data.dataset.bytes() / part + 10;
        let (dataset, backend) = data.metered();
        let order = Order::Full;
        let plan = match kind {
            1 => plan_in_loads(&dataset, 16, 256, 16),
            _ => Arc::new(
                Plan::new(
                    &PlanSpec::new(order, Batching::Examples(16), 5),
                    Catalog::new(6000),
                )
                .unwrap(),
            ),
        };
        let meters = run_ranks(4, |comm| {
            let memory = (total * SHARES[comm.rank()]).div_ceil(10);
            let cache = PeerCache::new(&comm, &dataset, &plan, &options(memory, 2))?;
            let loaded = cache.meters().backend_bytes;
            consume(&comm, &data, &cache, &plan, ((0, 0), 2), |_, _| Ok(()))?;
            assert!(kind != 0 || loaded * 10 <= total * SHARES[comm.rank()] + 10);
            cache.finish(&comm)
        });
        let read = bytes_read(&backend);
        match kind {
            0 => assert_eq!(read, data.dataset.bytes()),
            1 => assert!(read <= 2 * data.dataset.bytes()),
            _ => assert!(read < 2 * data.dataset.bytes()),
        }
        let asked: u64 = meters.unwrap().iter().map(|rank| rank.backend_bytes).sum();
        assert_eq!(asked, read);
    }
}
