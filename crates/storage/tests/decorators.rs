//! Every decorator passes the conformance suite, and does its own work as well.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pelton_storage::conformance::{check_decorator, check_storage, read_ranges};
use pelton_storage::{
    DeviceModel, Faults, Faulty, LocalFile, LocalMode, LocalOptions, MemoryStorage, Metered,
    ModelledDevice, PAGE_BYTES, ReadAhead, Resident, Storage, ThrottleMode, Throttled,
};

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64)
        .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

/// The same bytes in memory and in a file.
fn backends(bytes: &[u8], check: impl Fn(Arc<dyn Storage>)) {
    check(Arc::new(MemoryStorage::new(bytes)));
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("data");
    std::fs::write(&path, bytes).expect("write");
    check(Arc::new(
        LocalFile::open(&path, LocalOptions::default()).expect("open"),
    ));
}

#[test]
fn every_decorator_conforms() {
    let bytes = pattern(200_003);
    backends(&bytes, |inner| {
        check_storage(&Metered::new(Arc::clone(&inner)), &bytes);
        let virtual_time = Throttled::new(
            Arc::clone(&inner),
            DeviceModel::hdd(),
            ThrottleMode::Virtual,
        );
        check_storage(&virtual_time, &bytes);
        assert!(virtual_time.virtual_seconds() > 0.0);
        let real_time = Throttled::new(
            Arc::clone(&inner),
            DeviceModel::optane(),
            ThrottleMode::RealTime,
        );
        check_storage(&real_time, &bytes);
        check_storage(&Faulty::new(inner, Faults::default()), &bytes);
    });
}

#[test]
fn decorators_conform_in_a_stack() {
    let bytes = pattern(50_000);
    backends(&bytes, |inner| {
        let faults = Faults {
            delay_probability: 0.05,
            delay: Duration::from_micros(50),
            ..Faults::default()
        };
        let late = Arc::new(Faulty::new(inner, faults));
        let priced = Throttled::new(late, DeviceModel::ssd(), ThrottleMode::Virtual);
        check_storage(&Metered::new(Arc::new(priced)), &bytes);
    });
}

#[test]
fn a_truncated_storage_conforms_to_what_is_left() {
    let bytes = pattern(100_000);
    backends(&bytes, |inner| {
        let faults = Faults {
            truncate_at: Some(33_333),
            ..Faults::default()
        };
        check_storage(&Faulty::new(inner, faults), &bytes[..33_333]);
    });
}

/// Under injected failures a batch either fails by name or gives the right bytes, cut short at
/// most; and it does the same again.
#[test]
fn failures_are_errors_or_short_reads_never_wrong_bytes() {
    let bytes = pattern(400_000);
    backends(&bytes, |inner| {
        let unit = u64::from(inner.granularity().offset_bytes).max(512);
        let faulty = || {
            let faults = Faults {
                key: 7,
                error_probability: 0.2,
                short_probability: 0.3,
                ..Faults::default()
            };
            Metered::new(Arc::new(Faulty::new(Arc::clone(&inner), faults)))
        };
        let (first, second) = (faulty(), faulty());
        let (mut failed, mut short, mut whole) = (0, 0, 0);
        for place in 0..bytes.len() as u64 / unit - 4 {
            let range = (place * unit, 4 * unit as usize);
            let got = read_ranges(&first, &[range]);
            match (got, read_ranges(&second, &[range])) {
                (Err(error), Err(again)) => {
                    assert_eq!(error.to_string(), again.to_string());
                    let at = format!("read failed at byte {}", range.0);
                    assert!(error.to_string().contains(&at), "{error}");
                    failed += 1;
                }
                (Ok(got), Ok(again)) => {
                    assert_eq!(got, again);
                    assert!(bytes[range.0 as usize..].starts_with(&got[0]));
                    if got[0].len() < range.1 {
                        short += 1;
                    } else {
                        whole += 1;
                    }
                }
                (got, again) => panic!("{got:?} first, then {again:?}"),
            }
        }
        // About 780 offsets: a fifth fails, three tenths of the rest are short. Five standard deviations of these
        // binomials are under 70.
        assert!((86..=226).contains(&failed), "{failed} failed");
        assert!((117..=257).contains(&short), "{short} short");
        assert!((366..=506).contains(&whole), "{whole} whole");
        assert_eq!(first.meter().reads, short + whole);
        assert_eq!(first.meter().batches, failed + short + whole);
    });
}

#[test]
fn bad_bytes_fail_exactly_the_reads_that_cover_them() {
    let bytes = pattern(64_000);
    let faults = Faults {
        bad_bytes: vec![5000],
        ..Faults::default()
    };
    let faulty = Faulty::new(Arc::new(MemoryStorage::new(bytes)), faults);
    for (range, fails) in [
        ((4000, 1000), false),
        ((4000, 1001), true),
        ((5000, 1), true),
        ((5001, 100), false),
    ] {
        let outcome = read_ranges(&faulty, &[(0, 10), range]);
        assert_eq!(outcome.is_err(), fails, "{range:?}: {outcome:?}");
    }
}

#[test]
fn a_device_dies_when_told() {
    let faults = Faults {
        dies_after_batches: Some(3),
        ..Faults::default()
    };
    let faulty = Faulty::new(Arc::new(MemoryStorage::new(pattern(100))), faults);
    for batch in 0..6 {
        let outcome = read_ranges(&faulty, &[(40, 10)]);
        assert_eq!(outcome.is_ok(), batch < 3, "batch {batch}");
        if let Err(error) = outcome {
            assert!(error.to_string().contains("failed at byte 40"), "{error}");
        }
    }
}

#[test]
fn virtual_time_is_the_cost_model_exactly() {
    let storage = Arc::new(MemoryStorage::new(pattern(1 << 20)));
    let hdd = Throttled::new(storage, DeviceModel::hdd(), ThrottleMode::Virtual);
    let page = PAGE_BYTES as usize;
    // 1 random + 255 sequential pages, carried over two batches.
    read_ranges(&hdd, &[(0, 128 * page)]).expect("read");
    read_ranges(&hdd, &[(128 * PAGE_BYTES, 128 * page)]).expect("read");
    let sequential = 1.0 / 600.0 + 255.0 / 40_000.0;
    assert!((hdd.virtual_seconds() - sequential).abs() < 1e-12);
    // 100 random pages.
    let ranges: Vec<_> = (0..100)
        .map(|i| ((i * 37 % 256) * PAGE_BYTES, page))
        .collect();
    read_ranges(&hdd, &ranges).expect("read");
    let wanted = sequential + 100.0 / 600.0;
    assert!((hdd.virtual_seconds() - wanted).abs() < 1e-12);
    // The same use on another device.
    let used = hdd.device().used();
    assert_eq!(
        (used.random_read_pages, used.sequential_read_pages),
        (101, 255)
    );
    let optane = DeviceModel::optane().seconds(&used);
    assert!((optane - (101.0 / 550_000.0 + 255.0 / 614_000.0)).abs() < 1e-12);
    hdd.device().reset();
    assert_eq!(hdd.virtual_seconds(), 0.0);
}

#[test]
fn files_of_one_device_share_its_head_and_time() {
    let device = ModelledDevice::new(DeviceModel::hdd(), ThrottleMode::Virtual);
    let file = || Throttled::on(&device, Arc::new(MemoryStorage::new(pattern(100_000))));
    let (one, other) = (file(), file());
    for place in 0..5u64 {
        for storage in [&one, &other] {
            read_ranges(storage, &[(place * PAGE_BYTES, 4096)]).expect("read");
        }
    }
    // Each file is read in order, but the head goes to and fro.
    assert_eq!(device.used().random_read_pages, 10);
    device.write(10_000, true);
    device.write(4096, false);
    assert_eq!(device.used().sequential_write_pages, 3);
    assert_eq!(device.used().random_write_pages, 1);
}

/// Four callers on one slow device take as long as one caller with all the work.
#[test]
fn real_time_holds_across_callers() {
    let storage = Arc::new(MemoryStorage::new(pattern(1 << 20)));
    let hdd = Throttled::new(storage, DeviceModel::hdd(), ThrottleMode::RealTime);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for caller in 0..4u64 {
            let hdd = &hdd;
            scope.spawn(move || {
                let ranges: Vec<_> = (0..15)
                    .map(|i| ((caller * 60 + i * 4) * PAGE_BYTES, 4096))
                    .collect();
                read_ranges(hdd, &ranges).expect("read");
            });
        }
    });
    // 60 random pages at 600 a second.
    let waited = begun.elapsed().as_secs_f64();
    assert!(waited >= 0.1, "only {waited} s");
    assert!((hdd.virtual_seconds() - 0.1).abs() < 1e-3);
}

#[test]
fn hints_reach_what_is_decorated() {
    check_decorator(|inner| inner);
    check_decorator(Metered::new);
    check_decorator(|inner| Faulty::new(inner, Faults::default()));
    check_decorator(|inner| Throttled::new(inner, DeviceModel::ssd(), ThrottleMode::Virtual));
    check_decorator(|inner| ReadAhead::new(inner, 100_000));
    check_decorator(|inner| Resident::new(inner, Resident::PAYS_AFTER).expect("memory"));
}

/// A path through the page cache is offered if the decorator works on it, too.
#[test]
fn counts_follow_the_path_through_the_page_cache() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("folder");
    let path = folder.path().join("data");
    std::fs::write(&path, pattern(50_000)).expect("write");
    let buffered = LocalOptions {
        mode: LocalMode::Buffered,
        ..LocalOptions::default()
    };
    let open = |options| Arc::new(LocalFile::open(&path, options).expect("open"));
    assert!(Metered::new(open(buffered)).reads_page_cache());
    let metered = Metered::new(open(LocalOptions::default()));
    if let Some(buffered) = metered.buffered() {
        read_ranges(&*buffered, &[(0, 4096)]).expect("read");
        assert_eq!(metered.meter().bytes, 4096);
    }
}
