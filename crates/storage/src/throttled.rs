//! Any storage, at the pace of a modelled device.
//!
//! One [`ModelledDevice`] may carry several files, as a disk does; their reads share its time and its head. In
//! virtual time nothing waits and [`ModelledDevice::virtual_seconds`] is the total; it is deterministic if the order
//! of calls is. In real time each batch occupies the device for its modelled time after the batches before it, and
//! each caller sleeps until its own batch is done.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::device_model::{Head, pages};
use crate::{DeviceModel, DeviceUse, Granularity, RangeRead, Storage, StorageError};

/// Whether callers wait for modelled time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThrottleMode {
    /// Callers sleep as long as the device would take.
    RealTime,
    /// Time is only counted.
    Virtual,
}

/// A device with modelled time, shared by the storages on it.
#[derive(Debug)]
pub struct ModelledDevice {
    model: DeviceModel,
    mode: ThrottleMode,
    files: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    used: DeviceUse,
    head: Option<Head>,
    free_at: Instant,
}

impl ModelledDevice {
    /// An idle device.
    pub fn new(model: DeviceModel, mode: ThrottleMode) -> Arc<ModelledDevice> {
        Arc::new(ModelledDevice {
            model,
            mode,
            files: AtomicU64::new(0),
            state: Mutex::new(State {
                used: DeviceUse::default(),
                head: None,
                free_at: Instant::now(),
            }),
        })
    }

    /// The rates in force.
    pub fn model(&self) -> &DeviceModel {
        &self.model
    }

    /// The use of the device so far.
    pub fn used(&self) -> DeviceUse {
        self.state().used
    }

    /// Modelled seconds the device has been busy so far, in either mode.
    pub fn virtual_seconds(&self) -> f64 {
        self.model.seconds(&self.used())
    }

    /// Resets the use and the position of the head.
    pub fn reset(&self) {
        let mut state = self.state();
        state.used = DeviceUse::default();
        state.head = None;
    }

    /// Charges a write of `length` bytes that does not go through a [`Throttled`] storage, such as to a scratch file,
    /// and waits for it in real time. It counts as sequential if `sequential`, and moves the head away.
    pub fn write(&self, length: u64, sequential: bool) {
        let count = length.div_ceil(crate::PAGE_BYTES);
        self.charge(Instant::now(), |state| {
            let used = &mut state.used;
            if sequential {
                used.sequential_write_pages += count;
            } else {
                used.random_write_pages += count;
            }
            used.batches += 1;
            state.head = None;
        });
    }

    fn read(&self, begun: Instant, file: u64, reads: &[RangeRead<'_>]) {
        self.charge(begun, |state| {
            for read in reads {
                let length = read.filled as u64;
                let (random, sequential) = pages(state.head, file, read.offset, length);
                state.used.random_read_pages += random;
                state.used.sequential_read_pages += sequential;
                if length > 0 {
                    let end = read.offset.saturating_add(length);
                    state.head = Some(Head { file, end });
                }
            }
            state.used.batches += u64::from(!reads.is_empty());
        });
    }

    /// Adds a use and, in real time, waits for it. The device starts at `begun`, like the real transfer, so that real
    /// and modelled time do not add up.
    fn charge(&self, begun: Instant, ask: impl FnOnce(&mut State)) {
        let wake = {
            let mut state = self.state();
            let before = state.used;
            ask(&mut state);
            if self.mode == ThrottleMode::Virtual {
                return;
            }
            let asked = state.used.since(before);
            // The latency of one batch overlaps with the device's work for others.
            let busy = self.model.seconds(&DeviceUse {
                batches: 0,
                ..asked
            });
            let latency = asked.batches as f64 * self.model.latency_s;
            state.free_at = state.free_at.max(begun) + duration(busy);
            state.free_at + duration(latency)
        };
        std::thread::sleep(wake.saturating_duration_since(Instant::now()));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Seconds as a duration; invalid values of an invalid model are zero.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// A storage on a [`ModelledDevice`].
#[derive(Debug)]
pub struct Throttled {
    inner: Arc<dyn Storage>,
    device: Arc<ModelledDevice>,
    file: u64,
}

impl Throttled {
    /// Puts `inner` on a device of its own.
    pub fn new(inner: Arc<dyn Storage>, model: DeviceModel, mode: ThrottleMode) -> Throttled {
        Throttled::on(&ModelledDevice::new(model, mode), inner)
    }

    /// Puts `inner` on `device` as another file there.
    pub fn on(device: &Arc<ModelledDevice>, inner: Arc<dyn Storage>) -> Throttled {
        Throttled {
            inner,
            device: Arc::clone(device),
            file: device.files.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Its device.
    pub fn device(&self) -> &Arc<ModelledDevice> {
        &self.device
    }

    /// Modelled seconds the device has been busy so far.
    pub fn virtual_seconds(&self) -> f64 {
        self.device.virtual_seconds()
    }
}

impl Storage for Throttled {
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
        let begun = Instant::now();
        self.inner.read_batch(reads)?;
        self.device.read(begun, self.file, reads);
        Ok(())
    }

    fn will_need(&self, offset: u64, length: u64) -> u64 {
        self.inner.will_need(offset, length)
    }
}
