//! How rows are read: all of them once, or block by block from a feed that can be paused between epochs.

use std::sync::Arc;

use pelton_data::hold_rows;
use pelton_fetch::{Access, Fetch, FetchOptions, Meters, RowBatch, largest_batch, pane_row_bytes};
use pelton_format::{ContentSum, Dataset, RowTable};
use pelton_linear::{GRACE, OutOfCore};
use pelton_plan::{Place, Plan};

use super::scaling;
use super::task::Task;
use crate::error::TrainError;

/// Reads every row of this rank; returns the meters, and advice for easier training.
pub(super) fn hold(task: &Task<'_>) -> Result<(RowTable, Meters, Option<String>), TrainError> {
    let (dataset, budget) = (&task.rows.data.dataset, &task.division.budget);
    let records = dataset.records().div_ceil(task.ranks.size() as u64);
    let rows_bytes = records * pane_row_bytes(dataset);
    let feed = FetchOptions {
        memory_bytes: (budget.bytes.saturating_sub(rows_bytes)).clamp(4 << 20, 64 << 20),
        ..budget.feed.clone()
    };
    let (rows, meters) = hold_rows(dataset, &feed)?;
    task.check_bad_records(&meters)?;
    let advice = match task.rows.scale {
        Some(_) => None,
        None => scaling::advice(&rows),
    };
    Ok((rows, meters, advice))
}

/// A trained block.
pub(super) struct Step {
    pub end: Place,
    pub ends_epoch: bool,
    /// Content sum of its rows.
    pub content: ContentSum,
}

/// A feed that can be closed between epochs, and resumes at the same position.
pub(super) struct Reading {
    dataset: Arc<Dataset>,
    plan: Arc<Plan>,
    /// Their start is the end of the last block.
    options: FetchOptions,
    feed: Option<Fetch>,
    access: Access,
    /// Meters of the closed feeds.
    before: Meters,
    /// The advice from examining the first block, and whether that is still to do.
    looks: bool,
    advice: Option<String>,
}

impl Reading {
    /// The feed, reopened if it was closed.
    fn feed(&mut self) -> Result<&mut Fetch, TrainError> {
        let feed = match self.feed.take() {
            Some(feed) => feed,
            None => Fetch::new(
                Arc::clone(&self.dataset),
                Arc::clone(&self.plan),
                &self.options,
            )?,
        };
        self.access = feed.access();
        Ok(self.feed.insert(feed))
    }

    /// Frees the feed's memory until the next block.
    fn pause(&mut self) {
        self.before = self.meters();
        self.feed = None;
    }

    pub fn meters(&self) -> Meters {
        let Some(feed) = &self.feed else {
            return self.before.clone();
        };
        let (before, now) = (&self.before, feed.meters());
        let mut skipped_ids = [&before.skipped_ids[..], &now.skipped_ids].concat();
        skipped_ids.sort_unstable();
        skipped_ids.dedup();
        Meters {
            skipped_records: before.skipped_records.max(now.skipped_records),
            skipped_ids,
            used_bytes: before.used_bytes + now.used_bytes,
            read_bytes: before.read_bytes + now.read_bytes,
            written_bytes: before.written_bytes + now.written_bytes,
            prepare_s: before.prepare_s + now.prepare_s,
            read_s: before.read_s + now.read_s,
            decode_s: before.decode_s + now.decode_s,
            load_s: before.load_s + now.load_s,
            wait_s: before.wait_s + now.wait_s,
            compute_s: before.compute_s + now.compute_s,
            ..now
        }
    }

    pub fn open(
        task: &Task<'_>,
        start: Place,
        end_epoch: Option<u64>,
    ) -> Result<Reading, TrainError> {
        let options = FetchOptions {
            start,
            end_epoch,
            sums: true,
            grace: GRACE,
            ..task.division.feed.clone()
        };
        let mut reading = Reading {
            dataset: Arc::clone(&task.rows.data.dataset),
            plan: Arc::clone(&task.division.plan),
            access: options.access,
            options,
            feed: None,
            before: Meters::default(),
            looks: task.rows.scale.is_none(),
            advice: None,
        };
        reading.feed()?;
        Ok(reading)
    }

    /// Options for a pass over all rows between two epochs, with this feed open. If too little memory is set aside for
    /// such passes, closes the feed until the next block to use its memory.
    pub fn room_for_pass(&mut self, task: &Task<'_>) -> FetchOptions {
        let division = &task.division;
        let adjacent = FetchOptions {
            memory_bytes: division.evaluation_bytes,
            ..division.feed.clone()
        };
        let in_file_order = FetchOptions {
            access: Access::Window { gap_bytes: None },
            ..adjacent.clone()
        };
        if largest_batch(&self.dataset, &in_file_order) > 0 {
            return adjacent;
        }
        self.pause();
        division.feed.clone()
    }

    /// Trains on the next block; `None` if the epochs are over.
    pub fn train_next(&mut self, solver: &mut OutOfCore) -> Result<Option<Step>, TrainError> {
        let looks = std::mem::take(&mut self.looks);
        let Some(batch) = next_wanted(self.feed()?, solver)? else {
            return Ok(None);
        };
        let advice = looks.then(|| scaling::advice(&batch.rows)).flatten();
        solver.train(&batch.rows, batch.step)?;
        let (end, ends_epoch, content) = (batch.end, batch.ends_epoch, batch.content);
        self.advice = self.advice.take().or(advice);
        self.options.start = end;
        Ok(Some(Step {
            end,
            ends_epoch,
            content,
        }))
    }

    pub fn access(&self) -> String {
        self.access.to_string()
    }

    /// The reason for this access path.
    pub fn describe(&self) -> Option<String> {
        let choice = self.feed.as_ref().and_then(Fetch::access_choice);
        choice.map(ToString::to_string)
    }

    /// Closes the feed; returns the meters of reading, the access path, and advice for easier training.
    pub fn close(self) -> (Meters, String, Option<String>) {
        (self.meters(), self.access(), self.advice)
    }
}

/// The next batch of the rows that the solver wants.
fn next_wanted<'a>(
    feed: &'a mut Fetch,
    solver: &OutOfCore,
) -> Result<Option<&'a mut RowBatch>, TrainError> {
    Ok(feed.next_batch_where(&mut |_, id| solver.wants(id))?)
}
