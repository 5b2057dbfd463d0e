//! [`PeerCache`]: loads a data set into the ranks' memory and hands it out.

use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use pelton_comm::Comm;
use pelton_format::Dataset;
use pelton_plan::Plan;

use crate::CacheError;
use crate::checksums::seal;
use crate::load::{Part, load};
use crate::meters::CacheMeters;
use crate::peer_file::PeerFile;
use crate::peers::{Peers, Slots};
use crate::placement::Placement;
use crate::resident::{Resident, SUM_BYTES, Sums, Table};
use crate::runs::Runs;
use crate::space::Space;

/// How a cache is made.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Memory of this rank for data, and for checksums where enabled. Where all data fits exactly, a rank
    /// may take less than one unit of the backend (a page) more, so that no byte is read by two.
    pub memory_bytes: u64,
    /// Whether records carry a checksum that reads compare.
    pub checksums: bool,
    /// Epoch and step at which reading begins.
    pub start: (u64, u64),
    /// The epoch before which reading ends; `None` where that is not known. Loads of later epochs are not
    /// begun.
    pub end_epoch: Option<u64>,
    /// Ends loading and waiting with [`CacheError::Interrupted`].
    pub interrupt: Arc<AtomicBool>,
}

impl Default for CacheOptions {
    fn default() -> CacheOptions {
        CacheOptions {
            memory_bytes: 1 << 30,
            checksums: false,
            start: (0, 0),
            end_epoch: None,
            interrupt: Arc::default(),
        }
    }
}

/// How the ranks' memory is used; chosen by what fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pipeline {
    /// All data lies in memory: each byte leaves the backend once a run.
    InMemory,
    /// One half of the memory is read while the other is filled with the next load of the plan: each byte
    /// leaves the backend at most once an epoch.
    Opportunistic {
        /// Loads of an epoch.
        loads: u64,
    },
    /// A fixed part of the data lies in memory; the rest is read from the backend as it is asked for.
    Ordered {
        /// Bytes in the memory of all ranks.
        resident_bytes: u64,
    },
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pipeline::InMemory => f.write_str("in memory"),
            Pipeline::Opportunistic { loads } => write!(f, "opportunistic, {loads} loads an epoch"),
            Pipeline::Ordered { resident_bytes } => {
                write!(f, "ordered, {resident_bytes} bytes resident")
            }
        }
    }
}

/// A data set in the memory of all ranks.
///
/// [`PeerCache::dataset`] is read like any other, from any thread; ranks read each other's memory without
/// the other's help. One that is dropped without [`PeerCache::finish`] gives its memory back when its
/// last reader is gone, under MPI at the end of the job.
pub struct PeerCache {
    pipeline: Pipeline,
    dataset: Arc<Dataset>,
    placement: Arc<Placement>,
    peers: Arc<Peers>,
}

impl fmt::Debug for PeerCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerCache({}, rank {})", self.pipeline, self.peers.rank)
    }
}

impl PeerCache {
    /// Brings into memory what is to be there at the start. All ranks call it with the same data and plan;
    /// their memory may differ. Where one fails, all get an error.
    ///
    /// Cost: the bytes loaded, once, in reads of 1 MiB, many under way.
    pub fn new(
        comm: &Comm,
        dataset: &Dataset,
        plan: &Arc<Plan>,
        options: &CacheOptions,
    ) -> Result<PeerCache, CacheError> {
        let space = agree(comm, prepare(dataset, plan))?;
        let memory = exchange(comm, dataset, plan, options)?;
        let (peers, runs) = load_runs(comm, space, &memory, options)?;
        let pipeline = match runs.hold_all() {
            true => Pipeline::InMemory,
            false => Pipeline::Ordered {
                resident_bytes: runs.held_bytes(),
            },
        };
        tracing::debug!(%pipeline, "peers' memory is loaded");
        let placement = Placement::of_runs(Arc::clone(&peers.space), runs);
        Ok(PeerCache {
            pipeline,
            dataset: Arc::new(through(dataset, &peers)),
            placement: Arc::new(placement),
            peers,
        })
    }

    /// How memory is used.
    pub fn pipeline(&self) -> Pipeline {
        self.pipeline
    }

    /// The data set, read through the ranks' memory.
    pub fn dataset(&self) -> Arc<Dataset> {
        Arc::clone(&self.dataset)
    }

    /// Which rank holds a record while `epoch` reads it; `None` where only the backend does.
    pub fn holder(&self, epoch: u64, id: u64) -> Option<u32> {
        self.placement.holder(epoch, id)
    }

    /// What [`PeerCache::holder`] asks, to be kept by others.
    pub fn placement(&self) -> Arc<Placement> {
        Arc::clone(&self.placement)
    }

    /// This rank's consumer has received all its batches of all steps up to this one. Loads are replaced
    /// by what comes next once every rank has said so of the last step that uses them.
    pub fn received(&self, epoch: u64, step: u64) {
        let _ = (epoch, step);
    }

    /// What this rank has read so far.
    pub fn meters(&self) -> CacheMeters {
        self.peers.counters.read()
    }

    /// Gives the memory back when all ranks have come here; all call it. Data sets handed out can then not
    /// be read any more.
    pub fn finish(self, comm: &Comm) -> Result<CacheMeters, CacheError> {
        let residents = {
            let mut slots = self.peers.slots_mut();
            slots.finished = true;
            std::mem::take(&mut slots.residents)
        };
        for resident in residents.into_iter().flatten() {
            resident.window.free(comm)?;
        }
        Ok(self.meters())
    }
}

fn prepare(dataset: &Dataset, plan: &Plan) -> Result<Space, CacheError> {
    let (planned, records) = (plan.records(), dataset.records());
    if planned != records {
        return Err(CacheError::OtherPlan { planned, records });
    }
    dataset.check_unchanged()?;
    Ok(Space::new(dataset)?)
}

/// Every rank's memory, once it is known that all mean the same data.
fn exchange(
    comm: &Comm,
    dataset: &Dataset,
    plan: &Plan,
    options: &CacheOptions,
) -> Result<Vec<u64>, CacheError> {
    let (epoch, step) = options.start;
    let own = [
        options.memory_bytes,
        dataset.fingerprint(),
        plan.fingerprint(),
        u64::from(options.checksums),
        epoch,
        step,
        options.end_epoch.unwrap_or(u64::MAX),
    ];
    let mut all = vec![0; own.len() * comm.size()];
    comm.all_gather(&own, &mut all)?;
    let ranks: Vec<&[u64]> = all.chunks_exact(own.len()).collect();
    if let Some(rank) = ranks.iter().position(|told| told[1..] != ranks[0][1..]) {
        return Err(CacheError::RanksDiffer { rank });
    }
    Ok(ranks.iter().map(|told| told[0]).collect())
}

/// Passes a result on where all ranks have one; otherwise every rank gets an error.
pub(crate) fn agree<T>(comm: &Comm, result: Result<T, CacheError>) -> Result<T, CacheError> {
    let mut reason = match &result {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    if result.is_err() && reason.is_empty() {
        reason.push_str("no reason");
    }
    let reasons = comm.all_gather_ragged(reason.as_bytes())?;
    let failed = reasons
        .into_iter()
        .enumerate()
        .find(|(_, reason)| !reason.is_empty());
    match (result, failed) {
        (Ok(_), Some((rank, reason))) => Err(CacheError::PeerFailed {
            rank,
            reason: String::from_utf8_lossy(&reason).into_owned(),
        }),
        (result, _) => result,
    }
}

/// Loads every rank's run, as far as its memory goes.
fn load_runs(
    comm: &Comm,
    space: Space,
    memory: &[u64],
    options: &CacheOptions,
) -> Result<(Arc<Peers>, Runs), CacheError> {
    let begun = Instant::now();
    let space = Arc::new(space);
    let sum_bytes = if options.checksums { SUM_BYTES } else { 0 };
    let runs = Runs::new(&space, memory, sum_bytes);
    let mut sums = Vec::new();
    let mut window_bytes = 0;
    for rank in 0..comm.size() {
        let held = runs.held_by(rank);
        let data = length(&held);
        let mut end = data;
        if options.checksums {
            let (own, behind) = Sums::of(&space, held, data.next_multiple_of(SUM_BYTES));
            sums.push(own);
            end = behind;
        }
        if rank == comm.rank() {
            window_bytes = end;
        }
    }
    let mut window = comm.allocate(usize::try_from(window_bytes).unwrap_or(usize::MAX))?;
    let own = runs.held_by(comm.rank());
    let part = Part {
        range: own.clone(),
        to: 0,
    };
    let loaded = load(&space, &[part], window.local(), &options.interrupt);
    if options.checksums && loaded.is_ok() {
        seal(&space, &sums[comm.rank()], 0, window.local());
    }
    let asked = agree(comm, loaded)?;
    let window = window.share(comm)?;
    let table = Table::Runs {
        runs: runs.clone(),
        sums,
    };
    let slots = Slots {
        residents: [Some(Resident { window, table }), None],
        finished: false,
    };
    let peers = Peers::new(comm.rank(), space, options.checksums, slots);
    peers.loaded(begun, asked);
    Ok((Arc::new(peers), runs))
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

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}
