//! The data sets of LIRS Table 1 at a scale that fits this machine, and real ones, held in memory.

use std::path::Path;
use std::sync::Arc;

use pelton_feed::{DeviceSpeed, FeedOptions, pane_row_bytes};
use pelton_format::{Dataset, RowTable, Slot};
use pelton_linear::Problem;

use super::ReproduceConfig;
use crate::config::DataConfig;
use crate::data::{self, Expected};
use crate::error::TrainError;
use crate::event::Observer;
use crate::linear::for_each_batch;

/// One of the paper's data sets, with what it says of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub name: &'static str,
    /// Rows of the generated set at scale 1.
    pub rows: u64,
    /// Blocks an epoch (section 5.1).
    pub blocks: u64,
    /// Rows of the paper's set (Table 1).
    pub published_rows: u64,
    /// Whether its rows are sparse (Table 1).
    pub sparse: bool,
    /// Epochs LIRS needs to reach the best of 30 epochs of BMF (Table 3).
    pub published_epochs: u64,
    /// Accuracy of BMF and LIRS in percent (Table 4).
    pub published_accuracy: [f64; 2],
    /// Random assignment and offset tables in MB (Table 5).
    pub published_tables_mb: [f64; 2],
}

/// LIRS Tables 1, 3, 4 and 5.
pub(super) const SHAPES: [Shape; 4] = [
    Shape {
        name: "webspam",
        rows: 2_000,
        blocks: 40,
        published_rows: 200_000,
        sparse: true,
        published_epochs: 7,
        published_accuracy: [99.20, 99.19],
        published_tables_mb: [1.53, 1.53],
    },
    Shape {
        name: "epsilon",
        rows: 10_000,
        blocks: 30,
        published_rows: 400_000,
        sparse: false,
        published_epochs: 12,
        published_accuracy: [89.80, 89.73],
        published_tables_mb: [3.05, 0.0],
    },
    Shape {
        name: "kdd",
        rows: 60_000,
        blocks: 40,
        published_rows: 19_264_097,
        sparse: true,
        published_epochs: 11,
        published_accuracy: [88.70, 88.84],
        published_tables_mb: [147.0, 147.0],
    },
    Shape {
        name: "higgs",
        rows: 100_000,
        blocks: 40,
        published_rows: 10_500_000,
        sparse: false,
        published_epochs: 17,
        published_accuracy: [64.29, 64.23],
        published_tables_mb: [80.11, 0.0],
    },
];

/// A data set in memory, with the files it was read from.
pub(super) struct Loaded {
    pub name: String,
    pub blocks: u64,
    pub shape: Option<Shape>,
    pub data: DataConfig,
    pub dataset: Arc<Dataset>,
    pub problem: Problem,
    pub rows: RowTable,
    pub test: Option<RowTable>,
}

/// Generates one of the paper's shapes and holds it in memory.
pub(super) fn load_shape(
    config: &ReproduceConfig,
    shape: Shape,
    observer: Observer<'_>,
) -> Result<Loaded, TrainError> {
    let rows = ((shape.rows as f64 * config.scale) as u64).max(10 * shape.blocks);
    let data = DataConfig {
        paths: vec![format!("demo:{}:{rows}", shape.name)],
        cache_dir: Some(config.out.join("data")),
        ..DataConfig::default()
    };
    load(
        shape.name,
        shape.blocks,
        Some(shape),
        data,
        Vec::new(),
        observer,
    )
}

/// The real data sets that are there, with their test sets.
pub(super) fn load_real(
    folder: &Path,
    cache: &Path,
    observer: Observer<'_>,
) -> Result<Vec<Loaded>, TrainError> {
    let text = |name: &str| folder.join("libsvm").join(name).display().to_string();
    let sets = [
        ("a9a", "a9a", Some("a9a.t"), None),
        ("covtype", "covtype.20k.csv", None, Some(2.0)),
        (
            "imdb",
            "imdb.train.libsvm.gz",
            Some("imdb.test.libsvm.gz"),
            None,
        ),
    ];
    let mut loaded = Vec::new();
    for (name, file, test, positive) in sets {
        let path = text(file);
        if !Path::new(&path).exists() {
            continue;
        }
        let data = DataConfig {
            paths: vec![path],
            positive,
            cache_dir: Some(cache.to_path_buf()),
            ..DataConfig::default()
        };
        let test = test.map(text).into_iter().collect();
        loaded.push(load(name, 40, None, data, test, observer)?);
    }
    Ok(loaded)
}

fn load(
    name: &str,
    blocks: u64,
    shape: Option<Shape>,
    data: DataConfig,
    test: Vec<String>,
    observer: Observer<'_>,
) -> Result<Loaded, TrainError> {
    let opened = data::open(&data, &data.paths, None, observer)?;
    let dataset = Arc::clone(&opened.dataset);
    let test_paths = if test.is_empty() { opened.test } else { test };
    let expected = Expected {
        labels: dataset.labels().clone(),
        features: dataset.features(),
    };
    let test = if test_paths.is_empty() {
        None
    } else {
        let opened = data::open(&data, &test_paths, Some(&expected), observer)?;
        Some(hold(&opened.dataset)?)
    };
    let problem = Problem::new(
        pelton_linear::Loss::Hinge,
        1.0,
        dataset.features() as usize,
        dataset.labels().len(),
    )?;
    Ok(Loaded {
        name: name.to_string(),
        blocks,
        shape,
        rows: hold(&dataset)?,
        data,
        dataset,
        problem,
        test,
    })
}

/// Every row of a data set in memory, in file order.
pub(super) fn hold(dataset: &Arc<Dataset>) -> Result<RowTable, TrainError> {
    let bytes = dataset.records() * pane_row_bytes(dataset);
    let feed = FeedOptions {
        device: DeviceSpeed::default(),
        ..FeedOptions::with_memory((bytes / 4).clamp(16 << 20, 256 << 20))
    };
    let (mut segments, mut slots, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    for_each_batch(dataset, &feed, |batch| {
        let base = segments.len() as u32;
        let rows = std::mem::take(&mut batch.rows);
        ids.extend_from_slice(rows.ids());
        slots.extend(rows.slots().iter().map(|slot| Slot {
            segment: slot.segment + base,
            row: slot.row,
        }));
        segments.extend(rows.into_segments().unwrap_or_default());
        Ok(())
    })?;
    Ok(RowTable::from_parts(segments, slots, ids))
}
