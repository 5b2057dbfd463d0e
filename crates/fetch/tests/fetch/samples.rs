//! Rows of bytes take every path that rows of features take: each order and access path yields the
//! plan's sequence, and each row holds the bytes and the class of its record.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fixtures::{PATHS, open, options, planned};
use crate::written::array_record::Written;
use crate::written::tfrecord::{Values, example, integer, record};
use pelton_fetch::{Access, Fetch, FetchError, FetchOptions, OnBadRecord};
use pelton_format::{Contents, Dataset, Layout, Row, members};
use pelton_plan::{Batching, Catalog, Order, Plan, PlanSpec, Units};

/// A data set with what each of its rows must hold: bytes and label value.
struct Case {
    dataset: Arc<Dataset>,
    expected: Vec<(Vec<u8>, f64)>,
}

/// Bytes that differ from record to record.
fn content(id: usize, length: usize) -> Vec<u8> {
    let text = format!("{id} ");
    text.bytes().cycle().take(length).collect()
}

/// Lengths from nothing to beyond a page, without a pattern.
fn length(id: usize, most: usize) -> usize {
    let mixed = (id as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    mixed as usize % (most + 1)
}

fn write(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

/// Two files of lines, some of them empty.
fn text(folder: &Path, records: usize) -> Case {
    let lines: Vec<Vec<u8>> = (0..records).map(|id| content(id, length(id, 90))).collect();
    let (first, second) = lines.split_at(records / 3);
    let paths = [("a.txt", first), ("b.txt", second)].map(|(name, lines)| {
        let text = [b"words\n", &lines.join(&b'\n')[..]].concat();
        write(folder, name, text)
    });
    let words = || std::iter::once(b"words".to_vec());
    let all = words()
        .chain(first.to_vec())
        .chain(words())
        .chain(second.to_vec());
    Case {
        dataset: open(&paths),
        expected: all.map(|line| (line, 0.0)).collect(),
    }
}

fn idx(folder: &Path, records: usize) -> Case {
    let pictures: Vec<Vec<u8>> = (0..records).map(|id| content(id, 6 * 7)).collect();
    let labels: Vec<u8> = (0..records).map(|id| (id % 10) as u8).collect();
    let size = (records as u32).to_be_bytes();
    let head = [&[0, 0, 8, 3][..], &size, &[0, 0, 0, 6, 0, 0, 0, 7]].concat();
    write(
        folder,
        "x-labels-idx1-ubyte",
        [&[0, 0, 8, 1][..], &size, &labels].concat(),
    );
    let path = write(
        folder,
        "x-images-idx3-ubyte",
        [head, pictures.concat()].concat(),
    );
    Case {
        dataset: open(&[path]),
        expected: pictures
            .into_iter()
            .zip(labels.into_iter().map(f64::from))
            .collect(),
    }
}

fn cifar(folder: &Path, records: usize) -> Case {
    let pictures: Vec<Vec<u8>> = (0..records).map(|id| content(id, 3072)).collect();
    let records = |range: std::ops::Range<usize>| -> Vec<u8> {
        range
            .flat_map(|id| [&[(id % 10) as u8][..], &pictures[id]].concat())
            .collect()
    };
    let half = pictures.len() / 2;
    let paths = [
        write(folder, "data_batch_1.bin", records(0..half)),
        write(folder, "data_batch_2.bin", records(half..pictures.len())),
    ];
    let labels = (0..pictures.len()).map(|id| (id % 10) as f64);
    Case {
        dataset: open(&paths),
        expected: pictures.iter().cloned().zip(labels).collect(),
    }
}

fn tar_member(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
    block[156] = b'0';
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block.extend_from_slice(bytes);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

/// Rows are compared by their members.
fn tar(folder: &Path, records: usize) -> Case {
    let files: Vec<Vec<u8>> = (0..records)
        .map(|id| content(id, length(id, 9000)))
        .collect();
    let samples = files.iter().enumerate().map(|(id, file)| {
        let class = (id % 7).to_string();
        [
            tar_member(&format!("{id:06}.jpg"), file),
            tar_member(&format!("{id:06}.cls"), class.as_bytes()),
        ]
        .concat()
    });
    let mut bytes: Vec<u8> = samples.flatten().collect();
    bytes.extend([0; 1024]);
    let labels = (0..records).map(|id| (id % 7) as f64);
    Case {
        dataset: open(&[write(folder, "x.tar", bytes)]),
        expected: files.iter().cloned().zip(labels).collect(),
    }
}

/// A folder for each class; some files are empty.
fn images(folder: &Path, records: usize) -> Case {
    let root = folder.join("images");
    let mut expected = Vec::new();
    let each = records.div_ceil(4);
    for id in 0..records {
        let file = content(id, length(id, 9000) * (id % 50).min(1));
        write(&root, &format!("class {}/{id:06}.jpg", id / each), &file);
        expected.push((file, (id / each) as f64));
    }
    Case {
        dataset: open(&[root]),
        expected,
    }
}

/// Two files of Examples with a text and a label.
fn tfrecords(folder: &Path, records: usize) -> Case {
    let texts: Vec<Vec<u8>> = (0..records)
        .map(|id| content(id, length(id, 900)))
        .collect();
    let record = |id: usize| {
        let features = [
            ("label", integer(id as i64 % 7)),
            ("text", Values::Bytes(vec![texts[id].clone()])),
        ];
        record(&example(&features))
    };
    let file = |name: &str, ids: std::ops::Range<usize>| {
        write(folder, name, ids.flat_map(record).collect::<Vec<u8>>())
    };
    let paths = [
        file("a.tfrecord", 0..records / 3),
        file("b.tfrecord", records / 3..records),
    ];
    let labels = (0..records).map(|id| (id % 7) as f64);
    Case {
        dataset: open(&paths),
        expected: texts.iter().cloned().zip(labels).collect(),
    }
}

/// Chunks between block headers; every other one is compressed.
fn array_records(folder: &Path, records: usize) -> Case {
    let contents: Vec<Vec<u8>> = (0..records)
        .map(|id| content(id, length(id, 9000)))
        .collect();
    let mut written = Written::new();
    for (id, content) in contents.iter().enumerate() {
        written.records(std::slice::from_ref(content), id % 2 == 0);
    }
    Case {
        dataset: open(&[write(folder, "x.array_record", written.finish(true))]),
        expected: contents.into_iter().map(|content| (content, 0.0)).collect(),
    }
}

/// A shard of MosaicML Streaming.
fn mds(folder: &Path, records: usize) -> Case {
    let columns = br#"{"column_names": ["text", "label"], "column_encodings": ["str", "uint8"], "column_sizes": [null, 1]}"#;
    let texts: Vec<Vec<u8>> = (0..records)
        .map(|id| content(id, length(id, 900)))
        .collect();
    let mut at = (4 * (records + 2) + columns.len()) as u32;
    let mut bytes = (records as u32).to_le_bytes().to_vec();
    bytes.extend(at.to_le_bytes());
    for text in &texts {
        at += text.len() as u32 + 5;
        bytes.extend(at.to_le_bytes());
    }
    bytes.extend(columns);
    for (id, text) in texts.iter().enumerate() {
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(text);
        bytes.push((id % 7) as u8);
    }
    let labels = (0..records).map(|id| (id % 7) as f64);
    Case {
        dataset: open(&[write(folder, "x.mds", bytes)]),
        expected: texts.iter().cloned().zip(labels).collect(),
    }
}

/// The part of a row that the case knows.
fn bytes_of(dataset: &Dataset, row: Row<'_>) -> Vec<u8> {
    let Row::Bytes(bytes) = row else {
        panic!("rows are bytes")
    };
    match dataset.contents() {
        Contents::Members => members(bytes).next().unwrap().bytes.to_vec(),
        Contents::Fields => dataset.record_fields().split(bytes).unwrap()[0]
            .bytes
            .to_vec(),
        _ => bytes.to_vec(),
    }
}

/// Ids of every batch; checks that each row is the one its id names.
fn batches(feed: &mut Fetch, case: &Case) -> Vec<(u64, u64, Vec<u64>)> {
    let mut batches = Vec::new();
    while let Some(batch) = feed.next_batch().unwrap() {
        for (i, &id) in batch.rows.ids().iter().enumerate() {
            let (expected, label) = &case.expected[id as usize];
            assert!(
                bytes_of(&case.dataset, batch.rows.row(i)) == *expected,
                "record {id}"
            );
            let found = case.dataset.labels().values()[batch.rows.label(i) as usize];
            assert_eq!(found, *label);
        }
        batches.push((batch.epoch, batch.step, batch.rows.ids().to_vec()));
    }
    batches
}

fn check(folder: &tempfile::TempDir, case: &Case) {
    let records = case.dataset.records();
    assert_eq!(case.dataset.layout(), Layout::Bytes);
    assert_eq!(records as usize, case.expected.len());
    let mean = (case.dataset.bytes() / records).max(1);
    for order in [
        "full",
        "block:7:permute",
        "sequential",
        "page:4096",
        "queue:100",
        "opportunistic:3:16384",
    ] {
        let order: Order = order.parse().unwrap();
        let mut over = Catalog::new(records);
        let has_units = matches!(order, Order::Page { .. } | Order::Opportunistic { .. });
        if let Order::Page { unit_bytes } | Order::Opportunistic { unit_bytes, .. } = order {
            over = Catalog::of_units(Units::fixed(records, mean, unit_bytes));
        }
        let plan = Arc::new(Plan::new(&PlanSpec::new(order, 64, 3), over).unwrap());
        let expected = planned(&plan, 0..2);
        let scatters = matches!(order, Order::Full | Order::Block { .. });
        for access in PATHS
            .into_iter()
            .filter(|access| scatters || *access != Access::Scatter)
        {
            let options = FetchOptions {
                end_epoch: Some(2),
                ..options(folder, access, 6 << 20)
            };
            let mut feed = Fetch::new(case.dataset.clone(), plan.clone(), &options).unwrap();
            assert!(
                batches(&mut feed, case) == expected,
                "{order} by {access}, units {has_units}"
            );
        }
    }
}

#[test]
fn lines_of_text() {
    let folder = tempfile::tempdir().unwrap();
    check(&folder, &text(folder.path(), 3001));
}

#[test]
fn pictures_of_idx_files() {
    let folder = tempfile::tempdir().unwrap();
    check(&folder, &idx(folder.path(), 1501));
}

#[test]
fn pictures_of_cifar_files() {
    let folder = tempfile::tempdir().unwrap();
    check(&folder, &cifar(folder.path(), 701));
}

#[test]
fn samples_of_tar_files() {
    let folder = tempfile::tempdir().unwrap();
    check(&folder, &tar(folder.path(), 801));
}

#[test]
fn images_of_folders() {
    let folder = tempfile::tempdir().unwrap();
    check(&folder, &images(folder.path(), 801));
}

#[test]
fn examples_of_tfrecord_files() {
    let folder = tempfile::tempdir().unwrap();
    check(&folder, &tfrecords(folder.path(), 1501));
}

#[test]
fn chunks_of_array_record_files() {
    let folder = tempfile::tempdir().unwrap();
    check(&folder, &array_records(folder.path(), 601));
}

#[test]
fn samples_of_shards() {
    let folder = tempfile::tempdir().unwrap();
    check(&folder, &mds(folder.path(), 1501));
}

/// A file that vanishes in the middle of an epoch ends the feed with an error that names it.
#[test]
fn a_file_that_vanishes_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let case = images(folder.path(), 400);
    let plan = Plan::new(
        &PlanSpec::new(Order::Full, Batching::Examples(16), 3),
        Catalog::new(400),
    )
    .unwrap();
    let options = options(&folder, Access::Direct, 1 << 20);
    let mut feed = Fetch::new(case.dataset.clone(), Arc::new(plan), &options).unwrap();
    feed.next_batch().unwrap();
    let gone = case.dataset.files()[0].record_path(17);
    fs::remove_file(&gone).unwrap();
    let error = loop {
        match feed.next_batch() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the feed ended without an error"),
            Err(error) => break error,
        }
    };
    assert!(
        error.to_string().contains(gone.to_str().unwrap()),
        "{error}"
    );
}

/// An inconsistent sample is left out if the policy says so, and counted.
#[test]
fn damaged_samples_follow_the_policy() {
    let folder = tempfile::tempdir().unwrap();
    let case = cifar(folder.path(), 300);
    let path = folder.path().join("data_batch_1.bin");
    let mut bytes = fs::read(&path).unwrap();
    bytes[3 * 3073] = 99;
    fs::write(&path, bytes).unwrap();
    let paths = ["data_batch_1.bin", "data_batch_2.bin"].map(|name| folder.path().join(name));
    let dataset = open(&paths);
    let plan = Arc::new(
        Plan::new(
            &PlanSpec::new(Order::Full, Batching::Examples(32), 3),
            Catalog::new(300),
        )
        .unwrap(),
    );
    for access in PATHS {
        let fail = options(&folder, access, 3 << 20);
        let mut feed = Fetch::new(dataset.clone(), plan.clone(), &fail).unwrap();
        let error = std::iter::from_fn(|| feed.next_batch().map(|b| b.map(drop)).transpose())
            .find_map(Result::err)
            .expect("one record is bad");
        assert!(matches!(error, FetchError::Format(_)), "{error}");
        assert!(
            error
                .to_string()
                .contains("data_batch_1.bin: record 3 at byte 9219: its class byte is 99"),
            "{error}"
        );
        let skip = FetchOptions {
            on_bad_record: OnBadRecord::Skip { limit: Some(1) },
            end_epoch: Some(1),
            ..fail
        };
        let mut feed = Fetch::new(dataset.clone(), plan.clone(), &skip).unwrap();
        let found = batches(&mut feed, &case);
        let ids = found.iter().map(|(_, _, ids)| ids.len()).sum::<usize>();
        assert_eq!((ids, feed.meters().skipped_records), (299, 1));
    }
}
