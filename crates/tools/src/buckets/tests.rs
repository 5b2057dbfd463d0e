//! Lengths of every kind of file, and errors of invalid ones.

use std::path::PathBuf;
use std::sync::Arc;

use pelton_comm::Comm;
use pelton_run::Interrupt;

use super::*;

fn compared(config: &BucketsConfig, interrupt: &Interrupt) -> Result<BucketsTable, DataError> {
    let comm = Comm::alone();
    buckets(config, RunContext::new(&comm, interrupt, &mut |_| {}))
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn write(&self, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join("lengths");
        std::fs::write(&path, content).unwrap();
        path
    }

    fn lengths(&self, content: impl AsRef<[u8]>, source: LengthSource) -> Result<Vec<u32>, String> {
        let path = self.write(content);
        read_lengths(&path, &source, &Arc::default()).map_err(|error| error.to_string())
    }
}

fn check(content: impl AsRef<[u8]>, source: LengthSource, expected: &[u32]) {
    assert_eq!(Folder::new().lengths(content, source).unwrap(), expected);
}

fn check_refused(content: impl AsRef<[u8]>, source: LengthSource, remedy: &str) {
    let message = Folder::new().lengths(content, source).unwrap_err();
    assert!(
        message.contains(remedy) && message.contains("lengths:"),
        "{message}"
    );
}

const WORDS: LengthSource = LengthSource::Lines(Unit::Words);
const BYTES: LengthSource = LengthSource::Lines(Unit::Bytes);

fn column(text: &str) -> LengthSource {
    LengthSource::Column(text.parse().unwrap())
}

#[test]
fn lines_are_counted_in_words_or_bytes_and_their_end() {
    let text = " a cat sat \r\n\nx\ttwo  words\nlast";
    check(text, WORDS, &[4, 1, 4, 2]);
    check(text, BYTES, &[12, 1, 13, 5]);
    check("", WORDS, &[]);
    check("\n", BYTES, &[1]);
    // A line longer than any buffer.
    check("a ".repeat(1_000_000), WORDS, &[1_000_001]);
}

#[test]
fn columns_are_found_by_name_and_position() {
    let table = "id,length,\"a, b\"\n1,12,3\n2,7.0,4\n\n3,0,5\n";
    check(table, column("length"), &[12, 7, 0]);
    check(table, column("2"), &[12, 7, 0]);
    check(table, column("a, b"), &[3, 4, 5]);
    check("5\n6\n7", column("1"), &[5, 6, 7]);
    check("1\t2\n3\t4\n", column("2"), &[2, 4]);
    check("a;b\n3;4\n", column("b"), &[4]);
}

#[test]
fn tables_that_hold_no_lengths_are_refused_with_a_remedy() {
    check_refused(
        "a,b\n1,2\n",
        column("c"),
        "no column 'c' in its first line (a, b)",
    );
    check_refused(
        "1,2\n",
        column("3"),
        "has 2 columns, so there is no column 3",
    );
    check_refused("1,2\n3\n", column("2"), "line 2 has 1 columns");
    check_refused("1\n-2\n", column("1"), "line 2: '-2' is not a length");
    check_refused("1\n2.5\n", column("1"), "whole numbers");
    check_refused("1\n4294967296\n", column("1"), "4294967295");
    check_refused("1\nnan\n", column("1"), "'nan'");
    check_refused(vec![b'1'; 2 << 20], column("1"), "leave `column` out");
    assert!("0".parse::<Column>().is_err() && "".parse::<Column>().is_err());
    assert!("tokens".parse::<Unit>().is_err());
}

fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

#[test]
fn npy_vectors_and_columns_are_read() {
    let longs: Vec<u8> = [3_i64, 70_000]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    check(npy("<i8", "(2,)", &longs), column("1"), &[3, 70_000]);
    check(
        npy("|u1", "(2, 3)", &[1, 2, 3, 4, 5, 250]),
        column("3"),
        &[3, 250],
    );
    let floats: Vec<u8> = [3_f32, 9.0].iter().flat_map(|n| n.to_le_bytes()).collect();
    check(npy("<f4", "(2, 1)", &floats), column("1"), &[3, 9]);
    check_refused(
        npy("|i1", "(1,)", &[0xFF]),
        column("1"),
        "-1 is not a length",
    );
    check_refused(
        npy("<i8", "(3,)", &longs),
        column("1"),
        "ends within row 2 of 3",
    );
    check_refused(
        npy("<i8", "(2,)", &longs),
        column("2"),
        "use `column` 1 to 1",
    );
    check_refused(npy("<i8", "(2,)", &longs), column("x"), "no column 'x'");
    check_refused(
        npy(">i8", "(2,)", &longs),
        column("1"),
        "little-endian int64",
    );
    check_refused(
        npy("<i8", "(2, 2, 2)", &longs),
        column("1"),
        "vector or matrix",
    );
    check_refused(
        npy("<i8", "(2, 99999999999)", &longs),
        column("1"),
        "columns",
    );
    check_refused(
        &npy("<i8", "(2,)", &longs)[..30],
        column("1"),
        "ends within its header",
    );
    check_refused(b"\x93NUMPY\x01\x00\x02\x00{}", column("1"), "numpy.save");
    check_refused(
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        column("1"),
        "too long a header",
    );
    check_refused(npy("<i8", "(2, 0)", &longs), column("1"), "has 0 columns");
    check_refused(
        npy("<i8", "(2, x)", &longs),
        column("1"),
        "vector or matrix",
    );
    check_refused(
        b"\x93NUMPY\x01\x00\x10\x00{'descr': '<i8', }",
        column("1"),
        "has no shape",
    );
    let columns = npy("|u1", "(2, 3)", &[1, 2, 3, 4, 5, 6]);
    let fortran = String::from_utf8_lossy(&columns[10..]).replace("False", "True ");
    let fortran = [&columns[..10], fortran.as_bytes()].concat();
    check_refused(fortran, column("2"), "numpy.ascontiguousarray");
}

/// Repeats its bytes, and fails after a number of rounds.
struct Rounds<'a> {
    bytes: &'a [u8],
    left: &'a [u8],
    rounds: usize,
}

impl std::io::Read for Rounds<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = std::io::BufRead::fill_buf(self)?.len().min(into.len());
        into[..count].copy_from_slice(&self.left[..count]);
        self.left = &self.left[count..];
        Ok(count)
    }
}

impl std::io::BufRead for Rounds<'_> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        if self.left.is_empty() {
            let rounds = self.rounds.checked_sub(1);
            self.rounds = rounds.ok_or_else(|| std::io::Error::other("the cable is out"))?;
            self.left = self.bytes;
        }
        Ok(self.left)
    }

    fn consume(&mut self, count: usize) {
        self.left = &self.left[count..];
    }
}

#[test]
fn a_file_that_fails_on_the_way_is_named() {
    let rows = npy("|u1", "(9,)", &[1, 2]);
    for (bytes, source) in [
        (&b"1\n2\n"[..], WORDS),
        (b"1\n2\n", column("1")),
        (&rows, column("1")),
    ] {
        let mut reader = Rounds {
            bytes,
            left: b"",
            rounds: 1,
        };
        let path = std::path::Path::new("cut/off");
        let error = lengths_of(path, &mut reader, &source, &Arc::default()).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("cut/off: cannot be read (the cable is out)"),
            "{error}"
        );
    }
}

#[test]
fn a_line_of_too_many_units_is_refused() {
    let bytes = vec![b'a'; 1 << 24];
    let reader = Rounds {
        bytes: &bytes,
        left: b"",
        rounds: 1 << 8,
    };
    let mut reader = std::io::Read::take(reader, 1 << 32);
    let path = std::path::Path::new("one/line");
    let error = lengths_of(path, &mut reader, &BYTES, &Arc::default()).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("one/line: line 1 has 2^32 units or more"),
        "{error}"
    );
}

fn table(content: &str, batch: u64, policies: &[&str]) -> Result<BucketsTable, DataError> {
    let folder = Folder::new();
    let config = BucketsConfig {
        path: folder.write(content),
        pair: None,
        source: column("1"),
        batch,
        policies: policies
            .iter()
            .map(|policy| policy.parse().unwrap())
            .collect(),
    };
    compared(&config, &Arc::default())
}

#[test]
fn all_policies_are_compared_and_drop_nothing() {
    let lengths: String = (1..2000).map(|i| format!("{}\n", 1 + i * i % 83)).collect();
    let all = table(&lengths, 32, &[]).unwrap();
    assert_eq!(all.rows.len(), 8);
    for row in &all.rows {
        let is_published = row.policy == PUBLISHED_AUTO;
        assert_eq!(row.dropped > 0, is_published, "{row:?}");
        assert!((0.0..1.0).contains(&row.padded_fraction), "{row:?}");
        assert!((0.0..=1.0).contains(&row.rl_exact), "{row:?}");
        assert!(row.batches >= 1999 / 32 / 9, "{row:?}");
    }
    let padding = |policy: &str| {
        let row = all.rows.iter().find(|row| row.policy.starts_with(policy));
        row.unwrap().padded_fraction
    };
    assert!(padding("optimal:16") < padding("optimal:8"));
    assert!(padding("optimal:8") < padding("static"));
    assert!(padding("static") < padding("none"));
    let picture = in_terminal(&all, 80);
    assert!(
        picture.iter().all(|line| line.chars().count() <= 80),
        "{picture:#?}"
    );
    // Bars, scale and the policies with boundaries.
    assert_eq!(picture.len(), 10 + 1 + 6);
    let drawing = histogram(&all).to_svg();
    assert!(drawing.contains("<svg") && drawing.contains("optimal:16"));
}

#[test]
fn static_boundaries_reach_nearly_all_sentences() {
    let of = |lengths: Vec<u32>| static_boundaries(&LengthHistogram::new(lengths));
    assert_eq!(of(vec![22; 1000]), [10, 20, 30, 40, 50, 60]);
    assert_eq!(of((0..290).collect()), [50, 100, 150, 200, 250, 300]);
    assert_eq!(of(vec![]), [10, 20, 30, 40, 50, 60]);
    assert!(!of(vec![u32::MAX]).is_empty());
}

#[test]
fn no_sentences_are_no_error() {
    let none = table("", 32, &[]).unwrap();
    assert!(
        none.rows
            .iter()
            .all(|row| row.batches == 0 && row.padded_fraction == 0.0)
    );
    assert!(in_terminal(&none, 80).is_empty());
    assert!(histogram(&none).to_svg().ends_with("</svg>\n"));
}

#[test]
fn what_cannot_be_is_refused() {
    assert!(
        table("1\n", 0, &[])
            .unwrap_err()
            .to_string()
            .contains("a batch of 0 examples")
    );
    let interrupt = Arc::default();
    let config = BucketsConfig {
        path: PathBuf::from("/no/such/file"),
        pair: None,
        source: WORDS,
        batch: 1,
        policies: Vec::new(),
    };
    let error = compared(&config, &interrupt).unwrap_err();
    assert!(error.to_string().contains("check the path"), "{error}");
    assert_eq!(error.exit_code(), 2);
    let folder = Folder::new();
    let config = BucketsConfig {
        path: folder.0.path().to_path_buf(),
        pair: None,
        ..config
    };
    let error = compared(&config, &interrupt).unwrap_err().to_string();
    assert!(error.contains("is a folder"), "{error}");
    interrupt.store(true, std::sync::atomic::Ordering::Relaxed);
    let config = BucketsConfig {
        path: folder.write("\n".repeat(100_000)),
        pair: None,
        ..config
    };
    assert_eq!(compared(&config, &interrupt).unwrap_err().exit_code(), 130);
}

#[test]
fn pairs_are_compared_on_both_lengths() {
    let folder = Folder::new();
    let lines = |length: &dyn Fn(u32) -> u32| -> String {
        (0..3000).map(|i| format!("{}\n", length(i))).collect()
    };
    let mut config = BucketsConfig {
        path: folder.write(lines(&|i| 1 + i % 30)),
        pair: Some(folder.0.path().join("second")),
        source: column("1"),
        batch: 32,
        policies: Vec::new(),
    };
    std::fs::write(
        folder.0.path().join("second"),
        lines(&|i| 3 + i % 30 + i % 7),
    )
    .unwrap();
    let table = compared(&config, &Arc::default()).unwrap();
    assert_eq!((table.longest, table.second_longest), (30, Some(38)));
    assert_eq!(table.rows.len(), 4);
    let padding: Vec<f64> = table.rows.iter().map(|row| row.padded_fraction).collect();
    // None, six steps, strips cut by the second length.
    assert!(
        padding[0] > padding[1] && padding[1] > padding[2],
        "{padding:?}"
    );
    assert!(padding[2] < 0.15 && padding[3] < 0.15, "{padding:?}");
    for row in &table.rows {
        assert_eq!(row.boundaries.len(), row.second_boundaries.len());
        assert_eq!((row.dropped, row.boundaries.len() as u64), (0, row.buckets));
    }
    std::fs::write(folder.0.path().join("second"), "1\n2\n").unwrap();
    let error = compared(&config, &Arc::default()).unwrap_err().to_string();
    assert!(error.contains("has 3000 sentences and"), "{error}");
    config.policies = vec!["optimal:8".parse().unwrap()];
    std::fs::write(folder.0.path().join("second"), lines(&|i| i)).unwrap();
    let error = compared(&config, &Arc::default()).unwrap_err().to_string();
    assert!(
        error.contains("does not apply to pairs of sentences"),
        "{error}"
    );
}
