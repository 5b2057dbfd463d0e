//! Notices between ranks about their state: alive; done, or failed and why; and interrupted.
//!
//! Notices use a separate communicator and are checked wherever a rank waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::raw::{RawComm, Request, forget_done, world_rank};
use crate::error::{CommError, EndedRank, FailedRank};
use crate::heartbeat::Heartbeat;

/// A message of a rank that has ended can still arrive this much later.
const STRAGGLERS: Duration = Duration::from_secs(1);

const TAG: u32 = 0;
const TAG_ASKED: u32 = 1;
const TAG_BEAT: u32 = 2;

/// Notices of all ranks.
pub(crate) struct Notices {
    comm: RawComm,
    /// Whether any notice has arrived: until then the check in every round of a wait needs no lock.
    heard: AtomicBool,
    /// Set when another rank was interrupted.
    asked: Arc<AtomicBool>,
    pub(super) heartbeat: Heartbeat,
    /// By rank: its machine, for messages, if there are several.
    pub(crate) hosts: OnceLock<Vec<String>>,
    state: Mutex<State>,
}

struct State {
    /// By rank: when its notice came.
    ended: Vec<Option<Instant>>,
    failure: Option<(usize, String)>,
    /// Notices being received.
    arriving: Vec<(usize, Request)>,
    /// Own notices and other messages that must reach the other ranks before this one ends.
    leaving: Vec<Request>,
}

impl Notices {
    /// `silence` is how long a rank may be silent before it counts as failed.
    pub(super) fn new(
        comm: RawComm,
        silence: Duration,
        asked: Arc<AtomicBool>,
    ) -> Result<Notices, CommError> {
        Ok(Notices {
            heartbeat: Heartbeat::new(comm.size()?, silence, silence),
            comm,
            heard: AtomicBool::new(false),
            asked,
            hosts: OnceLock::new(),
            state: Mutex::new(State {
                ended: vec![None; comm.size()?],
                failure: None,
                arriving: Vec::new(),
                leaving: Vec::new(),
            }),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Receives notices and advances messages.
    pub(super) fn poll(&self) -> Result<(), CommError> {
        let mut state = self.lock();
        while let Some((_, request)) = self.comm.try_receive(None, TAG_ASKED)? {
            self.asked.store(true, Ordering::Release);
            state.leaving.push(request);
        }
        while let Some(arrival) = self.comm.try_receive(None, TAG)? {
            state.arriving.push(arrival);
        }
        let mut arriving = std::mem::take(&mut state.arriving);
        for (from, mut request) in arriving.drain(..) {
            if !request.test()? {
                state.arriving.push((from, request));
                continue;
            }
            self.heard.store(true, Ordering::Release);
            let notice = request.take();
            state.ended[from] = Some(Instant::now());
            self.heartbeat.end(from);
            if let (Some((rank, reason)), None) = (notice.split_first_chunk(), &state.failure) {
                let rank = u64::from_le_bytes(*rank) as usize;
                state.failure = Some((rank, String::from_utf8_lossy(reason).into_owned()));
            }
        }
        // After the notices: so all that a rank sent before its own is taken in once that is.
        while let Some((from, request)) = self.comm.try_receive(None, TAG_BEAT)? {
            self.heartbeat.hear(from);
            state.leaving.push(request);
        }
        forget_done(&mut state.leaving)
    }

    /// Sends heartbeats to all others, unless this rank has announced its end, and checks theirs.
    pub(super) fn beat(&self) -> Result<(), CommError> {
        let own = world_rank();
        let mut state = self.lock();
        // After its notice this rank is silent, but may still wait for the others.
        if state.ended[own].is_none() {
            for rank in (0..state.ended.len()).filter(|rank| *rank != own) {
                let request = self.comm.send(rank, TAG_BEAT, Bytes::new())?;
                state.leaving.push(request);
            }
        }
        if let Some((rank, reason)) = self.heartbeat.silent(own) {
            self.heartbeat.end(rank);
            self.heard.store(true, Ordering::Release);
            state.failure.get_or_insert((rank, reason));
        }
        Ok(())
    }

    /// The failure that was heard of, as an error.
    pub(super) fn failure(&self) -> Result<(), CommError> {
        if !self.heard.load(Ordering::Acquire) {
            return Ok(());
        }
        match &self.lock().failure {
            None => Ok(()),
            Some((rank, reason)) => Err(CommError::RankFailed(FailedRank {
                rank: *rank,
                host: self.hosts.get().and_then(|hosts| hosts.get(*rank).cloned()),
                reason: reason.clone(),
            })),
        }
    }

    /// An error if nothing can come from `rank` any more.
    pub(super) fn check_alive(&self, rank: usize) -> Result<(), CommError> {
        if !self.heard.load(Ordering::Acquire) {
            return Ok(());
        }
        self.failure()?;
        let waiting = world_rank();
        match self.lock().ended[rank] {
            Some(at) if at.elapsed() > STRAGGLERS => {
                Err(CommError::RankEnded(EndedRank { rank, waiting }))
            }
            _ => Ok(()),
        }
    }

    /// Notifies all other ranks of an interruption.
    pub(crate) fn ask(&self) -> Result<(), CommError> {
        let (own, ranks) = (world_rank(), self.lock().ended.len());
        for rank in (0..ranks).filter(|rank| *rank != own) {
            let request = self.comm.send(rank, TAG_ASKED, Bytes::new())?;
            self.deliver([request]);
        }
        Ok(())
    }

    /// Keeps sent messages until they are delivered.
    pub(super) fn deliver(&self, requests: impl IntoIterator<Item = Request>) {
        self.lock().leaving.extend(requests);
    }

    /// Notifies all other ranks that this one ends, with the reason if it failed.
    pub(super) fn announce(&self, reason: Option<&str>) -> Result<(), CommError> {
        let own = world_rank();
        let (notice, ranks) = {
            // First: no heartbeat follows the notice.
            let mut state = self.lock();
            state.ended[own] = Some(Instant::now());
            // An empty notice is one of success. If this rank failed because another had, that one is named.
            let notice = reason.map_or(Bytes::new(), |reason| {
                let first = || (own, reason.to_string());
                let (rank, reason) = state.failure.get_or_insert_with(first);
                [&(*rank as u64).to_le_bytes()[..], reason.as_bytes()]
                    .concat()
                    .into()
            });
            (notice, state.ended.len())
        };
        for rank in (0..ranks).filter(|rank| *rank != own) {
            let request = self.comm.send(rank, TAG, notice.clone())?;
            self.deliver([request]);
        }
        self.heard.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether all ranks have ended and all messages are delivered.
    pub(super) fn is_over(&self) -> bool {
        let state = self.lock();
        state.leaving.is_empty() && state.ended.iter().all(Option::is_some)
    }
}
