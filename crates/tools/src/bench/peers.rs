//! A feed's data in the memory of all ranks.

use std::sync::Arc;

use pelton_cache::{CacheOptions, PeerCache};
use pelton_comm::Comm;
use pelton_data::{DataError, OpenedData, plan_of};
use pelton_fetch::{Access, FetchOptions, RowBatch};
use pelton_format::Dataset;
use pelton_plan::{Batching, Order, Plan};
use pelton_run::Interrupt;

use super::config::BenchConfig;
use super::config::DEFAULT_BATCH;
use super::config::Mode;
use super::config::PeerConfig;
use super::report::BenchReport;

/// Stands for no rank among the holders of records.
const NOBODY: u32 = u32::MAX;

/// Peers' memory under the feeds of a measurement.
pub(super) struct Peers {
    pub plan: Arc<Plan>,
    cache: PeerCache,
    ranks: u64,
    near: bool,
    mode: Mode,
}

impl Peers {
    /// Makes the plan and brings into memory what is to be there at the start.
    pub fn load(
        config: &BenchConfig,
        peers: &PeerConfig,
        opened: &OpenedData,
        comm: &Comm,
        interrupt: &Interrupt,
    ) -> Result<Peers, DataError> {
        let dataset = &opened.dataset;
        let ranks = comm.size() as u64;
        let memory_bytes = match peers.memory_share {
            Some(share) => (dataset.bytes() as f64 * share) as u64,
            None => peers.memory_bytes,
        };
        let order = match peers.mode {
            Mode::Opportunistic { loads } if memory_bytes < dataset.bytes() => match loads {
                Some(loads) => Order::Opportunistic {
                    loads,
                    unit_bytes: peers.unit_bytes,
                },
                None => in_loads(config, peers, dataset, memory_bytes, comm.size())?,
            },
            _ => config.order,
        };
        let batch = config.batch.unwrap_or_else(|| match order {
            Order::Opportunistic { loads, .. } if loads > 1 => {
                largest_batch(dataset.records(), loads).min(DEFAULT_BATCH)
            }
            _ => DEFAULT_BATCH,
        });
        let plan = plan_of(dataset, order, Batching::Examples(batch), config.seed)?;
        let plan = Arc::new(plan);
        check_batches(&plan)?;
        let options = CacheOptions {
            memory_bytes: memory_bytes.div_ceil(ranks),
            end_epoch: Some(config.epochs),
            interrupt: Arc::clone(interrupt),
            ..CacheOptions::default()
        };
        let cache = PeerCache::new(comm, dataset, &plan, &options)?;
        Ok(Peers {
            plan,
            cache,
            ranks,
            near: peers.near,
            mode: peers.mode,
        })
    }

    /// The data, read through the ranks' memory.
    pub fn dataset(&self) -> Arc<Dataset> {
        self.cache.dataset()
    }

    /// Options of a feed over that data: every record by its own read, looking ahead by a sixteenth of a load.
    /// Batches at the end of a load that wait for a pane with records of the next one keep the load in memory,
    /// and the loader idle, until that pane has been read; reads of memory need no longer look. With half a
    /// load, 4 ranks on 2 cores take 15 % longer.
    pub fn feed_options(&self, mut options: FetchOptions) -> FetchOptions {
        if options.access == Access::Auto {
            options.access = Access::Direct;
        }
        if let Some(loads) = self.plan.loads().filter(|loads| *loads > 1) {
            options.look_ahead = Some(self.plan.records() / loads / self.ranks / 16);
        }
        if self.near {
            let placement = self.cache.placement();
            let holder = move |epoch, id| placement.holder(epoch, id).unwrap_or(NOBODY);
            options.share = options.share.map(|share| share.near(Arc::new(holder)));
        }
        options
    }

    /// The consumer has taken `batch`.
    pub fn received(&self, batch: &RowBatch) {
        self.cache.received(batch.epoch, batch.step);
    }

    /// Gives the memory back and adds this rank's figures. All ranks call it.
    pub fn finish(self, comm: &Comm, report: &mut BenchReport) -> Result<(), DataError> {
        report.mode = Some(self.mode.to_string());
        report.pipeline = Some(self.cache.pipeline().to_string());
        let meters = self.cache.finish(comm)?;
        report.local_bytes = meters.local_bytes;
        report.remote_bytes = meters.remote_bytes;
        report.backend_bytes = meters.backend_bytes;
        report.load_s = meters.load_s;
        Ok(())
    }
}

/// The opportunistic order of the fewest loads that the memory of all ranks holds by twos.
fn in_loads(
    config: &BenchConfig,
    peers: &PeerConfig,
    dataset: &Dataset,
    memory_bytes: u64,
    ranks: usize,
) -> Result<Order, DataError> {
    let unit_bytes = peers.unit_bytes;
    let order = |loads| Order::Opportunistic { loads, unit_bytes };
    // Of one load, which any batch fits.
    let batching = Batching::Examples(DEFAULT_BATCH);
    let one_load = plan_of(dataset, order(1), batching, config.seed)?;
    let units = one_load.units().expect("the order has units");
    let loads = pelton_cache::loads_for(dataset, units, memory_bytes, ranks);
    loads.map(order).ok_or_else(|| {
        DataError::Config(format!(
            "{memory_bytes} bytes in the memory of all ranks do not hold two units of {unit_bytes} bytes a rank; raise `peer_memory` or take a smaller `unit_bytes`"
        ))
    })
}

/// Refuses batches of which three do not lie in one load: the one consumed and two ahead would reach into
/// loads that do not fit beside each other.
fn check_batches(plan: &Plan) -> Result<(), DataError> {
    let Some(loads) = plan.loads().filter(|loads| *loads > 1) else {
        return Ok(());
    };
    let (load, batch) = (plan.records() / loads, plan.step_len(0, 0).unwrap_or(0));
    if 3 * batch <= load {
        return Ok(());
    }
    Err(DataError::Config(format!(
        "batches of {batch} examples are too large for loads of about {load}; give `batch` {} or less, take fewer loads, or raise `peer_memory`",
        largest_batch(plan.records(), loads)
    )))
}

fn largest_batch(records: u64, loads: u64) -> u64 {
    (records / loads / 3).max(1)
}
