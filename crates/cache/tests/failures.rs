//! Ranks, backends and readers that fail at any moment: every rank ends, soon, with an error that says
//! why.

mod support;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pelton_cache::{CacheError, CacheOptions, PeerCache, loads_for};
use pelton_comm::{Comm, RankError, run_ranks};
use pelton_format::Dataset;
use pelton_key::splitmix64;
use pelton_plan::{Batching, Catalog, Order, Plan, PlanSpec};
use pelton_storage::{
    DeviceModel, Faults, Faulty, MemoryStorage, StorageError, ThrottleMode, Throttled,
};
use support::{Data, even, plan_in_loads, ragged, received, units_of};

const RANKS: usize = 3;
const UNIT_BYTES: u64 = 512;
/// All ranks have ended this soon after one failed.
const WITHIN: Duration = Duration::from_secs(5);

/// How much of the data the ranks hold, and in what order it is read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Case {
    InMemory,
    Loads,
    Ordered,
}

const CASES: [Case; 3] = [Case::InMemory, Case::Loads, Case::Ordered];

fn case(data: &Data, case: Case) -> (Arc<Plan>, CacheOptions) {
    let dataset = &data.dataset;
    let mut memory = dataset.bytes() / 4;
    let plan = match case {
        Case::Loads => {
            let units = units_of(dataset, UNIT_BYTES);
            // More than it takes.
            let loads = 20 + loads_for(dataset, &units, memory, RANKS).expect("some fit");
            plan_in_loads(dataset, loads, UNIT_BYTES, 16)
        }
        _ => {
            let plan = Plan::new(
                &PlanSpec::new(Order::Full, Batching::Examples(16), 5),
                Catalog::new(dataset.records()),
            );
            Arc::new(plan.unwrap())
        }
    };
    if case == Case::InMemory {
        memory = dataset.bytes();
    }
    let options = CacheOptions {
        memory_bytes: memory.div_ceil(RANKS as u64) + 1,
        ..CacheOptions::default()
    };
    (plan, options)
}

/// Reads epoch after epoch until something fails; `each` is asked before every step.
fn consume_for_ever(
    data: &Data,
    cache: &PeerCache,
    plan: &Plan,
    mut each: impl FnMut(u64) -> Result<(), CacheError>,
) -> Result<(), CacheError> {
    let read = cache.dataset();
    let mut ids = Vec::new();
    for number in 0.. {
        each(number)?;
        let (epoch, step) = (number / plan.steps(0), number % plan.steps(0));
        ids.clear();
        ids.extend(plan.step_ids(epoch, step));
        data.check(&read, &ids)?;
        received(cache, plan, (epoch, step));
    }
    Ok(())
}

/// All messages of an error and its sources.
fn story(error: &dyn Error) -> String {
    let mut story = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        story.push_str(": ");
        story.push_str(&source.to_string());
        next = source.source();
    }
    story
}

fn boom() -> CacheError {
    let source = std::io::Error::other("the scales of this rank are broken");
    CacheError::Storage(StorageError::failed_at("here", "weigh", 0, source))
}

#[test]
fn a_rank_that_fails_at_any_step_ends_all() {
    let data = ragged(&[1500]);
    for kind in CASES {
        for round in 0..12_u64 {
            let (plan, options) = case(&data, kind);
            let dataset = data.behind(|storage| storage);
            let fails_at = splitmix64(round) % (2 * plan.steps(0));
            let failed = std::sync::Mutex::new(None);
            let errors = std::sync::Mutex::new(Vec::new());
            let result: Result<Vec<()>, RankError<CacheError>> = run_ranks(RANKS, |comm| {
                let culprit = comm.rank() as u64 == round % RANKS as u64;
                let each = |number| {
                    if culprit && number == fails_at {
                        *failed.lock().unwrap() = Some(Instant::now());
                        return Err(boom());
                    }
                    Ok(())
                };
                // Others may not have returned from `new` yet when this one fails.
                let result = PeerCache::new(&comm, &dataset, &plan, &options)
                    .and_then(|cache| consume_for_ever(&data, &cache, &plan, each));
                if let (Err(error), false) = (&result, culprit) {
                    errors.lock().unwrap().push(story(error));
                }
                result
            });
            let error = result.unwrap_err();
            assert_eq!(error.rank as u64, round % RANKS as u64, "{error}");
            assert!(failed.lock().unwrap().unwrap().elapsed() < WITHIN);
            let errors = errors.into_inner().unwrap();
            assert_eq!(errors.len(), RANKS - 1);
            let named = format!("rank {} failed", round % RANKS as u64);
            assert!(
                errors.iter().all(|error| error.contains(&named)),
                "{errors:?}"
            );
        }
    }
}

#[test]
fn a_rank_that_panics_or_leaves_ends_all() {
    let data = ragged(&[1500]);
    for kind in CASES {
        for leaves in [false, true] {
            let (plan, options) = case(&data, kind);
            let dataset = data.behind(|storage| storage);
            let begun = Instant::now();
            let result: Result<Vec<()>, RankError<CacheError>> = run_ranks(RANKS, |comm| {
                let cache = PeerCache::new(&comm, &dataset, &plan, &options)?;
                if comm.rank() == 1 && leaves {
                    drop(cache);
                    return Err(boom());
                }
                consume_for_ever(&data, &cache, &plan, |number| {
                    assert!(comm.rank() != 1 || number < 40, "this rank panics");
                    Ok(())
                })
            });
            assert_eq!(result.unwrap_err().rank, 1);
            assert!(begun.elapsed() < 2 * WITHIN);
        }
    }
}

/// The backend of one rank dies after some batches: in the first load, in a refill, in a read.
#[test]
fn a_backend_that_dies_ends_all() {
    let data = ragged(&[1500]);
    for kind in CASES {
        for dies_after in [0, 1, 2, 3, 7] {
            if kind == Case::InMemory && dies_after > 0 {
                continue;
            }
            let (plan, options) = case(&data, kind);
            let errors = std::sync::Mutex::new(Vec::new());
            let begun = Instant::now();
            let result: Result<Vec<()>, RankError<CacheError>> = run_ranks(RANKS, |comm| {
                let faults = Faults {
                    dies_after_batches: (comm.rank() == 2).then_some(dies_after),
                    ..Faults::default()
                };
                let dataset = data.behind(|inner| Arc::new(Faulty::new(inner, faults.clone())));
                let result = PeerCache::new(&comm, &dataset, &plan, &options)
                    .and_then(|cache| consume_for_ever(&data, &cache, &plan, |_| Ok(())));
                if let Err(error) = &result {
                    errors.lock().unwrap().push((comm.rank(), story(error)));
                }
                result
            });
            assert!(result.is_err() && begun.elapsed() < WITHIN);
            let errors = errors.into_inner().unwrap();
            assert_eq!(errors.len(), RANKS);
            for (rank, error) in errors {
                let says = match rank {
                    2 => error.contains("os error 5"),
                    _ => error.contains("rank 2 "),
                };
                assert!(says, "rank {rank}: {error}");
            }
        }
    }
}

/// A consumer that has stopped reading still learns from `finish` that loading failed.
#[test]
fn loading_that_failed_unnoticed_is_told_at_the_end() {
    let data = ragged(&[1500]);
    let (plan, options) = case(&data, Case::Loads);
    let result: Result<Vec<()>, RankError<CacheError>> = run_ranks(RANKS, |comm| {
        let faults = Faults {
            dies_after_batches: (comm.rank() == 0).then_some(1),
            ..Faults::default()
        };
        let dataset = data.behind(|inner| Arc::new(Faulty::new(inner, faults.clone())));
        let cache = PeerCache::new(&comm, &dataset, &plan, &options)?;
        std::thread::sleep(Duration::from_millis(200));
        let error = cache.finish(&comm).unwrap_err();
        assert!(matches!(error, CacheError::Loading(_)), "{error}");
        Err(error)
    });
    assert!(result.is_err());
}

/// The data on its own device, which reads this many pages a second.
fn throttled(data: &Data, pages_per_s: f64) -> Dataset {
    let model = DeviceModel {
        sequential_read_iops: pages_per_s,
        random_read_iops: pages_per_s,
        bandwidth_bytes_per_s: None,
        latency_s: 0.0,
        ..DeviceModel::ssd()
    };
    data.behind(|inner| {
        let mode = ThrottleMode::RealTime;
        Arc::new(Throttled::new(inner, model.clone(), mode))
    })
}

#[test]
fn readers_wait_for_refills_that_lag() {
    let data = even(&[3000], 15);
    let (plan, options) = case(&data, Case::Loads);
    let options = CacheOptions {
        end_epoch: Some(2),
        ..options
    };
    let meters = run_ranks(RANKS, |comm| {
        let dataset = throttled(&data, 200.0);
        let cache = PeerCache::new(&comm, &dataset, &plan, &options)?;
        let mut ids = Vec::new();
        for number in 0..2 * plan.steps(0) {
            let (epoch, step) = (number / plan.steps(0), number % plan.steps(0));
            ids.clear();
            ids.extend(plan.step_ids(epoch, step));
            data.check(&cache.dataset(), &ids)?;
            received(&cache, &plan, (epoch, step));
        }
        cache.finish(&comm)
    });
    for rank in meters.unwrap() {
        assert!(rank.wait_s > 0.1 && rank.early_bytes == 0, "{rank:?}");
    }
}

#[test]
fn an_interrupt_ends_waiting_and_loading() {
    let data = even(&[3000], 15);
    let dataset = data.behind(|inner| inner);
    for before in [false, true] {
        let (plan, options) = case(&data, Case::Loads);
        let interrupt = Arc::new(AtomicBool::new(before));
        let options = CacheOptions {
            interrupt: Arc::clone(&interrupt),
            ..options
        };
        let begun = Instant::now();
        let result: Result<Vec<()>, RankError<CacheError>> = run_ranks(RANKS, |comm| {
            let cache = PeerCache::new(&comm, &dataset, &plan, &options)?;
            let later = first_ids(&plan, 1);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(50));
                    interrupt.store(true, Ordering::Relaxed);
                });
                data.check(&cache.dataset(), &later)
            })?;
            Ok(())
        });
        let error = result.unwrap_err();
        assert!(story(&error).contains("interrupted"), "{error}");
        assert!(begun.elapsed() < WITHIN);
    }
}

/// All ids of an epoch.
fn first_ids(plan: &Plan, epoch: u64) -> Vec<u64> {
    let mut ids = vec![0; plan.records() as usize];
    plan.epoch_order(epoch).unwrap().fill(0, &mut ids);
    ids
}

/// The one that reads further ahead than a load before it receives anything gets its bytes all the same.
#[test]
fn readers_too_far_ahead_read_for_themselves() {
    let data = even(&[3000], 15);
    let (plan, options) = case(&data, Case::Loads);
    let options = CacheOptions {
        patience: Duration::from_millis(30),
        end_epoch: Some(1),
        ..options
    };
    let dataset = data.behind(|inner| inner);
    let meters = run_ranks(RANKS, |comm| {
        let cache = PeerCache::new(&comm, &dataset, &plan, &options)?;
        data.check(&cache.dataset(), &first_ids(&plan, 0))?;
        cache.finish(&comm)
    });
    for rank in meters.unwrap() {
        // All but the two loads in memory; or three, if the first is dropped meanwhile.
        let share = rank.early_bytes as f64 / data.dataset.bytes() as f64;
        let rest = 1.0 - 2.0 / plan.loads().unwrap() as f64;
        assert!(share < rest + 0.01 && share > rest - 0.15, "{share}");
    }
}

fn check_refused(
    make: impl Fn(&Comm) -> Result<PeerCache, CacheError> + Sync,
    expected: fn(&CacheError) -> bool,
) {
    let result = run_ranks(2, |comm| {
        let error = make(&comm).expect_err("refused");
        let fits = expected(&error) || matches!(error, CacheError::PeerFailed { .. });
        assert!(fits, "{error}");
        // All ranks have an error, so all may continue.
        comm.barrier()?;
        Ok::<_, CacheError>(expected(&error))
    });
    assert!(result.unwrap().contains(&true));
}

#[test]
fn what_does_not_belong_together_is_refused_on_every_rank() {
    let data = ragged(&[100]);
    let dataset = data.behind(|inner| inner);
    let (plan, options) = case(&data, Case::InMemory);
    let other = |records| {
        let plan = Plan::new(
            &PlanSpec::new(Order::Full, Batching::Examples(16), records),
            Catalog::new(records),
        )
        .unwrap();
        Arc::new(plan)
    };
    check_refused(
        |comm| PeerCache::new(comm, &dataset, &other(99), &options),
        |error| {
            matches!(
                error,
                CacheError::OtherPlan {
                    planned: 99,
                    records: 100
                }
            )
        },
    );
    check_refused(
        |comm| {
            let plan = match comm.rank() {
                1 => other(100),
                _ => Arc::clone(&plan),
            };
            PeerCache::new(comm, &dataset, &plan, &options)
        },
        |error| {
            error
                .to_string()
                .starts_with("rank 1 has a plan with the fingerprint")
        },
    );
    let cut: Arc<[u8]> = data.bytes[0][..data.bytes[0].len() - 1].into();
    let shorter = data.behind(|_| Arc::new(MemoryStorage::new(Arc::clone(&cut))));
    check_refused(
        |comm| {
            let options = CacheOptions {
                memory_bytes: 1 << 20,
                ..options.clone()
            };
            PeerCache::new(comm, &shorter, &plan, &options)
        },
        |error| matches!(error, CacheError::Shrunk { .. }),
    );
}

#[test]
fn reads_after_the_end_are_refused() {
    let data = ragged(&[100]);
    let dataset = data.behind(|inner| inner);
    let (plan, options) = case(&data, Case::InMemory);
    run_ranks(2, |comm| {
        let options = CacheOptions {
            memory_bytes: 1 << 20,
            ..options.clone()
        };
        let cache = PeerCache::new(&comm, &dataset, &plan, &options)?;
        let read = cache.dataset();
        cache.finish(&comm)?;
        let error = data.check(&read, &[3]).unwrap_err();
        assert!(story(&error).contains("given back"), "{error}");
        Ok::<_, CacheError>(())
    })
    .unwrap();
}
