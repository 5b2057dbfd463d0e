//! Where blocks come from: a feed, or rows that all lie in memory.

use std::sync::Arc;
use std::time::Instant;

use pelton_comm::Comm;
use pelton_feed::{Cursor, Feed, FeedOptions, Meters};
use pelton_format::{Dataset, RowTable, Slot};
use pelton_linear::{Exchange, FeatureNumbering, OutOfCore, Peers, Problem};

use super::certify::for_each_batch;
use super::ranks::{Ranks, exchange};
use super::setup::Setup;
use crate::error::TrainError;

/// A block that was trained.
pub(super) struct Step {
    pub end: Cursor,
    pub ends_epoch: bool,
}

impl Step {
    /// The only block of an epoch.
    fn whole(solver: &OutOfCore) -> Step {
        Step {
            end: Cursor {
                epoch: solver.epoch(),
                next: 1,
            },
            ends_epoch: true,
        }
    }
}

/// Where blocks come from.
pub(super) enum Source {
    /// From storage, batch by batch.
    Feed(Box<Feed>, Arc<Dataset>),
    /// All rows, read once.
    Memory {
        rows: RowTable,
        /// Ids of each rank's rows, where there are several.
        shares: Vec<Vec<u64>>,
        /// The numbers that their features were given, where these are not their own.
        numbering: Option<Arc<FeatureNumbering>>,
        meters: Box<Meters>,
        compute_s: f64,
    },
}

impl Source {
    pub fn open(
        setup: &Setup,
        start: Cursor,
        end_epoch: Option<u64>,
        ranks: Ranks<'_>,
    ) -> Result<Source, TrainError> {
        let dataset = &setup.data.dataset;
        if setup.in_core {
            return load_all(setup, ranks);
        }
        let options = FeedOptions {
            start,
            end_epoch,
            ..setup.feed.clone()
        };
        let feed = Feed::new(Arc::clone(dataset), Arc::clone(&setup.plan), &options)?;
        Ok(Source::Feed(Box::new(feed), Arc::clone(dataset)))
    }

    /// Trains on the next block, the `step`-th of its epoch; `None` where the epochs are over.
    ///
    /// The count is the caller's: a feed that starts in the middle of an epoch whose blocks are
    /// refilled cannot know how many came before, and the inner order is keyed by it.
    pub fn train_next(
        &mut self,
        solver: &mut OutOfCore,
        step: u64,
        replay: bool,
        ranks: Ranks<'_>,
    ) -> Result<Option<Step>, TrainError> {
        if let Some(comm) = ranks.comm() {
            return self.train_next_share(solver, step, comm, ranks);
        }
        match self {
            Source::Feed(feed, _) => {
                let asked: &OutOfCore = solver;
                let mut first = None;
                let batch = feed.next_batch_where(&mut |number, id| {
                    let first = *first.get_or_insert(number);
                    asked.wants(id, replay && number == first)
                })?;
                let Some(batch) = batch else {
                    return Ok(None);
                };
                solver.train_rows(&mut batch.rows, step)?;
                Ok(Some(Step {
                    end: batch.end,
                    ends_epoch: batch.ends_epoch,
                }))
            }
            Source::Memory {
                rows, compute_s, ..
            } => {
                let began = Instant::now();
                solver.train_rows(rows, 0)?;
                *compute_s += began.elapsed().as_secs_f64();
                Ok(Some(Step::whole(solver)))
            }
        }
    }

    /// The same together with other ranks, each on its share of the block.
    fn train_next_share(
        &mut self,
        solver: &mut OutOfCore,
        step: u64,
        comm: &Comm,
        ranks: Ranks<'_>,
    ) -> Result<Option<Step>, TrainError> {
        let mut peers = Peers {
            rank: comm.rank(),
            ranks: comm.size(),
            exchange: &mut |what| exchange(comm, what),
        };
        match self {
            Source::Feed(feed, dataset) => {
                let plan = Arc::clone(feed.plan());
                let Some(batch) = feed.next_batch()? else {
                    return Ok(None);
                };
                let mut ids = Vec::new();
                plan.batch_ids(batch.epoch, batch.step, &mut ids);
                let shares = ranks.divide(dataset, &ids);
                solver.train_share(&batch.rows, step, &shares, &mut peers)?;
                Ok(Some(Step {
                    end: batch.end,
                    ends_epoch: batch.ends_epoch,
                }))
            }
            Source::Memory {
                rows,
                shares,
                compute_s,
                ..
            } => {
                let began = Instant::now();
                solver.train_share(rows, 0, shares, &mut peers)?;
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
            Source::Feed(..) => None,
            Source::Memory { rows, .. } => Some(rows),
        }
    }

    /// The same for good; a feed ends.
    pub fn into_rows(self) -> Option<RowTable> {
        match self {
            Source::Feed(..) => None,
            Source::Memory { rows, .. } => Some(rows),
        }
    }

    pub fn meters(&self) -> Meters {
        match self {
            Source::Feed(feed, _) => feed.meters(),
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
            Source::Feed(feed, _) => feed.access().to_string(),
            Source::Memory { .. } => "memory".to_string(),
        }
    }

    pub fn describe(&self) -> Option<String> {
        match self {
            Source::Feed(feed, _) => feed.access_choice().map(|choice| choice.to_string()),
            Source::Memory { .. } => None,
        }
    }
}

/// Reads every row of this rank once, into segments that stay.
fn load_all(setup: &Setup, ranks: Ranks<'_>) -> Result<Source, TrainError> {
    let dataset = &setup.data.dataset;
    let records = dataset.records().div_ceil(ranks.size() as u64);
    let rows_bytes = records * pelton_feed::pane_row_bytes(dataset);
    let feed = FeedOptions {
        memory_bytes: (setup.memory_bytes.saturating_sub(rows_bytes)).clamp(4 << 20, 64 << 20),
        interrupt: Arc::clone(&setup.interrupt),
        ..setup.feed.clone()
    };
    let (mut rows, meters) = hold_rows(dataset, &feed)?;
    let numbering = number(&setup.problem, &mut rows, ranks)?;
    Ok(Source::Memory {
        numbering,
        shares: ranks.gather_ids(rows.ids())?,
        rows,
        meters: Box::new(meters),
        compute_s: 0.0,
    })
}

/// Gives the features of rows in memory new numbers, where it pays.
fn number(
    problem: &Problem,
    rows: &mut RowTable,
    ranks: Ranks<'_>,
) -> Result<Option<Arc<FeatureNumbering>>, TrainError> {
    let mut exchange_of;
    let mut peers = match ranks.comm() {
        Some(comm) => {
            exchange_of = |what: Exchange<'_>| exchange(comm, what);
            Some(Peers {
                rank: comm.rank(),
                ranks: comm.size(),
                exchange: &mut exchange_of,
            })
        }
        None => None,
    };
    let features = problem.features();
    let numbering = FeatureNumbering::renumber(rows, features, peers.as_mut())?;
    if let Some(numbering) = &numbering {
        tracing::debug!(present = numbering.len(), features, "features renumbered");
    }
    Ok(numbering.map(Arc::new))
}

/// Every row of a data set in memory, or every one of this rank's share, in file order, and what reading
/// them took.
pub(crate) fn hold_rows(
    dataset: &Arc<Dataset>,
    feed: &FeedOptions,
) -> Result<(RowTable, Meters), TrainError> {
    let mut segments = Vec::new();
    let mut slots = Vec::with_capacity(dataset.records() as usize);
    let mut ids = Vec::with_capacity(dataset.records() as usize);
    let meters = for_each_batch(dataset, feed, |batch| {
        let base = segments.len() as u32;
        let rows = std::mem::take(&mut batch.rows);
        ids.extend_from_slice(rows.ids());
        slots.extend(rows.slots().iter().map(|slot| Slot {
            segment: slot.segment + base,
            row: slot.row,
        }));
        let owned = rows.into_segments();
        segments.extend(owned.expect("the batch of a pane of one batch owns its segments"));
        Ok(())
    })?;
    Ok((RowTable::from_parts(segments, slots, ids), meters))
}
