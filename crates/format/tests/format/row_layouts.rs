//! Rows that files store sparse, decoded as dense ones.

use crate::support::{file, options, rows};
use pelton_format::{Dataset, Layout, OpenOptions, Row, RowLayout};
use tempfile::tempdir;

fn opened(text: &str, rows: RowLayout, features: Option<u64>) -> Dataset {
    let folder = tempdir().unwrap();
    let path = file(folder.path(), "x.svm", text.as_bytes());
    let options = OpenOptions {
        rows,
        features,
        ..options(folder.path())
    };
    Dataset::open(&[path], &options).unwrap()
}

#[test]
fn rows_are_dense_where_half_of_the_cells_are_stored() {
    let check = |text: &str, rows: RowLayout, expected: Option<usize>| {
        let expected = expected.map_or(Layout::Sparse, |width| Layout::Dense { width });
        assert_eq!(
            opened(text, rows, None).layout(),
            expected,
            "{text:?} {rows:?}"
        );
    };
    let half = "1 1:1 2:2\n-1 3:1 4:4\n";
    let less = "1 1:1 2:2\n-1 4:4\n";
    check(half, RowLayout::DenseWhereFull, Some(4));
    check(less, RowLayout::DenseWhereFull, None);
    check(half, RowLayout::Stored, None);
    check(less, RowLayout::Dense, Some(4));
    let wide: String = (1..=5000).map(|index| format!(" {index}:1")).collect();
    check(&format!("1{wide}\n"), RowLayout::DenseWhereFull, None);
}

#[test]
fn features_that_are_left_out_are_zero() {
    let text = "1 1:1 3:3\n-1\n1 2:2.5 3:1 5:9\n";
    let check = |features: Option<u64>, expected: [&[f32]; 3]| {
        let dataset = opened(text, RowLayout::Dense, features);
        let width = expected[0].len() as u64;
        assert_eq!((dataset.features(), dataset.nonzeros()), (width, 3 * width));
        let found = rows(&dataset).unwrap();
        for (i, row) in expected.iter().enumerate() {
            assert_eq!(found.row(i), Row::Dense(row));
        }
    };
    let (first, last) = ([1.0, 0.0, 3.0, 0.0, 0.0], [0.0, 2.5, 1.0, 0.0, 9.0]);
    check(None, [&first, &[0.0; 5], &last]);
    // As a model of fewer features, and of more, sees them.
    check(Some(3), [&first[..3], &[0.0; 3], &last[..3]]);
    check(
        Some(6),
        [
            &[1.0, 0.0, 3.0, 0.0, 0.0, 0.0],
            &[0.0; 6],
            &[0.0, 2.5, 1.0, 0.0, 9.0, 0.0],
        ],
    );
}

/// Bytes added after the file was opened.
#[test]
fn a_feature_that_is_new_is_a_fault() {
    let dataset = opened("1 1:1 2:2\n-1 1:1\n", RowLayout::Dense, None);
    let mut rows = pelton_format::Rows::new(dataset.layout());
    let error = dataset.decode(0, b"1 1:1 3:2\n", &mut rows).unwrap_err();
    assert!(error.to_string().contains("feature 2 (from 0)"), "{error}");
    assert!(rows.is_empty());
}
