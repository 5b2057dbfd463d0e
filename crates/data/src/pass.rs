//! A pass over all records of a data set, in the order of the files.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pelton_fetch::{Fetch, FetchOptions, OnBadRecord, RowBatch, pane_row_bytes};
use pelton_format::Dataset;
use pelton_plan::{Batching, Catalog, Order, Plan, PlanSpec};
use pelton_run::{Event, Interrupt, Observer};

use crate::error::DataError;

/// Most records of a step.
const MOST_STEP: u64 = 4096;
/// Memory of the pass, in addition to the longest record.
const MEMORY: u64 = 64 << 20;
/// A step takes at most this share of the memory: one is processed while others are read.
const STEPS_IN_MEMORY: u64 = 16;

/// Batches of all records, with progress for an observer.
pub struct Pass {
    feed: Fetch,
    what: &'static str,
    interrupt: Interrupt,
    steps: u64,
}

impl Pass {
    /// Errors: memory that does not hold the longest record.
    pub fn new(
        dataset: &Arc<Dataset>,
        what: &'static str,
        on_bad_record: OnBadRecord,
        interrupt: &Interrupt,
    ) -> Result<Pass, DataError> {
        let fits = MEMORY / STEPS_IN_MEMORY / pane_row_bytes(dataset).max(1);
        let batching = Batching::Examples(fits.clamp(1, MOST_STEP));
        let plan = Plan::new(
            &PlanSpec::new(Order::Sequential, batching, 0),
            Catalog::new(dataset.records()),
        )?;
        let options = FetchOptions {
            end_epoch: Some(1),
            on_bad_record,
            interrupt: Arc::clone(interrupt),
            ..FetchOptions::with_memory(MEMORY + 8 * dataset.record_bytes().max())
        };
        Ok(Pass {
            steps: plan.steps(0),
            feed: Fetch::new(Arc::clone(dataset), Arc::new(plan), &options)?,
            what,
            interrupt: Arc::clone(interrupt),
        })
    }

    /// Calls `with` on the next step; false after the last.
    pub fn next_step(
        &mut self,
        observer: Observer<'_>,
        with: impl FnOnce(&RowBatch),
    ) -> Result<bool, DataError> {
        let stopped = DataError::Stopped { job: self.what };
        let total = self.steps;
        let batch = match self.feed.next_batch() {
            Ok(Some(batch)) => batch,
            Ok(None) => return Ok(false),
            Err(_) if self.interrupt.load(Ordering::Relaxed) => return Err(stopped),
            Err(error) => return Err(error.into()),
        };
        with(batch);
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(stopped);
        }
        observer(Event::Progress {
            what: self.what,
            done: batch.step + 1,
            total,
        });
        Ok(true)
    }
}
