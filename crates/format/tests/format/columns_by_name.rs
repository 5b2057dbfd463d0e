//! Columns of CSV files that are found by their names, in files of one data set and against those of a model.

use std::path::Path;
use std::sync::Arc;

use crate::support::{file, options, rows};
use pelton_format::{
    Dataset, FormatError, Header, KnownColumns, LabelColumn, Missing, OpenOptions, Row,
};
use tempfile::tempdir;

const FIRST: &str = "a,b,y\n1,2,0\n3,4,1\n";

fn open(folder: &Path, texts: &[&str], options: &OpenOptions) -> Result<Dataset, FormatError> {
    let files = texts.iter().enumerate();
    let files = files.map(|(i, text)| file(folder, &format!("{i}.csv"), text));
    Dataset::open(&files.collect::<Vec<_>>(), options)
}

/// Features and label of every record.
fn records(dataset: &Dataset) -> Vec<(Vec<f32>, f64)> {
    let rows = rows(dataset).unwrap();
    let of = |i| {
        let Row::Dense(values) = rows.row(i) else {
            panic!("rows of tables are dense");
        };
        let class = rows.label(i);
        (values.to_vec(), dataset.labels().values()[class as usize])
    };
    (0..rows.len()).map(of).collect()
}

#[test]
fn columns_in_any_order_make_the_same_rows() {
    let folder = tempdir().unwrap();
    for label in [LabelColumn::Last, LabelColumn::Name("y".into())] {
        let options = OpenOptions {
            label,
            missing: Some(Missing::Mean),
            ..options(folder.path())
        };
        let dataset = open(folder.path(), &[FIRST, "y,b,a\n1,NA,5\n"], &options).unwrap();
        let expected = [
            (vec![1.0, 2.0], 0.0),
            (vec![3.0, 4.0], 1.0),
            // The mean of b.
            (vec![5.0, 3.0], 1.0),
        ];
        assert_eq!(records(&dataset), expected);
        let columns = dataset.columns().unwrap();
        assert_eq!(columns.fields.names(), "a, b");
        assert_eq!(columns.label.as_deref(), Some("y"));
    }
    // A label given by position is found by its name in files with another order.
    let options = OpenOptions {
        label: LabelColumn::First,
        ..options(folder.path())
    };
    let dataset = open(folder.path(), &["y,a\n0,1\n", "a,y\n2,1\n"], &options).unwrap();
    assert_eq!(records(&dataset), [(vec![1.0], 0.0), (vec![2.0], 1.0)]);
}

#[test]
fn other_columns_are_refused_by_name() {
    let folder = tempdir().unwrap();
    let check = |second: &str, expected: &str| {
        let error = open(folder.path(), &[FIRST, second], &options(folder.path())).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("1.csv: ") && error.contains("0.csv"),
            "{error}"
        );
        assert!(error.contains(expected), "{error}");
    };
    check("a,y\n1,0\n", "lacks \"b\"");
    check("a,b,c,y\n1,2,3,0\n", "also has \"c\"");
    check("a,c,y\n1,2,0\n", "lacks \"b\" and also has \"c\"");
    check("b,a,a,y\n1,2,3,0\n", "several columns named \"a\"");
}

#[test]
fn what_has_no_names_is_taken_in_order_with_a_note() {
    let folder = tempdir().unwrap();
    for texts in [[FIRST, "5,6,0\n"], ["5,6,0\n", FIRST]] {
        let dataset = open(folder.path(), &texts, &options(folder.path())).unwrap();
        assert_eq!(dataset.records(), 3);
        let notes = dataset.notes().join("; ");
        assert!(notes.contains("in the order of"), "{notes}");
    }
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }\n";
    let length = (header.len() as u16).to_le_bytes();
    let values: Vec<u8> = [5f32, 6.0, 0.0]
        .into_iter()
        .flat_map(f32::to_le_bytes)
        .collect();
    let bytes = [b"\x93NUMPY\x01\0", &length[..], header.as_bytes(), &values].concat();
    let files = [
        file(folder.path(), "x.csv", FIRST),
        file(folder.path(), "y.npy", bytes),
    ];
    let dataset = Dataset::open(&files, &options(folder.path())).unwrap();
    let notes = dataset.notes().join("; ");
    assert!(
        notes.contains("y.npy: files of format npy name no columns"),
        "{notes}"
    );
    let dataset = open(
        folder.path(),
        &[FIRST, "a,b,z\n5,6,0\n"],
        &options(folder.path()),
    );
    let notes = dataset.unwrap().notes().join("; ");
    assert!(
        notes.contains("takes the column \"z\" for the label"),
        "{notes}"
    );
}

#[test]
fn data_for_a_model_has_the_columns_of_the_model() {
    let folder = tempdir().unwrap();
    let trained = open(folder.path(), &[FIRST], &options(folder.path())).unwrap();
    let of_model = |any_label| OpenOptions {
        columns: Some(KnownColumns {
            schema: Arc::clone(trained.columns().unwrap()),
            of: "the model".into(),
        }),
        features: Some(2),
        labels: Some(trained.labels().clone()),
        any_label,
        ..options(folder.path())
    };
    let features = |text: &str, any_label| {
        let dataset = open(folder.path(), &[text], &of_model(any_label));
        let found = dataset.map(|dataset| records(&dataset)[0].0.clone());
        found.map_err(|error| error.to_string())
    };
    for text in ["y,b,a\n0,2,1\n", "b,y,a\n2,0,1\n", "b,a,z\n2,1,0\n"] {
        assert_eq!(features(text, false), Ok(vec![1.0, 2.0]), "{text}");
        assert_eq!(features(text, true), Ok(vec![1.0, 2.0]), "{text}");
    }
    assert_eq!(features("b,a\n2,1\n", true), Ok(vec![1.0, 2.0]));
    let error = features("b,a\n2,1\n", false).unwrap_err();
    assert!(error.contains("no label column \"y\""), "{error}");
    let error = features("b,c\n2,1\n", true).unwrap_err();
    assert!(
        error.contains("lacks \"a\"") && error.contains("the model"),
        "{error}"
    );
}

#[test]
fn the_header_can_be_said() {
    let folder = tempdir().unwrap();
    let text = "2019,2020,2021\n1,2,0\n3,4,1\n";
    let records = |header| {
        let options = OpenOptions {
            header,
            ..options(folder.path())
        };
        open(folder.path(), &[text], &options).map(|dataset| dataset.records())
    };
    assert_eq!(records(Header::Yes).unwrap(), 2);
    assert_eq!(records(Header::No).unwrap(), 3);
    let error = records(Header::Auto).unwrap_err().to_string();
    assert!(error.contains("0.csv: line 1 (2019,2020,2021)"), "{error}");
}

#[test]
fn names_in_another_order_are_other_data() {
    let folder = tempdir().unwrap();
    let of = |text: &str| {
        open(folder.path(), &[text], &options(folder.path()))
            .unwrap()
            .fingerprint()
    };
    assert_ne!(of(FIRST), of(&FIRST.replace("a,b", "b,a")));
}
