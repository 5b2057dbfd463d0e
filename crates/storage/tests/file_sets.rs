//! Many files as one run of bytes: conformance, and files that changed after the listing.

use std::fs;
use std::path::Path;

use pelton_storage::conformance::{check_storage, read_ranges};
use pelton_storage::{FileSet, SetFile, StorageErrorKind, changed_ns};
use tempfile::TempDir;

/// Files of the given sizes in one folder, the bytes of all of them and their set.
fn files(sizes: &[usize]) -> (TempDir, Vec<u8>, FileSet) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut all = Vec::new();
    let mut listed = Vec::new();
    for (i, &size) in sizes.iter().enumerate() {
        let name = format!("file {i}");
        let bytes: Vec<u8> = (0..size).map(|at| (at * 7 + i * 31) as u8).collect();
        fs::write(folder.path().join(&name), &bytes).expect("write");
        all.extend_from_slice(&bytes);
        listed.push(entry(folder.path(), &name));
    }
    let set = FileSet::new(folder.path(), listed);
    (folder, all, set)
}

fn entry(folder: &Path, name: &str) -> SetFile {
    let status = fs::metadata(folder.join(name)).expect("status");
    SetFile {
        name: name.into(),
        size: status.len(),
        changed_ns: changed_ns(&status),
    }
}

#[test]
fn sets_conform() {
    let many: Vec<usize> = (0..200).map(|i| i * 13 % 97).collect();
    let cases: [&[usize]; 6] = [
        &[],
        &[0],
        &[5],
        &[0, 1, 0, 0, 4097, 0],
        &[300_001, 4096, 70_000],
        &many,
    ];
    for sizes in cases {
        let (_folder, bytes, set) = files(sizes);
        check_storage(&set, &bytes);
        assert_eq!((set.len(), set.bytes()), (sizes.len(), bytes.len() as u64));
    }
}

/// Descriptors stay few however many files are read in parts.
#[test]
fn few_files_are_open_at_once() {
    let (_folder, _, set) = files(&[8; 500]);
    let ranges: Vec<(u64, usize)> = (0..500).map(|i| (8 * i + 1, 3)).collect();
    let before = fs::read_dir("/proc/self/fd").map(Iterator::count);
    read_ranges(&set, &ranges).unwrap();
    if let (Ok(before), Ok(after)) = (before, fs::read_dir("/proc/self/fd").map(Iterator::count)) {
        // Other tests of this process open files of their own meanwhile.
        assert!(after < before + 200, "{before} became {after}");
    }
    assert_eq!(set.file_name(17), Path::new("file 17"));
    assert!(set.path(499).ends_with("file 499"));
}

#[test]
fn changed_files_are_named() {
    let (folder, _, set) = files(&[8, 8, 8]);
    let at = |name: &str| folder.path().join(name);
    let read = |range| read_ranges(&set, &[range]).map(|_| ());
    fs::write(at("file 0"), b"123").unwrap();
    let error = read((0, 8)).unwrap_err().to_string();
    assert!(
        error.contains("file 0") && error.contains("8 bytes became 3"),
        "{error}"
    );
    read((8, 16)).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    fs::File::open(at("file 1"))
        .unwrap()
        .set_modified(later)
        .unwrap();
    let error = read((8, 8)).unwrap_err();
    assert_eq!(error.kind, StorageErrorKind::Changed);
    assert!(error.to_string().contains("time"), "{error}");
    fs::remove_file(at("file 2")).unwrap();
    let error = read((17, 2)).unwrap_err();
    assert!(error.path.ends_with("file 2") && error.kind == StorageErrorKind::NotFound);
    fs::create_dir(at("file 2")).unwrap();
    let error = read((16, 8)).unwrap_err().to_string();
    assert!(
        error.contains("file 2") && error.contains("not a regular file"),
        "{error}"
    );
}

/// A file that is cut while it is open in parts ends early, and that is an error too.
#[test]
fn files_that_shrink_while_open_are_named() {
    let (folder, _, set) = files(&[4096]);
    read_ranges(&set, &[(0, 10)]).unwrap();
    fs::write(folder.path().join("file 0"), b"123").unwrap();
    let error = read_ranges(&set, &[(100, 10)]).unwrap_err().to_string();
    assert!(
        error.contains("file 0") && error.contains("ends at byte 100"),
        "{error}"
    );
}
