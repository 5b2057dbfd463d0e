//! Where blocks come from: a feed, or rows that all lie in memory.

use std::sync::Arc;
use std::time::Instant;

use pelton_data::hold_rows;
use pelton_fetch::{Access, Fetch, FetchError, FetchOptions, Meters, RowBatch, largest_batch};
use pelton_format::{Dataset, RowTable};
use pelton_linear::{FeatureNumbering, GRACE, OutOfCore, Problem};
use pelton_plan::{Place, Plan};

use super::ranks::Ranks;
use super::scaling;
use super::setup::Setup;
use crate::error::TrainError;

/// A block that was trained.
pub(super) struct Step {
    pub end: Place,
    pub ends_epoch: bool,
}

impl Step {
    /// The only block of an epoch.
    fn whole(solver: &OutOfCore) -> Step {
        Step {
            end: Place {
                epoch: solver.epoch(),
                step: 1,
            },
            ends_epoch: true,
        }
    }
}

/// Where blocks come from.
pub(super) enum Source {
    /// From storage, batch by batch.
    Fetch(Box<Reading>),
    /// All rows, read once.
    Memory {
        rows: RowTable,
        /// The numbers that their features were given, where these are not their own.
        numbering: Option<Arc<FeatureNumbering>>,
        meters: Box<Meters>,
        compute_s: f64,
        advice: Option<String>,
    },
}

/// A feed that can be closed between epochs, and begins again where it was.
pub(super) struct Reading {
    dataset: Arc<Dataset>,
    plan: Arc<Plan>,
    /// Their start is where the last block ended.
    options: FetchOptions,
    feed: Option<Fetch>,
    access: Access,
    /// Of the feeds that were closed.
    before: Meters,
    /// Whether the first block is still to be looked at for advice, and what was found.
    looks: bool,
    advice: Option<String>,
}

impl Reading {
    /// The feed, begun again where it is closed.
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

    /// Gives the feed's memory back.
    fn close(&mut self) {
        self.before = self.meters();
        self.feed = None;
    }

    fn meters(&self) -> Meters {
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
}

impl Source {
    pub fn open(
        setup: &Setup,
        start: Place,
        end_epoch: Option<u64>,
        ranks: Ranks<'_>,
    ) -> Result<Source, TrainError> {
        let dataset = &setup.data.dataset;
        if setup.in_core {
            return load_all(setup, ranks);
        }
        let options = FetchOptions {
            start,
            end_epoch,
            interrupt: Arc::clone(&setup.interrupt),
            grace: GRACE,
            ..setup.feed.clone()
        };
        let mut reading = Reading {
            dataset: Arc::clone(dataset),
            plan: Arc::clone(&setup.plan),
            access: options.access,
            options,
            feed: None,
            before: Meters::default(),
            looks: setup.scale.is_none(),
            advice: None,
        };
        reading.feed()?;
        Ok(Source::Fetch(Box::new(reading)))
    }

    /// How a pass over all rows reads beside this source, between two epochs. Where too little memory is set
    /// aside for such passes, the feed gives its own away until the next block.
    pub fn room_for_pass(&mut self, setup: &Setup) -> FetchOptions {
        let beside = setup.evaluation_feed();
        let Source::Fetch(reading) = self else {
            return beside;
        };
        let in_file_order = FetchOptions {
            access: Access::Window { gap_bytes: None },
            ..beside.clone()
        };
        if largest_batch(&reading.dataset, &in_file_order) > 0 {
            return beside;
        }
        reading.close();
        setup.feed.clone()
    }

    /// Trains on the next block; `None` where the epochs are over.
    pub fn train_next(
        &mut self,
        solver: &mut OutOfCore,
        ranks: Ranks<'_>,
    ) -> Result<Option<Step>, TrainError> {
        match self {
            Source::Fetch(reading) => {
                let looks = std::mem::take(&mut reading.looks);
                let batch = next_wanted(reading.feed()?, solver);
                // No rank may wait in a block for one that got no rows.
                let given_up = batch.as_ref().is_err_and(TrainError::is_interruption);
                if ranks.any(given_up)? {
                    return Err(FetchError::Interrupted.into());
                }
                let Some(batch) = batch? else {
                    return Ok(None);
                };
                let advice = looks.then(|| scaling::advice(&batch.rows)).flatten();
                ranks.together(|peers| solver.train(&batch.rows, batch.step, peers))?;
                let (end, ends_epoch) = (batch.end, batch.ends_epoch);
                reading.advice = reading.advice.take().or(advice);
                reading.options.start = end;
                Ok(Some(Step { end, ends_epoch }))
            }
            Source::Memory {
                rows, compute_s, ..
            } => {
                let began = Instant::now();
                ranks.together(|peers| solver.train(rows, 0, peers))?;
                *compute_s += began.elapsed().as_secs_f64();
                Ok(Some(Step::whole(solver)))
            }
        }
    }

    /// Takes over the feature numbers of rows in memory.
    pub fn renumber(&self, solver: &mut OutOfCore) {
        if let Source::Memory {
            numbering: Some(numbering),
            ..
        } = self
        {
            solver.renumber(Arc::clone(numbering));
        }
    }

    /// All rows, where they lie in memory.
    pub fn rows(&self) -> Option<&RowTable> {
        match self {
            Source::Fetch { .. } => None,
            Source::Memory { rows, .. } => Some(rows),
        }
    }

    /// The same for good; a feed ends.
    pub fn into_rows(self) -> Option<RowTable> {
        match self {
            Source::Fetch { .. } => None,
            Source::Memory { rows, .. } => Some(rows),
        }
    }

    pub fn meters(&self) -> Meters {
        match self {
            Source::Fetch(reading) => reading.meters(),
            Source::Memory {
                meters, compute_s, ..
            } => Meters {
                compute_s: *compute_s,
                ..(**meters).clone()
            },
        }
    }

    pub fn access(&self) -> String {
        match self {
            Source::Fetch(reading) => reading.access.to_string(),
            Source::Memory { .. } => "memory".to_string(),
        }
    }

    /// What would make training easier, as its rows show; once.
    pub fn take_advice(&mut self) -> Option<String> {
        match self {
            Source::Fetch(reading) => reading.advice.take(),
            Source::Memory { advice, .. } => advice.take(),
        }
    }

    pub fn describe(&self) -> Option<String> {
        match self {
            Source::Fetch(reading) => {
                let choice = reading.feed.as_ref().and_then(Fetch::access_choice);
                choice.map(ToString::to_string)
            }
            Source::Memory { .. } => None,
        }
    }
}

/// The next batch of the rows that the solver wants.
fn next_wanted<'a>(
    feed: &'a mut Fetch,
    solver: &OutOfCore,
) -> Result<Option<&'a mut RowBatch>, TrainError> {
    Ok(feed.next_batch_where(&mut |_, id| solver.wants(id))?)
}

/// Reads every row of this rank once, into segments that stay.
fn load_all(setup: &Setup, ranks: Ranks<'_>) -> Result<Source, TrainError> {
    let dataset = &setup.data.dataset;
    let records = dataset.records().div_ceil(ranks.size() as u64);
    let rows_bytes = records * pelton_fetch::pane_row_bytes(dataset);
    let feed = FetchOptions {
        memory_bytes: (setup.memory_bytes.saturating_sub(rows_bytes)).clamp(4 << 20, 64 << 20),
        interrupt: Arc::clone(&setup.interrupt),
        ..setup.feed.clone()
    };
    let (mut rows, meters) = hold_rows(dataset, &feed)?;
    let advice = match setup.scale {
        Some(_) => None,
        None => scaling::advice(&rows),
    };
    let numbering = number(&setup.problem, &mut rows, ranks)?;
    Ok(Source::Memory {
        numbering,
        rows,
        meters: Box::new(meters),
        compute_s: 0.0,
        advice,
    })
}

/// Gives the features of rows in memory new numbers, where it pays.
fn number(
    problem: &Problem,
    rows: &mut RowTable,
    ranks: Ranks<'_>,
) -> Result<Option<Arc<FeatureNumbering>>, TrainError> {
    let features = problem.features();
    let numbering = ranks.together(|peers| FeatureNumbering::renumber(rows, features, peers))?;
    if let Some(numbering) = &numbering {
        tracing::debug!(present = numbering.len(), features, "features renumbered");
    }
    Ok(numbering.map(Arc::new))
}
