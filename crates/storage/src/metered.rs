//! A decorator of any storage that counts its reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::{Granularity, RangeRead, Storage, StorageError};

/// The reads of a [`Metered`] storage so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadMeter {
    /// Bytes delivered by the backend, read-out alignment included. For direct reads these are the
    /// bytes that came from the device.
    pub bytes: u64,
    /// Ranges read.
    pub reads: u64,
    /// Calls of `read_batch`, failed ones included.
    pub batches: u64,
    /// Seconds spent inside `read_batch`, summed over callers; two callers at once count twice.
    pub seconds: f64,
}

impl ReadMeter {
    /// The reads between `earlier` and now.
    pub fn since(self, earlier: ReadMeter) -> ReadMeter {
        ReadMeter {
            bytes: self.bytes - earlier.bytes,
            reads: self.reads - earlier.reads,
            batches: self.batches - earlier.batches,
            seconds: self.seconds - earlier.seconds,
        }
    }
}

/// Any storage, counted.
#[derive(Debug)]
pub struct Metered {
    inner: Arc<dyn Storage>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    bytes: AtomicU64,
    reads: AtomicU64,
    batches: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Metered {
    /// Counts the reads of `inner` that go through the value returned.
    pub fn new(inner: Arc<dyn Storage>) -> Metered {
        Metered {
            inner,
            counts: Arc::default(),
        }
    }

    /// The counts so far. While others read, the four counts may be from slightly different moments.
    pub fn meter(&self) -> ReadMeter {
        let counts = &self.counts;
        ReadMeter {
            bytes: counts.bytes.load(Ordering::Relaxed),
            reads: counts.reads.load(Ordering::Relaxed),
            batches: counts.batches.load(Ordering::Relaxed),
            seconds: counts.nanoseconds.load(Ordering::Relaxed) as f64 * 1e-9,
        }
    }
}

impl Storage for Metered {
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
        let counts = &self.counts;
        let begun = Instant::now();
        let outcome = self.inner.read_batch(reads);
        let spent = begun.elapsed().as_nanos() as u64;
        counts.nanoseconds.fetch_add(spent, Ordering::Relaxed);
        counts.batches.fetch_add(1, Ordering::Relaxed);
        if outcome.is_ok() {
            let bytes: usize = reads.iter().map(|read| read.filled).sum();
            counts.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            counts
                .reads
                .fetch_add(reads.len() as u64, Ordering::Relaxed);
        }
        outcome
    }
    fn will_need(&self, offset: u64, length: u64) -> u64 {
        self.inner.will_need(offset, length)
    }

    fn reads_page_cache(&self) -> bool {
        self.inner.reads_page_cache()
    }

    /// Counted together with this one.
    fn buffered(&self) -> Option<Arc<dyn Storage>> {
        let inner = self.inner.buffered()?;
        let counts = Arc::clone(&self.counts);
        Some(Arc::new(Metered { inner, counts }))
    }
}
