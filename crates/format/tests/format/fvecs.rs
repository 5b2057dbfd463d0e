//! Vectors of f32, each behind its dimension.

use tempfile::tempdir;

use crate::support::fields::{open, refuses, with};
use crate::support::{file, rows};
use pelton_format::{Layout, Row};

fn vector(dimension: i32, values: &[f32]) -> Vec<u8> {
    let values = values.iter().flat_map(|value| value.to_le_bytes());
    dimension.to_le_bytes().into_iter().chain(values).collect()
}

#[test]
fn vectors_are_features() {
    let folder = tempdir().unwrap();
    let bytes = [vector(3, &[1.0, -2.0, 0.5]), vector(3, &[0.0, 4.0, 9.0])].concat();
    let path = file(folder.path(), "sift_base.fvecs", bytes);
    let dataset = open(&path, &with(&folder, None, None)).unwrap();
    assert_eq!(dataset.files()[0].kind().to_string(), "fvecs");
    assert_eq!(
        (dataset.records(), dataset.features(), dataset.layout()),
        (2, 3, Layout::Dense { width: 3 })
    );
    assert!(!dataset.has_labels());
    let rows = rows(&dataset).unwrap();
    assert_eq!(rows.row(1), Row::Dense(&[0.0, 4.0, 9.0]));
    assert_eq!(dataset.nonzeros(), 6);
    // By name alone: nothing else distinguishes it from other bytes.
    let other = file(folder.path(), "base.bin", vector(1, &[7.0]));
    let named = open(&other, &with(&folder, Some("fvecs"), None)).unwrap();
    assert_eq!(named.features(), 1);
}

#[test]
fn what_is_no_such_file() {
    let folder = tempdir().unwrap();
    let options = with(&folder, None, None);
    let refuses = |bytes: Vec<u8>, message: &str| {
        refuses(&file(folder.path(), "x.fvecs", bytes), &options, message);
    };
    refuses(vec![], "holds no records");
    refuses(vec![3, 0], "byte 0: it ends within the dimension");
    refuses(
        vector(-1, &[1.0]),
        "byte 0: its first vector has dimension -1, which is not",
    );
    refuses(
        vector(1 << 24, &[1.0]),
        "dimension 16777216, which is not from 1 to 1048576",
    );
    let changes = [vector(2, &[1.0, 2.0]), vector(1, &[1.0])].concat();
    refuses(
        changes,
        "byte 12: vector 1 has dimension 1, but the first has 2; fetch the file again",
    );
    let cut = [vector(2, &[1.0, 2.0]), vector(2, &[1.0])].concat();
    refuses(
        cut,
        "byte 12: it is cut off: vector 1 needs the file to reach byte 24",
    );
    let path = file(folder.path(), "x.fvecs", vector(1, &[1.0]));
    crate::support::fields::refuses(
        &path,
        &with(&folder, None, Some("class")),
        "leave it out: vectors of fvecs have no label",
    );
}

#[test]
fn vectors_that_are_bad_records() {
    let folder = tempdir().unwrap();
    let bytes = [
        vector(2, &[1.0, 2.0]),
        vector(1, &[1.0, 2.0]),
        vector(2, &[1.0, f32::NAN]),
    ];
    let path = file(folder.path(), "x.fvecs", bytes.concat());
    let dataset = open(&path, &with(&folder, None, None)).unwrap();
    let fault = |from: u64| {
        let bytes = &std::fs::read(&path).unwrap()[from as usize..from as usize + 12];
        let mut rows = pelton_format::Rows::new(dataset.layout());
        let error = dataset.decode(from / 12, bytes, &mut rows).unwrap_err();
        assert!(rows.is_empty());
        error.to_string()
    };
    let message = "x.fvecs: record 1 at byte 12: it has dimension 1, but the first vector has 2";
    assert!(fault(12).contains(message), "{}", fault(12));
    assert!(
        fault(24).contains("in column 2 is not finite"),
        "{}",
        fault(24)
    );
}
