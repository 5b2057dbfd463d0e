//! Caches the data of a fetch or a loader in the memory of all ranks.

use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use pelton_cache::{CacheMeters, CacheOptions, PeerCache};
use pelton_comm::Comm;
use pelton_feed::{LoaderOptions, Near};
use pelton_fetch::{Access, FetchOptions, Holder, RowBatch};
use pelton_format::Dataset;
use pelton_plan::{Batching, EpochOrder, Order, Plan};
use pelton_run::Interrupt;
use serde::{Deserialize, Serialize};

use crate::as_text;
use crate::error::DataError;
use crate::plan::plan_of;

/// Default number of examples in a batch.
const DEFAULT_BATCH: u64 = 4096;
/// Marks records that no rank holds.
const NOBODY: u32 = u32::MAX;

/// Peers' memory between the backend and the feeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerConfig {
    /// Memory of all ranks together, in bytes.
    pub memory_bytes: u64,
    /// The same as a share of the data; overrides the bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_share: Option<f64>,
    /// What to do if the data does not fit in that.
    #[serde(with = "as_text")]
    pub mode: PeerMode,
    /// Bytes that the opportunistic mode reads at once.
    pub unit_bytes: u64,
    /// Whether slots of a batch go to the ranks that hold their records; if absent, they do, unless a job calls
    /// [`deal_anywhere`](crate::PreparedPipeline::deal_anywhere).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<bool>,
}

/// Order of records if memory does not hold all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerMode {
    /// Exactly the configured order; records not in memory are read from the backend one by one.
    Ordered,
    /// An order within the records in memory, load by load.
    Opportunistic {
        /// Loads per epoch; if absent, as few as fit. More loads leave memory for a part of the data that is read once,
        /// and shuffle less.
        loads: Option<u64>,
    },
}

impl PeerMode {
    /// Its name, without the number of loads.
    pub fn name(self) -> &'static str {
        match self {
            PeerMode::Ordered => "ordered",
            PeerMode::Opportunistic { .. } => "opportunistic",
        }
    }
}

impl fmt::Display for PeerMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerMode::Opportunistic { loads: Some(loads) } => write!(f, "{}:{loads}", self.name()),
            _ => f.write_str(self.name()),
        }
    }
}

impl FromStr for PeerMode {
    type Err = String;

    /// `ordered`, `opportunistic` or `opportunistic:LOADS`.
    fn from_str(text: &str) -> Result<PeerMode, String> {
        match text.split_once(':') {
            None if text == "ordered" => Ok(PeerMode::Ordered),
            None if text == "opportunistic" => Ok(PeerMode::Opportunistic { loads: None }),
            Some(("opportunistic", loads)) => match loads.parse() {
                Ok(loads) if loads > 0 => Ok(PeerMode::Opportunistic { loads: Some(loads) }),
                _ => Err(format!("{loads} is not a number of loads; give 1 or more")),
            },
            _ => Err("give ordered, opportunistic or opportunistic:LOADS".to_string()),
        }
    }
}

/// How peers' memory is filled for a fetch or a loader.
#[derive(Clone, Debug)]
pub struct Filling {
    /// The plan to follow.
    pub plan: Arc<Plan>,
    /// The start: an epoch and a position in its order.
    pub start: (u64, u64),
    /// First epoch that is not read; `None` never ends.
    pub end_epoch: Option<u64>,
    /// Whether examples may wait in buckets, so that some are read after later ones.
    pub stragglers: bool,
}

/// A rank's reads through peers' memory.
#[derive(Clone, Debug)]
pub struct PeerFigures {
    /// The order of records.
    pub mode: PeerMode,
    /// The chosen pipeline.
    pub pipeline: String,
    /// Bytes and seconds.
    pub meters: CacheMeters,
}

/// Peers' memory under a fetch or a loader.
pub struct Peers {
    plan: Arc<Plan>,
    cache: PeerCache,
    ranks: u64,
    near: bool,
    mode: PeerMode,
    /// The order of the current epoch.
    epoch_order: RefCell<Option<EpochOrder>>,
}

impl Peers {
    /// The order of the data for this many ranks, and the examples of a batch if not given.
    pub fn order(
        peers: &PeerConfig,
        order: Order,
        seed: u64,
        dataset: &Dataset,
        ranks: usize,
    ) -> Result<(Order, u64), DataError> {
        let memory_bytes = memory_bytes(peers, dataset);
        let order = match peers.mode {
            PeerMode::Opportunistic { loads } if memory_bytes < dataset.bytes() => match loads {
                Some(loads) => Order::Opportunistic {
                    loads,
                    unit_bytes: peers.unit_bytes,
                },
                None => in_loads(peers, seed, dataset, memory_bytes, ranks)?,
            },
            _ => order,
        };
        let batch = match order {
            Order::Opportunistic { loads, .. } if loads > 1 => {
                largest_batch(dataset.records(), loads).min(DEFAULT_BATCH)
            }
            _ => DEFAULT_BATCH,
        };
        Ok((order, batch))
    }

    /// Loads the initial contents into memory. All ranks call it.
    pub fn load(
        peers: &PeerConfig,
        dataset: &Arc<Dataset>,
        filling: Filling,
        comm: &Comm,
        interrupt: &Interrupt,
    ) -> Result<Peers, DataError> {
        let ranks = comm.size() as u64;
        let plan = filling.plan;
        check_batches(&plan)?;
        let options = CacheOptions {
            memory_bytes: memory_bytes(peers, dataset).div_ceil(ranks),
            start: filling.start,
            stragglers: filling.stragglers,
            end_epoch: filling.end_epoch,
            interrupt: Arc::clone(interrupt),
            ..CacheOptions::default()
        };
        let cache = PeerCache::new(comm, dataset, &plan, &options)?;
        Ok(Peers {
            plan,
            cache,
            ranks,
            near: peers.near.unwrap_or(true),
            mode: peers.mode,
            epoch_order: RefCell::default(),
        })
    }

    /// The data, read through the ranks' memory.
    pub fn dataset(&self) -> Arc<Dataset> {
        self.cache.dataset()
    }

    /// Access and look-ahead for that data: every record by its own read, a sixteenth of a load ahead. Batches at the
    /// end of a load that wait for a pane with records of the next one keep the load in memory, and the loader idle,
    /// until that pane has been read; reads from memory need no longer look-ahead. With half a load, 4 ranks on 2 cores
    /// take 15 % longer.
    fn reading(&self, access: Access) -> (Access, Option<u64>) {
        let access = match access {
            Access::Auto => Access::Direct,
            access => access,
        };
        let loads = self.plan.loads().filter(|loads| *loads > 1);
        let look_ahead = loads.map(|loads| self.plan.records() / loads / self.ranks / 16);
        (access, look_ahead)
    }

    /// The holder of each record, if slots go to the ranks that hold their records.
    fn holder(&self) -> Option<Holder> {
        let placement = self.near.then(|| self.cache.placement())?;
        Some(Arc::new(move |epoch, id| {
            placement.holder(epoch, id).unwrap_or(NOBODY)
        }))
    }

    /// Options of a fetch over that data.
    pub fn fetch_options(&self, options: FetchOptions) -> FetchOptions {
        let (access, look_ahead) = self.reading(options.access);
        FetchOptions {
            access,
            look_ahead: look_ahead.or(options.look_ahead),
            share: match (options.share, self.holder()) {
                (Some(share), Some(holder)) => Some(share.near(holder)),
                (share, _) => share,
            },
            ..options
        }
    }

    /// Options of a loader over that data.
    pub fn loader_options(&self, options: LoaderOptions) -> LoaderOptions {
        let (access, look_ahead) = self.reading(options.access);
        LoaderOptions {
            access,
            look_ahead: look_ahead.or(options.look_ahead),
            near: self.holder().map(Near),
            ..options
        }
    }

    /// Notes that the consumer has taken a batch, for steps that are runs of the order.
    pub fn received_step(&self, batch: &RowBatch) {
        if self.plan.loads().is_none() {
            // Nothing waits for this batch.
            return;
        }
        let mut order = self.epoch_order.borrow_mut();
        if order
            .as_ref()
            .is_none_or(|order| order.epoch() != batch.epoch)
        {
            *order = self.plan.epoch_order(batch.epoch);
        }
        let positions = order
            .as_ref()
            .and_then(|order| order.step_positions(batch.step));
        if let Some(positions) = positions {
            self.cache.received(batch.epoch, positions.end);
        }
    }

    /// Notes that all examples drawn before a position in an epoch's order are consumed or wait in a bucket.
    pub fn received(&self, epoch: u64, drawn: u64) {
        self.cache.received(epoch, drawn);
    }

    /// Frees the memory. All ranks call it.
    pub fn finish(self, comm: &Comm) -> Result<PeerFigures, DataError> {
        Ok(PeerFigures {
            mode: self.mode,
            pipeline: self.cache.pipeline().to_string(),
            meters: self.cache.finish(comm)?,
        })
    }
}

/// Memory of all ranks together.
fn memory_bytes(peers: &PeerConfig, dataset: &Dataset) -> u64 {
    match peers.memory_share {
        Some(share) => (dataset.bytes() as f64 * share) as u64,
        None => peers.memory_bytes,
    }
}

/// The opportunistic order with the fewest loads such that the memory of all ranks holds two.
fn in_loads(
    peers: &PeerConfig,
    seed: u64,
    dataset: &Dataset,
    memory_bytes: u64,
    ranks: usize,
) -> Result<Order, DataError> {
    let unit_bytes = peers.unit_bytes;
    let order = |loads| Order::Opportunistic { loads, unit_bytes };
    // With one load, which any batch fits.
    let batching = Batching::Examples(DEFAULT_BATCH);
    let one_load = plan_of(dataset, order(1), batching, seed)?;
    let units = one_load.units().expect("the order has units");
    let loads = pelton_cache::loads_for(dataset, units, memory_bytes, ranks);
    loads.map(order).ok_or_else(|| {
        DataError::Config(format!(
            "{memory_bytes} bytes of peers' memory do not hold two units of {unit_bytes} bytes for each rank; raise `peer_memory` or lower `unit_bytes`"
        ))
    })
}

/// Refuses batches if three do not fit in one load: the one consumed and two ahead would reach into
/// loads that do not fit next to each other.
fn check_batches(plan: &Plan) -> Result<(), DataError> {
    let Some(loads) = plan.loads().filter(|loads| *loads > 1) else {
        return Ok(());
    };
    let (load, batch) = (plan.records() / loads, plan.largest_batch());
    if 3 * batch <= load {
        return Ok(());
    }
    Err(DataError::Config(format!(
        "batches of {batch} examples are too large for loads of about {load}; give `batch` {} or less, use fewer loads, or raise `peer_memory`",
        largest_batch(plan.records(), loads)
    )))
}

fn largest_batch(records: u64, loads: u64) -> u64 {
    (records / loads / 3).max(1)
}
