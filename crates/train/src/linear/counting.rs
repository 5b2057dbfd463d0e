//! Renumbers the features of sparse data that does not fit in memory by their frequency, in a pass before
//! training: w then has only those that occur.

use std::sync::Arc;

use pelton_format::{Dataset, Layout, Renumber};
use pelton_linear::FeatureCounts;

use super::first_pass::FirstPass;
use super::rows::Rows;
use crate::config::LinearConfig;
use crate::error::TrainError;

/// Features from which a pass over the data is worth it: w is far larger than the caches.
const LEAST_FEATURES: u64 = 1 << 20;
/// Number of epochs from which one more pass pays off.
const LEAST_EPOCHS: u64 = 4;

/// Whether the pass pays, over data that does not fit in memory.
pub(super) fn pays(config: &LinearConfig, dataset: &Dataset) -> bool {
    dataset.layout() == Layout::Sparse
        && dataset.features() >= LEAST_FEATURES
        && config.epochs >= LEAST_EPOCHS
}

/// Counts features and renumbers them.
pub(super) fn renumber(rows: &mut Rows, pass: &mut FirstPass<'_>) -> Result<(), TrainError> {
    let dataset = Arc::clone(&rows.data.dataset);
    let features = usize::try_from(dataset.features()).unwrap_or(usize::MAX);
    let Some(mut counts) = FeatureCounts::new(features) else {
        return Ok(());
    };
    let spent = pass.over(&dataset, "counting features", |batch| {
        counts.add(batch.rows.segments());
        Ok(())
    })?;
    let Some((numbering, numbers)) = counts.number() else {
        return Ok(());
    };
    pass.note(&format!(
        "{} of {features} features occur, as a pass before training counted",
        numbering.len()
    ));
    let numbers: Arc<dyn Renumber> = Arc::new(numbers);
    let renumbered = dataset.renumbered(numbers, numbering.len() as u64);
    rows.numbering = Some(Arc::new(numbering));
    rows.replace(Arc::new(renumbered), &spent);
    Ok(())
}
