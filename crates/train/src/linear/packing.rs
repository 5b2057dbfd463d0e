//! Copies text rows that do not fit in memory into a scratch file of packed rows, in a pass before training: every
//! epoch decodes all rows, and packed rows decode many times faster than text.
//!
//! The rule: text, on one rank, blocks read again in each of at least [`LEAST_EPOCHS`] epochs, an order that does not
//! depend on byte positions in the file, packed rows at most as long as the text (for others, with short numbers, both
//! measured equally fast), and free space for [`LEAST_SPACE`] times the rows, since shuffled scratch files need as much
//! again. With several ranks, each would have to copy the rows it reads, or find those of others.

use std::path::Path;

use pelton_data::{DataError, OpenedData, units_of};
use pelton_format::{DataFile, PackedCopy};
use pelton_storage::StorageErrorKind;

use super::first_pass::FirstPass;
use super::ranks::Ranks;
use super::rows::Rows;
use super::scaling::needs_files;
use crate::config::LinearConfig;
use crate::error::TrainError;

/// Number of epochs from which one more pass pays off.
const LEAST_EPOCHS: u64 = 4;
const LEAST_SPACE: u64 = 4;

/// Whether copying data that does not fit in memory pays, given space for it.
pub(super) fn pays(config: &LinearConfig, data: &OpenedData, ranks: Ranks<'_>) -> bool {
    let dataset = &data.dataset;
    ranks.size() == 1
        && config.epochs >= LEAST_EPOCHS
        // A modelled device applies to the files only.
        && data.modelled.is_none()
        && units_of(dataset, config.order).is_none()
        && dataset.files().iter().all(DataFile::is_text_of_numbers)
        && PackedCopy::bytes_for(dataset)
            .is_some_and(|bytes| bytes <= dataset.bytes())
        && !needs_files(dataset, config)
}

/// Packs the rows, or notes why they are read from text.
pub(super) fn try_to_pack(
    rows: &mut Rows,
    config: &LinearConfig,
    pass: &mut FirstPass<'_>,
) -> Result<(), TrainError> {
    let needed = PackedCopy::bytes_for(&rows.data.dataset).unwrap_or(0);
    let folder = folder(config);
    // If the folder does not report its free space, the copy itself may fail.
    let free = rustix::fs::statvfs(folder).map_or(u64::MAX, |status| {
        status.f_bavail.saturating_mul(status.f_frsize)
    });
    if free / LEAST_SPACE >= needed {
        match pack(rows, config, pass) {
            Err(TrainError::Data(DataError::Storage(error)))
                if error.kind == StorageErrorKind::NoSpace => {}
            packed => return packed,
        }
    }
    pass.note(&format!(
        "{}: has too little space for packed rows (needs {LEAST_SPACE} times their {} MB free), so every epoch reads the text, which is slower; `scratch` names another folder",
        folder.display(),
        needed.div_ceil(1_000_000)
    ));
    Ok(())
}

/// Packs the rows.
pub(super) fn pack(
    rows: &mut Rows,
    config: &LinearConfig,
    pass: &mut FirstPass<'_>,
) -> Result<(), TrainError> {
    let mut copy = PackedCopy::create(&rows.data.dataset, folder(config))?;
    let mut spent = pass.over(&rows.data.dataset, "packing", |batch| {
        for i in 0..batch.rows.len() {
            copy.push(batch.rows.id(i), batch.rows.label(i), batch.rows.row(i))?;
        }
        Ok(())
    })?;
    let packed = copy.finish()?;
    spent.written_bytes += packed.bytes();
    pass.note(&format!(
        "packed rows into a scratch file of {:.1} MB, which is read instead of the text",
        packed.bytes() as f64 / 1e6
    ));
    rows.packed = true;
    rows.replace(packed.into(), &spent);
    Ok(())
}

/// The scratch folder, or its nearest existing parent: a run folder is created only when the run begins.
fn folder(config: &LinearConfig) -> &Path {
    let scratch = config.scratch_dir.as_deref().unwrap_or(Path::new("."));
    let mut folders = scratch.ancestors().filter(|folder| folder.is_dir());
    folders.next().unwrap_or(Path::new("."))
}
