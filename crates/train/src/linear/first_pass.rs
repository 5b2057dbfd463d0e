//! One pass over the training data before training, which collects what training needs.

use std::sync::Arc;

use pelton_fetch::{FetchOptions, Meters, RowBatch};
use pelton_format::Dataset;
use pelton_run::{Event, Observer};

use super::evaluation::for_each_batch;
use super::ranks::Ranks;
use crate::checkpoint::Totals;
use crate::error::TrainError;

/// How the passes before training are made.
pub(super) struct FirstPass<'a> {
    /// Options within the memory of the run.
    pub feed: &'a FetchOptions,
    pub ranks: Ranks<'a>,
    pub observer: Observer<'a>,
}

impl FirstPass<'_> {
    /// Calls `each` on the rows of this rank, batch by batch; returns the totals of the pass over all ranks.
    pub fn over(
        &mut self,
        dataset: &Arc<Dataset>,
        what: &'static str,
        mut each: impl FnMut(&mut RowBatch) -> Result<(), TrainError>,
    ) -> Result<Totals, TrainError> {
        let mut done = 0;
        let meters = for_each_batch(dataset, self.feed, |batch| {
            each(batch)?;
            done += batch.rows.len() as u64;
            (self.observer)(Event::Progress {
                what,
                done,
                total: dataset.records() / self.ranks.size() as u64,
            });
            Ok(())
        })?;
        let own = Totals {
            rows: dataset.records(),
            ..totals_of(&meters)
        };
        Ok(self.ranks.agree(false, false, own)?.totals)
    }

    /// Notifies the observer.
    pub fn note(&mut self, text: &str) {
        (self.observer)(Event::Note(text));
    }
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
