//! TFRecord files: those that TensorFlow wrote, and those written by hand with every fault.

use std::path::{Path, PathBuf};

use pelton_batch::DType;
use pelton_format::{Dataset, IndexSource, LabelColumn, OpenOptions, Rows};
use proptest::prelude::*;
use tempfile::{TempDir, tempdir};

use crate::support::fields::{Shown, open, records, refuses, shown, with};
use crate::support::tfrecord::{Values, example, feature, field, integer, masked, record, text};
use crate::support::{self, file, rows};

fn i64s(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn f32s(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn fixture(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    folder.join(name)
}

/// A copy of a fixture, so that its sidecar is in `folder`.
fn copied(folder: &TempDir, name: &str) -> PathBuf {
    file(folder.path(), name, std::fs::read(fixture(name)).unwrap())
}

/// A file of Examples.
fn written(folder: &TempDir, name: &str, examples: &[&[(&str, Values)]]) -> PathBuf {
    let bytes = examples
        .iter()
        .flat_map(|features| record(&example(features)));
    file(folder.path(), name, bytes.collect::<Vec<_>>())
}

fn fault(dataset: &Dataset, id: u64) -> String {
    let mut rows = Rows::new(dataset.layout());
    let decoded = dataset.decode(id, &support::record(dataset, id), &mut rows);
    decoded.unwrap_err().to_string()
}

/// The fixture is written by TensorFlow 2.21:
///
/// ```python
/// import tensorflow as tf
///
/// def feature(value):
///     if value and isinstance(value[0], bytes):
///         return tf.train.Feature(bytes_list=tf.train.BytesList(value=value))
///     if value and isinstance(value[0], float):
///         return tf.train.Feature(float_list=tf.train.FloatList(value=value))
///     return tf.train.Feature(int64_list=tf.train.Int64List(value=value))
///
/// with tf.io.TFRecordWriter("tensorflow.tfrecord") as writer:
///     for i in range(5):
///         example = {
///             "label": [i % 2],
///             "number": [-i],
///             "point": [0.5 * i, -1.5],
///             "boxes": [float(j) for j in range(i)],
///             "text": [b"record %d" % i],
///             "words": [b"w" * j for j in range(1, i + 1)],
///             "ids": [2 ** 40, -1, i],
///         }
///         features = {name: feature(value) for name, value in example.items()}
///         if i == 3:  # the one that writes lists of any length may leave out an empty one
///             del features["boxes"]
///         example = tf.train.Example(features=tf.train.Features(feature=features))
///         writer.write(example.SerializeToString())
/// ```
#[test]
fn files_that_tensorflow_wrote() {
    let folder = tempdir().unwrap();
    let path = copied(&folder, "tensorflow.tfrecord");
    let expected: Vec<(Vec<Shown>, String)> = (0..5i64)
        .map(|i| {
            let boxes: Vec<f32> = (0..i).map(|j| j as f32).collect();
            let boxes = if i == 3 { &[] } else { &boxes[..] };
            let words: Vec<usize> = (1..=i as usize).collect();
            let lengths: Vec<i64> = (1..=i).collect();
            let all = "w".repeat(words.iter().sum());
            let fields = vec![
                shown("boxes", Some(DType::F32), &[boxes.len()], &f32s(boxes)),
                shown("ids", Some(DType::I64), &[3], &i64s(&[1 << 40, -1, i])),
                shown("number", Some(DType::I64), &[], &i64s(&[-i])),
                shown(
                    "point",
                    Some(DType::F32),
                    &[2],
                    &f32s(&[0.5 * i as f32, -1.5]),
                ),
                shown("text", None, &[8], format!("record {i}").as_bytes()),
                shown("words", None, &[all.len()], all.as_bytes()),
                shown(
                    "words/lengths",
                    Some(DType::I64),
                    &[lengths.len()],
                    &i64s(&lengths),
                ),
            ];
            (fields, (i % 2).to_string())
        })
        .collect();
    for source in [IndexSource::Built, IndexSource::Sidecar] {
        let dataset = open(&path, &with(&folder, None, None)).unwrap();
        assert_eq!(dataset.index_report().source, source);
        assert_eq!(dataset.files()[0].kind().to_string(), "tfrecord");
        assert_eq!(records(&dataset), expected);
        assert_eq!(dataset.labels().values(), [0.0, 1.0]);
        assert_eq!(dataset.notes(), [] as [&str; 0]);
    }
    // With another label, `label` is a field.
    let by_number = open(&path, &with(&folder, None, Some("number"))).unwrap();
    assert_eq!(by_number.labels().values(), [-4.0, -3.0, -2.0, -1.0, 0.0]);
    assert!(by_number.fields().get("label").is_some());
    assert_ne!(
        by_number.fingerprint(),
        open(&path, &with(&folder, None, None))
            .unwrap()
            .fingerprint()
    );
    let by_text = open(&path, &with(&folder, None, Some("text"))).unwrap();
    assert_eq!(by_text.labels().names()[4], "record 4");
    let refuses = |label: &str, message: &str| {
        refuses(&path, &with(&folder, None, Some(label)), message);
    };
    refuses(
        "point",
        "no label column \"point\"; its columns are label, number, text, of one value each",
    );
    refuses("none", "no label column \"none\"");
    // As they are.
    let plain = open(&path, &with(&folder, Some("tfrecord:bytes"), None)).unwrap();
    let plain = records(&plain);
    assert_eq!((plain.len(), plain[0].0[0].0.as_str()), (5, "bytes"));
    assert_eq!(plain[0].0[0].3.len(), 0x89);
}

#[test]
fn records_of_any_bytes() {
    let folder = tempdir().unwrap();
    let payloads: [&[u8]; 4] = [b"\x0aplain", b"", b"\0\xff", &[7; 100_000]];
    let bytes: Vec<u8> = payloads.iter().flat_map(|bytes| record(bytes)).collect();
    // Known by its first bytes, and without compression as with it.
    let path = file(folder.path(), "data.bin", &bytes);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &bytes).unwrap();
    let packed = file(folder.path(), "packed", packed.finish().unwrap());
    for path in [path, packed] {
        let dataset = open(&path, &with(&folder, None, None)).unwrap();
        let found = records(&dataset);
        let expected = payloads.map(|bytes| {
            let fields = vec![shown("bytes", None, &[bytes.len()], bytes)];
            (fields, "0".to_owned())
        });
        assert_eq!(found, expected);
    }
    let path = folder.path().join("data.bin");
    refuses(
        &path,
        &with(&folder, None, Some("x")),
        "not tf.train.Example",
    );
    let features = OpenOptions {
        features_only: true,
        ..with(&folder, None, None)
    };
    refuses(&path, &features, "no features");
}

#[test]
fn labels() {
    let folder = tempdir().unwrap();
    let check = |name: &str, label: [Values; 3], expected: [&str; 3]| {
        let examples = label.map(|label| vec![("x", integer(1)), (name, label)]);
        let path = written(
            &folder,
            "x.tfrecord",
            &[&examples[0], &examples[1], &examples[2]],
        );
        let dataset = open(&path, &with(&folder, None, None)).unwrap();
        let found = records(&dataset);
        assert_eq!([0, 1, 2].map(|i| found[i].1.as_str()), expected);
    };
    check("label", [5, -2, 5].map(integer), ["5", "-2", "5"]);
    let floats = [0.5, 1.5, 0.5].map(|x| Values::Floats(vec![x]));
    check("label", floats, ["0.5", "1.5", "0.5"]);
    check(
        "label",
        ["dog", "cat", "dog"].map(text),
        ["dog", "cat", "dog"],
    );
    check("image/class/label", [1, 2, 3].map(integer), ["1", "2", "3"]);
    // Several labels a record are a field.
    let many = [vec![1, 2], vec![3, 4], vec![5, 6]].map(Values::Integers);
    check("label", many, ["0", "0", "0"]);
    for label in [LabelColumn::First, LabelColumn::Position(1)] {
        let options = OpenOptions {
            label,
            ..with(&folder, None, None)
        };
        let path = written(
            &folder,
            "x.tfrecord",
            &[&[("x", integer(1)), ("label", integer(1))]],
        );
        refuses(&path, &options, "give the name of a feature");
    }
    // The choice between two usual names, and a label without any other feature.
    let both = [("image/class/label", integer(7)), ("label", integer(8))];
    let path = written(&folder, "both.tfrecord", &[&both]);
    let dataset = open(&path, &with(&folder, None, None)).unwrap();
    assert_eq!(dataset.labels().values(), [8.0]);
    let alone = written(&folder, "alone.tfrecord", &[&[("label", integer(8))]]);
    let dataset = open(&alone, &with(&folder, None, None)).unwrap();
    assert_eq!(records(&dataset)[0].0[0].0, "label");
}

#[test]
fn features_that_differ() {
    let folder = tempdir().unwrap();
    let first = [("a", integer(1)), ("b", text("x")), ("label", integer(0))];
    let check = |second: &[(&str, Values)], message: &str| {
        let path = written(&folder, "x.tfrecord", &[&first, second, &first]);
        let dataset = open(&path, &with(&folder, None, None)).unwrap();
        let found = fault(&dataset, 1);
        assert!(
            found.starts_with(&format!("{}: record 1 at byte ", path.display())),
            "{found}"
        );
        assert!(found.contains(message), "{found}");
        assert!(found.ends_with("`format` tfrecord:bytes"), "{found}");
        // The others are unchanged.
        let mut rows = Rows::new(dataset.layout());
        for id in [0, 2] {
            dataset
                .decode(id, &support::record(&dataset, id), &mut rows)
                .unwrap();
        }
        dataset
    };
    let (a, b, label) = (("a", integer(1)), ("b", text("x")), ("label", integer(0)));
    check(
        &[a.clone(), label.clone()],
        "its feature \"b\" is missing, which the first record has",
    );
    check(&[a.clone(), b.clone()], "its feature \"label\" is missing");
    check(
        &[b.clone(), b.clone(), a.clone(), label.clone()],
        "its feature \"b\" stands in it twice",
    );
    check(
        &[("a", text("1")), b.clone(), label.clone()],
        "its feature \"a\" is of another kind",
    );
    check(
        &[
            a.clone(),
            b.clone(),
            ("label", Values::Integers(vec![1, 2])),
        ],
        "its feature \"label\" is not a label",
    );
    check(
        &[a.clone(), b.clone(), ("label", integer(1 << 53))],
        "its feature \"label\" is not a label",
    );
    // More features are left out, in any order, packed or not.
    let path = written(
        &folder,
        "more.tfrecord",
        &[
            &first,
            &[
                label.clone(),
                ("more", integer(9)),
                b.clone(),
                ("a", Values::Unpacked(vec![4])),
            ],
        ],
    );
    let dataset = open(&path, &with(&folder, None, None)).unwrap();
    let found = records(&dataset);
    let names: Vec<&str> = found[1].0.iter().map(|field| field.0.as_str()).collect();
    assert_eq!((names, &found[1].0[0].3), (vec!["a", "b"], &i64s(&[4])));
    assert!(
        dataset.notes()[0]
            .contains("1 records have features that the first one lacks, such as \"more\"")
    );
    // Empty lists fit any kind, and a feature that never has values is left out.
    let path = written(
        &folder,
        "empty.tfrecord",
        &[
            &[
                a.clone(),
                ("e", Values::Integers(vec![])),
                ("n", Values::None),
            ],
            &[
                a.clone(),
                ("e", Values::Floats(vec![1.5])),
                ("n", Values::None),
            ],
            &[
                a.clone(),
                ("e", Values::None),
                ("n", Values::Integers(vec![])),
            ],
        ],
    );
    let dataset = open(&path, &with(&folder, None, None)).unwrap();
    let found = records(&dataset);
    assert_eq!(found[0].0[1], shown("e", Some(DType::F32), &[0], &[]));
    assert_eq!(
        found[1].0[1],
        shown("e", Some(DType::F32), &[1], &f32s(&[1.5]))
    );
    assert!(
        dataset.notes()[0].ends_with("are left out: n"),
        "{:?}",
        dataset.notes()
    );
}

/// Shards with a feature of fixed length in each, but of different lengths.
#[test]
fn files_whose_lengths_differ() {
    let folder = tempdir().unwrap();
    let of = |n: i64, m: usize| {
        let words = (0..m).map(|i| vec![b'w'; i]).collect();
        vec![
            ("v", Values::Integers((0..n).collect())),
            ("w", Values::Bytes(words)),
            ("x", integer(n)),
        ]
    };
    let paths = [
        written(&folder, "a.tfrecord", &[&of(1, 1), &of(1, 1)]),
        written(&folder, "b.tfrecord", &[&of(3, 2)]),
    ];
    let dataset = Dataset::open(&paths, &with(&folder, None, None)).unwrap();
    let mut found = Rows::new(dataset.layout());
    for id in 0..3 {
        dataset
            .decode(id, &support::record(&dataset, id), &mut found)
            .unwrap();
    }
    let shapes: Vec<_> = dataset
        .fields()
        .0
        .iter()
        .map(|spec| (spec.name.to_string(), spec.dims.clone()))
        .collect();
    let expected = [
        ("v", vec![None]),
        ("w", vec![None]),
        ("w/lengths", vec![None]),
        ("x", vec![]),
    ];
    assert_eq!(shapes, expected.map(|(name, dims)| (name.to_owned(), dims)));
    let other = written(&folder, "c.tfrecord", &[&[("y", integer(1))]]);
    let mixed = Dataset::open(&[paths[0].clone(), other], &with(&folder, None, None));
    let mixed = mixed.unwrap_err().to_string();
    assert!(mixed.contains("also has \"y\""), "{mixed}");
}

#[test]
fn damage() {
    let folder = tempdir().unwrap();
    let features = |label: i64| {
        [
            ("label", integer(label)),
            ("x", Values::Integers(vec![1, 2])),
        ]
    };
    let one = |label| record(&example(&features(label)));
    let whole = [one(3), one(4), one(3)].concat();
    let size = one(3).len();
    let damaged = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        file(folder.path(), "damaged.tfrecord", bytes)
    };
    // Damage to a label does not add a class, and damage to a length does not make it vary.
    let label_at = whole
        .windows(3)
        .position(|three| three == [0x0a, 1, 3])
        .unwrap()
        + 2;
    for (at, byte) in [(label_at + size, 77), (2 * size - 5, 0x82)] {
        let dataset = open(&damaged(at, byte), &with(&folder, None, None)).unwrap();
        assert!(
            dataset
                .labels()
                .values()
                .iter()
                .all(|label| [3.0, 4.0].contains(label))
        );
        assert_eq!(dataset.fields().get("x").unwrap().dims, [Some(2)]);
        let found = fault(&dataset, 1);
        let place = format!("damaged.tfrecord: record 1 at byte {size}: its checksum is 0x");
        assert!(found.contains(&place), "{found}");
        assert!(
            found.ends_with("the file is damaged: fetch or write it again"),
            "{found}"
        );
        let mut rows = Rows::new(dataset.layout());
        for id in [0, 2] {
            dataset
                .decode(id, &support::record(&dataset, id), &mut rows)
                .unwrap();
        }
    }
    // The first record may be damaged as well.
    let dataset = open(&damaged(20, 0xff), &with(&folder, None, None)).unwrap();
    assert_eq!((dataset.records(), dataset.fields().0.len()), (3, 1));
    assert!(fault(&dataset, 0).contains("checksum"));
    let bad = |bytes: &[u8], message: &str| {
        let path = file(folder.path(), "bad.tfrecord", bytes);
        refuses(&path, &with(&folder, None, None), message);
    };
    let mut header = whole.clone();
    header[size] ^= 1;
    let place = format!("byte {size}: record 1 has a length that its checksum does not fit");
    bad(&header, &place);
    bad(b"these are no records at all", "not a valid TFRecord file");
    bad(
        &whole[..whole.len() - 1],
        "record 2 is cut off: it would reach to byte",
    );
    bad(&whole[..2 * size + 7], "record 2 is cut off");
    for length in [u64::MAX, u64::MAX - 12, u64::MAX - 15, 1 << 40] {
        let length = length.to_le_bytes();
        let beyond = [&whole[..], &length, &masked(&length), &[0; 99]].concat();
        bad(&beyond, "record 3 is cut off: it would reach");
    }
    let unsound = [record(b"abc")].concat();
    let unsound = [
        &unsound[..unsound.len() - 1],
        &[!unsound[unsound.len() - 1]],
    ]
    .concat();
    bad(&unsound, "no checksum of its first records fits");
    // Any byte may change: no panic, and no more memory than the file has.
    for at in 0..whole.len() {
        let path = damaged(at, whole[at] ^ 0x15);
        if let Ok(dataset) = open(&path, &with(&folder, None, None)) {
            assert_eq!(dataset.records(), 3);
            assert!(rows(&dataset).is_err());
        }
        let path = file(folder.path(), "cut.tfrecord", &whole[..at]);
        let is_whole = at % size == 0 && at > 0;
        assert_eq!(open(&path, &with(&folder, None, None)).is_ok(), is_whole);
    }
}

/// Records with valid checksums that are not Examples, after a first record that is one.
#[test]
fn records_that_are_no_examples() {
    let folder = tempdir().unwrap();
    let good = example(&[("x", Values::Integers(vec![1, 2])), ("y", integer(3))]);
    let check = |bytes: &[u8], message: &str| {
        let path = file(
            folder.path(),
            "x.tfrecord",
            [record(&good), record(bytes)].concat(),
        );
        let dataset = open(&path, &with(&folder, None, None)).unwrap();
        let found = fault(&dataset, 1);
        assert!(found.contains(message), "{found}");
        // As the first record it shows that records are bytes.
        let path = file(folder.path(), "y.tfrecord", record(bytes));
        let dataset = open(&path, &with(&folder, None, None)).unwrap();
        assert_eq!(&*dataset.fields().0[0].name, "bytes");
        dataset.notes().join("; ")
    };
    // Records that are nearly Examples are read as bytes, with a note.
    for (other, place) in [
        (
            [&good[..], &field(7, b"new")].concat(),
            "field 7 at byte 27",
        ),
        ([&good[..], &[8, 1]].concat(), "field 1 at byte 27"),
        (
            field(1, &[feature("y", &integer(3)), field(2, b"")].concat()),
            "field 2 at byte 14",
        ),
    ] {
        let notes = check(&other, "");
        assert!(
            notes.contains(&format!("begins as a tf.train.Example, but {place} of it"))
                && notes.contains("`format` tfrecord:bytes"),
            "{place}: {notes}"
        );
        let path = file(folder.path(), "z.tfrecord", record(&other));
        let meant = open(&path, &with(&folder, Some("tfrecord:bytes"), None)).unwrap();
        assert!(meant.notes().is_empty());
    }
    assert_eq!(check(b"", "its feature \"x\" is missing"), "");
    assert_eq!(check(b"{\"x\": 1}", ""), "");
    let y = feature("y", &integer(3));
    let with_x = |list: &[u8]| {
        let x = [field(1, b"x"), field(2, &field(3, list))].concat();
        field(1, &[field(1, &x), y.clone()].concat())
    };
    assert_eq!(with_x(&field(1, &[1, 2])), good);
    check(
        &with_x(&[0x0a, 3, 1, 2]),
        "a field is longer than its message at byte",
    );
    check(
        &with_x(&[
            0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1,
        ]),
        "longer than",
    );
    check(&with_x(&[0x0a, 0xff, 0xff]), "a length is none");
    check(&with_x(&[0x12, 1, 0]), "a list has more than values");
    check(
        &[&good[..], &[0x12, 0]].concat(),
        "it has more than the field `features`",
    );
    check(&[&good[..], &[0x0a]].concat(), "a length is none at byte");
    check(
        &[8, 1],
        "a field is neither a message nor a string at byte 0 of it",
    );
    check(
        &field(1, &field(2, b"")),
        "a field stands next to the features",
    );
    check(
        &field(1, &field(1, &field(3, b"x"))),
        "more than a name and a value",
    );
    check(
        &field(1, &field(1, &[field(1, b"x"), field(1, b"x")].concat())),
        "two names",
    );
    check(
        &field(1, &field(1, &field(2, &field(4, b"")))),
        "of no known kind",
    );
    let two = field(2, &[field(3, &[8, 1]), field(1, &field(1, b"s"))].concat());
    check(&field(1, &field(1, &two)), "two lists");
    // A number without an end is only found when it is decoded.
    let path = file(
        folder.path(),
        "x.tfrecord",
        [record(&good), record(&with_x(&[0x0a, 2, 1, 0x80]))].concat(),
    );
    let dataset = open(&path, &with(&folder, None, None)).unwrap();
    assert!(fault(&dataset, 1).contains("a number has no end"));
}

/// Values that a window does not hold are hopped over.
#[test]
fn long_values() {
    let folder = tempdir().unwrap();
    let examples: Vec<Vec<(&str, Values)>> = (0..20i64)
        .map(|i| {
            let image = vec![i as u8; 400_000 * (i as usize % 3)];
            vec![
                ("image", Values::Bytes(vec![image])),
                ("label", integer(i % 7)),
                ("tokens", Values::Integers((0..100_000 * (i % 2)).collect())),
            ]
        })
        .collect();
    let examples: Vec<&[(&str, Values)]> = examples.iter().map(Vec::as_slice).collect();
    let path = written(&folder, "x.tfrecord", &examples);
    let dataset = open(&path, &with(&folder, None, None)).unwrap();
    let found = records(&dataset);
    for (i, (fields, label)) in found.iter().enumerate() {
        assert_eq!(*label, (i % 7).to_string());
        assert_eq!(fields[0].3, vec![i as u8; 400_000 * (i % 3)]);
        assert_eq!(fields[1].2, [100_000 * (i % 2)]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// All written values are read, in any order of the features.
    #[test]
    fn what_is_written_is_read(
        all in prop::collection::vec(
            (any::<i64>(), prop::collection::vec(any::<i64>(), 0..9), prop::collection::vec(any::<f32>(), 3),
             prop::collection::vec(any::<u8>(), 0..300), prop::collection::vec("[a-c]{0,4}", 0..4), 0i64..9, any::<bool>()),
            1..40,
        )
    ) {
        let folder = tempdir().unwrap();
        let mut bytes = Vec::new();
        for (number, numbers, floats, text, words, label, turned) in &all {
            let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            let numbers = if *turned { Values::Unpacked(numbers.clone()) } else { Values::Integers(numbers.clone()) };
            let mut features = vec![
                ("number", integer(*number)), ("numbers", numbers), ("floats", Values::Floats(floats.clone())),
                ("text", Values::Bytes(vec![text.clone()])), ("words", Values::Bytes(words)), ("class", integer(*label)),
            ];
            if *turned {
                features.reverse();
            }
            bytes.extend(record(&example(&features)));
        }
        let path = file(folder.path(), "x", bytes);
        let dataset = open(&path, &with(&folder, None, Some("class"))).unwrap();
        let specs = dataset.fields();
        let varies = |of: &dyn Fn(usize) -> usize| (0..all.len()).any(|i| of(i) != 1);
        for (i, (fields, label)) in records(&dataset).iter().enumerate() {
            let (number, numbers, floats, text, words, class, _) = &all[i];
            prop_assert_eq!(label, &class.to_string());
            let get = |name: &str| fields.iter().find(|field| field.0 == name);
            prop_assert_eq!(get("number"), Some(&shown("number", Some(DType::I64), &[], &i64s(&[*number]))));
            prop_assert_eq!(get("text"), Some(&shown("text", None, &[text.len()], text)));
            prop_assert_eq!(get("floats"), Some(&shown("floats", Some(DType::F32), &[3], &f32s(floats))));
            if let Some(spec) = specs.get("numbers") {
                let dims: &[usize] = if spec.dims.is_empty() { &[] } else { &[numbers.len()] };
                prop_assert_eq!(get("numbers"), Some(&shown("numbers", Some(DType::I64), dims, &i64s(numbers))));
            }
            if specs.get("words").is_some() {
                let lengths: Vec<i64> = words.iter().map(|word| word.len() as i64).collect();
                let joined = words.concat().into_bytes();
                prop_assert_eq!(&get("words").unwrap().3, &joined);
                let expected = varies(&|i| all[i].4.len()).then(|| shown("words/lengths", Some(DType::I64), &[words.len()], &i64s(&lengths)));
                prop_assert_eq!(get("words/lengths"), expected.as_ref());
            }
        }
    }
}
