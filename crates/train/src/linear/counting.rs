//! Numbers the features of sparse data that does not fit in memory by their frequency, in a pass of its own
//! before training: w then holds those alone that occur.

use std::sync::Arc;

use pelton_data::OpenedData;
use pelton_fetch::Share;
use pelton_format::{Layout, Renumber};
use pelton_linear::FeatureCounts;
use pelton_run::{Event, Observer};

use super::first_pass::first_pass;
use super::ranks::Ranks;
use super::setup::{Setup, set_up_share};
use crate::config::LinearConfig;
use crate::error::TrainError;

/// Features for which a pass over the data is worth it: w is far larger than the caches.
const LEAST_FEATURES: u64 = 1 << 20;
/// Epochs of which one more pass is a small part.
const LEAST_EPOCHS: u64 = 4;

/// Whether the pass pays.
pub(super) fn pays(config: &LinearConfig, setup: &Setup) -> bool {
    let dataset = &setup.data.dataset;
    !setup.in_core
        && dataset.layout() == Layout::Sparse
        && dataset.features() >= LEAST_FEATURES
        && config.epochs >= LEAST_EPOCHS
}

/// Counts, and sets up the run anew over the same data with other numbers.
pub(super) fn renumber(
    config: &LinearConfig,
    setup: Setup,
    share: Option<Share>,
    ranks: Ranks<'_>,
    observer: Observer<'_>,
) -> Result<Setup, TrainError> {
    let dataset = &setup.data.dataset;
    let features = usize::try_from(dataset.features()).unwrap_or(usize::MAX);
    let Some(mut counts) = FeatureCounts::new(features) else {
        return Ok(setup);
    };
    let counting = first_pass(&setup, "counting features", ranks, observer, |batch| {
        counts.add(batch.rows.segments());
        Ok(())
    })?;
    let Some((numbering, numbers)) = counts.number() else {
        return Ok(setup);
    };
    observer(Event::Note(&format!(
        "{} of {features} features occur; they were counted in a pass before training",
        numbering.len()
    )));
    let numbers: Arc<dyn Renumber> = Arc::new(numbers);
    let renumbered = dataset.renumbered(numbers, numbering.len() as u64);
    let data = OpenedData {
        dataset: Arc::new(renumbered),
        ..setup.data
    };
    let again = set_up_share(config, data, share)?;
    Ok(Setup {
        interrupt: setup.interrupt,
        data_bytes: setup.data_bytes,
        packed: setup.packed,
        scale: setup.scale,
        before: setup.before.plus(&counting),
        numbering: Some(Arc::new(numbering)),
        ..again
    })
}
