//! A storage that is read ahead: the same bytes, sooner if they are read in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pelton_storage::conformance::{check_ranges, check_storage, read_ranges};
use pelton_storage::{Faults, Faulty, MemoryStorage, Metered, ReadAhead, Storage};

const MIB: usize = 1 << 20;

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64)
        .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

/// A storage that delays each read.
fn slow(bytes: &[u8], delay: Duration) -> Arc<dyn Storage> {
    let faults = Faults {
        delay_probability: 1.0,
        delay,
        ..Faults::default()
    };
    Arc::new(Faulty::new(Arc::new(MemoryStorage::new(bytes)), faults))
}

#[test]
fn it_conforms() {
    for size in [0, 1000, MIB, 3 * MIB + 777] {
        let bytes = pattern(size);
        let ahead = ReadAhead::new(Arc::new(MemoryStorage::new(&bytes[..])), size as u64);
        check_storage(&ahead, &bytes);
    }
}

/// Forty blocks one by one would take 1.6 s.
#[test]
fn what_comes_next_is_fetched_meanwhile() {
    let bytes = pattern(40 * MIB);
    let ahead = ReadAhead::new(slow(&bytes, Duration::from_millis(40)), bytes.len() as u64);
    let began = Instant::now();
    for at in (0..bytes.len()).step_by(64 << 10) {
        check_ranges(&ahead, &bytes, &[(at as u64, 64 << 10)]);
    }
    let took = began.elapsed();
    assert!(took < Duration::from_millis(800), "{took:?}");
}

#[test]
fn hops_fetch_a_block_each_and_order_each_block_once() {
    let bytes = pattern(60 * MIB);
    let reads = |places: &[usize]| {
        let metered = Arc::new(Metered::new(Arc::new(MemoryStorage::new(&bytes[..]))));
        let ahead = ReadAhead::new(metered.clone(), bytes.len() as u64);
        for &at in places {
            check_ranges(&ahead, &bytes, &[(at as u64, 4096)]);
        }
        // Threads may still be fetching ahead.
        std::thread::sleep(Duration::from_millis(50));
        metered.meter().reads
    };
    assert_eq!(reads(&[0, 25 * MIB, 50 * MIB, 5 * MIB]), 4);
    let in_order: Vec<usize> = (0..60).map(|block| block * MIB + 5).collect();
    assert_eq!(reads(&in_order), 60);
}

/// Each three chunks come last to first.
#[test]
fn a_reader_that_is_not_quite_in_order() {
    let bytes = pattern(21 * MIB);
    let metered = Arc::new(Metered::new(slow(&bytes, Duration::from_millis(2))));
    let ahead = ReadAhead::new(metered.clone(), bytes.len() as u64);
    for chunk in (0..84).map(|at| at / 3 * 3 + 2 - at % 3) {
        check_ranges(&ahead, &bytes, &[(chunk * 262_144, 262_144)]);
    }
    assert_eq!(metered.meter().reads, 21);
}

/// Readers of neighbouring chunks, as a parallel scan has them. One that is held up fetches a block again.
#[test]
fn readers_at_once() {
    let bytes = pattern(20 * MIB);
    let metered = Arc::new(Metered::new(slow(&bytes, Duration::from_millis(2))));
    let ahead = ReadAhead::new(metered.clone(), bytes.len() as u64);
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let chunk = next.fetch_add(1, Ordering::Relaxed);
                    if chunk >= 80 {
                        return;
                    }
                    check_ranges(&ahead, &bytes, &[(chunk * 262_144, 262_144)]);
                }
            });
        }
    });
    assert!(metered.meter().reads <= 40, "{:?}", metered.meter());
}

/// A read of the bad block gets the error; reads of other blocks, and later ones, succeed.
#[test]
fn a_failure_reaches_whoever_asks_for_the_block() {
    let bytes = pattern(6 * MIB);
    let faults = Faults {
        bad_bytes: vec![3 * MIB as u64 + 9],
        ..Faults::default()
    };
    let inner = Faulty::new(Arc::new(MemoryStorage::new(&bytes[..])), faults);
    let ahead = ReadAhead::new(Arc::new(inner), bytes.len() as u64);
    for round in 0..3 {
        for block in 0..6 {
            let outcome = read_ranges(&ahead, &[((block * MIB) as u64, 10)]);
            assert_eq!(
                outcome.is_err(),
                block == 3,
                "block {block} in round {round}"
            );
        }
    }
}
