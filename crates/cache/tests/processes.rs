//! Peers' memory among processes, in every pipeline, under every launcher of this machine.

#[path = "../../comm/tests/launch/mod.rs"]
mod launch;
mod support;

use std::sync::Arc;
use std::time::Duration;

use launch::{Launcher, asked_for, run_or_end};
use pelton_cache::{CacheError, CacheOptions, PeerCache, Pipeline};
use pelton_comm::{Comm, Reduction};
use pelton_plan::{Batching, Catalog, Order, Plan, PlanSpec};
use pelton_storage::StorageError;
use support::{Data, bytes_read, consume, even, plan_in_loads, quarter, ragged};

const UNIT_BYTES: u64 = 512;
const EPOCHS: u64 = 3;

/// The ranks that the other tests start.
#[test]
fn as_rank() {
    let Some(job) = asked_for() else { return };
    run_or_end(|comm| match job.as_str() {
        "all" => succeed(&comm),
        kind => fail(&comm, kind.parse().unwrap()),
    });
}

#[test]
fn peers_serve_every_byte() {
    for launcher in Launcher::all() {
        for ranks in 2..=4 {
            let job = launcher.start_test(ranks, "all", &[]);
            job.wait(Duration::from_secs(120)).assert_done();
        }
    }
}

#[test]
fn a_rank_that_fails_while_others_read_is_named() {
    for launcher in Launcher::all() {
        for (kind, ranks) in [("0", 2), ("1", 3), ("2", 4)] {
            let ended = launcher
                .start_test(ranks, kind, &[])
                .wait(Duration::from_secs(60));
            // Its loader may miss the files, which are gone with it, before the others hear of its error.
            ended.assert_failed(&[&format!("rank {}", ranks - 1)]);
        }
    }
}

fn succeed(comm: &Comm) -> Result<(), CacheError> {
    for data in [ragged(&[1500]), ragged(&[50, 1000, 1]), even(&[1500, 3], 9)] {
        for kind in 0..3 {
            check(comm, &data, kind)?;
        }
    }
    Ok(())
}

/// Plan and options of a pipeline: 0 in memory, 1 in loads, 2 ordered.
fn setup(comm: &Comm, data: &Data, kind: u32) -> (Arc<Plan>, CacheOptions) {
    let records = data.dataset.records();
    let ranks = comm.size() as u64;
    let full = || {
        Arc::new(
            Plan::new(
                &PlanSpec::new(Order::Full, Batching::Examples(16), 5),
                Catalog::new(records),
            )
            .expect("a plan"),
        )
    };
    let (plan, memory_bytes) = match kind {
        0 => (full(), data.dataset.bytes().div_ceil(ranks)),
        1 => {
            let (memory, loads) = quarter(data, comm.size(), UNIT_BYTES);
            (plan_in_loads(&data.dataset, loads, UNIT_BYTES, 16), memory)
        }
        _ => (full(), data.dataset.bytes() / 3 / ranks),
    };
    let options = CacheOptions {
        memory_bytes,
        end_epoch: Some(EPOCHS),
        ..CacheOptions::default()
    };
    (plan, options)
}

fn check(comm: &Comm, data: &Data, kind: u32) -> Result<(), CacheError> {
    let (plan, options) = setup(comm, data, kind);
    let (dataset, backend) = data.metered();
    let cache = PeerCache::new(comm, &dataset, &plan, &options)?;
    let pipeline = cache.pipeline();
    consume(comm, data, &cache, &plan, ((0, 0), EPOCHS), |_, _| Ok(()))?;
    let meters = cache.finish(comm)?;
    let mut sums = [
        bytes_read(&backend),
        meters.kept_bytes,
        meters.local_bytes + meters.remote_bytes,
    ];
    comm.all_reduce(&mut sums, Reduction::Sum)?;
    let bytes = data.dataset.bytes();
    let [read, kept, served] = sums;
    match pipeline {
        Pipeline::InMemory => assert_eq!((kind, read, served), (0, bytes, EPOCHS * bytes)),
        Pipeline::Opportunistic { .. } => {
            let all = EPOCHS * bytes;
            assert_eq!((kind, read + kept, served), (1, all, all));
        }
        Pipeline::Ordered { resident_bytes } => {
            assert_eq!(served, EPOCHS * resident_bytes);
            assert_eq!(read, resident_bytes + EPOCHS * (bytes - resident_bytes));
        }
        other => panic!("{other}"),
    }
    Ok(())
}

/// The last rank fails in the second epoch; all others read on until they hear of it.
fn fail(comm: &Comm, kind: u32) -> Result<(), CacheError> {
    let data = ragged(&[1500]);
    let (plan, options) = setup(comm, &data, kind);
    let options = CacheOptions {
        end_epoch: None,
        ..options
    };
    let dataset = data.behind(|storage| storage);
    let cache = PeerCache::new(comm, &dataset, &plan, &options)?;
    let last = comm.rank() + 1 == comm.size();
    consume(
        comm,
        &data,
        &cache,
        &plan,
        ((0, 0), u64::MAX),
        |epoch, step| {
            if last && epoch == 1 && step == 20 {
                return Err(CacheError::Storage(StorageError::failed_at(
                    "here",
                    "weigh",
                    0,
                    std::io::Error::other("the scales of this rank are broken"),
                )));
            }
            Ok(())
        },
    )
}
