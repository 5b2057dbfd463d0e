//! The numbers of classes: folders as classes, and known classes.

use std::fs;
use std::path::PathBuf;

use crate::support::{file, options, rows};
use pelton_format::{ClassMap, Dataset, FormatError, OpenOptions, Row, Rows};
use tempfile::tempdir;

fn open(path: PathBuf, options: &OpenOptions) -> Result<Dataset, FormatError> {
    Dataset::open(&[path], options)
}

/// A folder of train/ and val/ has the classes within these; doubtful folders are reported.
#[test]
fn parts_of_a_data_set_are_no_classes() {
    let cache = tempdir().unwrap();
    let options = options(cache.path());
    let check = |images: &[&str], classes: &[&str], said: &[&str]| {
        let folder = tempdir().unwrap();
        let root = folder.path().join("data");
        for image in images {
            let path = root.join(image);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, image).unwrap();
        }
        let dataset = open(root.clone(), &options).unwrap();
        assert_eq!(dataset.labels().names(), classes, "{images:?}");
        let labels = dataset.labels();
        let rows = rows(&dataset).unwrap();
        for i in 0..rows.len() {
            let Row::Bytes(image) = rows.row(i) else {
                panic!("an image is bytes");
            };
            let image = std::str::from_utf8(image).unwrap();
            let class = labels.name(rows.label(i)).unwrap();
            assert!(
                format!("/{image}").contains(&format!("/{class}/")),
                "{image}: {class}"
            );
        }
        let notes = dataset.notes().join("\n");
        assert_eq!(notes.is_empty(), said.is_empty(), "{notes}");
        assert!(said.iter().all(|part| notes.contains(part)), "{notes}");
    };
    let both = [
        "train/cat/1.jpg",
        "train/dog/2.jpg",
        "val/dog/3.jpg",
        "val/owl/x/4.jpg",
    ];
    check(
        &both,
        &["cat", "dog", "owl"],
        &["train, val are read together", "data/train"],
    );
    check(
        &["Train/cat/1.jpg", "Train/dog/2.jpg"],
        &["cat", "dog"],
        &[],
    );
    check(&["train/1.jpg", "car/2.jpg"], &["car", "train"], &[]);
    check(
        &["train/1.jpg", "test/2.jpg"],
        &["test", "train"],
        &["called like parts"],
    );
    check(
        &["a/cat/1.jpg", "b/dog/2.jpg"],
        &["a", "b"],
        &["a, b", "in folders below them", "data/a"],
    );
    check(&["a/cat/1.jpg", "b/2.jpg"], &["a", "b"], &[]);
    let folder = tempdir().unwrap();
    let root = folder.path().join("data");
    fs::create_dir_all(root.join("train/cat")).unwrap();
    fs::create_dir_all(root.join("test")).unwrap();
    fs::write(root.join("train/cat/1.jpg"), "1").unwrap();
    fs::write(root.join("test/2.jpg"), "2").unwrap();
    let error = open(root, &options).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("test/2.jpg: is next to the class folders"),
        "{error}"
    );
}

/// Known classes are matched to those of files by name or by number; mismatches are reported.
#[test]
fn known_classes_are_found_by_name_or_number() {
    let folder = tempdir().unwrap();
    let options = options(folder.path());
    let json = |name: &str, labels: &[&str]| {
        let lines = labels
            .iter()
            .map(|label| format!("{{\"x\": 1, \"label\": {label}}}\n"));
        file(folder.path(), name, lines.collect::<String>())
    };
    let labels = |path: &PathBuf, known: &ClassMap| {
        let options = OpenOptions {
            labels: Some(known.clone()),
            ..options.clone()
        };
        let dataset = open(path.clone(), &options).unwrap();
        let value = |rows: &Rows, i| dataset.labels().value(rows.label(i));
        let values = |rows: Rows| {
            (0..rows.len())
                .map(|i| value(&rows, i))
                .collect::<Vec<f64>>()
        };
        let classes = rows(&dataset).map(values);
        let unknown = dataset.has_unknown_class();
        assert_eq!(classes.is_err(), unknown);
        (
            classes.map_err(|error| error.to_string()),
            dataset.notes().to_vec(),
        )
    };
    let named = |names: &[&str]| ClassMap::named(names.iter().map(|n| n.to_string()).collect());
    let numbers = json("numbers.jsonl", &["10", "2", "10"]);
    let digits = json("digits.jsonl", &["\"10\"", "\"2\"", "\"10\""]);
    let letters = json("letters.jsonl", &["\"b\"", "\"a\"", "\"b\""]);
    let places = json("places.jsonl", &["1", "0", "1"]);
    // Labels are values of the map: its numbers, or indices of its names.
    for path in [&numbers, &digits] {
        assert_eq!(
            labels(path, &ClassMap::new(vec![2.0, 10.0])).0.unwrap(),
            [10.0, 2.0, 10.0]
        );
        let (classes, notes) = labels(path, &named(&["1", "2", "10"]));
        assert_eq!(notes, Vec::<String>::new());
        // If the file has numbers, names that are numbers are read as numbers.
        let expected = if path == &numbers {
            [10.0, 2.0, 10.0]
        } else {
            [2.0, 1.0, 2.0]
        };
        assert_eq!(classes.unwrap(), expected);
    }
    assert_eq!(
        labels(&letters, &named(&["c", "b", "a"])).0.unwrap(),
        [1.0, 2.0, 1.0]
    );
    let (classes, notes) = labels(&places, &named(&["a", "b"]));
    assert_eq!(classes.unwrap(), [1.0, 0.0, 1.0]);
    assert!(
        notes[0].contains("indices of the classes a, b"),
        "{notes:?}"
    );
    for (path, known, said) in [
        (&letters, ClassMap::counted(2), "line 1: class \"b\""),
        (&letters, named(&["b", "c"]), "line 2: class \"a\""),
        (&numbers, ClassMap::counted(10), "line 1: label 10"),
        (&numbers, named(&["a", "b"]), "label 10"),
    ] {
        let error = labels(path, &known).0.unwrap_err();
        assert!(error.contains(said), "{error}");
    }
    // A given map is part of the fingerprint.
    let fingerprint = |labels| {
        let options = OpenOptions {
            labels,
            ..options.clone()
        };
        open(letters.clone(), &options).unwrap().fingerprint()
    };
    let (own, given) = (fingerprint(None), fingerprint(Some(named(&["a", "b"]))));
    assert_ne!(own, given);
    assert_ne!(given, fingerprint(Some(named(&["b", "a"]))));
}
