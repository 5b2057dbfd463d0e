//! Total time on modelled devices: T = T_prepare + Σ (T_load + T_compute − T_overlap) (LIRS eq. 1).
//!
//! The devices of LIRS Table 2 price the 4 KiB pages that a method touches. Computing is measured.
//!
//! | reads | before training | an epoch |
//! |---|---|---|
//! | blocks | one sequential pass; rows written to their blocks | sequential |
//! | queue | the same, in one random order | sequential |
//! | rows | one sequential pass if rows are sparse, else nothing | each row separately |
//! | pages | the same | each unit separately, as one range |
//! | window `[ours]` | the same | the feed's reads, counted |
//! | scatter `[ours]` | one sequential pass and write | sequential read and write in bucket blocks |
//!
//! Writing rows to their blocks is priced in two variants: each row as a random write, as the paper describes it, and
//! gathered in buffers, as an implementation does it. In the published methods loading and computing do not overlap,
//! since a block takes all memory. Ours loads ahead.

use std::sync::Arc;

use pelton_data::plan_of;
use pelton_fetch::{Access, DeviceSpeed, Fetch, FetchOptions, pane_row_bytes};
use pelton_plan::{Batching, Order};
use pelton_storage::{DeviceModel, DeviceUse, ModelledDevice, PAGE_BYTES, ThrottleMode, Throttled};
use pelton_train::TrainError;
use serde::{Deserialize, Serialize};

use super::data_in_memory::DataInMemory;
use super::method::Method;

/// Bytes gathered before writing a block or bucket, and size of the blocks read back. The paper's 1 GB has room for
/// this size times the number of blocks, so it does not shrink with the data here.
const BUFFER_BYTES: u64 = 256 << 10;

/// Seconds until the target was reached, divided as in LIRS equation 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Times {
    pub total_s: f64,
    pub prepare_s: f64,
    pub load_s: f64,
    pub compute_s: f64,
    pub overlap_s: f64,
    pub epochs: f64,
}

/// The devices of LIRS Table 2, with the names of the paper.
pub(super) fn devices() -> [(&'static str, DeviceModel); 3] {
    [
        ("HDD", DeviceModel::hdd()),
        ("SSD", DeviceModel::ssd()),
        ("Optane", DeviceModel::optane()),
    ]
}

/// How a method's rows are read and prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// As in the paper, rows written one by one.
    Published,
    /// Rows gathered in buffers before they are written.
    Gathered,
    /// The feed's sweeps.
    Window,
    /// The feed's buckets.
    Scatter,
}

impl Way {
    /// The ways of reading a method.
    pub fn of(method: Method) -> &'static [Way] {
        match method {
            Method::BASELINE => &[Way::Gathered, Way::Published],
            Method::FixedBmf | Method::Queue => &[Way::Gathered],
            Method::LirsRow => &[Way::Published, Way::Window, Way::Scatter],
            Method::LirsPage => &[Way::Published],
            Method::FileOrder => &[],
        }
    }

    /// Suffix after the method's name.
    pub fn name(self, method: Method) -> &'static str {
        match self {
            Way::Published if method.is_lirs() => "",
            Way::Published => ", rows written at random",
            Way::Gathered => "",
            Way::Window => " by window [ours]",
            Way::Scatter => " by scatter [ours]",
        }
    }

    fn is_ours(self) -> bool {
        matches!(self, Way::Window | Way::Scatter)
    }
}

/// The device use of a method before training and in an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Work {
    pub prepare: DeviceUse,
    pub epoch: DeviceUse,
}

impl Work {
    /// Seconds on a device for `epochs` epochs with `compute_s` seconds of computing each.
    pub fn times(&self, device: &DeviceModel, epochs: f64, compute_s: f64, ahead: bool) -> Times {
        let prepare_s = device.seconds(&self.prepare);
        let load_s = epochs * device.seconds(&self.epoch);
        let overlap_s = if ahead { load_s.min(compute_s) } else { 0.0 };
        Times {
            total_s: prepare_s + load_s + compute_s - overlap_s,
            prepare_s,
            load_s,
            compute_s,
            overlap_s,
            epochs,
        }
    }
}

/// The times of a method with one way of reading on one device; `compute_s` is for all epochs.
pub(super) fn times(
    held: &DataInMemory,
    method: Method,
    way: Way,
    device: &DeviceModel,
    memory_share: f64,
    (epochs, compute_s): (f64, f64),
) -> Result<Times, TrainError> {
    let work = Work {
        prepare: prepare(held, method, way),
        epoch: match way {
            Way::Window => window_epoch(held, device, memory_share)?,
            Way::Scatter => scatter_epoch(held),
            Way::Published | Way::Gathered => epoch(held, method),
        },
    };
    Ok(work.times(device, epochs, compute_s, way.is_ours()))
}

fn sequential_pages(held: &DataInMemory) -> u64 {
    held.dataset().bytes().div_ceil(PAGE_BYTES)
}

fn prepare(held: &DataInMemory, method: Method, way: Way) -> DeviceUse {
    let pass = DeviceUse {
        sequential_read_pages: sequential_pages(held),
        ..DeviceUse::default()
    };
    let sparse = held.published.is_none_or(|published| published.sparse);
    match way {
        Way::Published if method.is_lirs() && sparse => pass,
        Way::Window if sparse => pass,
        Way::Published if method.is_lirs() => DeviceUse::default(),
        Way::Window => DeviceUse::default(),
        Way::Published => {
            let dataset = held.dataset();
            let pages = |id| dataset.locate(id).length.div_ceil(PAGE_BYTES);
            let pages: u64 = (0..dataset.records()).map(pages).sum();
            DeviceUse {
                random_write_pages: dataset.records(),
                sequential_write_pages: pages - dataset.records(),
                ..pass
            }
        }
        Way::Gathered | Way::Scatter => gathered_write(held, pass),
    }
}

/// Writing every byte once, a buffer at a time, each at its own offset.
fn gathered_write(held: &DataInMemory, used: DeviceUse) -> DeviceUse {
    let pages = sequential_pages(held);
    let writes = held.dataset().bytes().div_ceil(BUFFER_BYTES).min(pages);
    DeviceUse {
        random_write_pages: writes,
        sequential_write_pages: pages - writes,
        ..used
    }
}

fn scatter_epoch(held: &DataInMemory) -> DeviceUse {
    let written = gathered_write(held, DeviceUse::default());
    DeviceUse {
        random_read_pages: written.random_write_pages,
        sequential_read_pages: written.sequential_write_pages,
        ..written
    }
}

fn epoch(held: &DataInMemory, method: Method) -> DeviceUse {
    match method {
        Method::LirsRow => units(held, 0).ranges(),
        Method::LirsPage => units(held, PAGE_BYTES).ranges(),
        _ => DeviceUse {
            sequential_read_pages: sequential_pages(held),
            ..DeviceUse::default()
        },
    }
}

/// Units of whole rows and the pages they touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct UnitPages {
    pub units: u64,
    /// Pages touched, over all units.
    pub pages: u64,
}

impl UnitPages {
    /// Every unit read as one range: its first page at random, the others after it.
    pub fn ranges(self) -> DeviceUse {
        DeviceUse {
            random_read_pages: self.units,
            sequential_read_pages: self.pages - self.units,
            ..DeviceUse::default()
        }
    }
}

/// Units of at least `unit_bytes` bytes cut at row boundaries; of one row each if that is 0.
pub(super) fn units(held: &DataInMemory, unit_bytes: u64) -> UnitPages {
    let dataset = held.dataset();
    let mut counted = UnitPages::default();
    let (mut start, mut end) = (0, 0);
    for id in 0..dataset.records() {
        let place = dataset.locate(id);
        if end == start {
            start = place.offset;
        }
        end = place.offset + place.length;
        if end - start >= unit_bytes || id + 1 == dataset.records() {
            counted.units += 1;
            counted.pages += end.div_ceil(PAGE_BYTES) - start / PAGE_BYTES;
            start = end;
        }
    }
    counted
}

/// The device use of the feed's window path in one epoch of the full order, counted.
fn window_epoch(
    held: &DataInMemory,
    device: &DeviceModel,
    memory_share: f64,
) -> Result<DeviceUse, TrainError> {
    let modelled = ModelledDevice::new(device.clone(), ThrottleMode::Virtual);
    let dataset = (**held.dataset()).clone();
    let dataset = dataset.with_storage(|storage| Arc::new(Throttled::on(&modelled, storage)));
    let speed = DeviceSpeed {
        random_reads_per_s: device.random_read_iops,
        read_bytes_per_s: device.sequential_read_iops * PAGE_BYTES as f64,
        write_bytes_per_s: device.sequential_write_iops * PAGE_BYTES as f64,
    };
    let options = FetchOptions {
        access: Access::Window { gap_bytes: None },
        // One thread, so that the order of reads, and with it the price, is always the same.
        threads: 1,
        end_epoch: Some(1),
        device: speed,
        ..FetchOptions::with_memory(memory_bytes(held, memory_share))
    };
    let plan = plan_of(&dataset, Order::Full, Batching::Batches(held.blocks), 0)?;
    let mut feed = Fetch::new(Arc::new(dataset), Arc::new(plan), &options)?;
    while feed.next_batch()?.is_some() {}
    Ok(modelled.used())
}

/// Memory of a feed for a share of the data, enough for its buffers.
pub(super) fn memory_bytes(held: &DataInMemory, memory_share: f64) -> u64 {
    const LEAST: u64 = 2 << 20;
    let dataset = held.dataset();
    let bytes = (dataset.records() * pane_row_bytes(dataset)) as f64 * memory_share;
    (bytes as u64).max(LEAST + 24 * dataset.record_bytes().max())
}
