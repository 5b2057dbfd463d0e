//! The cost of reading through peers' memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes that one rank has read so far, by source.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CacheMeters {
    /// Bytes of reads served from this rank's own memory.
    pub local_bytes: u64,
    /// Bytes of reads served from other ranks' memory.
    pub remote_bytes: u64,
    /// Bytes that this rank read from the backend, to load and to serve reads, alignment included.
    pub backend_bytes: u64,
    /// The part of `backend_bytes` that served reads of data that was not yet in memory and for which memory would
    /// not have become free, because the reader looked too far ahead.
    pub early_bytes: u64,
    /// The part of `backend_bytes` that served reads of loads that had passed.
    pub passed_bytes: u64,
    /// Bytes of a new load that were already in this rank's memory.
    pub kept_bytes: u64,
    /// Seconds spent loading, including waits for other ranks' loading.
    pub load_s: f64,
    /// Seconds that reads waited for a load, summed over readers.
    pub wait_s: f64,
}

/// The counters behind [`CacheMeters`], updated by many threads.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) local_bytes: AtomicU64,
    pub(crate) remote_bytes: AtomicU64,
    pub(crate) backend_bytes: AtomicU64,
    pub(crate) early_bytes: AtomicU64,
    pub(crate) passed_bytes: AtomicU64,
    pub(crate) kept_bytes: AtomicU64,
    load_ns: AtomicU64,
    wait_ns: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, count: u64) {
    if count > 0 {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

impl Counters {
    pub(crate) fn loading(&self, begun: Instant) {
        add(&self.load_ns, nanoseconds(begun.elapsed()));
    }

    pub(crate) fn waiting(&self, begun: Instant) {
        add(&self.wait_ns, nanoseconds(begun.elapsed()));
    }

    pub(crate) fn read(&self) -> CacheMeters {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheMeters {
            local_bytes: of(&self.local_bytes),
            remote_bytes: of(&self.remote_bytes),
            backend_bytes: of(&self.backend_bytes),
            early_bytes: of(&self.early_bytes),
            passed_bytes: of(&self.passed_bytes),
            kept_bytes: of(&self.kept_bytes),
            load_s: of(&self.load_ns) as f64 * 1e-9,
            wait_s: of(&self.wait_ns) as f64 * 1e-9,
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
