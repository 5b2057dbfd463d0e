//! Classes of tar samples from their members `json`.

use std::fs;
use std::path::Path;

use crate::support::tar::{end, member};
use crate::support::{file, options, rows};
use pelton_format::{Dataset, FormatError, IndexSource, LabelColumn, OpenOptions};
use tempfile::tempdir;

fn options_with(folder: &Path, key: &str) -> OpenOptions {
    OpenOptions {
        label: LabelColumn::Json(key.parse().unwrap()),
        ..options(folder)
    }
}

fn open(folder: &Path, parts: &[Vec<u8>], key: &str) -> Result<Dataset, FormatError> {
    let path = file(folder, "x.tar", [parts.concat(), end()].concat());
    Dataset::open(&[path], &options_with(folder, key))
}

/// The name of the class of each record.
fn classes(dataset: &Dataset) -> Vec<String> {
    let rows = rows(dataset).unwrap();
    (0..rows.len())
        .map(|i| dataset.labels().describe(rows.label(i)))
        .collect()
}

fn fault(parts: &[Vec<u8>], key: &str) -> String {
    let folder = tempdir().unwrap();
    let error = open(folder.path(), parts, key).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("x.tar: sample "), "{text}");
    text
}

fn animals() -> Vec<Vec<u8>> {
    vec![
        member("a/1.jpg", b"picture"),
        member(
            "a/1.json",
            br#"{"caption": "a dog", "class": {"id": 7, "name": "dog"}}"#,
        ),
        member("a/2.json", br#"{"class": {"name": "cat", "id": 3}}"#),
        member("a/2.cls", b"5"),
        member("b/1.JSON", br#"{"class": {"name": "dog", "id": 7}}"#),
        member("b/1.meta.json", br#"{"class": 9}"#),
    ]
}

#[test]
fn integers_are_labels_and_strings_are_names() {
    let folder = tempdir().unwrap();
    let dataset = open(folder.path(), &animals(), "class.id").unwrap();
    assert_eq!(dataset.labels().values(), [3.0, 7.0]);
    assert_eq!(classes(&dataset), ["7", "3", "7"]);
    let named = open(folder.path(), &animals(), "class.name").unwrap();
    assert_eq!(named.labels().names(), ["cat", "dog"]);
    assert_eq!(classes(&named), ["dog", "cat", "dog"]);
    assert_ne!(named.fingerprint(), dataset.fingerprint());
    assert!(named.notes().is_empty(), "{:?}", named.notes());
    // Zero and negative numbers are classes like any other.
    let parts = [
        member("1.json", br#"{"y": -1}"#),
        member("2.json", br#"{"y": 1.0}"#),
    ];
    let dataset = open(folder.path(), &parts, "y").unwrap();
    assert_eq!(dataset.labels().values(), [-1.0, 1.0]);
    let parts = [
        member("1.json", br#"{"y": 0}"#),
        member("2.json", br#"{"y": 1}"#),
    ];
    assert_eq!(
        classes(&open(folder.path(), &parts, "y").unwrap()),
        ["0", "1"]
    );
}

#[test]
fn the_sidecar_knows_names_and_key() {
    let folder = tempdir().unwrap();
    let first = open(folder.path(), &animals(), "class.name").unwrap();
    let path = folder.path().join("x.tar");
    let again = |key: &str| {
        Dataset::open(
            std::slice::from_ref(&path),
            &options_with(folder.path(), key),
        )
        .unwrap()
    };
    let kept = again("class.name");
    assert_eq!(kept.index_report().source, IndexSource::Sidecar);
    assert_eq!(kept.labels(), first.labels());
    assert_eq!(classes(&kept), classes(&first));
    assert_eq!(kept.fingerprint(), first.fingerprint());
    let by_number = again("class.id");
    assert_eq!(by_number.index_report().source, IndexSource::Built);
    assert!(by_number.labels().names().is_empty());
    let plain = Dataset::open(std::slice::from_ref(&path), &options(folder.path())).unwrap();
    assert_eq!(plain.index_report().source, IndexSource::Built);
    assert_eq!(classes(&plain), ["0", "5", "0"]);

    again("class.name");
    let sidecar = folder.path().join("x.tar.pelton-index");
    let good = fs::read(&sidecar).unwrap();
    for at in 8..good.len() - 4 {
        for value in [0xff, good[at] ^ 1] {
            let mut bad = good.clone();
            bad[at] = value;
            let body = bad.len() - 4;
            let checksum = crc32c::crc32c(&bad[..body]).to_le_bytes();
            bad[body..].copy_from_slice(&checksum);
            fs::write(&sidecar, &bad).unwrap();
            let opened = again("class.name");
            assert!(opened.labels().names().is_sorted_by(|a, b| a < b));
            assert_eq!(opened.labels().len(), opened.labels().names().len());
        }
    }
}

#[test]
fn names_of_several_files_are_one_list() {
    let folder = tempdir().unwrap();
    let tar = |name: &str, class: &str| {
        let json = format!("{{\"y\": {class}}}");
        let parts = [member("1.json", json.as_bytes()), end()];
        file(folder.path(), name, parts.concat())
    };
    let (a, b, c) = (
        tar("a.tar", "\"wolf\""),
        tar("b.tar", "\"ape\""),
        tar("c.tar", "4"),
    );
    let options = options_with(folder.path(), "y");
    let dataset = Dataset::open(&[a.clone(), b], &options).unwrap();
    assert_eq!(dataset.labels().names(), ["ape", "wolf"]);
    assert_eq!(classes(&dataset), ["wolf", "ape"]);
    let error = Dataset::open(&[a, c], &options).unwrap_err().to_string();
    assert!(
        error.contains("c.tar") && error.contains("by number"),
        "{error}"
    );
}

#[test]
fn samples_without_a_class_are_named() {
    let good = member("dir/first.json", br#"{"y": 1, "other": 2}"#);
    let with = |bad: Vec<u8>| vec![good.clone(), bad, member("z.json", br#"{"y": 1}"#)];
    let text = fault(&with(member("dir/bad.jpg", b"")), "y");
    assert!(
        text.contains("sample dir/bad: has no member .json"),
        "{text}"
    );
    assert!(text.contains("leave `label` out"), "{text}");
    // The last sample is looked at too.
    let text = fault(&[good.clone(), member("last.txt", b"")], "y");
    assert!(text.contains("sample last: has no member .json"), "{text}");

    let text = fault(&with(member("dir/bad.json", br#"{"label": 3}"#)), "y");
    assert!(
        text.contains("sample dir/bad: its member .json has no y, only label;"),
        "{text}"
    );
    assert!(text.contains("name another key as json:KEY"), "{text}");

    let text = fault(&with(member("dir/bad.json", br#"{"y": [1]}"#)), "y");
    let what = "y of its member .json is a list, and a class is an integer or a string";
    assert!(text.contains(what), "{text}");

    let text = fault(&with(member("dir/bad.json", br#"{"y": "1"}"#)), "y");
    assert!(
        text.contains("is a string, but samples before it have an integer"),
        "{text}"
    );

    let text = fault(&with(member("dir/bad.json", b"{\"y\": ")), "y");
    assert!(
        text.contains("not JSON") && text.contains("line 1 column"),
        "{text}"
    );

    let long = [b"{\"y\": 1}".to_vec(), vec![b' '; 16 << 20]].concat();
    let text = fault(&with(member("dir/bad.json", &long)), "y");
    assert!(text.contains("in a member .cls"), "{text}");
}

#[test]
fn the_key_is_for_tar_files() {
    let folder = tempdir().unwrap();
    let path = file(folder.path(), "x.csv", "a,b\n1,2\n0,3\n");
    let error = Dataset::open(&[path], &options_with(folder.path(), "a")).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("x.csv: `label` json:a does not apply to csv files"),
        "{text}"
    );
    let path = file(
        folder.path(),
        "x.tar",
        [member("1.json", b"{}"), end()].concat(),
    );
    let options = OpenOptions {
        label: LabelColumn::Name("class".into()),
        ..options(folder.path())
    };
    let text = Dataset::open(&[path], &options).unwrap_err().to_string();
    assert!(
        text.contains("x.tar: `label` class does not apply to tar files")
            && text.contains("`label` json:KEY"),
        "{text}"
    );
}
