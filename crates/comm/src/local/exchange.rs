//! State shared by the ranks of a process: queues of messages, and who has failed or ended.
//!
//! One lock for all queues. Ranks are few and messages are handed over by reference, so it is held
//! for the time of a table lookup. Each rank sleeps on its own condition variable, and only its events wake
//! it. The interleavings are explored by the model in `exchange_model.rs`.
//!
//! A waiting rank polls for a while before it sleeps, if there is a processor for each: on an idle machine
//! waking a thread takes longer than most waits of ranks in step.

use std::collections::{HashMap, VecDeque};

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(loom)]
use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::error::{CommError, EndedRank, FailedRank};

/// The route of a message: communicator, sender, receiver, tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Route {
    pub(crate) context: u64,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) tag: u32,
}

/// Queues between the ranks 0..ranks.
pub(crate) struct Exchange<M> {
    state: Mutex<State<M>>,
    /// By rank: something changed for it.
    changed: Vec<Condvar>,
    /// By rank: messages and events so far; changed under the lock only.
    arrivals: Vec<AtomicU64>,
    /// How often a rank looks before it sleeps.
    looks: u32,
    /// Whether a rank has failed: checked by every read of a window, without the lock.
    failed: AtomicBool,
    /// By rank: its machine, for messages; empty if there is one only.
    hosts: Vec<String>,
}

/// Looks of a rank before it sleeps: some 100 µs of them, if no other rank needs the processor.
#[cfg(not(loom))]
fn looks(ranks: usize) -> u32 {
    const LOOKS: u32 = 2000;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if ranks <= processors { LOOKS } else { 0 }
}

#[cfg(loom)]
fn looks(_: usize) -> u32 {
    0
}

struct State<M> {
    queues: HashMap<Route, VecDeque<M>>,
    /// By rank: it has returned.
    ended: Vec<bool>,
    /// The first rank that failed, and its reason.
    failure: Option<(usize, String)>,
    /// Numbers of communicators by parent, split and group.
    contexts: HashMap<(u64, u64, usize), u64>,
}

impl<M> Exchange<M> {
    pub(crate) fn new(ranks: usize) -> Exchange<M> {
        Exchange {
            state: Mutex::new(State {
                queues: HashMap::new(),
                ended: vec![false; ranks],
                failure: None,
                contexts: HashMap::new(),
            }),
            changed: (0..ranks).map(|_| Condvar::new()).collect(),
            arrivals: (0..ranks).map(|_| AtomicU64::new(0)).collect(),
            looks: looks(ranks),
            failed: AtomicBool::new(false),
            hosts: Vec::new(),
        }
    }

    /// With names of the ranks' machines.
    #[cfg(not(loom))]
    pub(crate) fn on(mut self, hosts: Vec<String>) -> Exchange<M> {
        self.hosts = hosts;
        self
    }

    fn lock(&self) -> MutexGuard<'_, State<M>> {
        // No code that can panic runs under the lock, so the state is consistent even if it is poisoned.
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn send(&self, route: Route, message: M) {
        let mut state = self.lock();
        state.queues.entry(route).or_default().push_back(message);
        self.arrivals[route.to].fetch_add(1, Ordering::Release);
        drop(state);
        self.changed[route.to].notify_all();
    }

    /// The next message of `route`; an error if there is none and none can come.
    pub(crate) fn try_receive(&self, route: Route) -> Result<Option<M>, CommError> {
        let mut state = self.lock();
        if let Some(queue) = state.queues.get_mut(&route) {
            let message = queue.pop_front();
            if queue.is_empty() {
                state.queues.remove(&route);
            }
            return Ok(message);
        }
        state.failure(&self.hosts)?;
        if state.ended[route.from] {
            return Err(CommError::RankEnded(EndedRank {
                rank: route.from,
                waiting: route.to,
            }));
        }
        Ok(None)
    }

    /// Messages and events of `rank` so far.
    pub(crate) fn arrivals(&self, rank: usize) -> u64 {
        self.arrivals[rank].load(Ordering::Acquire)
    }

    /// Sleeps until [`Exchange::arrivals`] of `rank` is not `seen`.
    pub(crate) fn wait(&self, rank: usize, seen: u64) {
        for _ in 0..self.looks {
            if self.arrivals(rank) != seen {
                return;
            }
            std::hint::spin_loop();
        }
        let mut state = self.lock();
        while self.arrivals(rank) == seen {
            state = match self.changed[rank].wait(state) {
                Ok(state) => state,
                Err(poisoned) => poisoned.into_inner(),
            };
        }
    }

    /// Ends the waits of all ranks with an error that names `rank`. The first failure counts.
    pub(crate) fn fail(&self, rank: usize, reason: String) {
        self.tell_all(|state| {
            state.failure.get_or_insert((rank, reason));
            self.failed.store(true, Ordering::Release);
        });
    }

    /// Marks that `rank` sends no more messages.
    pub(crate) fn end(&self, rank: usize) {
        self.tell_all(|state| state.ended[rank] = true);
    }

    /// Whether all ranks but `own` have ended or failed.
    #[cfg(not(loom))]
    pub(crate) fn all_ended(&self, own: usize) -> bool {
        let state = self.lock();
        let ended = (0..).zip(&state.ended);
        ended.into_iter().all(|(rank, ended)| *ended || rank == own)
    }

    fn tell_all(&self, event: impl FnOnce(&mut State<M>)) {
        let mut state = self.lock();
        event(&mut state);
        for arrivals in &self.arrivals {
            arrivals.fetch_add(1, Ordering::Release);
        }
        drop(state);
        for changed in &self.changed {
            changed.notify_all();
        }
    }

    /// The first failure as an error.
    pub(crate) fn failure(&self) -> Result<(), CommError> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.lock().failure(&self.hosts)
    }

    /// The rank that failed first.
    pub(crate) fn failed_rank(&self) -> Option<usize> {
        self.lock().failure.as_ref().map(|(rank, _)| *rank)
    }

    /// The number of a new communicator, the same for all who ask with the same arguments.
    pub(crate) fn context(&self, parent: u64, split: u64, group: usize) -> u64 {
        let mut state = self.lock();
        // The communicator of all ranks is 0.
        let next = state.contexts.len() as u64 + 1;
        *state.contexts.entry((parent, split, group)).or_insert(next)
    }
}

impl<M> State<M> {
    fn failure(&self, hosts: &[String]) -> Result<(), CommError> {
        match &self.failure {
            None => Ok(()),
            Some((rank, reason)) => Err(CommError::RankFailed(FailedRank {
                rank: *rank,
                host: hosts.get(*rank).cloned(),
                reason: reason.clone(),
            })),
        }
    }
}
