//! Known counts and rows of real data sets.

use crate::support::{options, real, rows};
use pelton_format::{ClassMap, Dataset, LabelColumn, Layout, OpenOptions, Row};

/// Every row by the standard library's parser: label, indices from 0, values.
fn plain_libsvm(text: &str) -> Vec<(f64, Vec<u32>, Vec<f32>)> {
    let parse = |line: &str| {
        let mut tokens = line.split_ascii_whitespace();
        let label = tokens.next().unwrap().parse().unwrap();
        let (indices, values) = tokens
            .map(|token| token.split_once(':').unwrap())
            .map(|(index, value)| {
                (
                    index.parse::<u32>().unwrap() - 1,
                    value.parse::<f32>().unwrap(),
                )
            })
            .unzip();
        (label, indices, values)
    };
    text.lines().map(parse).collect()
}

fn check_libsvm(name: &str, records: u64, features: u64, nonzeros: u64, labels: &[f64]) {
    let Some(path) = real(name) else { return };
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::open(&[path], &options(folder.path())).unwrap();
    assert_eq!(dataset.records(), records);
    assert_eq!(dataset.features(), features);
    assert_eq!(dataset.nonzeros(), nonzeros);
    assert_eq!(dataset.labels().values(), labels);
    assert_eq!(dataset.layout(), Layout::Sparse);
    assert_eq!(dataset.files()[0].kind().name(), "libsvm");
    let file = &dataset.files()[0];
    let text = std::fs::read_to_string(file.decompressed().unwrap_or(file.path())).unwrap();
    let expected = plain_libsvm(&text);
    let rows = rows(&dataset).unwrap();
    assert_eq!(rows.len(), expected.len());
    for (i, (label, indices, values)) in expected.iter().enumerate() {
        assert_eq!(rows.row(i), Row::Sparse { indices, values });
        assert_eq!(dataset.labels().values()[rows.label(i) as usize], *label);
    }
    assert_eq!(rows.stored_values() as u64, nonzeros);
}

#[test]
fn adult() {
    check_libsvm("libsvm/a9a", 32_561, 123, 451_592, &[1.0, -1.0]);
}

#[test]
fn adult_test_set() {
    check_libsvm("libsvm/a9a.t", 16_281, 123, 225_732, &[1.0, -1.0]);
}

#[test]
fn film_reviews_compressed() {
    let Some(path) = real("libsvm/imdb.train.libsvm.gz") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::open(&[path], &options(folder.path())).unwrap();
    assert_eq!((dataset.records(), dataset.features()), (25_000, 87_170));
    assert!(
        dataset.notes()[0].contains("decompressed to"),
        "{:?}",
        dataset.notes()
    );
    let rows = rows(&dataset).unwrap();
    assert_eq!(rows.stored_values() as u64, dataset.nonzeros());
    let text = std::fs::read_to_string(dataset.files()[0].decompressed().unwrap()).unwrap();
    for (i, (label, indices, values)) in plain_libsvm(&text).iter().enumerate() {
        assert_eq!(rows.row(i), Row::Sparse { indices, values });
        assert_eq!(dataset.labels().values()[rows.label(i) as usize], *label);
    }
}

#[test]
fn the_test_set_is_read_with_the_training_set() {
    let (Some(train), Some(test)) = (real("libsvm/a9a"), real("libsvm/a9a.t")) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let train = Dataset::open(&[train], &options(folder.path())).unwrap();
    let with = |labels: ClassMap, features| OpenOptions {
        labels: Some(labels),
        features: Some(features),
        ..options(folder.path())
    };
    let good = with(train.labels().clone(), train.features());
    let dataset = Dataset::open(std::slice::from_ref(&test), &good).unwrap();
    assert_eq!(dataset.features(), 123);
    assert_eq!(rows(&dataset).unwrap().len(), 16_281);
    let narrow = with(train.labels().clone(), 50);
    let dataset = Dataset::open(std::slice::from_ref(&test), &narrow).unwrap();
    let limited = rows(&dataset).unwrap();
    for i in 0..limited.len() {
        let Row::Sparse { indices, .. } = limited.row(i) else {
            panic!("sparse rows")
        };
        assert!(indices.iter().all(|index| *index < 50));
    }
    let foreign = with(ClassMap::new(vec![1.0, 2.0]), 123);
    let dataset = Dataset::open(&[test], &foreign).unwrap();
    let error = rows(&dataset).unwrap_err().to_string();
    assert!(
        error.contains("a9a.t: line 1: label -1 does not occur in the training data"),
        "{error}"
    );
}

#[test]
fn forest_cover() {
    let Some(path) = real("libsvm/covtype.20k.csv") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let paths = [path];
    let dataset = Dataset::open(&paths, &options(folder.path())).unwrap();
    assert_eq!((dataset.records(), dataset.features()), (20_000, 54));
    assert_eq!(dataset.layout(), Layout::Dense { width: 54 });
    assert_eq!(dataset.labels().values()[..2], [5.0, 2.0]);
    assert_eq!(dataset.labels().len(), 7);
    let decoded = rows(&dataset).unwrap();
    let text = std::fs::read_to_string(&paths[0]).unwrap();
    for (i, line) in text.lines().enumerate() {
        let mut cells: Vec<f32> = line.split(',').map(|cell| cell.parse().unwrap()).collect();
        let label = cells.pop().unwrap();
        assert_eq!(decoded.row(i), Row::Dense(&cells));
        assert_eq!(
            dataset.labels().values()[decoded.label(i) as usize],
            f64::from(label)
        );
    }
    let two = OpenOptions {
        positive: Some(2.0.into()),
        ..options(folder.path())
    };
    let binary = Dataset::open(&paths, &two).unwrap();
    assert_eq!(binary.labels().values(), [1.0, -1.0]);
    let binary = rows(&binary).unwrap();
    for i in 0..decoded.len() {
        let is_two = dataset.labels().values()[decoded.label(i) as usize] == 2.0;
        assert_eq!(binary.label(i) == 0, is_two);
    }
}

#[test]
fn higgs_by_label_name() {
    let Some(path) = real("higgs/higgs.11k.csv") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for label in [
        LabelColumn::Last,
        LabelColumn::Name("label".into()),
        LabelColumn::Position(29),
    ] {
        let options = OpenOptions {
            label,
            ..options(folder.path())
        };
        let dataset = Dataset::open(std::slice::from_ref(&path), &options).unwrap();
        assert_eq!((dataset.records(), dataset.features()), (10_984, 28));
        assert_eq!(dataset.labels().values(), [1.0, 0.0]);
        let rows = rows(&dataset).unwrap();
        let Row::Dense(first) = rows.row(0) else {
            panic!("dense rows")
        };
        assert_eq!(first[..3], [0.34186098, -1.3139379, 1.0796219]);
    }
    let by_mass = OpenOptions {
        label: LabelColumn::Name("m_bb".into()),
        ..options(folder.path())
    };
    let dataset = Dataset::open(&[path], &by_mass).unwrap();
    assert!(dataset.labels().len() > 1000);
}
