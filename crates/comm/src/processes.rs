//! Runs a job in this process as one of the ranks that a launcher started.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::run::panic_message;
use crate::{Comm, CommError, Launched, RankError, mpi, tcp};

/// Pause between two checks whether a rank was interrupted.
const LISTEN: Duration = Duration::from_millis(20);

/// The connections of this process, by either transport.
enum World {
    Mpi(Arc<mpi::World>),
    Tcp(Arc<tcp::World>),
}

/// Runs `job` as this process's rank of the job that a launcher started. Once in a process, before it has
/// other threads, and all processes call it. Under a launcher with MPI, all messages go by its library; otherwise the
/// processes meet at the address of rank 0 and connect by TCP.
///
/// If `asked` is set on one rank, for instance by a signal to its process, it is soon set on all. `wait` is called with
/// what this process waits for if others come late.
///
/// Returns when all ranks are done. If one has failed, every rank gets an error, its own or that of its waits,
/// [`CommError::RankFailed`], at most two seconds after it noticed; [`RankError::rank`] is this process's rank. The
/// caller then reports it and calls [`abort`], because a rank that only computes does not notice.
///
/// Errors: also [`CommError::MpiUnusable`] if MPI cannot be started or lacks `MPI_THREAD_MULTIPLE`;
/// [`CommError::Meeting`] if not all processes come, or one of another version does.
pub fn run_launched<T, E, F>(
    launched: &Launched,
    asked: &Arc<AtomicBool>,
    wait: &mut dyn FnMut(&str),
    job: F,
) -> Result<T, RankError<E>>
where
    E: fmt::Display + From<CommError>,
    F: FnOnce(Comm) -> Result<T, E>,
{
    let rank = || match launched {
        Launched::Mpi { .. } => mpi::world_rank(),
        Launched::Tcp(meeting) => meeting.rank,
    };
    let failed = |source: CommError| RankError {
        rank: rank(),
        source: source.into(),
    };
    let (world, comm) = World::join(launched, asked, wait).map_err(failed)?;
    let over = AtomicBool::new(false);
    let (result, ended) = thread::scope(|scope| {
        // Without one more thread an interruption reaches this rank only through its own signal.
        let _ = thread::Builder::new().spawn_scoped(scope, || world.tend(asked, &over));
        let result = catch_unwind(AssertUnwindSafe(|| job(comm)));
        let result = result.unwrap_or_else(|panic| {
            let message = panic_message(&*panic);
            Err(CommError::Panicked { message }.into())
        });
        let reason = result.as_ref().err().map(ToString::to_string);
        // Before the end, which others would take for a fault.
        if asked.load(Ordering::Relaxed) {
            world.ask();
        }
        let ended = match &world {
            World::Mpi(world) => world.end(reason.as_deref()),
            World::Tcp(world) => world.end(reason.as_deref()),
        };
        over.store(true, Ordering::Relaxed);
        (result, ended)
    });
    match result {
        Ok(value) => ended.map(|()| value).map_err(failed),
        Err(source) => Err(RankError {
            rank: rank(),
            source,
        }),
    }
}

/// Ends all processes of a job under MPI, on all machines, with an exit code; Open MPI prints this rank's
/// number. Returns without MPI, where the launcher ends the other processes when this one ends.
pub fn abort(code: i32) {
    mpi::abort(code);
}

/// The name of this machine.
pub(crate) fn host_name() -> String {
    let system = rustix::system::uname();
    system.nodename().to_string_lossy().into_owned()
}

impl World {
    fn join(
        launched: &Launched,
        asked: &Arc<AtomicBool>,
        wait: &mut dyn FnMut(&str),
    ) -> Result<(World, Comm), CommError> {
        match launched {
            Launched::Mpi { .. } => {
                let world = mpi::World::start(asked)?;
                let comm = world.comm()?;
                let hosts = comm.all_gather_ragged(host_name().as_bytes())?;
                if hosts.iter().any(|host| *host != hosts[0]) {
                    let hosts = hosts
                        .iter()
                        .map(|host| String::from_utf8_lossy(host).into_owned());
                    let _ = world.notices.hosts.set(hosts.collect());
                }
                Ok((World::Mpi(world), comm))
            }
            Launched::Tcp(meeting) => {
                let world = meeting.connect(asked, wait)?;
                let comm = world.comm();
                Ok((World::Tcp(world), comm))
            }
        }
    }

    /// Notifies all others of an interruption.
    fn ask(&self) {
        match self {
            World::Mpi(world) => drop(world.notices.ask()),
            World::Tcp(world) => world.ask_all(),
        }
    }

    /// Notifies the others when `asked` is set, until the job is over. Runs in a separate thread, since a rank that
    /// computes or reads does not communicate; under MPI it also hears the others and sends heartbeats.
    fn tend(&self, asked: &AtomicBool, over: &AtomicBool) {
        let (mut reported, mut beaten) = (false, Instant::now());
        while !over.load(Ordering::Relaxed) {
            if let World::Mpi(world) = self {
                world.tend(&mut beaten);
            }
            if !reported && asked.load(Ordering::Relaxed) {
                reported = true;
                self.ask();
            }
            thread::sleep(LISTEN);
        }
    }
}
