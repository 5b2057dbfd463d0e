//! Data for the tests.

use pelton_format::{Dataset, OpenOptions};

/// Lines of 8 to some 200 bytes in two files of `first` and `second` lines; one in `long_every` is long.
pub(crate) fn two_files(first: u64, second: u64, long_every: u64) -> Dataset {
    let folder = tempfile::tempdir().unwrap();
    let files = [("a", 0..first), ("b", first..first + second)];
    let paths = files.map(|(name, records)| {
        let path = folder.path().join(name);
        let line = |i: u64| match i % long_every {
            0 => (1..=30).map(|f| format!(" {f}:{i}")).collect::<String>(),
            _ => format!(" 1:{i}"),
        };
        let text: String = records.map(|i| format!("1{}\n", line(i))).collect();
        std::fs::write(&path, text).unwrap();
        path
    });
    let options = OpenOptions {
        any_label: true,
        ..OpenOptions::default()
    };
    Dataset::open(&paths, &options).unwrap()
}
