//! Ranges copied from mapped files are those that are read, and files that are no longer what they were are
//! left to be read the ordinary way.
//!
//! Clean under `valgrind --vex-iropt-register-updates=allregs-at-mem-access`, without which it resumes a copy that a
//! signal interrupted with stale registers.
#![cfg(target_os = "linux")]
#![allow(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pelton_storage::{
    Faults, Faulty, LocalFile, LocalMode, LocalOptions, MappedFile, RangeRead, Storage,
    cached_fraction,
};
use proptest::prelude::*;
use tempfile::TempDir;

const PAGE: usize = 4096;

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64)
        .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

fn written(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

fn open(path: &Path, mode: LocalMode) -> LocalFile {
    let options = LocalOptions {
        mode,
        ..LocalOptions::default()
    };
    LocalFile::open(path, options).unwrap()
}

/// What is copied for `ranges` (offset, length); `None` if they are left to be read.
fn copied(map: &MappedFile, ranges: &[(u64, usize)]) -> Option<Vec<Vec<u8>>> {
    let mut buffers: Vec<Vec<u8>> = ranges.iter().map(|&(_, n)| vec![0; n]).collect();
    let mut reads: Vec<RangeRead<'_>> = ranges
        .iter()
        .zip(&mut buffers)
        .map(|(&(offset, _), buffer)| RangeRead {
            offset,
            buffer,
            filled: usize::MAX,
        })
        .collect();
    if !map.read_batch(&mut reads) {
        return None;
    }
    assert!(reads.iter().all(|read| read.filled == read.buffer.len()));
    Some(buffers)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn ranges_within_the_file_are_copied(
        size in 1usize..40_000,
        places in prop::collection::vec((0u32..1 << 16, 0u32..1 << 16), 0..200),
    ) {
        let expected = pattern(size);
        let (_folder, path) = written(&expected);
        let map = open(&path, LocalMode::Buffered).map().expect("a map");
        let ranges: Vec<(u64, usize)> = places
            .iter()
            .map(|&(start, length)| {
                let start = start as usize % size;
                (start as u64, length as usize % (size - start + 1))
            })
            .collect();
        let found = copied(&map, &ranges).expect("all within the file");
        for (found, (start, length)) in found.iter().zip(ranges) {
            prop_assert_eq!(&found[..], &expected[start as usize..][..length]);
        }
    }
}

#[test]
fn ranges_beyond_the_file_are_left_to_be_read() {
    let (_folder, path) = written(&pattern(PAGE + 5));
    let map = open(&path, LocalMode::Buffered).map().unwrap();
    let last = (PAGE + 4) as u64;
    assert!(copied(&map, &[(last, 1)]).is_some());
    for (start, length) in [(last, 2), (last + 1, 1), (1 << 40, 1), (u64::MAX, 1)] {
        assert!(
            copied(&map, &[(0, 1), (start, length)]).is_none(),
            "{start}"
        );
    }
    assert!(copied(&map, &[(0, PAGE + 5)]).is_some());
}

#[test]
fn only_files_read_through_the_page_cache_are_mapped() {
    let (_folder, path) = written(&pattern(PAGE));
    let buffered = Arc::new(open(&path, LocalMode::Buffered));
    assert!(buffered.map().is_some());
    assert!(open(&path, LocalMode::Pread).map().is_none());
    let faulty: Arc<dyn Storage> = Arc::new(Faulty::new(buffered, Faults::default()));
    assert!(faulty.map().is_none(), "what it injects would be passed by");
    let (_folder, empty) = written(&[]);
    assert!(open(&empty, LocalMode::Buffered).map().is_none());
}

#[test]
fn a_file_that_shrinks_is_left_to_be_read_and_others_are_not() {
    let expected = pattern(8 * PAGE);
    let (_folder, path) = written(&expected);
    let (_other_folder, other) = written(&expected);
    let file = open(&path, LocalMode::Buffered);
    let map = file.map().unwrap();
    let other = open(&other, LocalMode::Buffered).map().unwrap();
    let shrunk = OpenOptions::new().write(true).open(&path).unwrap();
    shrunk.set_len(2 * PAGE as u64).unwrap();
    // Several pages that are no more.
    assert!(copied(&map, &[(0, 100), (PAGE as u64, 6 * PAGE)]).is_none());
    // From then on also what is still there, as the map may hold pages that are not the file's.
    assert!(copied(&map, &[(0, 100)]).is_none());
    assert_eq!(
        copied(&other, &[(0, 8 * PAGE)]),
        Some(vec![expected.clone()])
    );
    // Mapped anew it is what it is now.
    let again = file.map().unwrap();
    let now = copied(&again, &[(0, 2 * PAGE)]).unwrap();
    assert_eq!(now, [&expected[..2 * PAGE]]);
    assert!(copied(&again, &[(0, 2 * PAGE + 1)]).is_none());
}

#[test]
fn threads_get_right_bytes_or_none_while_the_file_shrinks() {
    for _ in 0..20 {
        let expected = pattern(64 * PAGE);
        let (_folder, path) = written(&expected);
        let map = open(&path, LocalMode::Buffered).map().unwrap();
        let shrunk = OpenOptions::new().write(true).open(&path).unwrap();
        let started = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..4)
                .map(|reader| {
                    let (map, expected, started) = (&map, &expected, &started);
                    scope.spawn(move || {
                        let mut copies = 0;
                        for page in (0..64).cycle().skip(reader * 16) {
                            let start = page * PAGE;
                            match copied(map, &[(start as u64, PAGE)]) {
                                Some(found) => assert_eq!(found[0], expected[start..][..PAGE]),
                                None => break,
                            }
                            copies += 1;
                            started.store(true, Ordering::Relaxed);
                        }
                        copies
                    })
                })
                .collect();
            while !started.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            shrunk.set_len(PAGE as u64).unwrap();
            let copies: u64 = readers.into_iter().map(|r| r.join().unwrap()).sum();
            assert!(copies > 0);
        });
    }
}

#[test]
fn data_on_the_disk_is_left_to_be_read_many_at_a_time() {
    // Where the folder lies on a disk at all.
    let (_folder, path) = written(&pattern(4000 * PAGE));
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    if cached_fraction(&path).unwrap() > 0.5 {
        eprintln!("SKIPPED: the temporary folder's files cannot be taken out of memory");
        return;
    }
    let map = open(&path, LocalMode::Buffered).map().unwrap();
    let scattered = |first: u64| -> Vec<(u64, usize)> {
        let page = |i: u64| (first + i * 37) % 4000;
        (0..100).map(|i| (page(i) * PAGE as u64, PAGE)).collect()
    };
    assert_eq!(copied(&map, &scattered(1)), None, "it waited for the disk");
    // It is not tried again for a while, then it is.
    let warm = fs::read(&path).unwrap();
    let tries = (0..1000).position(|_| copied(&map, &scattered(1)).is_some());
    assert!(tries.is_some_and(|tries| tries > 10), "{tries:?}");
    let found = copied(&map, &scattered(2)).unwrap();
    assert_eq!(found[0], warm[2 * PAGE..3 * PAGE]);
}

/// Set in the process that is to end by a signal.
const ENDS: &str = "PELTON_TEST_ENDS_BY_BUS_ERROR";

#[test]
fn bus_errors_of_others_end_the_process_as_before() {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    use std::os::unix::process::ExitStatusExt;

    let own = "bus_errors_of_others_end_the_process_as_before";
    if let Some(how) = std::env::var_os(ENDS) {
        let (_folder, path) = written(&pattern(2 * PAGE));
        let watched = open(&path, LocalMode::Buffered).map();
        assert!(watched.is_some());
        let file = OpenOptions::new()
            .write(true)
            .read(true)
            .open(&path)
            .unwrap();
        // SAFETY: a new mapping takes nobody's memory.
        let start = unsafe {
            let (read, shared) = (ProtFlags::READ, MapFlags::SHARED);
            mmap(std::ptr::null_mut(), 2 * PAGE, read, shared, &file, 0)
        };
        file.set_len(0).unwrap();
        let start = start.unwrap().cast::<u8>();
        if how == "sent" {
            let process = rustix::process::getpid();
            rustix::process::kill_process(process, rustix::process::Signal::BUS).unwrap();
        }
        // SAFETY: the page is mapped; that the file has it no more is what is tested.
        let byte = unsafe { start.read_volatile() };
        panic!("read {byte}");
    }
    for how in ["read", "sent"] {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", own, "--nocapture"])
            .env(ENDS, how)
            .output()
            .unwrap()
            .status;
        assert_eq!(status.signal(), Some(7), "{how}: {status}");
    }
}
