//! Every backend passes the conformance suite, and bad paths get their own errors.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pelton_storage::conformance::{check_ranges, check_storage, read_ranges};
use pelton_storage::{
    AlignedBuffer, LocalFile, LocalMode, LocalOptions, MemoryStorage, Metered, ScratchFile,
    Storage, StorageErrorKind, cached_fraction,
};
use proptest::prelude::*;
use tempfile::TempDir;

/// Sizes at and around the units of direct reads, and one longer than a request.
const SIZES: [usize; 10] = [
    0,
    1,
    511,
    512,
    513,
    4095,
    4096,
    4097,
    300_001,
    (5 << 20) + 77,
];

const MODES: [LocalMode; 4] = [
    LocalMode::Auto,
    LocalMode::Direct,
    LocalMode::Buffered,
    LocalMode::Pread,
];

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64)
        .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

fn written(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("data");
    fs::write(&path, bytes).expect("write");
    (folder, path)
}

/// `None`, with a message, if this machine cannot read directly.
fn opened(path: &PathBuf, mode: LocalMode, queue_depth: u32) -> Option<LocalFile> {
    match LocalFile::open(path, LocalOptions { mode, queue_depth }) {
        Err(error) if error.kind == StorageErrorKind::Unusable => {
            eprintln!("SKIPPED: {error}");
            None
        }
        other => Some(other.expect("open")),
    }
}

#[test]
fn memory_conforms() {
    for size in SIZES {
        let bytes = pattern(size);
        check_storage(&MemoryStorage::new(bytes.clone()), &bytes);
    }
}

#[test]
fn local_files_conform_in_every_mode() {
    for size in SIZES {
        let bytes = pattern(size);
        let (_folder, path) = written(&bytes);
        for mode in MODES {
            if let Some(file) = opened(&path, mode, 128) {
                check_storage(&file, &bytes);
            }
        }
    }
}

#[test]
fn local_files_conform_at_every_depth() {
    let bytes = pattern(300_001);
    let (_folder, path) = written(&bytes);
    for depth in [0, 1, 2, 3, 64, 1000, u32::MAX] {
        if let Some(file) = opened(&path, LocalMode::Direct, depth) {
            check_storage(&file, &bytes);
        }
    }
}

#[test]
fn buffered_conforms_on_a_cold_file() {
    let bytes = pattern(3_000_001);
    let (_folder, path) = written(&bytes);
    let file = opened(&path, LocalMode::Buffered, 16).expect("buffered");
    drop_from_cache(&path);
    check_storage(&file, &bytes);
}

#[test]
fn a_shared_and_metered_storage_conforms() {
    let bytes = pattern(100_000);
    let (_folder, path) = written(&bytes);
    let file = Arc::new(opened(&path, LocalMode::Auto, 64).expect("auto"));
    let metered = Metered::new(file);
    check_storage(&metered, &bytes);
    let before = metered.meter();
    let unit = metered.granularity().offset_bytes as usize;
    let length = 4096.max(unit);
    read_ranges(&metered, &[(0, length), (8192, length)]).expect("read");
    let spent = metered.meter().since(before);
    assert_eq!((spent.reads, spent.batches), (2, 1));
    assert_eq!(spent.bytes, 2 * length as u64);
    assert!(spent.seconds > 0.0);
}

#[test]
fn auto_says_what_it_chose() {
    let (_folder, path) = written(&pattern(5000));
    let file = opened(&path, LocalMode::Auto, 128).expect("auto");
    assert_ne!(file.mode(), LocalMode::Auto);
    assert_eq!(file.path(), path);
    assert_eq!(file.queue_depth(), 128);
}

#[test]
fn a_file_that_shrinks_gives_short_ranges() {
    let bytes = pattern(1 << 20);
    for mode in MODES {
        let (_folder, path) = written(&bytes);
        let Some(file) = opened(&path, mode, 64) else {
            continue;
        };
        check_storage(&file, &bytes);
        let left = 300_123;
        let writer = OpenOptions::new().write(true).open(&path).expect("open");
        writer.set_len(left).expect("shrink");
        check_storage(&file, &bytes[..left as usize]);
    }
}

#[test]
fn a_file_that_grows_is_read_to_its_new_end() {
    let bytes = pattern(1 << 20);
    for mode in MODES {
        let (_folder, path) = written(&bytes[..300_123]);
        let Some(file) = opened(&path, mode, 64) else {
            continue;
        };
        fs::write(&path, &bytes).expect("grow");
        check_storage(&file, &bytes);
    }
}

#[test]
fn cached_fraction_follows_the_cache() {
    let (_folder, path) = written(&pattern(8 << 20));
    let warm = cached_fraction(&path).expect("sample");
    if warm == 0.0 {
        eprintln!("SKIPPED: this filesystem does not say what is cached");
        return;
    }
    assert!(warm > 0.95, "just written, yet {warm}");
    drop_from_cache(&path);
    let cold = cached_fraction(&path).expect("sample");
    assert!(cold < 0.2, "just dropped, yet {cold}");
}

/// A file that is to be in the page cache is requested in parts of 128 KiB, once. The time that takes is up to the
/// system, so there are several attempts.
#[test]
fn what_will_be_needed_comes_with_what_lies_around_it() {
    let (_folder, path) = written(&pattern(256 << 10));
    let open = || LocalFile::open(&path, LocalOptions::default()).expect("open");
    if open().mode() != LocalMode::Direct || cached_fraction(&path).expect("sample") == 0.0 {
        eprintln!("SKIPPED: this filesystem has no direct reads, or does not say what is cached");
        return;
    }
    let half_comes = |wait_ms| {
        drop_from_cache(&path);
        let buffered = open().buffered().expect("mode auto");
        assert_eq!(buffered.will_need(150_000, 10), 128 << 10);
        assert_eq!(buffered.will_need(200_000, 10), 0);
        // Beyond the end, there is nothing to ask for.
        assert_eq!(buffered.will_need(u64::MAX - 5, 10), 0);
        std::thread::sleep(Duration::from_millis(wait_ms));
        let fraction = cached_fraction(&path).expect("sample");
        (0.4..0.6).contains(&fraction)
    };
    assert!([50, 500, 3000].into_iter().any(half_comes));
}

#[test]
fn cached_fraction_of_nothing() {
    let (folder, path) = written(b"");
    assert_eq!(cached_fraction(&path).expect("sample"), 1.0);
    let refused = cached_fraction(folder.path());
    assert_eq!(refused.unwrap_err().kind, StorageErrorKind::Unusable);
    let refused = cached_fraction(&folder.path().join("absent"));
    assert_eq!(refused.unwrap_err().kind, StorageErrorKind::NotFound);
}

/// In memory the page cache is the data, and going past it would only copy more.
#[test]
fn a_memory_filesystem_is_read_through_the_page_cache() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("SKIPPED: no memory filesystem at /dev/shm");
        return;
    };
    let bytes = pattern(300_001);
    let path = folder.path().join("data");
    fs::write(&path, &bytes).expect("write");
    for mode in MODES {
        if let Some(file) = opened(&path, mode, 64) {
            check_storage(&file, &bytes);
            if mode == LocalMode::Auto {
                assert_ne!(file.mode(), LocalMode::Direct);
            }
        }
    }
    let scratch = ScratchFile::create(folder.path(), 300_001).expect("create");
    scratch.write_at(0, &bytes).expect("write");
    check_storage(&scratch, &bytes);
}

fn drop_from_cache(path: &PathBuf) {
    let file = fs::File::open(path).expect("open");
    file.sync_all().expect("sync");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advise");
}

fn check_open_error(path: &std::path::Path, wanted: &str) {
    for mode in MODES {
        let options = LocalOptions {
            mode,
            ..LocalOptions::default()
        };
        let error = LocalFile::open(path, options).expect_err("must not open");
        let message = error.to_string();
        assert!(message.contains(wanted), "{message}");
        assert!(message.contains(&path.display().to_string()), "{message}");
    }
}

#[test]
fn bad_paths_have_their_own_errors() {
    let (folder, path) = written(b"x");
    check_open_error(&folder.path().join("absent"), "no such file");
    check_open_error(folder.path(), "is a folder; name a regular file");
    check_open_error("/dev/null".as_ref(), "a device, pipe or socket");
    check_open_error(&path.join("below"), "cannot open it");
}

#[test]
fn unreadable_files_are_refused_by_name() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, path) = written(b"x");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("chmod");
    if fs::File::open(&path).is_ok() {
        eprintln!("SKIPPED: the superuser may read everything");
        return;
    }
    check_open_error(&path, "permission to open it is refused");
}

#[test]
fn an_offset_beyond_the_kernels_range_is_an_error() {
    let (_folder, path) = written(&pattern(5000));
    for mode in MODES {
        if let Some(file) = opened(&path, mode, 4) {
            let refused = read_ranges(&file, &[(u64::MAX - 4095, 4096)]);
            assert!(
                matches!(&refused, Err(error) if error.kind == StorageErrorKind::System),
                "{refused:?}"
            );
        }
    }
}

#[test]
fn scratch_files_conform_and_count() {
    for size in SIZES {
        let bytes = pattern(size);
        let folder = tempfile::tempdir().expect("temporary folder");
        // Reserved too much on purpose: the reservation must not show as data.
        let scratch = ScratchFile::create(folder.path(), size as u64 + 100_000).expect("create");
        scratch.write_at(0, &bytes).expect("write");
        check_storage(&scratch, &bytes);
        assert_eq!(scratch.bytes_written(), size as u64);
        let names = fs::read_dir(folder.path()).expect("list").count();
        assert_eq!(names, 0, "the file must have no name");
    }
}

#[test]
fn scratch_files_take_concurrent_writers() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut bytes = AlignedBuffer::new(4096);
    bytes.extend_from_slice(&pattern(1 << 20));
    let scratch = ScratchFile::create(folder.path(), 1 << 20).expect("create");
    std::thread::scope(|scope| {
        for writer in 0..4usize {
            let (scratch, bytes) = (&scratch, &bytes);
            // Aligned direct blocks and ragged buffered ones, interleaved.
            scope.spawn(move || {
                for block in (writer..64).step_by(4) {
                    let start = block * 16384;
                    let cut = start + if block % 3 == 0 { 16384 } else { 5000 };
                    scratch
                        .write_at(start as u64, &bytes[start..cut])
                        .expect("head");
                    scratch
                        .write_at(cut as u64, &bytes[cut..start + 16384])
                        .expect("tail");
                }
            });
        }
    });
    check_storage(&scratch, &bytes);
    assert_eq!(scratch.bytes_written(), 1 << 20);
}

#[test]
fn a_full_disk_is_reported_before_the_work() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let error = ScratchFile::create(folder.path(), u64::MAX / 2).expect_err("too large");
    assert_eq!(error.kind, StorageErrorKind::NoSpace);
    let needed = format!("{} bytes are needed and", u64::MAX / 2);
    assert!(error.to_string().contains(&needed), "{error}");
}

#[test]
fn scratch_folders_must_be_folders() {
    let (folder, path) = written(b"x");
    let absent = ScratchFile::create(folder.path().join("absent"), 1).expect_err("absent");
    assert_eq!(absent.kind, StorageErrorKind::NotFound, "{absent}");
    let file = ScratchFile::create(&path, 1).expect_err("a file");
    assert!(file.to_string().contains("is not a folder"), "{file}");
}

#[test]
fn a_write_beyond_the_largest_file_names_the_offset() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let scratch = ScratchFile::create(folder.path(), 0).expect("create");
    let error = scratch
        .write_at(i64::MAX as u64 - 9, &[1; 5])
        .expect_err("too far");
    assert!(
        error
            .to_string()
            .contains("write failed at byte 9223372036854775798"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn random_ranges_give_the_bytes_there(
        size in 0usize..200_000,
        picks in prop::collection::vec((0u64..450, 0usize..60), 0..300),
        mode in prop::sample::select(&MODES[..]),
        depth in 1u32..200,
    ) {
        let bytes = pattern(size);
        let (_folder, path) = written(&bytes);
        if let Some(file) = opened(&path, mode, depth) {
            let unit = u64::from(file.granularity().offset_bytes);
            let scale = if unit == 1 { 479 } else { unit };
            let ranges: Vec<_> = picks
                .iter()
                .map(|&(offset, length)| (offset * scale, length * scale as usize))
                .collect();
            check_ranges(&file, &bytes, &ranges);
        }
    }
}
