//! Any storage, with injected failures chosen by a key.
//!
//! Whether a read fails depends on the key and the read's offset alone, so a failing test fails again in any order of
//! threads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{Granularity, RangeRead, Storage, StorageError};
use pelton_key::splitmix64;

/// The injected failures; by default none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Chooses which reads the probabilities hit.
    pub key: u64,
    /// Fraction of offsets at which a read fails with EIO.
    pub error_probability: f64,
    /// Bytes on bad blocks: a read that covers one fails with EIO.
    pub bad_bytes: Vec<u64>,
    /// Fraction of offsets at which a read ends early, as if the file had been cut there.
    pub short_probability: f64,
    /// The file ends here at the latest, and its size says so.
    pub truncate_at: Option<u64>,
    /// Fraction of offsets at which a read is delayed.
    pub delay_probability: f64,
    /// How long a delayed batch waits, once.
    pub delay: Duration,
    /// After this many batches every batch fails with EIO, like a dying device.
    pub dies_after_batches: Option<u64>,
}

/// A storage with [`Faults`].
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn Storage>,
    faults: Faults,
    batches: AtomicU64,
}

/// The independent draws made for one offset.
#[derive(Clone, Copy)]
enum Draw {
    Error = 1,
    Short = 2,
    Cut = 3,
    Delay = 4,
}

impl Faulty {
    /// Injects `faults` into the reads of `inner`.
    pub fn new(inner: Arc<dyn Storage>, faults: Faults) -> Faulty {
        Faulty {
            inner,
            faults,
            batches: AtomicU64::new(0),
        }
    }

    fn draw(&self, draw: Draw, offset: u64) -> f64 {
        let word = splitmix64(splitmix64(self.faults.key ^ splitmix64(draw as u64)) ^ offset);
        (word >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    fn fails(&self, read: &RangeRead<'_>) -> bool {
        let end = read.offset.saturating_add(read.buffer.len() as u64);
        let bad = |byte: &u64| (read.offset..end).contains(byte);
        self.faults.bad_bytes.iter().any(bad)
            || self.draw(Draw::Error, read.offset) < self.faults.error_probability
    }

    fn shorten(&self, read: &mut RangeRead<'_>) {
        if let Some(end) = self.faults.truncate_at {
            let left = end.saturating_sub(read.offset);
            read.filled = read.filled.min(usize::try_from(left).unwrap_or(usize::MAX));
        }
        if self.draw(Draw::Short, read.offset) < self.faults.short_probability {
            read.filled = (read.filled as f64 * self.draw(Draw::Cut, read.offset)) as usize;
        }
    }

    fn input_output_error(&self, offset: u64) -> StorageError {
        /// EIO has this number on every Unix.
        const EIO: i32 = 5;
        StorageError::failed_at(
            self.name(),
            "read",
            offset,
            io::Error::from_raw_os_error(EIO),
        )
    }
}

impl Storage for Faulty {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn size(&self) -> Result<u64, StorageError> {
        let size = self.inner.size()?;
        Ok(size.min(self.faults.truncate_at.unwrap_or(u64::MAX)))
    }

    fn granularity(&self) -> Granularity {
        self.inner.granularity()
    }

    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        let before = self.batches.fetch_add(1, Ordering::Relaxed);
        if self.faults.dies_after_batches.is_some_and(|n| before >= n) {
            return Err(self.input_output_error(reads.first().map_or(0, |read| read.offset)));
        }
        let late = |read: &RangeRead<'_>| {
            self.draw(Draw::Delay, read.offset) < self.faults.delay_probability
        };
        if reads.iter().any(late) {
            std::thread::sleep(self.faults.delay);
        }
        if let Some(read) = reads.iter().find(|read| self.fails(read)) {
            return Err(self.input_output_error(read.offset));
        }
        self.inner.read_batch(reads)?;
        for read in reads {
            self.shorten(read);
        }
        Ok(())
    }

    fn will_need(&self, offset: u64, length: u64) -> u64 {
        self.inner.will_need(offset, length)
    }
}
