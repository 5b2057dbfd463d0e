//! Passes over the training data before training, which find out what training goes by.

use std::sync::Arc;

use pelton_fetch::{FetchOptions, Meters, RowBatch};
use pelton_run::{Event, Observer};

use super::evaluation::for_each_batch;
use super::ranks::Ranks;
use super::setup::Setup;
use crate::checkpoint::Totals;
use crate::error::TrainError;

/// Shows `each` the rows of this rank, batch by batch within the memory of the run; returns what the pass took
/// over all ranks.
pub(super) fn first_pass(
    setup: &Setup,
    what: &'static str,
    ranks: Ranks<'_>,
    observer: Observer<'_>,
    mut each: impl FnMut(&mut RowBatch) -> Result<(), TrainError>,
) -> Result<Totals, TrainError> {
    let dataset = &setup.data.dataset;
    let feed = FetchOptions {
        memory_bytes: setup.memory_bytes,
        interrupt: Arc::clone(&setup.interrupt),
        ..setup.feed.clone()
    };
    let mut done = 0;
    let meters = for_each_batch(dataset, &feed, |batch| {
        each(batch)?;
        done += batch.rows.len() as u64;
        observer(Event::Progress {
            what,
            done,
            total: dataset.records() / ranks.size() as u64,
        });
        Ok(())
    })?;
    let own = Totals {
        rows: dataset.records(),
        ..totals_of(&meters)
    };
    Ok(ranks.agree(false, false, own)?.totals)
}

pub(super) fn totals_of(meters: &Meters) -> Totals {
    Totals {
        load_s: meters.load_s,
        compute_s: meters.compute_s,
        overlap_s: meters.overlap_s(),
        wait_s: meters.wait_s,
        prepare_s: meters.prepare_s,
        read_bytes: meters.read_bytes,
        used_bytes: meters.used_bytes,
        written_bytes: meters.written_bytes,
        visits: 0,
        rows: 0,
        skipped_records: meters.skipped_records,
        ..Totals::default()
    }
}
