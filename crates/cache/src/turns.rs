//! Waiting within one rank: of readers for loads, and of the loader for the consumer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pelton_comm::Comm;

use crate::CacheError;

/// Interval between two checks, by a waiting thread, for events without a wake-up: an interrupt, a failed rank.
const LOOK: Duration = Duration::from_millis(20);

/// The progress of loading and consuming.
#[derive(Debug)]
pub(crate) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
    /// After this time, a reader stops waiting for a load that in turn waits for this rank's consumer, and reads from
    /// the backend: the consumer may be waiting for this reader. Only readers that look further ahead than a load get
    /// there.
    patience: Duration,
}

#[derive(Debug, Default)]
struct State {
    /// Loads that were opened for reading so far.
    opened: u64,
    /// Epoch and position of its order before which the consumer no longer needs anything.
    wanted: (u64, u64),
    /// The time since which the loader has waited for the consumer.
    idle_since: Option<Instant>,
    /// No more loads come.
    ended: bool,
    stop: bool,
    failure: Option<Arc<CacheError>>,
}

/// A reader's next action for a non-resident range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Look again.
    Look,
    /// Read it from the backend.
    ReadBackend,
}

impl Turns {
    pub(crate) fn new(start: (u64, u64), patience: Duration) -> Turns {
        let state = State {
            wanted: start,
            ..State::default()
        };
        Turns {
            state: Mutex::new(state),
            changed: Condvar::new(),
            patience,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Loads opened so far.
    pub(crate) fn opened(&self) -> u64 {
        self.lock().opened
    }

    /// One more load can be read.
    pub(crate) fn open(&self) {
        self.change(|state| state.opened += 1);
    }

    /// The consumer no longer needs anything before `position`.
    pub(crate) fn want(&self, position: (u64, u64)) {
        self.change(|state| state.wanted = state.wanted.max(position));
    }

    /// The position before which the consumer needs nothing.
    pub(crate) fn wanted(&self) -> (u64, u64) {
        self.lock().wanted
    }

    /// Ends the loader at its next wait.
    pub(crate) fn stop(&self) {
        self.change(|state| state.stop = true);
    }

    /// No more loads come; `failure` is the reason, if any.
    pub(crate) fn end(&self, failure: Option<Arc<CacheError>>) {
        self.change(|state| {
            state.ended = true;
            state.failure = failure;
        });
    }

    pub(crate) fn failure(&self) -> Option<Arc<CacheError>> {
        self.lock().failure.clone()
    }

    /// Waits until a load was opened after the first `seen`.
    pub(crate) fn wait_for_load(
        &self,
        seen: u64,
        interrupt: &AtomicBool,
    ) -> Result<Next, Arc<CacheError>> {
        let mut state = self.lock();
        loop {
            if let Some(failure) = &state.failure {
                return Err(Arc::clone(failure));
            }
            if interrupt.load(Ordering::Relaxed) {
                return Err(Arc::new(CacheError::Interrupted));
            }
            if state.opened != seen {
                return Ok(Next::Look);
            }
            let idle = state
                .idle_since
                .map_or(Duration::ZERO, |since| since.elapsed());
            if state.ended || idle > self.patience {
                return Ok(Next::ReadBackend);
            }
            (state, _) = self
                .changed
                .wait_timeout(state, LOOK)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until the consumer needs nothing before `position`; `false` if it must stop instead.
    pub(crate) fn wait_for_consumer(
        &self,
        position: (u64, u64),
        comm: &Comm,
    ) -> Result<bool, CacheError> {
        let mut state = self.lock();
        state.idle_since = Some(Instant::now());
        while state.wanted < position && !state.stop {
            (state, _) = self
                .changed
                .wait_timeout(state, LOOK)
                .unwrap_or_else(PoisonError::into_inner);
            comm.check()?;
        }
        state.idle_since = None;
        Ok(!state.stop)
    }
}
