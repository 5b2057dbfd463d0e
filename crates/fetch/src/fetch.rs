//! The feed itself: returns batches in plan order and keeps the loader ahead of the consumer.

use std::sync::Arc;
use std::time::Instant;

use pelton_format::{ContentSum, DataFile, Dataset, RowTable};
use pelton_plan::{Place, Plan, Spread};

use crate::access::{AccessCase, AccessChoice, choose_access, records_before_a_sweep};
use crate::demand::Demand;
use crate::error::FetchError;
use crate::meters::Meters;
use crate::options::{Access, FetchOptions};
use crate::pane::Pane;
use crate::planner::{Keep, PlannedBatch, Planner};
use crate::ranges::Merge;
use crate::reader::{Reader, Shared};
use crate::scatter::{self, Scatter};
use crate::scatter_budget;
use crate::sizing::{self, Sizes};
use crate::steps::{PlanSteps, Steps};

/// One batch: the rows of one step in the plan's order.
#[derive(Debug, Default)]
pub struct RowBatch {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Batches of the epoch before this one.
    pub step: u64,
    /// Epoch and step of the next batch, to be stored in a checkpoint taken after this one.
    pub end: Place,
    /// Whether this is the last batch of its epoch.
    pub ends_epoch: bool,
    /// The rows in order with their ids; records left out as bad are missing.
    pub rows: RowTable,
    /// Checksum of the rows, with [`FetchOptions::sums`].
    pub content: ContentSum,
}

enum Loader {
    Reader(Reader),
    Scatter(Scatter),
}

impl Loader {
    fn lead_steps(&self) -> u64 {
        match self {
            Loader::Reader(reader) => reader.lead_steps(),
            Loader::Scatter(scatter) => scatter.panes_ahead(),
        }
    }
}

/// How the first panes differ from later ones, which are as large as the budget allows: a batch is available
/// only once its pane is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    /// In nothing.
    Alike,
    /// The first has this many batches, each further one twice as many.
    Small(u64),
    /// The first has this many batches and is read separately, record by record: the others share sweeps, and
    /// the first sweep passes over all files before a pane is complete.
    Alone(u64),
}

/// Records of a first pane.
const FIRST_PANE_RECORDS: u64 = 512;

/// Executes steps: loads ahead within the memory budget and yields a batch for each, in their order.
///
/// The order of examples depends only on the steps, never on the access path, the number of threads or timing.
/// Dropping the feed stops its threads.
pub struct Fetch {
    // Declared first so that its threads end before their shared state is dropped.
    loader: Loader,
    shared: Arc<Shared>,
    planner: Planner,
    access: Access,
    choice: Option<AccessChoice>,
    sizes: Sizes,
    beginning: Beginning,
    barrier: bool,
    steps_issued: u64,
    panes_planned: u64,
    panes_taken: u64,
    pane: Option<Pane>,
    batch_of_pane: usize,
    current: RowBatch,
    meters: Meters,
    left_at: Option<Instant>,
}

impl Fetch {
    /// A fetch of the steps of `plan` over `dataset`. Nothing is read before the first [`Fetch::next_batch`].
    ///
    /// Errors: a budget that cannot hold two batches and the read buffers; an access path that
    /// cannot serve the order.
    pub fn new(
        dataset: Arc<Dataset>,
        plan: Arc<Plan>,
        options: &FetchOptions,
    ) -> Result<Fetch, FetchError> {
        assert_eq!(
            dataset.records(),
            plan.records(),
            "the plan was made for other data"
        );
        Fetch::of_steps(dataset, Box::new(PlanSteps::new(plan, options)), options)
    }

    /// A fetch of any steps, for instance those of a pipeline.
    ///
    /// Errors: as those of [`Fetch::new`].
    pub fn of_steps(
        dataset: Arc<Dataset>,
        steps: Box<dyn Steps>,
        options: &FetchOptions,
    ) -> Result<Fetch, FetchError> {
        let demand = Demand::from_parts(&dataset, &*steps);
        let (access, choice) = path_for(&dataset, &demand, options)?;
        let scatter_bytes = match access {
            Access::Scatter => scatter_budget::reserved_bytes(&dataset, options),
            _ => 0,
        };
        let sizes = sizing::divide(&dataset, &demand, options, access, scatter_bytes)?;
        let beginning = beginning(&dataset, options, access, sizes);
        tracing::info!(
            %access,
            asked = %options.access,
            order = ?demand.plan.map(Plan::order),
            budget = options.memory_bytes,
            ?sizes,
            ?beginning,
            "access path taken"
        );
        let shared = Arc::new(Shared::new(Arc::clone(&dataset), options));
        let loader = match (access, steps.plan()) {
            (Access::Scatter, Some(plan)) => Loader::Scatter(Scatter::new(
                Arc::clone(&shared),
                Arc::clone(plan),
                options,
                sizes,
            )),
            _ => {
                let merge = merge_of(access, demand.spread, options);
                Loader::Reader(Reader::new(
                    Arc::clone(&shared),
                    sizes,
                    options.threads,
                    merge,
                )?)
            }
        };
        let mut planner = Planner::new(
            steps,
            options,
            sizes.pane_batches,
            access == Access::Scatter,
        );
        if let Beginning::Small(batches) = beginning {
            planner.begin_with(batches);
        }
        Ok(Fetch {
            planner,
            loader,
            shared,
            access,
            choice,
            sizes,
            beginning,
            barrier: options.epoch_barrier,
            steps_issued: 0,
            panes_planned: 0,
            panes_taken: 0,
            pane: None,
            batch_of_pane: 0,
            current: RowBatch::default(),
            meters: Meters::default(),
            left_at: None,
        })
    }

    /// Whether there is memory for steps of this many records, spread like this.
    pub fn fits_steps(
        dataset: &Dataset,
        (most, spread): (u64, Spread),
        options: &FetchOptions,
    ) -> Result<(), FetchError> {
        let demand = Demand::new(dataset, None, most, spread);
        let (access, _) = path_for(dataset, &demand, options)?;
        sizing::divide(dataset, &demand, options, access, 0).map(|_| ())
    }

    /// Takes the rows of the batch lent last; [`Fetch::recycler`] takes them back.
    pub fn take_rows(&mut self) -> RowTable {
        std::mem::take(&mut self.current.rows)
    }

    /// A recycler that takes back rows, so that their memory is reused.
    pub fn recycler(&self) -> Recycler {
        Recycler(Arc::clone(&self.shared))
    }

    /// Why record `id` is missing among the rows, if known.
    pub fn reason(&self, id: u64) -> Option<String> {
        self.shared.reason(id)
    }

    /// The access path in use.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Why that path was chosen, if the choice was left to the feed.
    pub fn access_choice(&self) -> Option<&AccessChoice> {
        self.choice.as_ref()
    }

    /// The next batch of every record the steps list; `None` after the last epoch.
    pub fn next_batch(&mut self) -> Result<Option<&mut RowBatch>, FetchError> {
        self.advance(None)
    }

    /// The next batch; `keep` (batch number since the feed began, record id) may decline records. `keep` is called
    /// when a batch is planned, at fixed points of the sequence of calls: with panes of one batch, the batch after
    /// the one returned is planned during this call, and the first two together at the start and after an epoch
    /// barrier. Declined records are not read.
    ///
    /// The batch is lent until the next call, so that at most the budget is ever held.
    pub fn next_batch_where(
        &mut self,
        keep: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Option<&mut RowBatch>, FetchError> {
        self.advance(Some(keep))
    }

    fn advance(&mut self, keep: Option<Keep<'_, '_>>) -> Result<Option<&mut RowBatch>, FetchError> {
        let asked_at = Instant::now();
        if let Some(left_at) = self.left_at.take() {
            self.meters.compute_s += (asked_at - left_at).as_secs_f64();
        }
        self.release_batch();
        let more = self.pane.is_some() || self.take_pane(keep)?;
        if !more {
            return Ok(None);
        }
        self.lend_batch();
        if self.meters.batches == 0 {
            self.meters.first_batch_s = self.shared.meters.began().elapsed().as_secs_f64();
        }
        self.meters.batches += 1;
        self.meters.records += self.current.rows.len() as u64;
        self.left_at = Some(Instant::now());
        Ok(Some(&mut self.current))
    }

    /// Counters since the feed began.
    pub fn meters(&self) -> Meters {
        let mut meters = self.meters.clone();
        self.shared.meters.fill(&mut meters);
        meters.skipped_ids = self.shared.bad_ids();
        if let Some(left_at) = self.left_at {
            meters.compute_s += left_at.elapsed().as_secs_f64();
        }
        meters
    }

    fn release_batch(&mut self) {
        let rows = std::mem::take(&mut self.current.rows);
        let done = match &self.pane {
            Some(pane) => self.batch_of_pane >= pane.batches.len(),
            None => true,
        };
        if done && let Some(pane) = self.pane.take() {
            // The last batch of a pane may be the pane's own table.
            let table = if pane.table.is_empty() {
                rows
            } else {
                drop(rows);
                pane.table
            };
            if let Some(segments) = table.into_segments() {
                self.shared.give_rows(segments);
            }
        }
    }

    fn take_pane(&mut self, keep: Option<Keep<'_, '_>>) -> Result<bool, FetchError> {
        let began = Instant::now();
        self.issue_steps(keep);
        if self.panes_taken >= self.panes_planned {
            return Ok(false);
        }
        let planned = Instant::now();
        self.meters.plan_s += (planned - began).as_secs_f64();
        let pane = self.shared.wait_for(self.panes_taken)?;
        self.meters.wait_s += planned.elapsed().as_secs_f64();
        self.panes_taken += 1;
        self.batch_of_pane = 0;
        self.pane = Some(pane);
        Ok(true)
    }

    /// Issues steps so that, while one pane is consumed, the next `ahead` are being completed.
    fn issue_steps(&mut self, mut keep: Option<Keep<'_, '_>>) {
        if let Beginning::Alone(batches) = self.beginning
            && self.panes_planned == 0
            && let Loader::Reader(reader) = &mut self.loader
            && let Some(planned) = self.planner.plan_short_pane(batches, keep.as_deref_mut())
        {
            reader.read_alone(planned);
            self.panes_planned = 1;
        }
        // It takes no step.
        let alone = match self.beginning {
            Beginning::Alone(_) => 1,
            _ => 0,
        };
        let in_memory = self.panes_taken + 1 + self.sizes.ahead - alone;
        if let Loader::Scatter(scatter) = &mut self.loader {
            scatter.permit(in_memory);
        }
        let wanted = in_memory + self.loader.lead_steps();
        while self.steps_issued < wanted {
            let planned = if self.may_plan() {
                self.planner.plan_pane(keep.as_deref_mut())
            } else {
                None
            };
            if planned.is_none() && self.barrier {
                return;
            }
            self.panes_planned += u64::from(planned.is_some());
            self.steps_issued += 1;
            match &mut self.loader {
                Loader::Reader(reader) => reader.step(planned),
                Loader::Scatter(scatter) => scatter.step(planned),
            }
        }
    }

    /// With a barrier, the first pane of an epoch waits until every pane before it was consumed.
    fn may_plan(&self) -> bool {
        let outstanding = self.panes_planned > self.panes_taken;
        !(self.barrier && outstanding && self.planner.at_epoch_start())
    }

    fn lend_batch(&mut self) {
        let pane = self.pane.as_mut().expect("a pane was taken");
        let PlannedBatch {
            place: Place { epoch, step },
            ends_epoch,
            start,
            len,
            content,
        } = pane.batches[self.batch_of_pane].clone();
        // A pane of one batch is lent whole, so that its consumer owns the segments.
        let rows = if pane.batches.len() == 1 {
            std::mem::take(&mut pane.table)
        } else {
            pane.table.slice(start..start + len)
        };
        self.batch_of_pane += 1;
        self.current = RowBatch {
            epoch,
            step,
            end: Place {
                epoch,
                step: step + 1,
            },
            ends_epoch,
            rows,
            content,
        };
    }
}

/// Takes back rows that came from a feed, to reuse their memory.
#[derive(Clone, Debug)]
pub struct Recycler(Arc<Shared>);

impl Recycler {
    /// Their memory is reused once no other table lists rows of the same segments.
    pub fn give(&self, rows: RowTable) {
        if let Some(segments) = rows.into_segments() {
            self.0.give_rows(segments);
        }
    }
}

fn merge_of(access: Access, spread: Spread, options: &FetchOptions) -> Merge {
    match access {
        // A page order reads units: runs of whole records.
        Access::Direct if spread == Spread::Neighbours => Merge::Gap(0),
        Access::Window { gap_bytes } => {
            Merge::Gap(gap_bytes.unwrap_or_else(|| options.device.break_even_gap_bytes()))
        }
        _ => Merge::Never,
    }
}

/// Share of the records that a consumer is expected to want. If it declines some, the share is known afterwards only:
/// runs that skip settled rows to a gap of 1e-3 read 0.5 (`demo:kdd`) to 1 (`demo:higgs`) of the rows an epoch.
fn wanted_share(options: &FetchOptions) -> f64 {
    match &options.share {
        Some(share) => share.wanted_share(),
        None if options.epoch_barrier => 0.75,
        None => 1.0,
    }
}

/// The access path a feed with these options takes, with the modelled costs if the choice is left to it.
///
/// Errors: a path that cannot serve the order.
pub fn choose_path(
    dataset: &Dataset,
    plan: &Plan,
    options: &FetchOptions,
) -> Result<(Access, Option<AccessChoice>), FetchError> {
    path_for(dataset, &Demand::of_plan(dataset, plan, options), options)
}

fn path_for(
    dataset: &Dataset,
    demand: &Demand<'_>,
    options: &FetchOptions,
) -> Result<(Access, Option<AccessChoice>), FetchError> {
    let scatter = match demand.plan {
        Some(plan) => scatter::case(dataset, plan, options, wanted_share(options)),
        None => Err(
            "the steps of a pipeline are not known an epoch ahead; use direct or window"
                .to_string(),
        ),
    };
    match options.access {
        Access::Auto => {}
        Access::Scatter => {
            return match scatter {
                Ok(_) => Ok((Access::Scatter, None)),
                Err(reason) => Err(FetchError::Unsupported {
                    access: options.access.to_string(),
                    reason,
                }),
            };
        }
        access => return Ok((access, None)),
    }
    if matches!(demand.spread, Spread::Neighbours | Spread::InOrder) {
        // Sequential, queue, page and opportunistic orders read runs of neighbours: they need only merging.
        return Ok((Access::Window { gap_bytes: None }, None));
    }
    // A rank that reads only its own records has a separate data set. The rank that owns most is
    // taken on all, so that all take the same path.
    let records = options.records_of(dataset.records()).max(1);
    let resident = options.memory_bytes as f64 / (sizing::pane_row_bytes(dataset) * records) as f64;
    let window = Access::Window { gap_bytes: None };
    let sweep_share = match sizing::divide(dataset, demand, options, window, 0) {
        Ok(sizes) => sizes.rows_of_sweep() as f64 / records as f64,
        Err(_) => resident / 2.0,
    };
    let choice = choose_access(&AccessCase {
        sweep_share,
        scatter: scatter.ok(),
        ..access_case(dataset, options)
    });
    Ok((choice.access, Some(choice)))
}

/// The cost of access, for sweeps that serve a whole epoch and without scatter.
fn access_case(dataset: &Dataset, options: &FetchOptions) -> AccessCase {
    let unit = dataset.files().first().map_or(1.0, DataFile::unit_bytes);
    let epochs = options
        .end_epoch
        .map_or(10, |end| end.saturating_sub(options.start.epoch));
    AccessCase {
        records: options.records_of(dataset.records()).max(1),
        record_bytes: dataset.bytes() as f64 / dataset.records().max(1) as f64,
        unit_bytes: unit,
        sweep_share: 1.0,
        wanted_share: wanted_share(options),
        scatter: None,
        epochs: epochs as f64,
        device: options.device,
    }
}

/// How a feed begins. Planning with skipped records happens at fixed positions, and scatter's buckets match
/// its panes: neither may start with smaller panes.
fn beginning(dataset: &Dataset, options: &FetchOptions, access: Access, sizes: Sizes) -> Beginning {
    if access == Access::Scatter || options.epoch_barrier {
        return Beginning::Alike;
    }
    let wanted = (FIRST_PANE_RECORDS / sizes.batch_rows).max(1);
    if sizes.sections == 1 {
        return Beginning::Small(wanted);
    }
    let case = AccessCase {
        sweep_share: sizes.rows_of_sweep() as f64 / dataset.records().max(1) as f64,
        ..access_case(dataset, options)
    };
    let most = records_before_a_sweep(&case) / sizes.batch_rows;
    match most.min(wanted).min(sizes.pane_batches) {
        0 => Beginning::Alike,
        batches => Beginning::Alone(batches),
    }
}

impl std::fmt::Debug for Fetch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetch")
            .field("access", &self.access)
            .field("sizes", &self.sizes)
            .field("panes_taken", &self.panes_taken)
            .finish_non_exhaustive()
    }
}
