//! [`PeerCache`]: loads a data set into the ranks' memory and provides it.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use pelton_comm::{Alike, Comm, CommError, FillWindow};
use pelton_format::Dataset;
use pelton_plan::Plan;

use crate::CacheError;
use crate::agree::agree;
use crate::load::{Part, load};
use crate::loader::{Loader, LoaderThread};
use crate::loads::Loads;
use crate::meters::CacheMeters;
use crate::options::CacheOptions;
use crate::peer_file::PeerFile;
use crate::peers::{OfLoads, Peers, Slots};
use crate::placement::Placement;
use crate::resident::{Resident, Table};
use crate::runs::Runs;
use crate::space::Space;
use crate::turns::Turns;

/// How the ranks' memory is used, depending on what fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pipeline {
    /// All data is in memory: each byte is read from the backend once a run.
    InMemory,
    /// A load of the plan is read while the next one is brought into memory: each byte is read from the backend at
    /// most once an epoch.
    Opportunistic {
        /// Loads of an epoch.
        loads: u64,
    },
    /// A fixed part of the data is in memory; the rest is read from the backend on demand.
    Ordered {
        /// Bytes in the memory of all ranks.
        resident_bytes: u64,
    },
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pipeline::InMemory => f.write_str("in memory"),
            Pipeline::Opportunistic { loads } => {
                write!(f, "opportunistic, {loads} loads an epoch")
            }
            Pipeline::Ordered { resident_bytes } => {
                write!(f, "ordered, {resident_bytes} bytes resident")
            }
        }
    }
}

/// A data set in the memory of all ranks.
///
/// ```
/// use std::sync::Arc;
/// use pelton_cache::{CacheError, CacheOptions, PeerCache, Pipeline};
/// use pelton_comm::run_ranks;
/// use pelton_format::{Dataset, OpenOptions};
/// use pelton_plan::{Catalog, Order, Plan, PlanSpec};
/// use pelton_storage::conformance::read_ranges;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("data.svm");
/// std::fs::write(&path, "+1 1:2\n-1 2:3\n+1 3:5\n")?;
/// let dataset = Dataset::open(&[path], &OpenOptions::default())?;
/// let plan = Arc::new(Plan::new(&PlanSpec::new(Order::Full, 1, 7), Catalog::new(3))?);
/// run_ranks(2, |comm| {
///     let cache = PeerCache::new(&comm, &dataset, &plan, &CacheOptions::default())?;
///     assert_eq!(cache.pipeline(), Pipeline::InMemory);
///     // Whichever rank holds it.
///     let place = cache.dataset().locate(2);
///     let storage = Arc::clone(cache.dataset().files()[0].storage());
///     let bytes = read_ranges(&storage, &[(place.offset, place.length as usize)])?;
///     assert_eq!(bytes, [b"+1 3:5\n"]);
///     cache.received(0, 3);
///     cache.finish(&comm)
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`PeerCache::dataset`] is read like any other, from any thread; ranks read each other's memory without
/// the other's help. One that is dropped without [`PeerCache::finish`] gives its memory back when its
/// last reader is gone, under MPI at the end of the job.
pub struct PeerCache {
    pipeline: Pipeline,
    dataset: Arc<Dataset>,
    placement: Arc<Placement>,
    peers: Arc<Peers>,
    loading: Option<Loading>,
}

/// The loader of opportunistic orders, which runs concurrently with the readers.
struct Loading {
    turns: Arc<Turns>,
    /// Taken at the end.
    thread: Option<LoaderThread>,
}

impl Drop for Loading {
    fn drop(&mut self) {
        // Not joined: it may wait for a rank that waits for this one. It ends with its rank.
        self.turns.stop();
    }
}

impl fmt::Debug for PeerCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerCache({}, rank {})", self.pipeline, self.peers.rank)
    }
}

impl PeerCache {
    /// Loads the initial content into memory. All ranks call it with the same data and plan; their memory may differ.
    /// If one fails, all get an error.
    ///
    /// Cost: the bytes loaded, once, in reads of 1 MiB, many in flight.
    pub fn new(
        comm: &Comm,
        dataset: &Dataset,
        plan: &Arc<Plan>,
        options: &CacheOptions,
    ) -> Result<PeerCache, CacheError> {
        let space = agree(comm, prepare(dataset, plan))?;
        let memory = exchange(comm, dataset, plan, options)?;
        let space = Arc::new(space);
        let runs = Runs::new(&space, &memory);
        let cache = match (runs.hold_all(), plan.loads()) {
            (false, Some(_)) => start_loads(comm, dataset, plan, space, &memory, options)?,
            _ => load_runs(comm, dataset, space, runs, options)?,
        };
        tracing::debug!(pipeline = %cache.pipeline, "peers' memory is ready");
        Ok(cache)
    }

    /// How memory is used.
    pub fn pipeline(&self) -> Pipeline {
        self.pipeline
    }

    /// The data set, read through the ranks' memory.
    pub fn dataset(&self) -> Arc<Dataset> {
        Arc::clone(&self.dataset)
    }

    /// Which rank holds a record while `epoch` reads it; `None` if only the backend does.
    pub fn holder(&self, epoch: u64, id: u64) -> Option<u32> {
        self.placement.holder(epoch, id)
    }

    /// The function behind [`PeerCache::holder`], independent of the cache's lifetime.
    pub fn placement(&self) -> Arc<Placement> {
        Arc::clone(&self.placement)
    }

    /// Reports that this rank's consumer has received its part of all records before `position` of an epoch's order.
    /// Once every rank has reported the end of a load, the load's memory is reused. Call it after each step, in
    /// order, even if this rank has no part of the step.
    ///
    /// Readers may look ahead by one load, no more: a batch is not received before it is read whole, and the load
    /// after next is not read before this one is received. A reader that looks further waits for
    /// [`CacheOptions::patience`] and then reads from the backend ([`CacheMeters::early_bytes`]). Records of a load
    /// that has passed come from the backend at once with [`CacheOptions::stragglers`]
    /// ([`CacheMeters::passed_bytes`]); otherwise they are assumed to belong to the next epoch.
    pub fn received(&self, epoch: u64, position: u64) {
        if let Some(loading) = &self.loading {
            loading.turns.want((epoch, position));
        }
    }

    /// Bytes that this rank has read so far, by source.
    pub fn meters(&self) -> CacheMeters {
        self.peers.counters.read()
    }

    /// Frees the memory when all ranks have called it. Data sets obtained from the cache can then no longer be read.
    pub fn finish(mut self, comm: &Comm) -> Result<CacheMeters, CacheError> {
        let spare = match self.loading.take() {
            Some(loading) => end_loads(loading, comm)?,
            None => [None, None],
        };
        let residents = {
            let mut slots = self.peers.slots_mut();
            slots.finished = true;
            std::mem::take(&mut slots.residents)
        };
        for (resident, spare) in residents.into_iter().zip(spare) {
            if let Some(resident) = resident {
                resident.window.free(comm)?;
            }
            if let Some(spare) = spare {
                spare.free(comm)?;
            }
        }
        Ok(self.meters())
    }
}

fn prepare(dataset: &Dataset, plan: &Plan) -> Result<Space, CacheError> {
    let (planned, records) = (plan.records(), dataset.records());
    if plan.loads().is_some() && plan.examples() != records {
        return Err(CacheError::PartOfData);
    }
    if planned != records {
        return Err(CacheError::OtherPlan { planned, records });
    }
    dataset.check_unchanged()?;
    Ok(Space::new(dataset)?)
}

/// Checks that all ranks use the same data, and returns every rank's memory.
fn exchange(
    comm: &Comm,
    dataset: &Dataset,
    plan: &Plan,
    options: &CacheOptions,
) -> Result<Vec<u64>, CacheError> {
    let (epoch, position) = options.start;
    let end = options
        .end_epoch
        .map_or("none".to_string(), |end| end.to_string());
    comm.agree(
        &Alike::default()
            .with_digest("data with the fingerprint", dataset.fingerprint())
            .with_digest("a plan with the fingerprint", plan.fingerprint())
            .with("the next epoch", epoch)
            .with("the next position", position)
            .with("the last epoch", end)
            .with("the setting of stragglers", options.stragglers),
    )?;
    let mut memory = vec![0; comm.size()];
    comm.all_gather(&[options.memory_bytes], &mut memory)?;
    Ok(memory)
}

/// Loads every rank's run, as far as its memory suffices.
fn load_runs(
    comm: &Comm,
    dataset: &Dataset,
    space: Arc<Space>,
    runs: Runs,
    options: &CacheOptions,
) -> Result<PeerCache, CacheError> {
    let begun = Instant::now();
    let held = runs.held_by(comm.rank());
    let mut window = allocate(comm, held.end - held.start + space.slack(&held))?;
    let begin = space.begin(&held, window.local());
    let mut begins = vec![0; comm.size()];
    comm.all_gather(&[begin], &mut begins)?;
    let runs = runs.begin_at(begins);
    let to = begin as usize;
    let part = Part { range: held, to };
    let loaded = load(&space, &[part], window.local(), &options.interrupt);
    let asked = agree(comm, loaded)?;
    let window = window.share(comm)?;
    let table = Table::Runs(runs.clone());
    let slots = Slots {
        residents: [Some(Resident { window, table }), None],
        ..Slots::default()
    };
    let peers = Peers::new(comm.rank(), Arc::clone(&space), options, None, slots);
    peers.loaded(begun, asked);
    let pipeline = if runs.hold_all() {
        Pipeline::InMemory
    } else {
        Pipeline::Ordered {
            resident_bytes: runs.held_bytes(),
        }
    };
    let placement = Placement::of_runs(space, runs);
    Ok(hand_out(
        dataset,
        pipeline,
        placement,
        Arc::new(peers),
        None,
    ))
}

/// Makes the first load and starts the loader, which makes all others.
fn start_loads(
    comm: &Comm,
    dataset: &Dataset,
    plan: &Arc<Plan>,
    space: Arc<Space>,
    memory: &[u64],
    options: &CacheOptions,
) -> Result<PeerCache, CacheError> {
    let loads = Arc::new(Loads::new(Arc::clone(&space), Arc::clone(plan), memory));
    let first = loads.load_of_position(options.start);
    loads.check_epoch(first.epoch)?;
    let end_epoch = options.end_epoch.unwrap_or(u64::MAX);
    let half = loads.halves[comm.rank()];
    let spare = [Some(allocate(comm, half)?), Some(allocate(comm, half)?)];
    let turns = Arc::new(Turns::new(options.start, options.patience));
    let slots = Slots::default();
    let of_loads = OfLoads {
        turns: Arc::clone(&turns),
        stragglers: options.stragglers.then(|| Arc::clone(&loads)),
    };
    let peers = Peers::new(comm.rank(), space, options, Some(of_loads), slots);
    let peers = Arc::new(peers);
    let mut loader = Loader {
        comm: comm.duplicate()?,
        peers: Arc::clone(&peers),
        loads: Arc::clone(&loads),
        turns: Arc::clone(&turns),
        interrupt: Arc::clone(&options.interrupt),
        end_epoch,
        spare,
        next: first,
        made: 0,
        held: [None, None],
    };
    if first.epoch < loader.end_epoch {
        loader.make()?;
    }
    let thread = Some(agree(comm, loader.start())?);
    let pipeline = Pipeline::Opportunistic {
        loads: loads.count(),
    };
    let placement = Placement::of_loads(loads);
    let loading = Loading { turns, thread };
    Ok(hand_out(dataset, pipeline, placement, peers, Some(loading)))
}

/// Stops the loaders of all ranks and returns the windows without a load.
fn end_loads(mut loading: Loading, comm: &Comm) -> Result<[Option<FillWindow>; 2], CacheError> {
    let thread = loading.thread.take().expect("taken here only");
    if let Some(failure) = loading.turns.failure() {
        return Err(CacheError::Loading(failure));
    }
    // Other ranks may still need loads that wait for this rank's consumer.
    loading.turns.want((u64::MAX, u64::MAX));
    comm.barrier()?;
    loading.turns.stop();
    // All loaders see it, so none waits for another.
    let windows = thread.join().map_err(|_| CacheError::LoaderPanicked)?;
    match (windows, loading.turns.failure()) {
        (Some(windows), None) => Ok(windows),
        (_, Some(failure)) => Err(CacheError::Loading(failure)),
        (None, None) => Err(CacheError::LoaderPanicked),
    }
}

fn allocate(comm: &Comm, bytes: u64) -> Result<FillWindow, CommError> {
    comm.allocate(usize::try_from(bytes).unwrap_or(usize::MAX))
}

fn hand_out(
    dataset: &Dataset,
    pipeline: Pipeline,
    placement: Placement,
    peers: Arc<Peers>,
    loading: Option<Loading>,
) -> PeerCache {
    PeerCache {
        pipeline,
        dataset: Arc::new(through(dataset, &peers)),
        placement: Arc::new(placement),
        peers,
        loading,
    }
}

/// The data set with every file read through memory.
fn through(dataset: &Dataset, peers: &Arc<Peers>) -> Dataset {
    let next = Cell::new(0);
    dataset.clone().with_storage(|_| {
        let file = next.replace(next.get() + 1);
        Arc::new(PeerFile {
            peers: Arc::clone(peers),
            file,
        })
    })
}
