//! Settings of a feed.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use pelton_plan::Place;

use crate::share::Share;

/// How the records of a pane are brought into memory. The sequence of examples is the same on
/// every path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Access {
    /// The cheapest of the others by the cost model of [`crate::choose_access`].
    #[default]
    Auto,
    /// Every record by its own read (LIRS as published, section 4.1).
    Direct,
    /// Records sorted by location and read in sweeps; neighbours at most `gap_bytes` apart are read as one range.
    /// `None`: the gap at which one more read costs as much as reading on.
    Window {
        /// Largest hole that is read over instead of starting another read.
        gap_bytes: Option<u64>,
    },
    /// Records appended to buckets by their position in the next epoch while this one is read.
    Scatter,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Access::Auto => f.write_str("auto"),
            Access::Direct => f.write_str("direct"),
            Access::Window { gap_bytes: None } => f.write_str("window"),
            Access::Window {
                gap_bytes: Some(gap),
            } => write!(f, "window:{gap}"),
            Access::Scatter => f.write_str("scatter"),
        }
    }
}

impl FromStr for Access {
    type Err = String;

    fn from_str(text: &str) -> Result<Access, String> {
        match text {
            "auto" => Ok(Access::Auto),
            "direct" => Ok(Access::Direct),
            "window" => Ok(Access::Window { gap_bytes: None }),
            "scatter" => Ok(Access::Scatter),
            _ => text
                .strip_prefix("window:")
                .and_then(|gap| gap.parse().ok())
                .map(|gap| Access::Window {
                    gap_bytes: Some(gap),
                })
                .ok_or_else(|| {
                    format!(
                        "`{text}` is not an access path: use auto, direct, window, window:GAP_BYTES or scatter"
                    )
                }),
        }
    }
}

/// What to do when a record cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnBadRecord {
    /// The feed ends with the record's error.
    #[default]
    Fail,
    /// The record is left out and counted; more than `limit` of them end the feed.
    Skip {
        /// Most records left out over the feed's life; `None` for no limit.
        limit: Option<u64>,
    },
}

impl fmt::Display for OnBadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OnBadRecord::Fail => f.write_str("fail"),
            OnBadRecord::Skip { limit: None } => f.write_str("skip"),
            OnBadRecord::Skip { limit: Some(limit) } => write!(f, "skip:{limit}"),
        }
    }
}

impl FromStr for OnBadRecord {
    type Err = String;

    fn from_str(text: &str) -> Result<OnBadRecord, String> {
        match text {
            "fail" => Ok(OnBadRecord::Fail),
            "skip" => Ok(OnBadRecord::Skip { limit: None }),
            _ => text
                .strip_prefix("skip:")
                .and_then(|limit| limit.parse().ok())
                .map(|limit| OnBadRecord::Skip { limit: Some(limit) })
                .ok_or_else(|| format!("`{text}` is not a policy: use fail, skip or skip:LIMIT")),
        }
    }
}

/// Measured speed of the device that holds the data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceSpeed {
    /// Random 4 KiB reads a second at a deep queue.
    pub random_reads_per_s: f64,
    /// Sequential read bandwidth in bytes a second.
    pub read_bytes_per_s: f64,
    /// Sequential write bandwidth in bytes a second.
    pub write_bytes_per_s: f64,
}

impl Default for DeviceSpeed {
    /// An ordinary NVMe drive: 100 000 reads, 1.5 GB read and 0.7 GB written a second.
    fn default() -> DeviceSpeed {
        DeviceSpeed {
            random_reads_per_s: 1e5,
            read_bytes_per_s: 1.5e9,
            write_bytes_per_s: 0.7e9,
        }
    }
}

impl DeviceSpeed {
    /// Data in the page cache: a read costs a system call, bandwidth is that of memory.
    pub const PAGE_CACHE: DeviceSpeed = DeviceSpeed {
        random_reads_per_s: 2e6,
        read_bytes_per_s: 6e9,
        write_bytes_per_s: 1e9,
    };

    /// The hole, in bytes, at which reading on costs as much as another read.
    pub fn break_even_gap_bytes(&self) -> u64 {
        (self.read_bytes_per_s / self.random_reads_per_s) as u64
    }
}

/// A device; its speed is measured on first use, which takes a fifth of a second, and readers of data in memory never
/// need it.
#[derive(Clone, Debug)]
pub struct Device(Arc<LazyLock<DeviceSpeed, Measurement>>);

type Measurement = Box<dyn FnOnce() -> DeviceSpeed + Send>;

impl Device {
    /// A device with the speed that `measure` returns.
    pub fn measured_by(measure: impl FnOnce() -> DeviceSpeed + Send + 'static) -> Device {
        Device(Arc::new(LazyLock::new(Box::new(measure))))
    }

    /// Its speed, the same at every call.
    pub fn speed(&self) -> DeviceSpeed {
        **self.0
    }
}

impl From<DeviceSpeed> for Device {
    fn from(speed: DeviceSpeed) -> Device {
        Device::measured_by(move || speed)
    }
}

/// How a [`crate::Fetch`] runs.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// Whether batches come with a checksum of their rows.
    pub sums: bool,
    /// Bytes the feed may hold: look-ahead, read buffers, decoded and ready batches together.
    pub memory_bytes: u64,
    /// The access path.
    pub access: Access,
    /// Threads that read and decode; each keeps its own reads in flight.
    pub threads: usize,
    /// What to do with records that cannot be decoded.
    pub on_bad_record: OnBadRecord,
    /// Epoch and step of the first batch.
    pub start: Place,
    /// First epoch that is not produced; `None` never ends.
    pub end_epoch: Option<u64>,
    /// The part of each global batch that is yielded; `None` for all of it.
    pub share: Option<Share>,
    /// Most records of this feed requested ahead of the one being consumed, at least two batches; `None` for as
    /// many as the budget holds. For storages that hold only the next records.
    pub look_ahead: Option<u64>,
    /// Minimum records of maximum length that each thread can request together, within an eighth of the
    /// budget; for few large records a second, which would otherwise leave the device idle.
    pub records_in_flight: u64,
    /// Whether to plan no batch of an epoch before every batch of the previous one was consumed, for callers
    /// that choose the records of an epoch by the epoch before.
    pub epoch_barrier: bool,
    /// Whether a batch with declined records is filled up from the following ones.
    pub refill: bool,
    /// Folder for the buckets of [`Access::Scatter`].
    pub scratch_dir: Option<PathBuf>,
    /// Setting it ends the feed early, with [`crate::FetchError::Interrupted`].
    pub interrupt: Arc<AtomicBool>,
    /// How long the feed still waits for a batch after that.
    pub grace: Duration,
    /// Measured speed of the device, for [`Access::Auto`] and the default gap of
    /// [`Access::Window`].
    pub device: DeviceSpeed,
}

impl FetchOptions {
    /// Options with the given budget and every other choice at its default.
    pub fn with_memory(memory_bytes: u64) -> FetchOptions {
        FetchOptions {
            sums: false,
            memory_bytes,
            access: Access::Auto,
            threads: 3,
            on_bad_record: OnBadRecord::Fail,
            start: Place::default(),
            end_epoch: None,
            share: None,
            look_ahead: None,
            records_in_flight: 1,
            epoch_barrier: false,
            refill: false,
            scratch_dir: None,
            interrupt: Arc::default(),
            grace: Duration::ZERO,
            device: DeviceSpeed::default(),
        }
    }

    /// Most records of `records` that a feed with these options ever reads: those of the rank that owns
    /// most, if ranks read only their own. The same number on all ranks.
    pub(crate) fn records_of(&self, records: u64) -> u64 {
        let share = self.share.as_ref();
        let owned = share.and_then(|share| share.most_owned(records));
        owned.unwrap_or(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_and_policy_round_trip_through_text() {
        for text in ["auto", "direct", "window", "window:4096", "scatter"] {
            assert_eq!(text.parse::<Access>().unwrap().to_string(), text);
        }
        for text in ["fail", "skip", "skip:10"] {
            assert_eq!(text.parse::<OnBadRecord>().unwrap().to_string(), text);
        }
        assert!(
            "windows"
                .parse::<Access>()
                .unwrap_err()
                .contains("window:GAP_BYTES")
        );
        assert!(
            "skip:x"
                .parse::<OnBadRecord>()
                .unwrap_err()
                .contains("skip:LIMIT")
        );
    }
}
