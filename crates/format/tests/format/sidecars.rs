//! Sidecars are used when they fit and never trusted otherwise.

use std::fs;
use std::path::Path;

use crate::support::{file, options, rows};
use pelton_format::{Dataset, IndexSource, LabelColumn, OpenOptions};
use tempfile::tempdir;

const TEXT: &str = "1 1:1 5:2\n-1 2:1\n1 3:1 4:1 9:1\n";

fn source(path: &Path, options: &OpenOptions) -> IndexSource {
    let dataset = Dataset::open(&[path.to_path_buf()], options).unwrap();
    assert_eq!(rows(&dataset).unwrap().len() as u64, dataset.records());
    dataset.index_report().source
}

#[test]
fn written_once_and_read_again() {
    let folder = tempdir().unwrap();
    let path = file(folder.path(), "x", TEXT);
    let options = options(folder.path());
    let built = Dataset::open(std::slice::from_ref(&path), &options).unwrap();
    let loaded = Dataset::open(std::slice::from_ref(&path), &options).unwrap();
    assert!(folder.path().join("x.pelton-index").is_file());
    assert_eq!(built.index_report().source, IndexSource::Built);
    assert_eq!(loaded.index_report().source, IndexSource::Sidecar);
    assert_eq!(built.labels(), loaded.labels());
    assert_eq!(built.features(), loaded.features());
    assert_eq!(built.nonzeros(), loaded.nonzeros());
    assert_eq!(built.record_bytes(), loaded.record_bytes());
    assert!((0..3).all(|id| built.locate(id) == loaded.locate(id)));
    let without = OpenOptions {
        sidecar: false,
        ..options
    };
    assert_eq!(source(&path, &without), IndexSource::Built);
}

#[test]
fn any_damage_is_noticed() {
    let folder = tempdir().unwrap();
    let path = file(folder.path(), "x", TEXT);
    let options = options(folder.path());
    source(&path, &options);
    let sidecar = folder.path().join("x.pelton-index");
    let good = fs::read(&sidecar).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&sidecar, &bad).unwrap();
        assert_eq!(source(&path, &options), IndexSource::Built, "byte {at}");
        assert_eq!(fs::read(&sidecar).unwrap(), good);
    }
    for cut in 0..good.len() {
        fs::write(&sidecar, &good[..cut]).unwrap();
        assert_eq!(source(&path, &options), IndexSource::Built, "cut at {cut}");
    }
    assert_eq!(source(&path, &options), IndexSource::Sidecar);
}

/// Flips every bit pattern of a field and puts the checksum right again.
#[test]
fn a_sound_checksum_is_not_enough() {
    let folder = tempdir().unwrap();
    let path = file(folder.path(), "x", TEXT);
    let options = options(folder.path());
    source(&path, &options);
    let sidecar = folder.path().join("x.pelton-index");
    let good = fs::read(&sidecar).unwrap();
    let sample = pelton_sample(&good);
    for at in 8..good.len() - 4 {
        for value in [0, 0x7f, 0x80, 0xff, good[at] ^ 1] {
            let mut bad = good.clone();
            bad[at] = value;
            let end = bad.len() - 4;
            let checksum = crc32c::crc32c(&bad[..end]);
            bad[end..].copy_from_slice(&checksum.to_le_bytes());
            // Must not panic; a list it accepts ascends below the size.
            if let Some(starts) = pelton_format::raw::load_sidecar(&bad, TEXT.len() as u64, sample)
            {
                let starts: Vec<u64> = starts.walk(0).collect();
                assert!(starts.is_sorted() && starts.iter().all(|at| *at < TEXT.len() as u64));
            }
            fs::write(&sidecar, &bad).unwrap();
            Dataset::open(std::slice::from_ref(&path), &options).unwrap();
        }
    }
}

fn pelton_sample(sidecar: &[u8]) -> u64 {
    u64::from_le_bytes(sidecar[80..88].try_into().unwrap())
}

#[test]
fn a_sidecar_of_other_data_is_not_used() {
    let folder = tempdir().unwrap();
    let options = options(folder.path());
    let path = file(folder.path(), "x", TEXT);
    let other = file(folder.path(), "y", TEXT.replace("9:1", "8:1"));
    source(&path, &options);
    fs::copy(
        folder.path().join("x.pelton-index"),
        folder.path().join("y.pelton-index"),
    )
    .unwrap();
    assert_eq!(source(&other, &options), IndexSource::Built);
    // Same size and time, other content.
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    file(folder.path(), "x", TEXT.replace("5:2", "5:3"));
    fs::File::options()
        .append(true)
        .open(&path)
        .unwrap()
        .set_modified(time)
        .unwrap();
    assert_eq!(source(&path, &options), IndexSource::Built);
}

#[test]
fn another_way_of_reading_is_another_index() {
    let folder = tempdir().unwrap();
    let path = file(folder.path(), "x.csv", "1,2,3\n4,5,6\n");
    let last = options(folder.path());
    let first = OpenOptions {
        label: LabelColumn::First,
        ..options(folder.path())
    };
    assert_eq!(source(&path, &last), IndexSource::Built);
    assert_eq!(source(&path, &first), IndexSource::Built);
    assert_eq!(source(&path, &first), IndexSource::Sidecar);
}

#[cfg(unix)]
#[test]
fn read_only_folders_use_the_cache() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let path = file(&data, "x", TEXT);
    fs::set_permissions(&data, fs::Permissions::from_mode(0o555)).unwrap();
    let options = options(folder.path());
    assert_eq!(source(&path, &options), IndexSource::Built);
    assert_eq!(source(&path, &options), IndexSource::Sidecar);
    assert_eq!(fs::read_dir(&data).unwrap().count(), 1);
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
}

#[cfg(unix)]
#[test]
fn an_index_that_cannot_be_kept_is_only_a_note() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let path = file(&data, "x", TEXT);
    fs::set_permissions(&data, fs::Permissions::from_mode(0o555)).unwrap();
    // A file has the path of the cache folder.
    let taken = file(folder.path(), "taken", "");
    let options = OpenOptions {
        cache_dir: Some(taken),
        ..options(folder.path())
    };
    let dataset = Dataset::open(&[path], &options).unwrap();
    assert!(
        dataset.notes()[0].contains("its index cannot be kept"),
        "{:?}",
        dataset.notes()
    );
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn names_in_the_cache_follow_the_data() {
    let folder = tempdir().unwrap();
    let path = file(folder.path(), "x", TEXT);
    let other = file(folder.path(), "y", TEXT);
    let options = options(folder.path());
    let name = |paths: &[&Path]| {
        let paths: Vec<_> = paths.iter().map(|path| path.to_path_buf()).collect();
        let dataset = Dataset::open(&paths, &options).unwrap();
        dataset.cache_path(Path::new("cache"), ".z")
    };
    let first = name(&[&path]);
    assert_eq!(name(&[&path]), first);
    assert!(first.starts_with("cache"), "{first:?}");
    let shown = first.file_name().unwrap().to_str().unwrap();
    assert!(shown.starts_with("x-") && shown.ends_with(".z"), "{shown}");
    let mut found = vec![
        first.clone(),
        name(&[&other]),
        name(&[&path, &other]),
        name(&[&other, &path]),
    ];
    // The same bytes, written a while ago.
    let past = std::time::SystemTime::UNIX_EPOCH;
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(past)
        .unwrap();
    found.push(name(&[&path]));
    fs::write(&path, TEXT.replace('9', "8")).unwrap();
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(past)
        .unwrap();
    found.push(name(&[&path]));
    let different: std::collections::HashSet<_> = found.iter().collect();
    assert_eq!(different.len(), found.len(), "{found:?}");
}
