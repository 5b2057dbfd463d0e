//! Helpers of the tests of data sets.
#![allow(dead_code)]

pub mod array_record;
pub mod fields;
pub mod tar;
pub mod tfrecord;

use std::path::{Path, PathBuf};

use pelton_format::{Dataset, FormatError, OpenOptions, Rows};
use pelton_storage::RangeRead;
use pelton_storage::conformance::check_storage;
use pelton_storage::{LocalMode, LocalOptions};

/// Options that keep every copy and index inside `folder`.
pub fn options(folder: &Path) -> OpenOptions {
    OpenOptions {
        cache_dir: Some(folder.join("cache")),
        storage: LocalOptions {
            mode: LocalMode::Pread,
            ..LocalOptions::default()
        },
        ..OpenOptions::default()
    }
}

/// Writes a file and returns its path.
pub fn file(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("the folder can be written");
    path
}

/// Bytes of a record, read through the storage of its file.
pub fn record(dataset: &Dataset, id: u64) -> Vec<u8> {
    let place = dataset.locate(id);
    let mut bytes = vec![0; place.length as usize];
    let mut reads = [RangeRead {
        offset: place.offset,
        buffer: &mut bytes,
        filled: 0,
    }];
    dataset.files()[place.file as usize]
        .storage()
        .read_batch(&mut reads)
        .expect("readable");
    assert_eq!(reads[0].filled as u64, place.length);
    bytes
}

/// Every row in id order.
pub fn rows(dataset: &Dataset) -> Result<Rows, FormatError> {
    let mut rows = Rows::new(dataset.layout());
    for id in 0..dataset.records() {
        let before = rows.len();
        let outcome = dataset.decode(id, &record(dataset, id), &mut rows);
        assert_eq!(rows.len(), before + usize::from(outcome.is_ok()));
        outcome?;
    }
    Ok(rows)
}

/// The error of each record that cannot be read, or nothing.
pub fn faults(dataset: &Dataset) -> Vec<Option<String>> {
    let all = 0..dataset.records();
    let fault = |id| {
        let mut rows = Rows::new(dataset.layout());
        let outcome = dataset.decode(id, &record(dataset, id), &mut rows);
        outcome.err().map(|error| error.to_string())
    };
    all.map(fault).collect()
}

/// Reading records one by one gives the same bytes as all other reads of the storage.
pub fn check_reads(dataset: &Dataset) {
    let all: Vec<u8> = (0..dataset.records())
        .flat_map(|id| record(dataset, id))
        .collect();
    check_storage(&**dataset.files()[0].storage(), &all);
}

/// A file of the real data, or a message that it is missing.
pub fn real(name: &str) -> Option<PathBuf> {
    let root = match std::env::var_os("PELTON_DATA") {
        Some(root) => PathBuf::from(root),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    };
    let path = root.join(name);
    if !path.is_file() {
        eprintln!(
            "SKIPPED: {} is missing; set PELTON_DATA to the folder of real data",
            path.display()
        );
        return None;
    }
    Some(path)
}
