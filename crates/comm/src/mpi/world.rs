//! State of a job under MPI.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::notices::Notices;
use super::raw::{RawComm, RawWindow, Session};
use crate::CommError;
use crate::heartbeat;

/// How long a failed rank waits for the others to hear of it.
const GRACE: Duration = Duration::from_secs(2);
/// Pause between two checks whether the other ranks have ended.
const LOOK: Duration = Duration::from_micros(200);
/// Reads of windows between checks for notices: a check costs as much as a read of 4 KiB.
const READS: u32 = 64;

/// Rounds of a wait that spin, then yield; after that each sleeps. Ranks usually come within
/// microseconds; if they do not, the processor is better left to those who compute.
const SPINS: u32 = 200;
const YIELDS: u32 = 5000;
const SLEEP: Duration = Duration::from_micros(50);
/// Rounds of a wait between checks for notices.
const NOTICE_ROUNDS: u32 = 32;

/// State that lives as long as the job, or as the job's result if that refers to it.
pub(crate) struct World {
    pub(crate) notices: Notices,
    reads: AtomicU32,
    kept: Mutex<Kept>,
    /// MPI, which ends with the world.
    session: Option<Session>,
}

/// Freed at the end, because that takes all ranks together.
#[derive(Default)]
struct Kept {
    comms: Vec<RawComm>,
    /// With the number of windows made before it: the order in which all ranks give them back.
    windows: Vec<(u64, RawWindow)>,
    windows_made: u64,
}

impl World {
    pub(crate) fn start(asked: &Arc<AtomicBool>) -> Result<Arc<World>, CommError> {
        // Before MPI runs, which has no orderly end after this error.
        let silence = heartbeat::limit()?;
        let session = Session::start()?;
        let comm = session.world().duplicate()?;
        let world = World {
            notices: Notices::new(comm, silence, Arc::clone(asked))?,
            reads: AtomicU32::new(0),
            kept: Mutex::default(),
            session: Some(session),
        };
        world.keep_comm(comm);
        Ok(Arc::new(world))
    }

    /// One more communicator of all ranks, as MPI has it.
    pub(super) fn duplicate(&self) -> Result<RawComm, CommError> {
        let session = self.session.as_ref();
        let session = session.expect("MPI runs as long as the world");
        let comm = session.world().duplicate()?;
        self.keep_comm(comm);
        Ok(comm)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn keep_comm(&self, comm: RawComm) {
        self.kept().comms.push(comm);
    }

    pub(super) fn number_window(&self) -> u64 {
        let mut kept = self.kept();
        kept.windows_made += 1;
        kept.windows_made
    }

    pub(super) fn keep_window(&self, number: u64, window: RawWindow) {
        self.kept().windows.push((number, window));
    }

    /// The failure of a rank, if one was heard of; listens at every 64th call.
    pub(super) fn check_now_and_then(&self) -> Result<(), CommError> {
        if self
            .reads
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(READS)
        {
            self.notices.poll()?;
        }
        self.notices.failure()
    }

    /// One more round of a wait for another rank.
    ///
    /// Errors: a rank that failed.
    pub(super) fn pause(&self, rounds: &mut u32) -> Result<(), CommError> {
        *rounds = rounds.saturating_add(1);
        if rounds.is_multiple_of(NOTICE_ROUNDS) {
            self.notices.poll()?;
            self.notices.failure()?;
        }
        match *rounds {
            ..SPINS => std::hint::spin_loop(),
            SPINS..YIELDS => thread::yield_now(),
            YIELDS.. => thread::sleep(SLEEP),
        }
        Ok(())
    }

    /// Hears of the others, and sends heartbeats when it is time.
    pub(crate) fn tend(&self, beaten: &mut Instant) {
        // The job gets the error as well.
        let _ = self.notices.poll();
        if beaten.elapsed() >= self.notices.heartbeat.every() {
            *beaten = Instant::now();
            let _ = self.notices.beat();
        }
    }

    /// Announces to the others how this rank ended, and waits until all have ended: without limit if none has failed,
    /// since they may still compute.
    pub(crate) fn end(&self, reason: Option<&str>) -> Result<(), CommError> {
        self.notices.announce(reason)?;
        let mut failed_at = None;
        loop {
            self.notices.poll()?;
            if self.notices.is_over() {
                return self.notices.failure();
            }
            if let Err(failure) = self.notices.failure() {
                let since = failed_at.get_or_insert_with(Instant::now);
                if since.elapsed() > GRACE {
                    return Err(failure);
                }
            }
            thread::sleep(LOOK);
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let session = self.session.take();
        if !self.notices.is_over() || self.notices.failure().is_err() {
            // MPI would wait for a rank that does not come. The launcher ends the remaining processes.
            std::mem::forget(session);
            return;
        }
        let mut kept = std::mem::take(&mut *self.kept());
        kept.windows.sort_by_key(|(number, _)| *number);
        // Errors are ignored: MPI itself ends next.
        for (_, window) in kept.windows {
            let _ = window.free();
        }
        for comm in kept.comms {
            let _ = comm.free();
        }
    }
}
