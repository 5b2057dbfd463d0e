//! Runs a job in this process as one of the ranks that a launcher started.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FileType;
use rustix::stdio::{stderr, stdout};

use crate::host::host_name;
use crate::run::panic_message;
use crate::{Comm, CommError, Launched, RankError, mpi, tcp};

/// Pause between two checks whether a rank was interrupted.
const LISTEN: Duration = Duration::from_millis(20);

/// The connections of this process, by either transport.
#[derive(Clone)]
enum World {
    Mpi(Arc<mpi::World>),
    Tcp(Arc<tcp::World>),
}

/// This process's place among the ranks that a launcher started. Once in a process; [`Joined::end`] leaves in order.
///
/// Under a launcher with MPI, all messages go by its library; otherwise the processes meet at the address of rank 0 and
/// connect by TCP.
pub struct Joined {
    world: World,
    asked: Arc<AtomicBool>,
    /// Whether others were notified of an interruption; locked meanwhile.
    reported: Arc<Mutex<bool>>,
    over: Arc<AtomicBool>,
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joined").finish_non_exhaustive()
    }
}

impl Joined {
    /// Joins the other ranks; all processes call it. If `asked` is set on one rank, for instance by a signal to its
    /// process, it is soon set on all. `wait` is called with what this process waits for if others come late.
    ///
    /// Errors: [`CommError::MpiUnusable`] if MPI cannot be started or lacks `MPI_THREAD_MULTIPLE`;
    /// [`CommError::Meeting`] if not all processes come, or one of another version does; [`CommError::Interrupted`].
    pub fn new(
        launched: &Launched,
        asked: &Arc<AtomicBool>,
        wait: &mut dyn FnMut(&str),
    ) -> Result<(Joined, Comm), CommError> {
        let (world, comm) = World::join(launched, asked, wait)?;
        let joined = Joined {
            world,
            asked: Arc::clone(asked),
            reported: Arc::default(),
            over: Arc::default(),
        };
        let (world, asked) = (joined.world.clone(), Arc::clone(asked));
        let (reported, over) = (Arc::clone(&joined.reported), Arc::clone(&joined.over));
        // Without one more thread an interruption reaches this rank only through its own signal.
        let _ = thread::Builder::new().spawn(move || {
            world.tend(&asked, &reported, &over);
            // Before `over`, which tells that this thread holds nothing any more.
            drop(world);
            drop(over);
        });
        Ok((joined, comm))
    }

    /// The job as another thread sees it; none under MPI.
    pub fn job(&self) -> Option<tcp::Job> {
        match &self.world {
            World::Mpi(_) => None,
            World::Tcp(world) => Some(world.job()),
        }
    }

    /// Announces that this rank ends, with the reason if it failed, and waits until all have ended: at most two seconds
    /// if one has failed.
    ///
    /// Errors: [`CommError::RankFailed`] for another rank.
    pub fn end(self, reason: Option<&str>) -> Result<(), CommError> {
        // Before the end, which others would take for a fault.
        self.world.report(&self.asked, &self.reported);
        // From now on nothing is sent but the end.
        *self.reported.lock().unwrap_or_else(PoisonError::into_inner) = true;
        let ended = match &self.world {
            World::Mpi(world) => world.end(reason),
            World::Tcp(world) => world.end(reason),
        };
        self.over.store(true, Ordering::Relaxed);
        // The other thread's hold on MPI must not outlive this one's.
        while Arc::strong_count(&self.over) > 1 {
            thread::sleep(Duration::from_millis(1));
        }
        ended
    }
}

/// Runs `job` as this process's rank of the job that a launcher started, as [`Joined::new`] joins it.
///
/// Returns when all ranks are done. If one has failed, every rank gets an error, its own or that of its waits,
/// [`CommError::RankFailed`], at most two seconds after it noticed; [`RankError::rank`] is this process's rank. The
/// caller then reports it and calls [`abort`], because a rank that only computes does not notice.
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
    let (joined, comm) = Joined::new(launched, asked, wait).map_err(failed)?;
    let result = catch_unwind(AssertUnwindSafe(|| job(comm)));
    let result = result.unwrap_or_else(|panic| {
        let message = panic_message(&*panic);
        Err(CommError::Panicked { message }.into())
    });
    let reason = result.as_ref().err().map(ToString::to_string);
    let ended = joined.end(reason.as_deref());
    match result {
        Ok(value) => ended.map(|()| value).map_err(failed),
        Err(source) => Err(RankError {
            rank: rank(),
            source,
        }),
    }
}

/// Ends all processes of a job under MPI, on all machines, with an exit code, once the launcher has read what this
/// process wrote; Open MPI prints this rank's number. Returns without MPI, where the launcher ends the other processes
/// when this one ends.
///
/// The lowest rank goes first, and the others some tenths of a second later: Intel's launcher is killed by a broken pipe if
/// two ranks end the job at once, and the exit code is lost.
pub fn abort(code: i32) {
    if mpi::runs() {
        wait_for_readers();
        thread::sleep(Duration::from_millis(200) * (mpi::world_rank() as u32).min(10));
    }
    mpi::abort(code);
}

/// Waits, for two seconds at most, until nobody has anything left to read of what this process wrote to pipes. A
/// launcher that hears of the end of a job first may drop the rest, and with it the only error message.
fn wait_for_readers() {
    let until = Instant::now() + Duration::from_secs(2);
    let unread = |output: BorrowedFd<'_>| {
        let status = rustix::fs::fstat(output);
        status.is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Fifo)
            && rustix::io::ioctl_fionread(output).is_ok_and(|bytes| bytes > 0)
    };
    let outputs = [stdout(), stderr()];
    while outputs.into_iter().any(unread) && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    // What was read is still to be passed on.
    thread::sleep(Duration::from_millis(100));
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
                let comm = mpi::comm_of(&world)?;
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
                let comm = tcp::comm_of(&world);
                Ok((World::Tcp(world), comm))
            }
        }
    }

    /// Notifies all others of an interruption, once.
    fn report(&self, asked: &AtomicBool, reported: &Mutex<bool>) {
        let mut reported = reported.lock().unwrap_or_else(PoisonError::into_inner);
        if *reported || !asked.load(Ordering::Relaxed) {
            return;
        }
        *reported = true;
        match self {
            World::Mpi(world) => drop(world.notices.ask()),
            World::Tcp(world) => world.ask_all(),
        }
    }

    /// Notifies the others when `asked` is set, until the job is over. Runs in a separate thread, since a rank that
    /// computes or reads does not communicate; under MPI it also hears the others and sends heartbeats.
    fn tend(&self, asked: &AtomicBool, reported: &Mutex<bool>, over: &AtomicBool) {
        let mut beaten = Instant::now();
        while !over.load(Ordering::Relaxed) {
            if let World::Mpi(world) = self {
                world.tend(&mut beaten);
            }
            self.report(asked, reported);
            thread::sleep(LISTEN);
        }
    }
}
