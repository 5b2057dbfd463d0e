//! Pictures of one size as rows of features.

use std::path::PathBuf;

use crate::support::{file, options, rows};
use pelton_format::{ClassMap, Contents, Dataset, FormatError, Layout, OpenOptions, Row};
use tempfile::tempdir;

fn open(path: PathBuf, options: &OpenOptions) -> Result<Dataset, FormatError> {
    Dataset::open(&[path], options)
}

fn idx(sizes: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, sizes.len() as u8];
    bytes.extend(sizes.iter().flat_map(|size| size.to_be_bytes()));
    bytes.extend_from_slice(data);
    bytes
}

/// If features are required, pixels are features from 0 to 1.
#[test]
fn pixels_are_features() {
    let folder = tempdir().unwrap();
    let options = OpenOptions {
        features_only: true,
        ..options(folder.path())
    };
    let images = idx(&[3, 1, 2], &[0, 255, 51, 102, 1, 254]);
    let path = file(folder.path(), "x-images-idx3-ubyte", &images);
    let error = open(path.clone(), &options).unwrap_err().to_string();
    assert!(
        error.contains("x-labels-idx1-ubyte, which is not there"),
        "{error}"
    );
    // Predictions need no labels.
    let any_label = OpenOptions {
        any_label: true,
        labels: Some(ClassMap::new(vec![4.0, 6.0])),
        ..options.clone()
    };
    assert_eq!(
        rows(&open(path.clone(), &any_label).unwrap())
            .unwrap()
            .len(),
        3
    );
    file(folder.path(), "x-labels-idx1-ubyte", idx(&[3], &[7, 2, 7]));
    let dataset = open(path.clone(), &options).unwrap();
    assert_eq!(dataset.contents(), Contents::Features);
    assert_eq!(
        (dataset.layout(), dataset.features()),
        (Layout::Dense { width: 2 }, 2)
    );
    assert_eq!(dataset.nonzeros(), 6);
    assert_eq!(dataset.labels().values(), [2.0, 7.0]);
    let found = rows(&dataset).unwrap();
    for (row, (label, values)) in [
        (1, [0.0, 1.0]),
        (0, [0.2, 0.4]),
        (1, [1.0 / 255.0, 254.0 / 255.0]),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(
            (found.label(row), found.row(row)),
            (label, Row::Dense(&values))
        );
    }
    let positive = OpenOptions {
        positive: Some(2.0.into()),
        ..options.clone()
    };
    let dataset = open(path.clone(), &positive).unwrap();
    assert_eq!(dataset.labels().values(), [1.0, -1.0]);
    assert_eq!(rows(&dataset).unwrap().label(1), 0);
    let bytes = OpenOptions {
        features_only: false,
        ..options.clone()
    };
    let as_bytes = open(path, &bytes).unwrap();
    assert_ne!(as_bytes.fingerprint(), dataset.fingerprint());

    let ten = file(
        folder.path(),
        "data_batch_1.bin",
        [vec![3], vec![0; 3072], vec![9], vec![1; 3072]].concat(),
    );
    let dataset = open(ten, &options).unwrap();
    assert_eq!(dataset.features(), 3072);
    let found = rows(&dataset).unwrap();
    assert_eq!(found.label(1), 9);
    assert_eq!(found.row(1), Row::Dense(&[1.0 / 255.0; 3072]));
}
