//! Reading in place gives the same samples as the feed, in the same batches, with the same policy for unreadable
//! records.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::fixtures::{BadSector, Watched};
use crate::storage_kind;
use pelton_batch::{Batch, DType, Shape};
use pelton_feed::{Collate, FeedError, Loader, LoaderMeters, LoaderOptions, Stages};
use pelton_fetch::FetchError;
use pelton_fetch::{Access, Device, DeviceSpeed};
use pelton_format::{Dataset, FormatKind, LabelColumn, OpenOptions};
use pelton_plan::{Catalog, Order, Place, Plan, PlanSpec};
use pelton_storage::{LocalMode, LocalOptions, StorageErrorKind};

/// Read through the page cache, as warm files are.
fn open(paths: &[PathBuf], options: OpenOptions) -> Arc<Dataset> {
    let storage = LocalOptions {
        mode: LocalMode::Buffered,
        ..LocalOptions::default()
    };
    Arc::new(Dataset::open(paths, &OpenOptions { storage, ..options }).unwrap())
}

fn write(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn content(id: usize, length: usize) -> impl Iterator<Item = u8> {
    let text = format!("{id} ").into_bytes();
    text.into_iter().cycle().take(length)
}

const RECORDS: usize = 300;
const CIFAR: usize = 3073;

/// Two files of records with `labels` class bytes before the pixels.
fn cifar(folder: &Path, labels: usize) -> Vec<PathBuf> {
    let record = |id: usize| {
        let classes = (0..labels).map(move |label| ((id + label) % 10) as u8);
        classes.chain(content(id, 3072))
    };
    let names = match labels {
        1 => ["data_batch_1.bin", "data_batch_2.bin"],
        _ => ["train.bin", "test.bin"],
    };
    let halves = [0..RECORDS / 2, RECORDS / 2..RECORDS];
    let file = |(name, ids): (&str, Range<usize>)| {
        write(folder, name, ids.flat_map(record).collect::<Vec<u8>>())
    };
    names.into_iter().zip(halves).map(file).collect()
}

fn idx(folder: &Path) -> Arc<Dataset> {
    idx_of(folder, 1)
}

/// Pictures of 20 x 30 pixels with interleaved channels.
fn idx_of(folder: &Path, channels: u32) -> Arc<Dataset> {
    let sizes = [RECORDS as u32, 20, 30, channels].map(u32::to_be_bytes);
    let labels: Vec<u8> = (0..RECORDS).map(|id| (id % 7) as u8).collect();
    let head = [&[0, 0, 8, 1][..], &sizes[0]].concat();
    let name = |what: &str| format!("x{channels}-{what}-ubyte");
    write(folder, &name("labels-idx1"), [head, labels].concat());
    let length = 600 * channels as usize;
    let pictures: Vec<u8> = (0..RECORDS).flat_map(|id| content(id, length)).collect();
    // Grey ones have no fourth dimension.
    let dimensions = if channels == 1 { 3 } else { 4 };
    let sizes = sizes[..usize::from(dimensions)].as_flattened();
    let head = [&[0, 0, 8, dimensions][..], sizes].concat();
    let path = write(
        folder,
        &name(&format!("images-idx{dimensions}")),
        [head, pictures].concat(),
    );
    open(&[path], OpenOptions::default())
}

/// A stream of bytes with a shorter last record.
fn bytes(folder: &Path) -> Arc<Dataset> {
    let path = write(
        folder,
        "stream",
        content(1, 700 * 50 + 9).collect::<Vec<u8>>(),
    );
    let options = OpenOptions {
        format: FormatKind::from_name("bytes:700"),
        ..OpenOptions::default()
    };
    open(&[path], options)
}

fn loader(dataset: &Arc<Dataset>, collate: Collate, options: &LoaderOptions) -> Loader {
    loader_in(dataset, true, collate, options).unwrap()
}

fn loader_in(
    dataset: &Arc<Dataset>,
    planar: bool,
    collate: Collate,
    options: &LoaderOptions,
) -> Result<Loader, FeedError> {
    let spec = PlanSpec::new(Order::Full, 16, 7);
    let stream = Plan::new(&spec, Catalog::new(dataset.records())).unwrap();
    let stages = Stages::default().planar(planar).collated(collate);
    Loader::new(Arc::clone(dataset), Arc::new(stream), stages, options)
}

fn options(policy: &str) -> LoaderOptions {
    LoaderOptions {
        end_epoch: Some(2),
        threads: 3,
        device: DeviceSpeed::PAGE_CACHE.into(),
        bad_examples: policy.parse().unwrap(),
        ..LoaderOptions::with_memory(8 << 20)
    }
}

fn all(mut loader: Loader) -> Result<(Vec<Batch>, LoaderMeters), FeedError> {
    let mut batches = Vec::new();
    while let Some(batch) = loader.next().transpose()? {
        batches.push(batch);
    }
    Ok((batches, loader.meters()))
}

/// Names, types, shapes and bytes of a batch's arrays.
fn fields(batch: &Batch) -> Vec<(String, DType, Shape, Vec<u8>)> {
    let fields = batch.fields.iter();
    fields
        .map(|(name, array)| {
            let (dtype, shape) = (array.dtype(), array.shape().clone());
            (name.to_owned(), dtype, shape, array.bytes().to_vec())
        })
        .collect()
}

/// The feed counts decoding; reads in place do not decode.
fn was_in_place(meters: &LoaderMeters) -> bool {
    meters.feed.decode_s == 0.0 && meters.feed.reads > 0
}

fn same(dataset: &Arc<Dataset>, collate: Collate, policy: &str) -> LoaderMeters {
    same_in(dataset, true, collate, policy)
}

fn same_in(dataset: &Arc<Dataset>, planar: bool, collate: Collate, policy: &str) -> LoaderMeters {
    let loader = |options| loader_in(dataset, planar, collate, options).unwrap();
    let through_feed = LoaderOptions {
        access: Access::Direct,
        ..options(policy)
    };
    let (expected, by_feed) = all(loader(&through_feed)).unwrap();
    let (found, meters) = all(loader(&options(policy))).unwrap();
    let in_place = if dataset.reads_in_place() {
        was_in_place(&meters) && !was_in_place(&by_feed)
    } else {
        // Decoded, but of files in memory.
        meters.resident_bytes > 0 && by_feed.resident_bytes == 0
    };
    assert!(in_place);
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!((found.epoch, found.step), (expected.epoch, expected.step));
        assert_eq!(found.ids, expected.ids);
        assert_eq!(fields(found), fields(expected));
    }
    assert_eq!(meters.fresh_examples, by_feed.fresh_examples);
    assert_eq!(meters.skipped_examples, by_feed.skipped_examples);
    assert_eq!(meters.replaced_examples, by_feed.replaced_examples);
    assert_eq!(meters.bad_examples, by_feed.bad_examples);
    if dataset.reads_in_place() {
        assert_eq!(meters.feed.read_amplification(), 1.0);
    }
    meters
}

#[test]
fn batches_are_those_of_the_feed() {
    let folders: [_; 2] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let [folder, other] = [0, 1].map(|i| folders[i].path());
    let coarse = OpenOptions {
        label: LabelColumn::First,
        ..OpenOptions::default()
    };
    let cases = [
        open(&cifar(folder, 1), OpenOptions::default()),
        open(&cifar(folder, 2), OpenOptions::default()),
        open(&cifar(other, 2), coarse),
        idx(folder),
        bytes(folder),
    ];
    for dataset in &cases {
        for collate in [Collate::Auto, Collate::Ragged] {
            let meters = same(dataset, collate, "fail");
            assert_eq!(meters.fresh_examples, 2 * dataset.records());
            assert_eq!(meters.feed.records, 2 * dataset.records());
        }
    }
}

#[test]
fn files_stay_in_memory_as_far_as_the_budget_holds_them() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = open(&cifar(folder.path(), 1), OpenOptions::default());
    let file = dataset.files()[0].storage().size().unwrap();
    let (expected, meters) = all(loader(&dataset, Collate::Auto, &options("fail"))).unwrap();
    assert_eq!(meters.resident_bytes, 2 * file);
    // The first of two equal files.
    let less = LoaderOptions {
        memory_bytes: 1_200 << 10,
        ..options("fail")
    };
    let (found, meters) = all(loader(&dataset, Collate::Auto, &less)).unwrap();
    assert_eq!(meters.resident_bytes, file);
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found.ids, expected.ids);
        assert_eq!(fields(found), fields(expected));
    }
    // A wrapper around a file is not bypassed.
    let wrapped = Dataset::clone(&dataset)
        .with_storage(|inner| Arc::new(Watched::new(inner, Box::new(|_, _| {}))));
    let meters = same(&Arc::new(wrapped), Collate::Auto, "fail");
    assert_eq!(meters.resident_bytes, 0);
}

/// The page cache has room for such small files on any machine.
#[test]
fn data_on_a_device_is_read_in_place_where_memory_has_room_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let paths = cifar(folder.path(), 1);
    let dataset = Arc::new(Dataset::open(&paths, &OpenOptions::default()).unwrap());
    for next in [0, 7] {
        let of = |access| {
            let options = LoaderOptions {
                memory_bytes: 1_200 << 10,
                device: DeviceSpeed::default().into(),
                start: Place {
                    epoch: 0,
                    step: next,
                },
                access,
                ..options("fail")
            };
            all(loader(&dataset, Collate::Auto, &options)).unwrap()
        };
        let (expected, by_feed) = of(Access::Direct);
        let (found, meters) = of(Access::Auto);
        assert!(was_in_place(&meters) && !was_in_place(&by_feed));
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!((found.epoch, found.step), (expected.epoch, expected.step));
            assert_eq!(found.ids, expected.ids);
            assert_eq!(fields(found), fields(expected));
        }
    }
}

/// A loader with all data in memory does not wait for a measurement of the device.
#[test]
fn the_device_is_measured_only_for_whoever_reads_ahead() {
    let folder = tempfile::tempdir().unwrap();
    let paths = cifar(folder.path(), 1);
    let dataset = Arc::new(Dataset::open(&paths, &OpenOptions::default()).unwrap());
    if dataset.files()[0].storage().granularity().offset_bytes == 1 {
        eprintln!("SKIPPED: this folder is in memory");
        return;
    }
    for (access, expected) in [(Access::Auto, 0), (Access::Direct, 1)] {
        let measured = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&measured);
        let device = Device::measured_by(move || {
            count.fetch_add(1, Relaxed);
            DeviceSpeed::default()
        });
        let options = LoaderOptions {
            device,
            access,
            ..options("fail")
        };
        all(loader(&dataset, Collate::Auto, &options)).unwrap();
        assert_eq!(measured.load(Relaxed), expected, "{access}");
    }
}

#[test]
fn channels_are_rearranged_as_the_feed_does_it() {
    let folder = tempfile::tempdir().unwrap();
    let paths = cifar(folder.path(), 1);
    let mut records = fs::read(&paths[0]).unwrap();
    records[20 * CIFAR] = 200;
    fs::write(&paths[0], records).unwrap();
    let planes = open(&paths, OpenOptions::default());
    for policy in ["skip", "replace"] {
        let meters = same_in(&planes, false, Collate::Auto, policy);
        assert_eq!(meters.skipped_examples + meters.replaced_examples, 2);
        let collated = meters.stages.iter().find(|stage| stage.name == "collate");
        assert_eq!(collated.unwrap().records, 2 * planes.records());
    }
    let side_by_side = idx_of(folder.path(), 3);
    same_in(&side_by_side, true, Collate::Auto, "fail");
    same_in(&side_by_side, false, Collate::Auto, "fail");
    // Four channels are copied unconverted; anything else is refused.
    let four = idx_of(folder.path(), 4);
    same_in(&four, false, Collate::Auto, "fail");
    let refused = loader_in(&four, true, Collate::Auto, &options("fail")).unwrap_err();
    assert!(
        matches!(&refused, FeedError::Stages(why) if why.contains("4 channels")),
        "{refused}"
    );
}

#[test]
fn class_bytes_that_stand_for_no_class_follow_the_policy() {
    let folder = tempfile::tempdir().unwrap();
    let paths = cifar(folder.path(), 1);
    let mut records = fs::read(&paths[0]).unwrap();
    for bad in [3, 77] {
        records[bad * CIFAR] = 10;
    }
    fs::write(&paths[0], records).unwrap();
    let dataset = open(&paths, OpenOptions::default());
    for policy in ["skip", "replace"] {
        let meters = same(&dataset, Collate::Auto, policy);
        assert_eq!(meters.skipped_examples + meters.replaced_examples, 4);
    }
    let error = all(loader(&dataset, Collate::Auto, &options("fail"))).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("record ") && error.contains("its class byte is 10"),
        "{error}"
    );
    let error = all(loader(&dataset, Collate::Auto, &options("skip:1"))).unwrap_err();
    assert!(
        matches!(
            error,
            FeedError::Fetch(FetchError::TooManyBadRecords { limit: 1, .. })
        ),
        "{error}"
    );
}

#[test]
fn records_that_cannot_be_read_follow_the_policy() {
    let folder = tempfile::tempdir().unwrap();
    let paths = cifar(folder.path(), 1);
    for short in [false, true] {
        // The end of one record and the class byte of the next.
        let at = (40 * CIFAR) as u64;
        let dataset = Dataset::clone(&open(&paths, OpenOptions::default()));
        let dataset = Arc::new(dataset.with_storage(|inner| {
            Arc::new(BadSector {
                inner,
                bytes: at - 5..at + 1,
                short,
            })
        }));
        for policy in ["skip", "replace"] {
            let meters = same(&dataset, Collate::Auto, policy);
            let mut ids: Vec<u64> = meters.bad_examples.iter().map(|bad| bad.id).collect();
            ids.sort_unstable();
            // Of both files.
            let second = (RECORDS / 2) as u64;
            assert_eq!(ids[..4], [39, 39, 40, 40]);
            assert_eq!(ids[4..], [39, 39, 40, 40].map(|id| id + second));
            let problem = &meters.bad_examples[0].problem;
            assert_eq!(problem.matches("data_batch").count(), 1, "{problem}");
        }
        let error = all(loader(&dataset, Collate::Auto, &options("fail"))).unwrap_err();
        match (short, &error) {
            _ if !short && storage_kind(&error) == Some(StorageErrorKind::System) => {}
            (true, FeedError::Fetch(FetchError::Shrunk { expected: 3073, .. })) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn records_that_samples_are_made_of_are_read_where_these_are_made() {
    let folder = tempfile::tempdir().unwrap();
    let line = |id: usize| match id {
        40 | 222 => format!("{},x,{}\n", id, id % 3),
        _ => format!("{},{},{}\n", id, id * id, id % 3),
    };
    let lines: String = (0..RECORDS).map(line).collect();
    let paths = [write(folder.path(), "numbers.csv", lines)];
    let dataset = open(&paths, OpenOptions::default());
    for policy in ["skip", "replace"] {
        let meters = same(&dataset, Collate::Auto, policy);
        let mut ids: Vec<u64> = meters.bad_examples.iter().map(|bad| bad.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, [40, 40, 222, 222]);
        let problem = &meters.bad_examples[0].problem;
        assert_eq!(problem.matches("numbers.csv").count(), 1, "{problem}");
    }
    // A loader ends with the first bad record in the plan's order.
    let skipping = all(loader(&dataset, Collate::Auto, &options("skip"))).unwrap();
    let first = &skipping.1.bad_examples[0].problem;
    let failing = all(loader(&dataset, Collate::Auto, &options("fail")));
    assert_eq!(failing.unwrap_err().to_string(), *first);
}

#[test]
fn a_file_that_changes_ends_the_loader_whatever_the_policy() {
    let folder = tempfile::tempdir().unwrap();
    for change in ["shrink", "remove"] {
        let paths = cifar(folder.path(), 1);
        let dataset = open(&paths, OpenOptions::default());
        let mut loader = loader(&dataset, Collate::Auto, &options("skip"));
        match change {
            "shrink" => fs::write(&paths[1], "short").unwrap(),
            _ => fs::remove_file(&paths[1]).unwrap(),
        }
        let error = loop {
            match loader.next().expect("the change is noticed") {
                // Begun before the change.
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        let expected = match storage_kind(&error) {
            Some(StorageErrorKind::Changed) => "shrink",
            Some(StorageErrorKind::NotFound) => "remove",
            _ => panic!("{error}"),
        };
        assert_eq!(expected, change);
    }
}

#[test]
fn what_must_go_through_the_feed_does() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = open(&cifar(folder.path(), 1), OpenOptions::default());
    let of = |options: &LoaderOptions| all(loader(&dataset, Collate::Auto, options)).unwrap().1;
    assert!(was_in_place(&of(&options("fail"))));
    let device = LoaderOptions {
        device: DeviceSpeed::default().into(),
        ..options("fail")
    };
    assert!(
        was_in_place(&of(&device)),
        "a file on a device that memory holds is read once"
    );
    // Records of few bytes are read many at a time, unless their file stays in memory.
    let path = write(
        folder.path(),
        "short",
        content(1, 9000).collect::<Vec<u8>>(),
    );
    let short = OpenOptions {
        format: FormatKind::from_name("bytes:9"),
        ..OpenOptions::default()
    };
    let dataset = open(&[path], short.clone());
    let (_, meters) = all(loader(&dataset, Collate::Auto, &options("fail"))).unwrap();
    assert!(was_in_place(&meters));
    let small = LoaderOptions {
        memory_bytes: 1 << 20,
        ..options("fail")
    };
    let large: Vec<u8> = content(1, 900_000).collect();
    let path = write(folder.path(), "large", large);
    let dataset = open(&[path], short);
    let (_, meters) = all(loader(&dataset, Collate::Auto, &small)).unwrap();
    assert!(!was_in_place(&meters));
}
