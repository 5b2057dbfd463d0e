//! Copies the rows of text that does not fit in memory into a scratch file, packed, in a pass of its own before
//! training: every epoch decodes them anew, and packed rows decode many times faster than text.
//!
//! The rule: text, on one rank, blocks that are read anew in each of at least [`LEAST_EPOCHS`] epochs, an order that
//! does not go by the bytes of the file, packed rows that are no longer than the text (others, of short numbers, were
//! measured as fast from either), and [`LEAST_SPACE`] times as much space, for shuffled scratch files want as much
//! again. Each of several ranks would have to copy what it reads, or find where others did.

use std::path::Path;

use pelton_comm::Comm;
use pelton_data::{DataError, OpenedData, units_of};
use pelton_fetch::Share;
use pelton_format::{DataFile, PackedCopy};
use pelton_run::{Event, Observer};
use pelton_storage::StorageError;

use super::first_pass::first_pass;
use super::ranks::Ranks;
use super::scaling::needs_files;
use super::setup::{Setup, set_up_share};
use crate::config::LinearConfig;
use crate::error::TrainError;

/// Epochs of which one more pass is a small part.
const LEAST_EPOCHS: u64 = 4;
const LEAST_SPACE: u64 = 4;

/// Whether a copy pays, if there is space for it.
pub(super) fn pays(config: &LinearConfig, setup: &Setup, ranks: Ranks<'_>) -> bool {
    let dataset = &setup.data.dataset;
    !setup.in_core
        && ranks.size() == 1
        && config.epochs >= LEAST_EPOCHS
        // A modelled device is that of the files.
        && setup.data.modelled.is_none()
        && units_of(dataset, config.order).is_none()
        && dataset.files().iter().all(DataFile::is_text_of_numbers)
        && PackedCopy::bytes_for(dataset)
            .is_some_and(|bytes| bytes <= dataset.bytes())
        && !needs_files(dataset, config.scale)
}

/// Sets up the run over a packed copy, or says why it goes on from text.
pub(super) fn try_to_pack(
    config: &LinearConfig,
    setup: Setup,
    share: Option<Share>,
    observer: Observer<'_>,
) -> Result<Setup, TrainError> {
    let needed = PackedCopy::bytes_for(&setup.data.dataset).unwrap_or(0);
    let folder = folder(config);
    let free = rustix::fs::statvfs(folder)
        .map_or(0, |status| status.f_bavail.saturating_mul(status.f_frsize));
    let no_space = |observer: Observer<'_>| {
        observer(Event::Note(&format!(
            "{}: has too little space for packed rows ({} MB, and {LEAST_SPACE} times that to spare); reading the text in every epoch, which is slower; `scratch` names another folder",
            folder.display(),
            needed.div_ceil(1_000_000)
        )));
    };
    if free / LEAST_SPACE < needed {
        no_space(observer);
        return Ok(setup);
    }
    let (text, interrupt) = (setup.data.clone(), setup.interrupt.clone());
    match pack(config, setup, share.clone(), observer) {
        Err(TrainError::Data(DataError::Storage(StorageError::NoSpace { .. }))) => {
            no_space(observer);
            Ok(Setup {
                interrupt,
                ..set_up_share(config, text, share)?
            })
        }
        done => done,
    }
}

/// Sets up the run over a packed copy.
pub(super) fn pack(
    config: &LinearConfig,
    setup: Setup,
    share: Option<Share>,
    observer: Observer<'_>,
) -> Result<Setup, TrainError> {
    let dataset = &setup.data.dataset;
    let mut copy = PackedCopy::create(dataset, folder(config))?;
    let packing = first_pass(
        &setup,
        "packing",
        Ranks(&Comm::alone()),
        observer,
        |batch| {
            for i in 0..batch.rows.len() {
                copy.push(batch.rows.id(i), batch.rows.label(i), batch.rows.row(i))?;
            }
            Ok(())
        },
    )?;
    let packed = copy.finish()?;
    let mut before = setup.before.plus(&packing);
    before.written_bytes += packed.bytes();
    observer(Event::Note(&format!(
        "rows were packed into a scratch file of {:.1} MB, which is read in place of the text",
        packed.bytes() as f64 / 1e6
    )));
    let data = OpenedData {
        dataset: packed.into(),
        ..setup.data
    };
    Ok(Setup {
        interrupt: setup.interrupt,
        data_bytes: setup.data_bytes,
        packed: true,
        before,
        ..set_up_share(config, data, share)?
    })
}

/// The scratch folder, or the nearest above it that exists: a run folder is made only when the run begins.
fn folder(config: &LinearConfig) -> &Path {
    let scratch = config.scratch_dir.as_deref().unwrap_or(Path::new("."));
    let mut folders = scratch.ancestors().filter(|folder| folder.is_dir());
    folders.next().unwrap_or(Path::new("."))
}
