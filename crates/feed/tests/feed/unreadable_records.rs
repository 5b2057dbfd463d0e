//! Records that cannot be read follow the policy for bad records: files of a folder that vanish or are cut
//! off after they were listed, and ranges that the device refuses or gives in part.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fixtures::{BadSector, open};
use crate::storage_kind;
use pelton_feed::{BadExamples, FeedError, Loader, LoaderOptions, Stages};
use pelton_fetch::FetchError;
use pelton_fetch::{Access, Fetch, FetchOptions, OnBadRecord};
use pelton_format::Dataset;
use pelton_plan::{Batching, Catalog, Order, Plan, PlanSpec};
use pelton_storage::StorageErrorKind;

pub const FILES: u64 = 90;
/// Removed after the folder was listed, and cut off.
pub const GONE: u64 = 17;
pub const CUT: u64 = 60;

/// A folder with two files that changed after the listing, and their paths.
pub fn damaged(folder: &Path) -> (Arc<Dataset>, [PathBuf; 2]) {
    let root = folder.join("images");
    for id in 0..FILES {
        let class = root.join(format!("class {}", id / 30));
        fs::create_dir_all(&class).unwrap();
        let content = format!("{id} {}", "x".repeat((id * 37 % 500) as usize));
        fs::write(class.join(format!("{id:03}.png")), content).unwrap();
    }
    let dataset = open(&[root]);
    let paths = [GONE, CUT].map(|id| dataset.files()[0].record_path(id));
    fs::remove_file(&paths[0]).unwrap();
    fs::File::options()
        .write(true)
        .open(&paths[1])
        .and_then(|file| file.set_len(1))
        .unwrap();
    (dataset, paths)
}

fn feed(dataset: &Arc<Dataset>, access: Access, on_bad_record: OnBadRecord) -> Fetch {
    let records = dataset.records();
    let plan = Plan::new(
        &PlanSpec::new(Order::Full, Batching::Examples(16), 3),
        Catalog::new(records),
    )
    .unwrap();
    let options = FetchOptions {
        access,
        threads: 2,
        end_epoch: Some(3),
        on_bad_record,
        ..FetchOptions::with_memory(1 << 20)
    };
    Fetch::new(Arc::clone(dataset), Arc::new(plan), &options).unwrap()
}

/// The ids of each epoch, or the error that the feed ends with.
fn epochs(feed: &mut Fetch) -> Result<Vec<Vec<u64>>, FeedError> {
    let mut epochs = vec![Vec::new(); 3];
    while let Some(batch) = feed.next_batch()? {
        epochs[batch.epoch as usize].extend_from_slice(batch.rows.ids());
    }
    epochs.iter_mut().for_each(|ids| ids.sort_unstable());
    Ok(epochs)
}

const SKIP: OnBadRecord = OnBadRecord::Skip { limit: None };

/// Reads of neighbours that are one request, and of each record by itself.
const PATHS: [Access; 2] = [Access::Direct, Access::Window { gap_bytes: None }];

#[test]
fn files_of_a_folder_follow_the_policy() {
    let folder = tempfile::tempdir().unwrap();
    let (dataset, paths) = damaged(folder.path());
    let good: Vec<u64> = (0..FILES).filter(|id| ![GONE, CUT].contains(id)).collect();
    for access in PATHS {
        let error = epochs(&mut feed(&dataset, access, OnBadRecord::Fail)).unwrap_err();
        let named = |path: &PathBuf| error.to_string().starts_with(path.to_str().unwrap());
        assert!(paths.iter().any(named), "{error}");
        assert!(
            matches!(error, FeedError::Fetch(FetchError::Storage(_))),
            "{error:?}"
        );

        let mut skipping = feed(&dataset, access, SKIP);
        assert_eq!(epochs(&mut skipping).unwrap(), vec![good.clone(); 3]);
        let meters = skipping.meters();
        assert_eq!(
            (meters.skipped_records, &meters.skipped_ids[..]),
            (2, &[GONE, CUT][..])
        );

        let limit = |limit| feed(&dataset, access, OnBadRecord::Skip { limit: Some(limit) });
        assert_eq!(epochs(&mut limit(2)).unwrap(), vec![good.clone(); 3]);
        let error = epochs(&mut limit(1)).unwrap_err();
        let FeedError::Fetch(FetchError::TooManyBadRecords {
            found: 2,
            limit: 1,
            last,
        }) = error
        else {
            panic!("{error}");
        };
        assert!(
            paths
                .iter()
                .any(|path| last.contains(path.to_str().unwrap())),
            "{last}"
        );
    }
}

#[test]
fn a_folder_that_is_gone_ends_the_feed() {
    let folder = tempfile::tempdir().unwrap();
    let (dataset, _) = damaged(folder.path());
    fs::rename(folder.path().join("images"), folder.path().join("moved")).unwrap();
    let error = epochs(&mut feed(&dataset, Access::Direct, SKIP)).unwrap_err();
    assert_eq!(
        storage_kind(&error),
        Some(StorageErrorKind::NotFound),
        "{error:?}"
    );
}

pub fn lines(folder: &Path) -> PathBuf {
    let path = folder.join("lines.txt");
    let line = |id: u64| format!("line {id} {}\n", "x".repeat((id * 37 % 500) as usize));
    fs::write(&path, (0..FILES).map(line).collect::<String>()).unwrap();
    path
}

fn with_bad_sector(path: &Path, bytes: Range<u64>, short: bool) -> Arc<Dataset> {
    let dataset = Dataset::clone(&open(&[path.to_path_buf()]));
    Arc::new(dataset.with_storage(|inner| {
        Arc::new(BadSector {
            inner,
            bytes: bytes.clone(),
            short,
        })
    }))
}

#[test]
fn ranges_that_cannot_be_read_follow_the_policy() {
    let folder = tempfile::tempdir().unwrap();
    let path = lines(folder.path());
    let places = open(std::slice::from_ref(&path));
    // The last byte of one record and the first of the next.
    let bytes = places.locate(40).offset - 1..places.locate(40).offset + 1;
    for short in [false, true] {
        for access in PATHS {
            let dataset = with_bad_sector(&path, bytes.clone(), short);
            let unit = dataset.files()[0].storage().granularity().offset_bytes;
            let touched = |id: &u64| {
                // Reads of whole units are refused for all records in them, and cut off for those behind.
                let place = dataset.locate(*id);
                let unit = u64::from(unit);
                let start = place.offset / unit * unit;
                let end = (place.offset + place.length).next_multiple_of(unit);
                if short {
                    end > bytes.start
                        && start < bytes.end
                        && place.offset + place.length > bytes.start
                } else {
                    start < bytes.end && end > bytes.start
                }
            };
            let error = epochs(&mut feed(&dataset, access, OnBadRecord::Fail)).unwrap_err();
            assert!(error.to_string().contains("lines.txt: "), "{error}");
            let mut skipping = feed(&dataset, access, SKIP);
            let good: Vec<u64> = (0..FILES).filter(|id| !touched(id)).collect();
            assert!(
                good.len() < FILES as usize - 1 && good.len() > 10,
                "{good:?}"
            );
            assert_eq!(
                epochs(&mut skipping).unwrap(),
                vec![good; 3],
                "{access} {short}"
            );
        }
    }
}

#[test]
fn a_changed_file_of_many_records_ends_the_feed_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = lines(folder.path());
    for change in ["shrink", "remove"] {
        for access in PATHS {
            lines(folder.path());
            let dataset = open(std::slice::from_ref(&path));
            let mut feed = feed(&dataset, access, SKIP);
            match change {
                "shrink" => fs::File::options()
                    .write(true)
                    .open(&path)
                    .unwrap()
                    .set_len(99)
                    .unwrap(),
                _ => fs::remove_file(&path).unwrap(),
            }
            let error = epochs(&mut feed).unwrap_err();
            let expected = match storage_kind(&error) {
                Some(StorageErrorKind::Changed) => "shrink",
                Some(StorageErrorKind::NotFound) => "remove",
                _ => panic!("{error}"),
            };
            assert_eq!(expected, change);
        }
    }
}

fn loader(dataset: &Arc<Dataset>, echo: &str, bad: &str, (rank, world_size): (u32, u32)) -> Loader {
    let spec = PlanSpec {
        echo: echo.parse().unwrap(),
        ..PlanSpec::new(Order::Full, 8, 7)
    };
    let stream = Plan::new(&spec, Catalog::new(dataset.records())).unwrap();
    let options = LoaderOptions {
        end_epoch: Some(2),
        bad_examples: bad.parse::<BadExamples>().unwrap(),
        rank,
        world_size,
        ..LoaderOptions::with_memory(4 << 20)
    };
    Loader::new(
        Arc::clone(dataset),
        Arc::new(stream),
        Stages::default(),
        &options,
    )
    .unwrap()
}

/// The ids of each batch, and the loader's figures; or the error that it ends with.
fn batches(mut loader: Loader) -> Result<(Vec<Vec<u64>>, pelton_feed::LoaderMeters), FeedError> {
    let mut batches = Vec::new();
    while let Some(batch) = loader.next().transpose()? {
        assert_eq!(batch.ids.len(), batch.len());
        batches.push(batch.ids.clone());
    }
    Ok((batches, loader.meters()))
}

#[test]
fn loaders_leave_them_out_or_fill_up_and_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let (dataset, paths) = damaged(folder.path());
    for echo in ["1", "2:16"] {
        let alone = (0, 1);
        let error = batches(loader(&dataset, echo, "fail", alone))
            .unwrap_err()
            .to_string();
        let named = |path: &PathBuf| error.starts_with(path.to_str().unwrap());
        assert!(paths.iter().any(named), "{error}");

        let (skipped, figures) = batches(loader(&dataset, echo, "skip", alone)).unwrap();
        let bad = figures.skipped_examples as usize;
        assert_eq!(bad, if echo == "1" { 4 } else { 8 });
        let ids: BTreeSet<u64> = skipped.iter().flatten().copied().collect();
        assert_eq!(ids.len() as u64, FILES - 2);
        assert!(!ids.contains(&GONE) && !ids.contains(&CUT));
        for example in &figures.bad_examples {
            let (path, why) = match example.id {
                GONE => (&paths[0], "no such file"),
                CUT => (&paths[1], "its size: "),
                other => panic!("{other} is whole"),
            };
            let problem = &example.problem;
            assert!(
                problem.starts_with(path.to_str().unwrap()) && problem.contains(why),
                "{problem}"
            );
            assert_eq!(problem.matches(".png").count(), 1, "named once: {problem}");
        }

        let (replaced, figures) = batches(loader(&dataset, echo, "replace", alone)).unwrap();
        assert_eq!(figures.replaced_examples as usize, bad);
        assert_eq!(replaced.len(), skipped.len());
        let examples = |batches: &[Vec<u64>]| batches.iter().map(Vec::len).sum::<usize>();
        assert_eq!(examples(&replaced), examples(&skipped) + bad, "filled up");

        let error = batches(loader(&dataset, echo, "skip:1", alone)).unwrap_err();
        assert!(
            matches!(
                error,
                FeedError::Fetch(FetchError::TooManyBadRecords { limit: 1, .. })
            ),
            "{error}"
        );
    }
}

#[test]
fn ranks_stay_in_step() {
    let folder = tempfile::tempdir().unwrap();
    let (dataset, _) = damaged(folder.path());
    for bad in ["skip", "replace"] {
        let (whole, _) = batches(loader(&dataset, "1", bad, (0, 1))).unwrap();
        let parts = [0, 1].map(|rank| batches(loader(&dataset, "1", bad, (rank, 2))).unwrap().0);
        assert!(parts.iter().all(|part| part.len() == whole.len()), "{bad}");
        let ids = |batches: &[Vec<u64>]| batches.iter().flatten().copied().collect::<BTreeSet<_>>();
        let both: BTreeSet<u64> = parts.iter().flat_map(|part| ids(part)).collect();
        assert_eq!(both, ids(&whole), "{bad}");
    }
}
