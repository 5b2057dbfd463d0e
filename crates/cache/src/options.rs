//! Options of a cache.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Options of a cache.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Memory of this rank for data. If all data fits exactly, a rank may exceed it by less than one unit of the
    /// backend (a page), so that no byte is read by two. In addition there are 16 MiB while data is loaded from a
    /// backend with alignment, and 8 MiB for each thread that reads missing data from it.
    pub memory_bytes: u64,
    /// Epoch and position at which reading begins.
    pub start: (u64, u64),
    /// Whether records are read after the consumer has passed them, for instance from a bucket or for an echo. They
    /// come from the backend at once.
    pub stragglers: bool,
    /// The epoch before which reading ends; `None` if unknown. Loads of later epochs are not started.
    pub end_epoch: Option<u64>,
    /// How long a reader waits for a load that in turn waits for this rank's consumer, before it reads from the
    /// backend; see [`PeerCache::received`](crate::PeerCache::received).
    pub patience: Duration,
    /// Ends loading and waiting with [`CacheError::Interrupted`](crate::CacheError::Interrupted).
    pub interrupt: Arc<AtomicBool>,
}

impl Default for CacheOptions {
    fn default() -> CacheOptions {
        CacheOptions {
            memory_bytes: 1 << 30,
            start: (0, 0),
            stragglers: false,
            end_epoch: None,
            patience: Duration::from_secs(10),
            interrupt: Arc::default(),
        }
    }
}
