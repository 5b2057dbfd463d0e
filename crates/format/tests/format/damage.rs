//! Data with empty or damaged parts: the rest is read.

use std::path::{Path, PathBuf};

use crate::support::tar::{end, member};
use crate::support::tfrecord::record as frame;
use crate::support::{faults, file, options};
use pelton_format::{Dataset, FormatKind, LabelColumn, OpenOptions};
use tempfile::tempdir;

/// Options that leave damage to the reader.
fn tolerant(folder: &Path) -> OpenOptions {
    OpenOptions {
        tolerant: true,
        ..options(folder)
    }
}

/// All records but `bad` are valid, and the fault of that one is reported.
fn check_bad(path: &PathBuf, options: &OpenOptions, records: usize, bad: usize, message: &str) {
    // From the scan, then from the sidecar.
    for _ in 0..2 {
        let dataset = Dataset::open(std::slice::from_ref(path), options).unwrap();
        assert_eq!(dataset.first_bad(), Some(bad as u64));
        let found = faults(&dataset);
        assert_eq!(found.len(), records, "{found:?}");
        for (id, fault) in found.iter().enumerate() {
            assert_eq!(fault.is_some(), id == bad, "{found:?}");
        }
        let fault = found[bad].as_ref().unwrap();
        assert!(fault.contains(message), "{fault}");
    }
    let strict = OpenOptions {
        tolerant: false,
        ..options.clone()
    };
    // A strict reader refuses it in spite of the tolerant reader's sidecar.
    assert!(Dataset::open(std::slice::from_ref(path), &strict).is_err());
}

#[test]
fn files_without_records_are_left_out() {
    let folder = tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| file(folder.path(), name, bytes);
    let good = [
        write("good.csv", b"a,b,label\n1,2,0\n2,3,1\n"),
        write("good.libsvm", b"1 1:1\n-1 2:1\n"),
        write("good.jsonl", b"{\"x\": 1}\n{\"x\": 2}\n"),
        write(
            "good.tar",
            &[member("a.txt", b"a"), member("b.txt", b"b"), end()].concat(),
        ),
        write("good.tfrecord", &[frame(b"one"), frame(b"two")].concat()),
        write("good.txt", b"a\nb\n"),
    ];
    let others = [
        write("head.csv", b"a,b,label\n"),
        write("comments.libsvm", b"# nothing\n"),
        write("blank.jsonl", b"\n\n"),
        write("none.tar", &end()),
    ];
    for good in &good {
        let extension = good.extension().unwrap().to_str().unwrap();
        let zero = write(&format!("zero.{extension}"), b"");
        let alike = others
            .iter()
            .filter(|other| other.extension() == good.extension());
        for empty in alike.chain([&zero]) {
            for files in [[empty, good, empty], [good, empty, good]] {
                let files = files.map(PathBuf::clone);
                let dataset = Dataset::open(&files, &options(folder.path())).unwrap();
                let sound = files.iter().filter(|file| *file == good).count() as u64;
                assert_eq!(dataset.records(), 2 * sound, "{files:?}");
                assert!(faults(&dataset).iter().all(Option::is_none));
                let note = format!("{}: holds no records and is left out", empty.display());
                assert!(dataset.notes().contains(&note), "{:?}", dataset.notes());
            }
            let files = [empty.clone(), zero.clone()];
            let error = Dataset::open(&files, &options(folder.path())).unwrap_err();
            let expected = format!("{}: holds no records;", empty.display());
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }
}

#[test]
fn lines_that_are_no_json_are_bad_records() {
    let folder = tempdir().unwrap();
    let check = |lines: [&str; 3], message: &str| {
        let path = file(folder.path(), "x.jsonl", lines.join("\n"));
        check_bad(&path, &tolerant(folder.path()), 3, 1, message);
    };
    let [first, last] = [r#"{"x": 1, "label": "a"}"#, r#"{"x": 3, "label": "b"}"#];
    check(
        [first, r#"{"x": 2, "lab"#, last],
        "line 2: column 13: the line ends before its JSON does",
    );
    check([first, "[2]", last], "line 2: [2] is not a JSON object");
    check(
        [first, r#"{"x": NaN, "label": "a"}"#, last],
        "line 2: column 7: JSON has no NaN or infinity; write null in its place, which `missing` zero fills in",
    );
    check(
        [first, r#"{"x": -Infinity}"#, last],
        "JSON has no NaN or infinity",
    );
    check(
        [first, r#"{"x": 2, "label": null}"#, last],
        "line 2: its label, \"label\", is null; give all",
    );
    check(
        [first, r#"{"x": 2, "label": 7}"#, last],
        "its label, \"label\", is 7;",
    );
    check(
        [first, r#"{"x": 2}"#, last],
        "its label, \"label\", is nothing;",
    );
    check(
        [r#"{"x": 1}"#, "{", r#"{"x": 1}"#],
        "line 2: column 1: the line ends",
    );
    let path = folder.path().join("x.jsonl");
    let dataset = Dataset::open(&[path], &tolerant(folder.path())).unwrap();
    assert!(!dataset.has_labels() && dataset.notes().is_empty());
}

/// At any cut of an archive, the samples before it are read, and none without all of its members.
#[test]
fn archives_that_are_cut_off() {
    let folder = tempdir().unwrap();
    let sample = |name: &str| {
        [
            member(&format!("{name}.txt"), name.repeat(200).as_bytes()),
            member(&format!("{name}.cls"), b"1"),
        ]
        .concat()
    };
    let samples = ["a", "b", "c"].map(sample);
    let whole = [samples.concat(), end()].concat();
    let (size, all) = (samples[0].len(), samples.concat().len());
    for cut in (1..all).step_by(37).filter(|cut| cut % size != 0) {
        // A cut at the end of a member's header or data is not detectable, and the zeros that fill up a block do not
        // matter.
        let within = cut % size;
        let data_ends = [512 + 200, size - 512 + 1];
        let is_reported = !data_ends
            .iter()
            .any(|end| (*end..=end.next_multiple_of(512)).contains(&within));
        if !is_reported {
            continue;
        }
        let path = file(folder.path(), "cut.tar", &whole[..cut]);
        let (sound, what) = match within {
            // No more than a part of the next sample's first header: perhaps one more member of the last.
            0..512 => (
                (cut / size).saturating_sub(1),
                "a member reaches past its end",
            ),
            _ => (cut / size, "a member reaches past its end"),
        };
        check_bad(&path, &tolerant(folder.path()), sound + 1, sound, what);
    }
    // Data without classes also have none with a sample that is cut off.
    let plain: Vec<u8> = ["a", "b"]
        .map(|name| member(&format!("{name}.txt"), b"x"))
        .concat();
    let path = file(folder.path(), "plain.tar", &plain[..1024 + 512]);
    check_bad(
        &path,
        &tolerant(folder.path()),
        2,
        1,
        "a member reaches past its end",
    );
    let dataset = Dataset::open(&[path], &tolerant(folder.path())).unwrap();
    assert!(!dataset.has_labels());
    let mut damaged = whole.clone();
    damaged[size + 3] ^= 1;
    let path = file(folder.path(), "damaged.tar", &damaged);
    check_bad(
        &path,
        &tolerant(folder.path()),
        1,
        0,
        "checksum does not fit",
    );
}

#[test]
fn samples_without_a_class_are_bad_records() {
    let folder = tempdir().unwrap();
    let sample = |name: &str, class: &[u8]| {
        let json = [&b"{\"k\": "[..], class, b"}"].concat();
        [
            member(&format!("{name}.cls"), class),
            member(&format!("{name}.json"), &json),
        ]
        .concat()
    };
    let archive = [
        sample("a", b"5"),
        sample("b", b"x"),
        sample("c", b"7"),
        end(),
    ]
    .concat();
    let path = file(folder.path(), "x.tar", &archive);
    check_bad(
        &path,
        &tolerant(folder.path()),
        3,
        1,
        "its label is missing or cannot be read; leave such",
    );
    let by_key = OpenOptions {
        label: LabelColumn::Json("k".parse().unwrap()),
        ..tolerant(folder.path())
    };
    check_bad(
        &path,
        &by_key,
        3,
        1,
        "its label is missing or cannot be read",
    );
    let dataset = Dataset::open(&[path], &by_key).unwrap();
    assert_eq!(dataset.labels().values(), [5.0, 7.0]);
}

/// At any cut of a file, the records before it are read.
#[test]
fn records_that_are_cut_off() {
    let folder = tempdir().unwrap();
    let whole = [frame(b"the first"), frame(b"2"), frame(b"the third")].concat();
    let starts = [0, frame(b"the first").len(), frame(b"the first").len() + 17];
    for format in ["tfrecord", "tfrecord:bytes"] {
        let options = OpenOptions {
            format: FormatKind::from_name(format),
            ..tolerant(folder.path())
        };
        for cut in (starts[1] + 1..whole.len()).filter(|cut| !starts.contains(cut)) {
            let path = file(folder.path(), "cut.tfrecord", &whole[..cut]);
            let sound = starts.iter().filter(|start| **start < cut).count() - 1;
            check_bad(
                &path,
                &options,
                sound + 1,
                sound,
                "it is cut off, or its length is damaged",
            );
        }
        let mut damaged = whole.clone();
        damaged[starts[1]] ^= 1;
        let path = file(folder.path(), "damaged.tfrecord", &damaged);
        check_bad(
            &path,
            &options,
            2,
            1,
            "it is cut off, or its length is damaged",
        );
    }
}

/// Bytes that no sample of the file sees may differ, at the same size and time.
#[test]
fn other_bytes_of_the_same_size_and_time_are_noticed() {
    let folder = tempdir().unwrap();
    let options = options(folder.path());
    let text = |classes: [&str; 2]| -> String {
        (0..200_000)
            .map(|i| format!("{} 1:1 2:1\n", classes[usize::from(i % 20_000 == 1_000)]))
            .collect()
    };
    let labels = |path: &PathBuf| {
        let dataset = Dataset::open(std::slice::from_ref(path), &options).unwrap();
        dataset.labels().values().to_vec()
    };
    let path = file(folder.path(), "x", text(["1", "2"]));
    let before = std::fs::metadata(&path).unwrap();
    assert_eq!(labels(&path), [1.0, 2.0]);
    std::fs::write(&path, text(["1", "3"])).unwrap();
    let changed = std::fs::File::options().append(true).open(&path).unwrap();
    changed.set_modified(before.modified().unwrap()).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), before.len());
    assert_eq!(labels(&path), [1.0, 3.0]);
}
