//! Faults of files, and the texts of their errors.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::support::{file, options, record, rows};
use pelton_format::{
    Dataset, FormatError, FormatKind, IndexSource, LabelColumn, Layout, OpenOptions, RecordBytes,
    Row,
};
use tempfile::tempdir;

fn open(paths: &[PathBuf], folder: &Path) -> Result<Dataset, FormatError> {
    Dataset::open(paths, &options(folder))
}

/// The message of opening a file of this content, or of reading its rows.
fn message(name: &str, bytes: &[u8]) -> String {
    let folder = tempdir().unwrap();
    let path = file(folder.path(), name, bytes);
    let error = match open(&[path], folder.path()) {
        Ok(dataset) => rows(&dataset).unwrap_err(),
        Err(error) => error,
    };
    error.to_string()
}

fn check(name: &str, bytes: &[u8], expected: &str) {
    let found = message(name, bytes);
    assert!(found.contains(name) && found.contains(expected), "{found}");
}

#[test]
fn text_faults_name_file_and_line() {
    check("a", b"1 1:1\n\n# c\n1 0:1\n", "a: line 4: feature index 0");
    check(
        "a",
        b"1 1:1\n1 2:1 1:1\n",
        "line 2: feature index 1 follows 2",
    );
    check(
        "a",
        b"1 1:1\r\n1 2:1 2:1\r\n",
        "line 2: feature index 2 occurs twice",
    );
    check(
        "a",
        b"1 1:1\n1 4294967296:1",
        "line 2: feature index 4294967296 is above",
    );
    check(
        "a",
        b"1 1:1\n1 -1:1",
        "line 2: feature index -1 is negative",
    );
    check("a", b"1 1:1\n1 7", "line 2: feature \"7\" has no colon");
    check(
        "a",
        b"1 1:1\n1 2:nan",
        "line 2: value \"nan\" in column 2 is not finite",
    );
    check(
        "a",
        b"1 1:1\nyes 2:1",
        "line 2: label \"yes\" is not a number",
    );
    check(
        "a.csv",
        b"a,b,c\n1,2,3\n1,2\n",
        "line 3: 2 columns, but the first row has 3",
    );
    check("a.csv", b"1,2,3\n1,x,3\n", "line 2: column 2 holds \"x\"");
    check("a.csv", b"1,2,3\n1,,3\n", "line 2: column 2 is empty");
    check(
        "a.tsv",
        b"1\t2\t3\n1\t2\tbad\n",
        "line 2: label \"bad\" in column 3 is not a number",
    );
}

#[test]
fn files_that_cannot_be_opened() {
    check("empty", b"", "holds no records");
    check("blank", b"\n \n# nothing\n", "holds no records");
    check("blank.svm", b"\n \n# nothing\n", "holds no records");
    check("head.csv", b"a,b,c\n", "holds no records");
    check(
        "photo",
        b"\xff\xd8\xff\xe0\0\x10JFIF",
        "is in no known format",
    );
    check(
        "x.avif",
        b"\0\0\0\x20ftypavif",
        "convert it to PNG, WebP or JPEG",
    );
    check("x.npy", b"\x93NUMPY\x01", "the file ends inside its header");
    check("x.prow", b"nonsense", "x.prow: byte 8: the file is damaged");
    check(
        "x.gz",
        b"\x1f\x8b\x08\0\0\0\0\0\0\x03nonsense",
        "cannot be decompressed",
    );
    check("x.zst", b"\x28\xb5\x2f\xfd\x24", "cannot be decompressed");
    let folder = tempdir().unwrap();
    let error = open(&[folder.path().join("none")], folder.path()).unwrap_err();
    assert!(
        error.to_string().contains("none: no such file or folder"),
        "{error}"
    );
    let error = open(&[folder.path().to_path_buf()], folder.path()).unwrap_err();
    assert!(error.to_string().contains("holds no images"), "{error}");
    let error = open(&[], folder.path()).unwrap_err().to_string();
    assert_eq!(error, "no data file is given; name at least one");
}

#[test]
fn columns_that_do_not_exist() {
    let folder = tempdir().unwrap();
    let path = file(folder.path(), "x.csv", "a,b,label\n1,2,3\n");
    for (label, expected) in [
        (
            LabelColumn::Name("y".into()),
            "no label column \"y\"; its columns are a, b, label",
        ),
        (LabelColumn::Position(4), "no label column 4"),
    ] {
        let options = OpenOptions {
            label,
            ..options(folder.path())
        };
        let error = Dataset::open(std::slice::from_ref(&path), &options)
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn several_files_are_one_sequence() {
    let folder = tempdir().unwrap();
    let paths = [
        file(folder.path(), "1", "-1 1:1\n3 2:1\n"),
        file(folder.path(), "2.svm", "# c\n1 9:1\n"),
        file(folder.path(), "3", "3 4:1\n5 5:1\n-1 1:1"),
    ];
    let dataset = open(&paths, folder.path()).unwrap();
    assert_eq!(
        (dataset.records(), dataset.features(), dataset.nonzeros()),
        (6, 9, 6)
    );
    assert_eq!(dataset.labels().values(), [-1.0, 3.0, 1.0, 5.0]);
    let firsts: Vec<u64> = dataset.files().iter().map(|file| file.first_id()).collect();
    assert_eq!(firsts, [0, 2, 3]);
    let rows = rows(&dataset).unwrap();
    let labels: Vec<u32> = (0..6).map(|i| rows.label(i)).collect();
    assert_eq!(labels, [0, 1, 2, 1, 3, 0]);
    assert_eq!(
        rows.row(2),
        Row::Sparse {
            indices: &[8],
            values: &[1.0]
        }
    );
    let ids = [5, 0, 1, 2, 2, 3, 4, 5, 4];
    let mut bulk = vec![];
    dataset.locate_into(&ids, &mut bulk);
    assert!(
        bulk.iter()
            .zip(ids)
            .all(|(place, id)| *place == dataset.locate(id))
    );
    let dense = file(folder.path(), "d.csv", "1,2,3\n");
    let wider = file(folder.path(), "e.csv", "1,2,3,4\n");
    for other in [&paths[0], &wider] {
        let error = open(&[dense.clone(), other.clone()], folder.path()).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("d.csv holds dense rows of 2 features"),
            "{error}"
        );
    }
    let model = OpenOptions {
        features: Some(5),
        ..options(folder.path())
    };
    let error = Dataset::open(&[dense], &model).unwrap_err();
    let what = "d.csv: has 2 features, but the model has 5";
    assert!(error.to_string().contains(what), "{error}");
}

#[test]
fn bulk_location_equals_single() {
    let folder = tempdir().unwrap();
    let text: String = (0..5000)
        .map(|i| format!("1 {}:1\n", 10u64.pow(i % 9)))
        .collect();
    let dataset = open(&[file(folder.path(), "x", text)], folder.path()).unwrap();
    for step in [1, 2, 7, 16, 17, 40, 4999] {
        let ids: Vec<u64> = (0..15_000).map(|i| i * step % 5000).collect();
        let mut bulk = vec![];
        dataset.locate_into(&ids, &mut bulk);
        assert!(
            bulk.iter()
                .zip(ids)
                .all(|(place, id)| *place == dataset.locate(id))
        );
    }
}

#[test]
fn zero_based_indices() {
    let folder = tempdir().unwrap();
    let path = file(folder.path(), "z", "1 0:5 3:2\n");
    let options = OpenOptions {
        zero_based: true,
        ..options(folder.path())
    };
    let dataset = Dataset::open(&[path], &options).unwrap();
    assert_eq!(dataset.features(), 4);
    let rows = rows(&dataset).unwrap();
    assert_eq!(
        rows.row(0),
        Row::Sparse {
            indices: &[0, 3],
            values: &[5.0, 2.0]
        }
    );
}

#[test]
fn a_byte_order_mark_and_other_names() {
    let folder = tempdir().unwrap();
    let path = file(folder.path(), "bom.csv", b"\xef\xbb\xbfx,label\n4,1\n5,0\n");
    let dataset = open(&[path], folder.path()).unwrap();
    assert_eq!(dataset.records(), 2);
    assert_eq!(rows(&dataset).unwrap().row(1), Row::Dense(&[5.0]));
    let path = file(folder.path(), "anything", "4,1\n5,0\n");
    let dataset = open(std::slice::from_ref(&path), folder.path()).unwrap();
    assert_eq!(dataset.files()[0].kind().name(), "csv");
    let forced = OpenOptions {
        format: FormatKind::from_name("libsvm"),
        ..options(folder.path())
    };
    let dataset = Dataset::open(&[path], &forced).unwrap();
    assert!(rows(&dataset).is_err());
}

#[test]
fn numpy_matrices() {
    let folder = tempdir().unwrap();
    let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 3), }\n";
    let mut bytes = b"\x93NUMPY\x01\0".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    let values = [1.0f32, 2.0, -1.0, 3.0, 4.0, 1.0, 5.0, 6.0, -1.0];
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    let path = file(folder.path(), "x.npy", &bytes);
    let dataset = open(std::slice::from_ref(&path), folder.path()).unwrap();
    assert_eq!((dataset.records(), dataset.features()), (3, 2));
    assert_eq!(dataset.record_bytes(), RecordBytes::Fixed(12));
    assert_eq!(dataset.layout(), Layout::Dense { width: 2 });
    assert_eq!(dataset.labels().values(), [1.0, -1.0]);
    let decoded = rows(&dataset).unwrap();
    assert_eq!(decoded.row(1), Row::Dense(&[3.0, 4.0]));
    assert_eq!((decoded.label(0), decoded.label(1)), (1, 0));
    let first = OpenOptions {
        label: LabelColumn::First,
        ..options(folder.path())
    };
    let dataset = Dataset::open(&[path], &first).unwrap();
    assert_eq!(dataset.labels().values(), [1.0, 3.0, 5.0]);
    for cut in 0..bytes.len() {
        let path = file(folder.path(), "cut.npy", &bytes[..cut]);
        assert!(open(&[path], folder.path()).is_err());
    }
}

#[test]
fn compressed_text_is_decompressed_once() {
    let folder = tempdir().unwrap();
    let text = "1 1:1\n-1 2:1\n".repeat(5000);
    let mut gzip = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
    gzip.write_all(text.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::encode_all(text.as_bytes(), 3).unwrap();
    for (name, bytes) in [("x.gz", &gzip), ("x.libsvm.zst", &zstd)] {
        let paths = [file(folder.path(), name, bytes)];
        for (note, index) in [
            ("decompressed to", IndexSource::Built),
            ("read from its decompressed copy", IndexSource::Sidecar),
        ] {
            let dataset = open(&paths, folder.path()).unwrap();
            assert!(dataset.notes()[0].contains(note), "{:?}", dataset.notes());
            assert_eq!(dataset.index_report().source, index);
            assert_eq!(dataset.records(), 10_000);
            assert_eq!(rows(&dataset).unwrap().len(), 10_000);
        }
        for cut in [4, bytes.len() / 2, bytes.len() - 1] {
            let path = file(folder.path(), "cut", &bytes[..cut]);
            let error = open(&[path], folder.path()).unwrap_err().to_string();
            assert!(error.contains("cut: cannot be decompressed"), "{error}");
        }
    }
}

/// As tapes and block devices leave them, and as gzip reads them.
#[test]
fn zeros_behind_gzip() {
    let folder = tempdir().unwrap();
    let member = |text: &str| {
        let mut gzip = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
        gzip.write_all(text.as_bytes()).unwrap();
        gzip.finish().unwrap()
    };
    let (first, second) = (member("1 1:1\n"), member("2 1:1\n"));
    let zeros = vec![0; 600_000];
    for (bytes, records) in [
        ([&first[..], &zeros].concat(), 1),
        ([&first[..], &second].concat(), 2),
        ([&first[..], &[0], &second, &[0; 512]].concat(), 2),
    ] {
        let path = file(folder.path(), "x.svm.gz", bytes);
        assert_eq!(open(&[path], folder.path()).unwrap().records(), records);
    }
    for (name, bytes) in [
        ("other", [&first[..], &zeros[..9], b"other"].concat()),
        ("cut", [&first[..], &second[..9]].concat()),
    ] {
        let path = file(folder.path(), name, bytes);
        let error = open(&[path], folder.path()).unwrap_err().to_string();
        assert!(error.contains("cannot be decompressed"), "{error}");
    }
}

#[test]
fn other_compression_is_named() {
    let folder = tempdir().unwrap();
    for (codec, bytes) in [
        ("bzip2", &b"BZh91AY&SY\x01\x02\x03"[..]),
        ("xz", b"\xfd7zXZ\0\0\x04"),
        ("LZ4", b"\x04\x22\x4d\x18\x64\x40"),
        ("Snappy", b"\xff\x06\0\0sNaPpY"),
    ] {
        let path = file(folder.path(), "x.csv", bytes);
        let error = open(std::slice::from_ref(&path), folder.path()).unwrap_err();
        let message = format!("is compressed with {codec}, which is not read; decompress it");
        assert!(error.to_string().contains(&message), "{error}");
        let as_bytes = OpenOptions {
            format: FormatKind::from_name("raw:u8"),
            cache_dir: Some(folder.path().to_path_buf()),
            ..OpenOptions::default()
        };
        assert!(Dataset::open(&[path], &as_bytes).is_ok());
    }
    let path = file(folder.path(), "x.br", [0x8b, 0, 1, 2]);
    let error = open(&[path], folder.path()).unwrap_err().to_string();
    assert!(error.contains("is compressed with Brotli"), "{error}");
}

/// An error after a guessed format says so.
#[test]
fn guesses_are_named_with_what_is_wrong() {
    let folder = tempdir().unwrap();
    let numbers = |name: &str, text: &str, format: Option<&str>| {
        let path = file(folder.path(), name, text);
        let options = OpenOptions {
            features_only: true,
            format: format.and_then(FormatKind::from_name),
            ..options(folder.path())
        };
        let outcome = Dataset::open(&[path], &options).and_then(|dataset| rows(&dataset));
        outcome.expect_err("refused").to_string()
    };
    let prose = "1984, a novel, was read\nthen 7, 8 or 9 of us, it is said, went\n";
    for (text, format) in [
        (prose, "csv"),
        ("1 2:3\nand then\n", "libsvm"),
        ("5:3 was the score, and 2:1\nthe one before\n", "libsvm"),
    ] {
        let error = numbers("prose.txt", text, None);
        let guess = format!(
            "the format was guessed as {format} from the first lines: name another with `format`, such as `format` text"
        );
        assert!(error.contains(&guess), "{error}");
        let error = numbers("prose.txt", text, Some(format));
        assert!(!error.contains("guessed as"), "{error}");
    }
    // Lines that look like prose are noted even if they can be read as a table.
    let path = file(folder.path(), "short.txt", "Hello, world\n42, said he\n");
    let features = OpenOptions {
        features_only: true,
        ..options(folder.path())
    };
    let notes = Dataset::open(&[path], &features)
        .unwrap()
        .notes()
        .join("; ");
    assert!(
        notes.contains("look like prose, and were taken for csv"),
        "{notes}"
    );
    let error = numbers("blanks", "1.5 2.5 3\n4.5 5.5 6\n", None);
    assert!(
        error.contains("separated by blanks; write it with commas"),
        "{error}"
    );
}

#[test]
fn a_file_that_changes_is_noticed() {
    let folder = tempdir().unwrap();
    let path = file(folder.path(), "x", "1 1:1\n2 2:1\n");
    let dataset = open(std::slice::from_ref(&path), folder.path()).unwrap();
    dataset.check_unchanged().unwrap();
    file(folder.path(), "x", "1 1:1\n2 2:1\n3 3:1\n");
    let error = dataset.check_unchanged().unwrap_err().to_string();
    assert!(error.contains("its size: 12 bytes became 18)"), "{error}");
    let again = file(folder.path(), "x", "1 1:1\n2 2:2\n");
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    std::fs::File::options()
        .append(true)
        .open(again)
        .unwrap()
        .set_modified(later)
        .unwrap();
    let error = dataset.check_unchanged().unwrap_err().to_string();
    assert!(error.contains("time of last change"), "{error}");
}

#[test]
fn fingerprints_tell_data_from_other_data() {
    let folder = tempdir().unwrap();
    let a = open(&[file(folder.path(), "a", "1 1:1\n2 2:1\n")], folder.path()).unwrap();
    let b = open(&[file(folder.path(), "b", "1 1:1\n2 2:1\n")], folder.path()).unwrap();
    let c = open(&[file(folder.path(), "c", "1 1:1\n2 2:2\n")], folder.path()).unwrap();
    assert_eq!(a.fingerprint(), b.fingerprint());
    assert_ne!(a.fingerprint(), c.fingerprint());
}

#[test]
fn storages_are_decorated() {
    let folder = tempdir().unwrap();
    let dataset = open(&[file(folder.path(), "a", "1 1:1\n")], folder.path()).unwrap();
    let bytes: &[u8] = b"2 2:2\n";
    let dataset =
        dataset.with_storage(|_| std::sync::Arc::new(pelton_storage::MemoryStorage::new(bytes)));
    assert_eq!(record(&dataset, 0), bytes);
}

#[test]
fn the_documentation_lists_every_format() {
    let page = include_str!("../../../../docs/formats.md");
    for name in FormatKind::names().split(", ") {
        let is_there = page.contains(&format!("`{name}`"));
        assert!(is_there, "add a row for `{name}` to docs/formats.md");
    }
}
