//! A source that takes the time of R steps for a batch, and the clock of a training. The clock stops during
//! evaluations, and the source stops with it, so that nothing is prefetched meanwhile.
//!
//! The modelled devices of `pelton_storage` keep real time and cannot stop.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pelton_storage::{Granularity, RangeRead, Storage, StorageError};

/// Real time without pauses.
#[derive(Debug)]
pub(super) struct Clock {
    state: Mutex<Running>,
    went_on: Condvar,
}

#[derive(Debug)]
struct Running {
    before: Duration,
    since: Option<Instant>,
}

impl Running {
    fn now(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Clock {
    /// A running clock.
    pub fn start() -> Arc<Clock> {
        Arc::new(Clock {
            state: Mutex::new(Running {
                before: Duration::ZERO,
                since: Some(Instant::now()),
            }),
            went_on: Condvar::new(),
        })
    }

    /// Time since the start, without pauses.
    pub fn now(&self) -> Duration {
        self.state().now()
    }

    /// Runs `work` with the clock stopped.
    pub fn paused<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut state = self.state();
        (state.before, state.since) = (state.now(), None);
        drop(state);
        let done = work();
        self.state().since = Some(Instant::now());
        self.went_on.notify_all();
        done
    }

    fn wait_until(&self, due: Duration) {
        let mut state = self.state();
        loop {
            let left = due.saturating_sub(state.now());
            if left.is_zero() {
                return;
            }
            // While it is stopped, restarting the clock wakes this thread.
            let most = if state.since.is_some() {
                left
            } else {
                Duration::MAX
            };
            let woken = self.went_on.wait_timeout(state, most);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn state(&self) -> MutexGuard<'_, Running> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A storage that takes the same time for each range and serves one range at a time.
#[derive(Debug)]
pub(super) struct Slow {
    pub inner: Arc<dyn Storage>,
    pub clock: Arc<Clock>,
    pub range: Duration,
    /// The time at which all its requests are done.
    pub free_at: Mutex<Duration>,
}

impl Storage for Slow {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn size(&self) -> Result<u64, StorageError> {
        self.inner.size()
    }

    fn granularity(&self) -> Granularity {
        self.inner.granularity()
    }

    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        let begun = self.clock.now();
        self.inner.read_batch(reads)?;
        let due = {
            let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            *free_at = begun.max(*free_at) + self.range * reads.len() as u32;
            *free_at
        };
        self.clock.wait_until(due);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_storage::MemoryStorage;

    #[test]
    fn the_source_stands_while_the_clock_does() {
        let clock = Clock::start();
        let slow = Slow {
            inner: Arc::new(MemoryStorage::new([7; 100])),
            clock: Arc::clone(&clock),
            range: Duration::from_millis(20),
            free_at: Mutex::default(),
        };
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut first, mut second) = ([0; 10], [0; 10]);
                let read = |buffer| RangeRead {
                    offset: 0,
                    buffer,
                    filled: 0,
                };
                slow.read_batch(&mut [read(&mut first), read(&mut second)])
                    .unwrap();
                (first, clock.now())
            });
            let real = Instant::now();
            clock.paused(|| std::thread::sleep(Duration::from_millis(80)));
            let (bytes, now) = reader.join().unwrap();
            assert_eq!(bytes, [7; 10]);
            assert!(now >= Duration::from_millis(40), "two ranges: {now:?}");
            assert!(real.elapsed() >= Duration::from_millis(100));
        });
    }
}
