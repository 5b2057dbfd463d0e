//! Ranges of a file that is kept in memory are those of the file, from any number of threads, and blocks of a changed
//! file that are not in memory are read directly.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pelton_storage::conformance::{check_storage, read_ranges};
use pelton_storage::{
    Faults, Faulty, LocalFile, LocalMode, LocalOptions, MemoryStorage, Metered, RangeRead,
    Resident, Storage,
};
use tempfile::TempDir;

const BLOCK: usize = 256 << 10;

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

fn open(path: &Path) -> Arc<dyn Storage> {
    let options = LocalOptions {
        mode: LocalMode::Buffered,
        ..LocalOptions::default()
    };
    Arc::new(LocalFile::open(path, options).unwrap())
}

fn resident(inner: Arc<dyn Storage>, direct: u16) -> Resident {
    Resident::new(inner, direct).unwrap()
}

/// Reads some bytes of each block so often that it comes.
fn bring(storage: &Resident, blocks: usize) {
    for block in (0..blocks).chain(0..blocks) {
        read_ranges(storage, &[((block * BLOCK) as u64, 10)]).unwrap();
    }
}

#[test]
fn it_is_a_storage_like_any() {
    for bytes in [0, 1, 1000, BLOCK, BLOCK + 1, 3 * BLOCK - 7] {
        let expected = pattern(bytes);
        let storage = resident(Arc::new(MemoryStorage::new(expected.clone())), 1);
        check_storage(&storage, &expected);
        bring(&storage, bytes.div_ceil(BLOCK));
        assert_eq!(storage.present_bytes(), bytes as u64);
        check_storage(&storage, &expected);
    }
}

#[test]
fn blocks_come_once_they_pay_and_are_read_once() {
    let expected = pattern(4 * BLOCK + 100);
    let inner = Arc::new(Metered::new(Arc::new(MemoryStorage::new(expected.clone()))));
    let storage = resident(Arc::clone(&inner) as Arc<dyn Storage>, 2);
    let ranges = [(10, 100), (BLOCK as u64 - 5, 10), (4 * BLOCK as u64, 100)];
    // Two want the first block.
    for (round, present) in [(0, 0), (1, BLOCK), (2, BLOCK + 100), (3, 2 * BLOCK + 100)] {
        let found = read_ranges(&storage, &ranges).unwrap();
        for (found, (start, length)) in found.iter().zip(ranges) {
            assert_eq!(found[..], expected[start as usize..][..length], "{round}");
        }
        assert_eq!(storage.present_bytes(), present as u64, "{round}");
    }
    let asked = inner.meter().bytes;
    read_ranges(&storage, &ranges).unwrap();
    assert_eq!(inner.meter().bytes, asked, "they are in memory");
    let beyond = (5 * BLOCK as u64, 10);
    assert_eq!(read_ranges(&storage, &[beyond]).unwrap(), [b""]);
}

#[test]
fn threads_read_right_bytes_while_blocks_come() {
    let expected = pattern(20 * BLOCK + 77);
    let (_folder, path) = written(&expected);
    let storage = resident(open(&path), 3);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (storage, expected) = (&storage, &expected);
            scope.spawn(move || {
                let mut state = thread + 1;
                let mut next = |below: usize| {
                    state = state
                        .wrapping_mul(0x5851_f42d_4c95_7f2d)
                        .wrapping_add(thread);
                    (state >> 33) as usize % below
                };
                for _ in 0..500 {
                    let ranges: Vec<(u64, usize)> = (0..8)
                        .map(|_| {
                            let start = next(expected.len());
                            (start as u64, next(5000).min(expected.len() - start))
                        })
                        .collect();
                    let found = read_ranges(storage, &ranges).unwrap();
                    for (found, (start, length)) in found.iter().zip(ranges) {
                        assert!(found[..] == expected[start as usize..][..length]);
                    }
                }
            });
        }
    });
    // The last block has so few bytes that hardly any range touches it.
    assert!(storage.present_bytes() >= 20 * BLOCK as u64);
}

#[test]
fn threads_get_right_bytes_or_fewer_while_the_file_shrinks() {
    for _ in 0..10 {
        let expected = pattern(40 * BLOCK);
        let (_folder, path) = written(&expected);
        let storage = resident(open(&path), 1);
        let shrunk = OpenOptions::new().write(true).open(&path).unwrap();
        let started = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for reader in 0..4 {
                let (storage, expected, started) = (&storage, &expected, &started);
                scope.spawn(move || {
                    for i in 0..400 {
                        let start = (reader * 10 + i) % 40 * BLOCK + 11;
                        let mut buffer = vec![0; 3000];
                        let mut reads = [RangeRead {
                            offset: start as u64,
                            buffer: &mut buffer,
                            filled: 0,
                        }];
                        storage.read_batch(&mut reads).unwrap();
                        let filled = reads[0].filled;
                        assert!(filled == 3000 || filled == 0);
                        assert!(buffer[..filled] == expected[start..][..filled]);
                        started.store(true, Ordering::Relaxed);
                    }
                });
            }
            while !started.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            shrunk.set_len(BLOCK as u64).unwrap();
        });
    }
}

#[test]
fn what_a_block_cannot_bring_is_read_range_by_range() {
    let expected = pattern(2 * BLOCK);
    let (_folder, path) = written(&expected);
    let storage = resident(open(&path), 1);
    bring(&storage, 1);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(BLOCK as u64 + 50).unwrap();
    let last = (BLOCK as u64 + 20, 40);
    for _ in 0..3 {
        let found = read_ranges(&storage, &[(0, 10), last]).unwrap();
        assert_eq!(found[0], expected[..10]);
        assert_eq!(found[1], expected[BLOCK + 20..BLOCK + 50]);
    }
    assert_eq!(storage.present_bytes(), BLOCK as u64);
}

#[test]
fn only_files_read_through_the_page_cache_save_calls_so() {
    let (_folder, path) = written(&pattern(100));
    let buffered = open(&path);
    assert!(buffered.reads_page_cache());
    let options = LocalOptions {
        mode: LocalMode::Pread,
        ..LocalOptions::default()
    };
    assert!(!LocalFile::open(&path, options).unwrap().reads_page_cache());
    let faulty = Faulty::new(buffered, Faults::default());
    assert!(
        !faulty.reads_page_cache(),
        "what it injects would be passed by"
    );
}
