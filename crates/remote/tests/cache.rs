//! The cache on disk: blocks that were read are there, whole or not at all, whatever happens to processes and
//! folders.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pelton_remote::DiskCache;
use pelton_storage::conformance::{check_ranges, check_storage};
use pelton_storage::{Faults, Faulty, MemoryStorage, Metered, Storage};
use tempfile::tempdir;

const MIB: usize = 1 << 20;
const LIMIT: u64 = 64 << 20;

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64)
        .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

/// `bytes` as the file `data` behind a cache in `folder`, and what counts the reads of the file itself.
fn cached(folder: &Path, bytes: &[u8]) -> (impl Storage + use<>, Arc<Metered>, Arc<DiskCache>) {
    let metered = Arc::new(Metered::new(Arc::new(MemoryStorage::new(bytes))));
    let cache = DiskCache::new(folder.to_path_buf(), LIMIT);
    let storage = cache.over(metered.clone(), "data", 1, bytes.len() as u64);
    (storage, metered, cache)
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let files = |folder: &Path| {
        let entries = fs::read_dir(folder).expect("a folder");
        entries
            .map(|entry| entry.expect("an entry").path())
            .collect::<Vec<_>>()
    };
    let mut segments: Vec<PathBuf> = files(folder)
        .iter()
        .flat_map(|folder| files(folder))
        .collect();
    segments.sort();
    segments
}

#[test]
fn it_conforms_cold_and_warm() {
    for size in [0, 1, 16 << 10, 200_003, 33 * MIB + 5] {
        let folder = tempdir().expect("a folder");
        let bytes = pattern(size);
        for round in 0..3 {
            let (storage, metered, cache) = cached(folder.path(), &bytes);
            check_storage(&storage, &bytes);
            assert_eq!(cache.trouble(), None);
            let read = metered.meter().bytes;
            match round {
                // A block that two threads miss at once is fetched twice.
                0 => assert!(
                    (size as u64..=2 * size as u64).contains(&read),
                    "{read} of {size}"
                ),
                _ => assert_eq!(read, 0),
            }
        }
    }
}

#[test]
fn only_what_is_asked_for_is_fetched_and_only_once() {
    let folder = tempdir().expect("a folder");
    let bytes = pattern(40 * MIB);
    let (storage, metered, _) = cached(folder.path(), &bytes);
    let ranges: Vec<(u64, usize)> = (0..50).map(|i| (i * 777_777, 3000)).collect();
    for _ in 0..3 {
        check_ranges(&storage, &bytes, &ranges);
    }
    let meter = metered.meter();
    assert_eq!(meter.batches, 1);
    assert!(meter.bytes <= 50 * 2 * (16 << 10), "{meter:?}");
    // Only the rest, in addition to the cached bytes.
    check_ranges(&storage, &bytes, &[(0, 64 << 10)]);
    assert_eq!(metered.meter().bytes - meter.bytes, 3 * (16 << 10));
}

#[test]
fn another_state_or_another_file_finds_nothing() {
    let folder = tempdir().expect("a folder");
    let cache = DiskCache::new(folder.path().into(), LIMIT);
    for (name, tag, size) in [
        ("a", 1, 1000),
        ("a", 2, 1000),
        ("b", 1, 1000),
        ("a", 1, 1001),
    ] {
        let bytes = vec![size as u8 ^ tag as u8 ^ name.as_bytes()[0]; size];
        let storage = cache.over(
            Arc::new(MemoryStorage::new(&bytes[..])),
            name,
            tag,
            size as u64,
        );
        check_ranges(&storage, &bytes, &[(0, 1000), (500, 501)]);
    }
    assert_eq!(segments(folder.path()).len(), 4);
}

#[test]
fn damaged_blocks_are_fetched_again() {
    let folder = tempdir().expect("a folder");
    let bytes = pattern(2 * MIB + 9);
    check_ranges(&cached(folder.path(), &bytes).0, &bytes, &[(0, 3 * MIB)]);
    let segment = &segments(folder.path())[0];
    let whole = fs::read(segment).expect("the segment");
    let slot = (16 << 10) + 8;
    let damage = |at: usize, with: &[u8], blocks: u64| {
        fs::write(segment, &whole).expect("as it was");
        let file = File::options()
            .write(true)
            .open(segment)
            .expect("the segment");
        file.write_all_at(with, at as u64).expect("written");
        let (storage, metered, _) = cached(folder.path(), &bytes);
        check_ranges(&storage, &bytes, &[(0, 3 * MIB)]);
        assert_eq!(metered.meter().bytes.div_ceil(16 << 10), blocks, "at {at}");
        // Put right by that.
        assert!(fs::read(segment).expect("the segment") == whole);
    };
    damage(0, &[0; 8], 1);
    damage(3 * slot + 5000, &[whole[3 * slot + 5000] ^ 1], 1);
    damage(4 * slot - 100, &[0xff; 200], 2);
    // A block overwritten by another one.
    damage(7 * slot, &whole[9 * slot..10 * slot], 1);
    damage(whole.len() - 1, &[whole[whole.len() - 1] ^ 128], 1);
    for length in [0, 5, slot - 1, slot, 10 * slot + 3] {
        File::options()
            .write(true)
            .open(segment)
            .and_then(|file| file.set_len(length as u64))
            .expect("cut");
        let (storage, metered, _) = cached(folder.path(), &bytes);
        check_ranges(&storage, &bytes, &[(0, 3 * MIB)]);
        assert_eq!(
            metered.meter().bytes.div_ceil(16 << 10),
            129 - (length / slot) as u64
        );
    }
    fs::remove_dir_all(folder.path().join(segment.parent().expect("a folder"))).expect("removed");
    check_ranges(&cached(folder.path(), &bytes).0, &bytes, &[(0, 3 * MIB)]);
}

#[test]
fn the_least_recently_used_make_room() {
    let folder = tempdir().expect("a folder");
    let bytes = pattern(128 * MIB);
    let (storage, _, cache) = cached(folder.path(), &bytes);
    let read = |from: usize, to: usize| {
        for at in (from..to).step_by(MIB) {
            check_ranges(&storage, &bytes, &[(at as u64, MIB)]);
        }
    };
    read(0, 48 * MIB);
    let used_last = segments(folder.path());
    assert_eq!(used_last.len(), 3);
    // The second was used an hour ago, the others two hours ago.
    for (number, path) in used_last.iter().enumerate() {
        let hours = if number == 1 { 1 } else { 2 };
        let at = SystemTime::now() - Duration::from_secs(3600 * hours);
        File::open(path)
            .and_then(|file| file.set_modified(at))
            .expect("set");
    }
    read(48 * MIB, 72 * MIB);
    let left = segments(folder.path());
    assert!(left.contains(&used_last[1]), "{left:?}");
    assert!(
        !left.contains(&used_last[0]) || !left.contains(&used_last[2]),
        "{left:?}"
    );
    read(0, 128 * MIB);
    let used = cache.used().expect("looked through");
    assert!((LIMIT / 2..=LIMIT).contains(&used), "{used}");
    assert_eq!(cache.trouble(), None);
    check_ranges(&storage, &bytes, &[(0, 128 * MIB)]);
}

#[test]
fn a_full_disk_only_ends_keeping() {
    let folder = tempdir().expect("a folder");
    let bytes = pattern(MIB);
    check_ranges(&cached(folder.path(), &bytes).0, &bytes, &[(0, MIB)]);
    let segment = &segments(folder.path())[0];
    fs::remove_file(segment).expect("removed");
    // A device that reads as zeros and is always full.
    std::os::unix::fs::symlink("/dev/full", segment).expect("a link");
    let (storage, metered, cache) = cached(folder.path(), &bytes);
    for round in 1..=3 {
        check_ranges(&storage, &bytes, &[(0, MIB)]);
        assert_eq!(metered.meter().bytes, round * MIB as u64);
    }
    let trouble = cache.trouble().expect("it is full");
    assert!(trouble.contains("nothing more is kept there"), "{trouble}");
    // A folder that cannot be one.
    let file = folder.path().join("file");
    fs::write(&file, "").expect("written");
    let (storage, _, cache) = cached(&file, &bytes);
    check_storage(&storage, &bytes);
    assert!(
        cache
            .trouble()
            .expect("no folder")
            .contains("is not a directory")
            || cache.trouble().is_some()
    );
}

/// A failure below comes out, and nothing of it is kept.
#[test]
fn failures_are_not_kept() {
    let folder = tempdir().expect("a folder");
    let bytes = pattern(MIB);
    let cache = DiskCache::new(folder.path().into(), LIMIT);
    let faults = Faults {
        bad_bytes: vec![500_000],
        ..Faults::default()
    };
    let memory = Arc::new(MemoryStorage::new(&bytes[..]));
    let bad = cache.over(
        Arc::new(Faulty::new(memory.clone(), faults)),
        "data",
        1,
        MIB as u64,
    );
    assert!(pelton_storage::conformance::read_ranges(&bad, &[(490_000, 20_000)]).is_err());
    check_ranges(&bad, &bytes, &[(0, 400_000), (600_000, 9)]);
    // A file shorter than its stated size.
    let short = Faults {
        truncate_at: Some(700_000),
        ..Faults::default()
    };
    let short = cache.over(
        Arc::new(Faulty::new(memory.clone(), short)),
        "data",
        1,
        MIB as u64,
    );
    let got = pelton_storage::conformance::read_ranges(&short, &[(690_000, 50_000)]).expect("read");
    assert_eq!(got[0], bytes[690_000..700_000]);
    let good = cache.over(memory, "data", 1, MIB as u64);
    check_ranges(&good, &bytes, &[(0, MIB)]);
}

const FOLDER: &str = "PELTON_TEST_CACHE_FOLDER";

/// The work of a second process: reads ranges all over the file through the cache, until it is killed.
#[test]
#[ignore = "run by the tests below in a process of its own"]
fn second_process() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let bytes = pattern(96 * MIB);
    let (storage, ..) = cached(Path::new(&folder), &bytes);
    for round in 0u64.. {
        let ranges: Vec<(u64, usize)> = (0..20)
            .map(|i| ((round * 20 + i) * 7_654_321 % (95 * MIB as u64), 100_000))
            .collect();
        check_ranges(&storage, &bytes, &ranges);
    }
}

fn begin_second_process(folder: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "second_process", "--ignored"])
        .env(FOLDER, folder)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("begun")
}

/// Processes share a folder with less room than they need, and one of them is killed again and again: every byte read
/// is right, and afterwards each block is whole or absent.
#[test]
fn processes_share_a_folder_and_are_killed() {
    let folder = tempdir().expect("a folder");
    let bytes = pattern(96 * MIB);
    let (storage, _, cache) = cached(folder.path(), &bytes);
    for round in 0..4u64 {
        let mut child = begin_second_process(folder.path());
        let until = SystemTime::now() + Duration::from_millis(400 + 130 * round);
        let mut at = round * 1_000_003;
        while SystemTime::now() < until {
            at = (at + 5_555_555) % (95 * MIB as u64);
            check_ranges(&storage, &bytes, &[(at, 300_000)]);
        }
        // It never ends by itself, unless it found a wrong byte.
        assert!(child.try_wait().expect("asked").is_none());
        child.kill().expect("killed");
        child.wait().expect("waited for");
        let used = cache.used().expect("looked through");
        assert!(used <= LIMIT + LIMIT / 8, "{used}");
    }
    let (storage, ..) = cached(folder.path(), &bytes);
    check_ranges(&storage, &bytes, &[(0, 96 * MIB)]);
    assert_eq!(cache.trouble(), None);
}
