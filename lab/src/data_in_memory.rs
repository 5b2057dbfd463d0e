//! Data sets in memory: those of LIRS Table 1 at a scale that fits this machine, and real ones.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pelton_data::{self as data, DataConfig, Expected, OpenedData, hold_rows};
use pelton_fetch::FetchOptions;
use pelton_format::{
    ClassName, Dataset, IndexCoding, Layout, PackedShape, PackedWriter, Row, RowTable,
};
use pelton_linear::{Loss, Problem};
use pelton_run::{Interrupt, RunContext};
use pelton_train::TrainError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::experiment::SetConfig;
use super::published::{Published, published};
use crate::kept::{Kept, key_at_commit};
use crate::table::ReproduceConfig;

/// Fewest rows of a block, at any scale.
const LEAST_BLOCK_ROWS: u64 = 5;

/// Real sets cannot be scaled down; below this scale they are skipped.
const LEAST_REAL_SCALE: f64 = 0.3;

/// A data set in memory, with the files it was read from.
pub(super) struct DataInMemory {
    pub name: String,
    pub blocks: u64,
    /// The paper's figures; `None` for sets that it does not use.
    pub published: Option<Published>,
    pub config: DataConfig,
    pub opened: OpenedData,
    pub problem: Arc<Problem>,
    pub rows: RowTable,
    pub test: Option<RowTable>,
    /// The order of records in the file; `None` for their natural order.
    pub arrangement: Option<Vec<u64>>,
    kept: Mutex<Kept>,
}

impl DataInMemory {
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.opened.dataset
    }

    /// Replaces positions in the file by the records there.
    pub fn arrange(&self, places: &mut [u64]) {
        if let Some(arrangement) = &self.arrangement {
            for place in places {
                *place = arrangement[*place as usize];
            }
        }
    }

    /// The result of `make` on this data, saved in case the table is interrupted.
    pub fn kept<T: Serialize + DeserializeOwned>(
        &self,
        what: &str,
        make: impl FnOnce() -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        let key = key_at_commit(&format!(
            "{} in {} records, {} bytes, {} blocks, arranged {}: {what}",
            self.name,
            self.dataset().records(),
            self.dataset().bytes(),
            self.blocks,
            self.arrangement.is_some()
        ));
        if let Some(found) = self.all_kept().get(&key) {
            return Ok(found);
        }
        let found = make()?;
        self.all_kept().keep(&key, &found)?;
        Ok(found)
    }

    fn all_kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the data differs from the paper's.
    pub fn differs(&self) -> String {
        match self.published {
            Some(published) => format!(
                "generated data of the same shape, {} of {} rows",
                self.dataset().records(),
                published.rows
            ),
            None => "a real data set that the paper does not use".to_string(),
        }
    }
}

/// The data name of a generated set, and the folder of its files.
pub(super) fn generated(
    config: &ReproduceConfig,
    name: &str,
    rows: u64,
    blocks: u64,
) -> DataConfig {
    let rows = ((rows as f64 * config.scale) as u64).max(LEAST_BLOCK_ROWS * blocks.max(1));
    DataConfig {
        paths: vec![format!("demo:{name}:{rows}")],
        cache_dir: Some(config.out.join("data")),
        ..DataConfig::default()
    }
}

/// Loads a set of an experiment; `None` if its files do not exist, or if at the table's small scale whole real sets
/// would take most of the time.
pub(super) fn hold(
    config: &ReproduceConfig,
    set: &SetConfig,
    context: &mut RunContext<'_>,
) -> Result<Option<DataInMemory>, TrainError> {
    if let Some(rows) = set.rows {
        let data = generated(config, &set.name, rows, set.blocks);
        return hold_data(config, set, data, Vec::new(), context).map(Some);
    }
    let (Some(folder), Some(train)) = (&config.real_data, &set.train) else {
        return Ok(None);
    };
    if config.scale < LEAST_REAL_SCALE {
        return Ok(None);
    }
    let train = folder.join(train);
    let test = set.test.as_ref().map(|test| folder.join(test));
    if !train.exists() || test.as_ref().is_some_and(|test| !test.exists()) {
        return Ok(None);
    }
    let mut data = DataConfig {
        paths: vec![train.display().to_string()],
        positive: set.positive.map(ClassName::from),
        cache_dir: Some(config.out.join("data")),
        ..DataConfig::default()
    };
    let mut test: Vec<String> = test.iter().map(|test| test.display().to_string()).collect();
    if set.scaled {
        let [scaled, kept] = scale(&data, &config.out.join("data"), &set.name, context)?;
        data.paths = vec![scaled.display().to_string()];
        data.positive = None;
        test = vec![kept.display().to_string()];
    }
    hold_data(config, set, data, test, context).map(Some)
}

fn hold_data(
    table: &ReproduceConfig,
    set: &SetConfig,
    config: DataConfig,
    test: Vec<String>,
    context: &mut RunContext<'_>,
) -> Result<DataInMemory, TrainError> {
    let opened = data::open(&config, &config.paths, None, context)?;
    let dataset = Arc::clone(&opened.dataset);
    let test_paths = if test.is_empty() {
        opened.test.clone()
    } else {
        test
    };
    let expected = Expected {
        labels: Some(dataset.labels().clone()),
        any_label: false,
        features: dataset.features(),
        means: dataset.means().cloned(),
        columns: dataset.columns().cloned(),
    };
    let test = if test_paths.is_empty() {
        None
    } else {
        let opened = data::open(&config, &test_paths, Some(&expected), context)?;
        Some(rows_of(&opened.dataset, context.interrupt)?)
    };
    let features = dataset.features() as usize;
    Ok(DataInMemory {
        name: set.name.clone(),
        blocks: set.blocks,
        published: published(&set.name),
        problem: Arc::new(Problem::new(
            Loss::Hinge,
            1.0,
            features,
            dataset.labels().len(),
        )?),
        rows: rows_of(&dataset, context.interrupt)?,
        config,
        opened,
        test,
        arrangement: None,
        kept: Mutex::new(Kept::open(&table.out)?),
    })
}

/// Reads every row of a data set into memory, in file order.
fn rows_of(dataset: &Arc<Dataset>, interrupt: &Interrupt) -> Result<RowTable, TrainError> {
    const FEED_BYTES: u64 = 32 << 20;
    let largest = 24 * dataset.record_bytes().max();
    let feed = FetchOptions {
        interrupt: Arc::clone(interrupt),
        ..FetchOptions::with_memory(FEED_BYTES.max(largest))
    };
    Ok(hold_rows(dataset, &feed)?.0)
}

/// Writes the data with each feature divided by its largest absolute value: the training rows and, separately, every
/// fifth row for the test.
fn scale(
    config: &DataConfig,
    folder: &Path,
    name: &str,
    context: &mut RunContext<'_>,
) -> Result<[PathBuf; 2], TrainError> {
    const TEST_EVERY: usize = 5;
    let dataset = data::open(config, &config.paths, None, context)?.dataset;
    let rows = rows_of(&dataset, context.interrupt)?;
    let Layout::Dense { width } = dataset.layout() else {
        return Err(TrainError::config(format!(
            "{name}: only dense data can be scaled; leave out `scaled`"
        )));
    };
    let mut largest = vec![0f32; width];
    for i in 0..rows.len() {
        if let Row::Dense(values) = rows.row(i) {
            for (largest, value) in largest.iter_mut().zip(values) {
                *largest = largest.max(value.abs());
            }
        }
    }
    let paths = ["scaled", "scaled-test"].map(|part| folder.join(format!("{name}-{part}.prow")));
    let shape = PackedShape {
        layout: dataset.layout(),
        features: dataset.features(),
        index_coding: IndexCoding::Plain,
    };
    let mut train = PackedWriter::create(&paths[0], shape)?;
    let mut test = PackedWriter::create(&paths[1], shape)?;
    for i in 0..rows.len() {
        let Row::Dense(values) = rows.row(i) else {
            continue;
        };
        let scaled: Vec<f32> = values
            .iter()
            .zip(&largest)
            .map(|(value, largest)| if *largest > 0.0 { value / largest } else { 0.0 })
            .collect();
        let label = dataset.labels().values()[rows.label(i) as usize];
        let writer = if i % TEST_EVERY == TEST_EVERY - 1 {
            &mut test
        } else {
            &mut train
        };
        writer.push(label, Row::Dense(&scaled))?;
    }
    train.finish()?;
    test.finish()?;
    Ok(paths)
}
