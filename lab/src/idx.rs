//! IDX files of pictures: which there are, and how some of their records are read.

use std::path::PathBuf;
use std::sync::Arc;

use pelton_feed::{Loader, LoaderOptions, Stages};
use pelton_format::Dataset;
use pelton_plan::{Catalog, Order, Plan, PlanSpec, Selection};
use pelton_run::Interrupt;
use pelton_train::TrainError;

use crate::experiment::SetConfig;
use crate::table::ReproduceConfig;

/// Folder of the files of Debian's package `dataset-fashion-mnist`.
const INSTALLED: &str = "/usr/share/datasets";
/// Memory for reading.
const READING_BYTES: u64 = 16 << 20;

/// Training and test file of a real set, if they exist.
pub(super) fn real(config: &ReproduceConfig, set: &SetConfig) -> Option<[PathBuf; 2]> {
    let (train, test) = (set.train.as_ref()?, set.test.as_ref()?);
    let installed = PathBuf::from(INSTALLED);
    let folders = config.real_data.iter().chain(std::iter::once(&installed));
    folders
        .map(|folder| [folder.join(train), folder.join(test)])
        .find(|files| files.iter().all(|file| file.exists()))
}

/// About `count` records, evenly spread.
pub(super) fn some_of(records: u64, count: u64) -> Selection {
    let count = u128::from(count.min(records));
    let before = |id: u64| u128::from(id) * count / u128::from(records.max(1));
    Selection::new(records, |id| before(id + 1) > before(id))
}

/// A loader that reads some records once, unchanged and in order.
pub(super) fn reader(
    dataset: Arc<Dataset>,
    count: u64,
    interrupt: &Interrupt,
) -> Result<Loader, TrainError> {
    let records = dataset.records();
    let spec = PlanSpec::new(Order::Sequential, 64, 0);
    let used = some_of(records, count);
    let plan = Plan::new(&spec, Catalog::new(records).with_selection(Some(used)))?;
    let options = LoaderOptions {
        threads: 1,
        end_epoch: Some(1),
        interrupt: Arc::clone(interrupt),
        ..LoaderOptions::with_memory(READING_BYTES)
    };
    Ok(Loader::new(
        dataset,
        Arc::new(plan),
        Stages::default(),
        &options,
    )?)
}
