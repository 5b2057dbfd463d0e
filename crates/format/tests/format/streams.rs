//! Text and bytes as one stream: records of a given number of tokens or bytes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{file, options, real, rows};
use pelton_format::{
    Contents, Dataset, FormatError, FormatErrorKind, FormatKind, IndexSource, OpenOptions,
    RecordBytes, Row,
};
use proptest::prelude::*;
use tempfile::tempdir;

fn kind(name: &str) -> FormatKind {
    FormatKind::from_name(name).expect("a format")
}

fn open(path: &Path, format: &str, options: &OpenOptions) -> Result<Dataset, FormatError> {
    let options = OpenOptions {
        format: Some(kind(format)),
        ..options.clone()
    };
    Dataset::open(&[path.to_path_buf()], &options)
}

/// Every row; checks that each is the located range of its record.
fn records(dataset: &Dataset) -> Vec<Vec<u8>> {
    let rows = rows(dataset).unwrap();
    assert_eq!(rows.stored_values() as u64, dataset.nonzeros());
    assert_eq!(dataset.labels().values(), [0.0]);
    let records: Vec<Vec<u8>> = (0..rows.len())
        .map(|i| match rows.row(i) {
            Row::Bytes(bytes) => bytes.to_vec(),
            other => panic!("{other:?}"),
        })
        .collect();
    let longest = records.iter().map(Vec::len).max().unwrap_or(0) as u64;
    assert_eq!(dataset.record_bytes().max(), longest);
    assert_eq!(
        dataset.bytes(),
        records.iter().map(Vec::len).sum::<usize>() as u64
    );
    let ids: Vec<u64> = (0..dataset.records()).collect();
    let mut locations = vec![];
    dataset.locate_into(&ids, &mut locations);
    for (id, location) in ids.iter().zip(locations) {
        assert_eq!(dataset.locate(*id), location);
        assert_eq!(location.length, records[*id as usize].len() as u64);
    }
    records
}

/// The tokens of a text: words, and newlines.
fn tokens(text: &[u8]) -> Vec<&[u8]> {
    let is_space = |byte: &u8| b" \t\x0b\x0c\r".contains(byte);
    text.split_inclusive(|byte| *byte == b'\n')
        .flat_map(|line| {
            let (words, end) = match line.strip_suffix(b"\n") {
                Some(words) => (words, Some(&b"\n"[..])),
                None => (line, None),
            };
            let words = words.split(is_space).filter(|word| !word.is_empty());
            words.chain(end)
        })
        .collect()
}

#[test]
fn a_text_is_cut_every_so_many_tokens() {
    let folder = tempdir().unwrap();
    let options = options(folder.path());
    let check = |text: &[u8], length: u32, expected: &[&str]| {
        let path = file(folder.path(), "x.txt", text);
        let dataset = open(&path, &format!("tokens:{length}"), &options).unwrap();
        let expected: Vec<_> = expected.iter().map(|record| record.as_bytes()).collect();
        assert_eq!(records(&dataset), expected);
        assert_eq!(dataset.contents(), Contents::Tokens { length });
        let kind = dataset.files()[0].kind();
        assert_eq!(kind.to_string(), format!("tokens:{length}"));
    };
    check(b" a cat\n sat\n", 2, &["a cat", "\n sat", "\n"]);
    check(b"a\r\n\r\n  b", 2, &["a\r\n\r", "\n  b"]);
    check(b"a b  \t", 2, &["a b  \t"]);
    check(b"a b", 9, &["a b"]);
    check(b"\n\n\n", 2, &["\n\n", "\n"]);
    check(b"\xef\xbb\xbfa b", 1, &["a ", "b"]);
    check(b"1 1:2\n2 3:4\n", 3, &["1 1:2\n", "2 3:4\n"]);
    check(b"a\0b c", 1, &["a\0b ", "c"]);
}

#[test]
fn a_file_is_cut_every_so_many_bytes() {
    let folder = tempdir().unwrap();
    let options = options(folder.path());
    let check = |bytes: &[u8], length: u32, expected: &[&[u8]]| {
        let path = file(folder.path(), "x", bytes);
        let dataset = open(&path, &format!("bytes:{length}"), &options).unwrap();
        assert_eq!(records(&dataset), expected);
        assert_eq!(dataset.contents(), Contents::Bytes { length });
        assert_eq!(dataset.index_report().source, IndexSource::Arithmetic);
        assert_eq!(dataset.index_report().index_bytes, 0);
        dataset
    };
    let even = check(
        b"\xef\xbb\xbf\0\n\x1f",
        2,
        &[b"\xef\xbb", b"\xbf\0", b"\n\x1f"],
    );
    assert_eq!(even.record_bytes(), RecordBytes::Fixed(2));
    let uneven = check(b"abcde", 2, &[b"ab", b"cd", b"e"]);
    assert_eq!(uneven.record_bytes().max(), 2);
    check(b"abc", 1024, &[b"abc"]);
}

#[test]
fn a_sidecar_is_of_one_length() {
    let folder = tempdir().unwrap();
    let options = options(folder.path());
    let path = file(folder.path(), "x.txt", "a b c d e\nf g h\n");
    let source = |format: &str, records: u64| {
        let dataset = open(&path, format, &options).unwrap();
        assert_eq!(dataset.records(), records, "{format}");
        (dataset.index_report().source, dataset.fingerprint())
    };
    let (built, three) = source("tokens:3", 4);
    assert_eq!(built, IndexSource::Built);
    assert_eq!(source("tokens:3", 4), (IndexSource::Sidecar, three));
    // As many records, cut elsewhere.
    let (built, four) = source("tokens:4", 3);
    assert_eq!(built, IndexSource::Built);
    let (built, five) = source("tokens:5", 2);
    assert_eq!(built, IndexSource::Built);
    assert!(three != four && four != five);
    assert_eq!(source("text", 2).0, IndexSource::Built);
    assert_eq!(source("tokens:9", 2).0, IndexSource::Built);
    assert_ne!(source("tokens:9", 2).1, five);
    assert_ne!(source("bytes:8", 2).1, source("bytes:9", 2).1);
    // Damaged ones are made again.
    let sidecar = folder.path().join("x.txt.pelton-index");
    let mut bytes = fs::read(&sidecar).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&sidecar, bytes).unwrap();
    assert_eq!(source("tokens:9", 2).0, IndexSource::Built);
}

#[test]
fn what_holds_no_tokens_is_refused() {
    let folder = tempdir().unwrap();
    let options = options(folder.path());
    let refused = |path: PathBuf, format: &str, message: &str| {
        let error = open(&path, format, &options).expect_err(message);
        assert!(error.to_string().contains(message), "{error}");
    };
    let empty = file(folder.path(), "empty", "");
    let blank = file(folder.path(), "blank", " \t \r ");
    refused(empty.clone(), "tokens:2", "holds no records");
    refused(empty, "bytes:2", "holds no records");
    refused(blank.clone(), "tokens:2", "holds no records");
    refused(folder.path().to_path_buf(), "tokens:2", "is a folder");
    refused(folder.path().join("absent"), "bytes:2", "no such file");
    assert_eq!(open(&blank, "bytes:2", &options).unwrap().records(), 3);
    let features = OpenOptions {
        features_only: true,
        ..options.clone()
    };
    for format in ["tokens:2", "bytes:2"] {
        let error = open(&blank, format, &features).unwrap_err();
        assert!(error.to_string().contains("no features"), "{error}");
    }
    // Files cut at different lengths do not form one data set; at the same length they do.
    let words = file(folder.path(), "words", "a b c");
    let both = [words.clone(), words];
    let three = OpenOptions {
        format: FormatKind::from_name("tokens:2"),
        ..options
    };
    assert_eq!(Dataset::open(&both, &three).unwrap().records(), 4);
}

#[test]
fn real_text_token_by_token() {
    let folder = tempdir().unwrap();
    let Some(path) = real("ptb/ptb.train.txt") else {
        return;
    };
    let options = OpenOptions {
        sidecar: false,
        ..options(folder.path())
    };
    // Mikolov's count: the words of 42 068 sentences, and an end for each.
    let one = open(&path, "tokens:1", &options).unwrap();
    assert_eq!(one.records(), 929_589);
    let dataset = open(&path, "tokens:35", &options).unwrap();
    assert_eq!(dataset.records(), 929_589_u64.div_ceil(35));
    let text = fs::read(path).unwrap();
    let found = records(&dataset);
    assert_eq!(found.concat(), text.trim_ascii_start());
    let all = tokens(&text);
    for (record, expected) in found.iter().zip(all.chunks(35)) {
        assert_eq!(tokens(record), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text(text in "[ab\u{e9} \\n\\r\\t\\x0b\\x0c]{1,200}", length in 1u32..8) {
        let folder = tempdir().unwrap();
        let path = file(folder.path(), "x.txt", &text);
        let all = tokens(text.as_bytes());
        let opened = open(&path, &format!("tokens:{length}"), &options(folder.path()));
        if all.is_empty() {
            let is_empty = matches!(&opened, Err(error) if matches!(error.kind(), FormatErrorKind::Empty));
            prop_assert!(is_empty);
            return Ok(());
        }
        let found = records(&opened.unwrap());
        let expected: Vec<_> = all.chunks(length as usize).collect();
        prop_assert_eq!(found.len(), expected.len());
        for (record, expected) in found.iter().zip(expected) {
            prop_assert_eq!(tokens(record), expected);
            let first = record[0];
            prop_assert!(first == b'\n' || !b" \t\x0b\x0c\r".contains(&first));
        }
        let rest = text.len() - found.concat().len();
        prop_assert!(text.as_bytes()[..rest].iter().all(|byte| b" \t\x0b\x0c\r".contains(byte)));
        prop_assert_eq!(&text.as_bytes()[rest..], &found.concat()[..]);
    }
}
