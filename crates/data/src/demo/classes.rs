//! Any number of classes: `demo:classes:N[:VIEWS[:D[:NOISE]]]`.
//!
//! A set is a file of one line that describes a [`Mixture`], and reading computes the records: opening a hundred
//! million classes takes no time, no memory and no disk. The test set is [`TEST_VIEWS`] further views of every class.

use std::io::Write;
use std::path::{Path, PathBuf};

use pelton_format::Mixture;
use pelton_storage::{WholeFile, make_cache_folder};

use super::DemoError;
use super::cache::io_error;

/// Prefix of its spellings.
const NAME: &str = "demo:classes";
const CLASSES: u64 = 10_000;
const VIEWS: u64 = 8;
const TEST_VIEWS: u64 = 2;
const FEATURES: u64 = 64;
/// So that the nearest of the true centres is right for 89.8, 84.6 and 79.8 % of the views at 10⁴, 10⁵ and 10⁶ classes.
const NOISE: f32 = 1.1;

/// The mixture that a spelling describes; `None` if it is of another set.
pub(crate) fn parse(text: &str) -> Option<Result<Mixture, DemoError>> {
    let rest = text.strip_prefix(NAME)?;
    let mut parts = match rest.strip_prefix(':') {
        Some(rest) => rest.split(':'),
        None if rest.is_empty() => "".split(':'),
        None => return None,
    };
    if rest.is_empty() {
        parts.next();
    }
    let mixture = mixture(parts).map_err(|what| DemoError::Classes {
        text: text.to_string(),
        what,
    });
    Some(mixture)
}

fn mixture<'a>(mut parts: impl Iterator<Item = &'a str>) -> Result<Mixture, String> {
    let mut whole = |what, default| match parts.next() {
        None => Ok(default),
        Some(part) => (part.replace('_', "").parse())
            .map_err(|_| format!("{what} must be a whole number, not `{part}`")),
    };
    let classes = whole("the number of classes", CLASSES)?;
    let views = whole("the number of views a class", VIEWS)?;
    let features = whole("the length of a record", FEATURES)?;
    let noise = match parts.next() {
        None => NOISE,
        Some(part) => part
            .parse()
            .map_err(|_| format!("the noise must be a number, not `{part}`"))?,
    };
    match parts.next() {
        Some(part) => Err(format!("`{part}` is one part too many")),
        None => Mixture::new(classes, views, features, noise, 0),
    }
}

/// The files in `cache_dir` that describe the training and the test set.
pub(crate) fn ensure(mixture: Mixture, cache_dir: &Path) -> Result<(PathBuf, PathBuf), DemoError> {
    make_cache_folder(cache_dir).map_err(|source| DemoError::CacheFolder {
        path: cache_dir.to_path_buf(),
        source,
    })?;
    let file = |mixture: Mixture| {
        let text = mixture.to_string();
        let numbers = text.split(|c: char| !c.is_ascii_digit() && c != '.');
        let numbers: Vec<&str> = numbers.filter(|number| !number.is_empty()).collect();
        let path = cache_dir.join(format!("classes-{}.mixture", numbers.join("-")));
        // Not written again: a file that changes is other data.
        if pelton_storage::read_file(&path).is_ok_and(|found| found == text.as_bytes()) {
            return Ok(path);
        }
        // A damaged file would be mistaken for that of another process.
        let _ = std::fs::remove_file(&path);
        let written = WholeFile::create_shared(&path).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.publish()
        });
        match written {
            Ok(()) => Ok(path),
            Err(error) => Err(io_error(&path, error)),
        }
    };
    Ok((file(mixture)?, file(mixture.next_views(TEST_VIEWS))?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pelton_feed::{Loader, LoaderOptions, Stages};
    use pelton_format::{Dataset, OpenOptions, Row, Rows};
    use pelton_plan::{Catalog, Order, Plan, PlanSpec};

    use super::*;
    use crate::open::fetch_rows;

    fn open(text: &str, folder: &Path) -> [Dataset; 2] {
        let mixture = parse(text).unwrap().unwrap();
        let (train, test) = ensure(mixture, folder).unwrap();
        let train = Dataset::open(&[train], &OpenOptions::default()).unwrap();
        let options = OpenOptions {
            labels: Some(train.labels().clone()),
            features: Some(train.features()),
            ..OpenOptions::default()
        };
        let test = Dataset::open(&[test], &options).unwrap();
        [train, test]
    }

    #[test]
    fn a_hundred_million_classes_are_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let [train, test] = open("demo:classes:100_000_000", folder.path());
        for (dataset, views) in [(&train, 8), (&test, 2)] {
            let labels = dataset.labels();
            assert!(labels.is_count() && labels.len() == 100_000_000);
            assert_eq!(dataset.records(), views * 100_000_000);
            assert_eq!(
                (dataset.features(), dataset.index_report().index_bytes),
                (64, 0)
            );
            let ids = [0, 99_999_999, 100_000_000, views * 100_000_000 - 1];
            let rows = fetch_rows(dataset, &ids).unwrap();
            let classes: Vec<u32> = (0..4).map(|i| rows.label(i)).collect();
            assert_eq!(classes, [0, 99_999_999, 0, 99_999_999]);
        }
        let bytes: u64 = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum();
        assert!(bytes < 1000, "{bytes} bytes on disk");
    }

    /// Opening again reuses the files, and test views are not training views.
    #[test]
    fn sets_are_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        let [train, test] = open("demo:classes:3:4:8:0.5", folder.path());
        let [again, _] = open("demo:classes:3:4:8:0.5", folder.path());
        assert_eq!(train.fingerprint(), again.fingerprint());
        assert!(again.check_unchanged().is_ok());
        assert_ne!(train.fingerprint(), test.fingerprint());
        assert_ne!(
            train.fingerprint(),
            open("demo:classes:3:4:8:0.6", folder.path())[0].fingerprint()
        );
        let values = |rows: &Rows, i| match rows.row(i) {
            Row::Dense(values) => values.to_vec(),
            _ => panic!("rows are dense"),
        };
        let train = fetch_rows(&train, &(0..12).collect::<Vec<u64>>()).unwrap();
        let test = fetch_rows(&test, &(0..6).collect::<Vec<u64>>()).unwrap();
        for i in 0..6 {
            assert!((0..12).all(|j| values(&train, j) != values(&test, i)));
        }
    }

    /// Sets with other numbers of classes share their classes, and a table next to them uses the same labels.
    #[test]
    fn several_files_have_the_classes_of_the_largest() {
        let folder = tempfile::tempdir().unwrap();
        let file = |text: &str| {
            ensure(parse(text).unwrap().unwrap(), folder.path())
                .unwrap()
                .0
        };
        let files = [file("demo:classes:5:1:4"), file("demo:classes:30:1:4")];
        let both = Dataset::open(&files, &OpenOptions::default()).unwrap();
        assert_eq!((both.labels().len(), both.records()), (30, 35));
        let few = OpenOptions {
            labels: Some(
                Dataset::open(&files[..1], &OpenOptions::default())
                    .unwrap()
                    .labels()
                    .clone(),
            ),
            ..OpenOptions::default()
        };
        let many = Dataset::open(&files[1..], &few).unwrap();
        assert!(fetch_rows(&many, &[4]).is_ok());
        let error = fetch_rows(&many, &[5]).unwrap_err().to_string();
        assert!(error.contains("label 5"), "{error}");
    }

    #[test]
    fn spellings() {
        let same = |text: &str, full: &str| {
            let [text, full] = [text, full].map(|text| parse(text).unwrap().unwrap());
            assert_eq!(text, full);
        };
        same("demo:classes", "demo:classes:10000:8:64:1.1");
        same("demo:classes:1_000:3", "demo:classes:1000:3:64");
        assert!(parse("demo:classesque").is_none() && parse("demo:higgs").is_none());
        let refuses = |text: &str, what: &str| {
            let error = parse(text).unwrap().unwrap_err().to_string();
            assert!(error.contains(what) && error.contains(text), "{error}");
        };
        refuses("demo:classes:", "whole number, not ``");
        refuses("demo:classes:many", "whole number, not `many`");
        refuses("demo:classes:1", "from 2 to 100000000, not 1");
        refuses("demo:classes:10:0", "views a class must be");
        refuses("demo:classes:10:8:7", "even, not 7");
        refuses("demo:classes:10:8:64:loud", "must be a number, not `loud`");
        refuses("demo:classes:10:8:64:NaN", "noise must be from 0");
        refuses(
            "demo:classes:10:8:64:1:test2",
            "`test2` is one part too many",
        );
    }

    /// Batches hold `features` and `label`, and all ranks together have the batches of one.
    #[test]
    fn batches_are_the_same_on_any_number_of_ranks() {
        let folder = tempfile::tempdir().unwrap();
        let [train, _] = open("demo:classes:1000:2", folder.path());
        let train = Arc::new(train);
        let batches = |rank: u32, world_size: u32| {
            let spec = PlanSpec::new(Order::Full, 30, 7);
            let plan = Plan::new(&spec, Catalog::new(train.records())).unwrap();
            let options = LoaderOptions {
                rank,
                world_size,
                end_epoch: Some(1),
                ..LoaderOptions::with_memory(64 << 20)
            };
            let loader = Loader::new(
                Arc::clone(&train),
                Arc::new(plan),
                Stages::default(),
                &options,
            );
            let mut all = Vec::new();
            for batch in loader.unwrap() {
                let batch = batch.unwrap();
                let labels = batch.values::<i64>("label").unwrap();
                let features = batch.values::<f32>("features").unwrap();
                assert_eq!(features.len(), 64 * labels.len());
                for ((id, label), row) in batch.ids.iter().zip(labels).zip(features.chunks(64)) {
                    assert_eq!(*label as u64, id % 1000);
                    all.push((*id, row.to_vec()));
                }
            }
            all
        };
        let sorted = |mut all: Vec<(u64, Vec<f32>)>| {
            all.sort_by_key(|(id, _)| *id);
            all
        };
        let alone = batches(0, 1);
        assert_eq!(alone.len(), 2000);
        let ranks = (0..3).flat_map(|rank| batches(rank, 3));
        assert_eq!(sorted(ranks.collect()), sorted(alone));
    }
}
