//! IDX files of pictures: finds real ones, reads some of their records, and writes new ones.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pelton_feed::{Loader, LoaderOptions, Stages};
use pelton_format::Dataset;
use pelton_plan::{Catalog, Order, Plan, PlanSpec, Selection};
use pelton_run::{Interrupt, write_atomically};
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
    let plan = Plan::new(&spec, Catalog::of(records).with_selection(Some(used)))?;
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

/// IDX's type codes of bytes, and of big-endian 4-byte integers.
pub(super) const BYTES: u8 = 0x08;
pub(super) const INTEGERS: u8 = 0x0c;

/// Writes an IDX file of one of these types, with records of these sizes.
pub(super) fn write_idx(
    path: &Path,
    kind: u8,
    count: u64,
    sizes: &[u32],
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), TrainError> {
    write_atomically(path, |path| {
        let mut out = BufWriter::new(File::create(path)?);
        out.write_all(&[0, 0, kind, 1 + sizes.len() as u8])?;
        out.write_all(&(count as u32).to_be_bytes())?;
        sizes
            .iter()
            .try_for_each(|size| out.write_all(&size.to_be_bytes()))?;
        write(&mut out)?;
        out.flush()
    })?;
    Ok(())
}
