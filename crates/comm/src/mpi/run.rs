//! Runs a job in this process as one of the ranks that `mpirun` started.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::link::Link;
use super::raw;
use super::world::World;
use crate::run::panic_message;
use crate::{Comm, CommError, RankError};

/// A communicator of all ranks.
fn comm_of(world: &Arc<World>) -> Result<Comm, CommError> {
    let comm = world.duplicate()?;
    let members = (0..comm.size()?).collect();
    let link = Link::new(Arc::clone(world), comm, members)?;
    Ok(Comm::new(Box::new(link)))
}

/// Runs `job` as this process's rank of the job that `mpirun` started. Once in a process, before it has
/// other threads, and all processes call it.
///
/// Returns when all ranks are done. If one has failed, every rank gets an error, its own or that of its waits,
/// [`CommError::RankFailed`], at most two seconds after it noticed; [`RankError::rank`] is this process's rank. The
/// caller then reports it and calls [`abort`], because a rank that only computes does not notice.
///
/// Errors: also [`CommError::MpiUnusable`] if MPI cannot be started or lacks `MPI_THREAD_MULTIPLE`.
pub fn run<T, E, F>(job: F) -> Result<T, RankError<E>>
where
    E: fmt::Display + From<CommError>,
    F: FnOnce(Comm) -> Result<T, E>,
{
    run_asked(&AtomicBool::new(false), job)
}

/// The same, with a shared flag: if it is set on one rank, for instance by a signal to its process, it is soon set on
/// all.
pub fn run_asked<T, E, F>(asked: &AtomicBool, job: F) -> Result<T, RankError<E>>
where
    E: fmt::Display + From<CommError>,
    F: FnOnce(Comm) -> Result<T, E>,
{
    let failed = |source: CommError| RankError {
        rank: raw::world_rank(),
        source: source.into(),
    };
    let world = World::start().map_err(failed)?;
    let comm = comm_of(&world).map_err(failed)?;
    let over = AtomicBool::new(false);
    let (result, ended) = thread::scope(|scope| {
        // Without one more thread an interruption reaches this rank only through its own signal.
        let _ = thread::Builder::new().spawn_scoped(scope, || world.spread(asked, &over));
        let result = catch_unwind(AssertUnwindSafe(|| job(comm)));
        let result = result.unwrap_or_else(|panic| {
            let message = panic_message(&*panic);
            Err(CommError::Panicked { message }.into())
        });
        let reason = result.as_ref().err().map(ToString::to_string);
        let ended = world.end(reason.as_deref());
        over.store(true, Ordering::Relaxed);
        (result, ended)
    });
    match result {
        Ok(value) => ended.map(|()| value).map_err(failed),
        Err(source) => Err(RankError {
            rank: raw::world_rank(),
            source,
        }),
    }
}

/// Ends all processes of the job, on all machines, with an exit code; Open MPI prints this rank's
/// number. Returns only if MPI does not run.
pub fn abort(code: i32) {
    raw::abort(code);
}
