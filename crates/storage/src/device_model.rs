//! The cost of reads and writes on a modelled device.
//!
//! The unit is the 4 KiB page, as in LIRS Table 2. A read touches the pages that contain its bytes, and costs
//!
//! - for its first page `1 / random_read_iops`, unless the read continues at the end of the one before (in the page
//!   after it, or within its last page), then as the rest;
//! - for every other page `1 / sequential_read_iops`, but never less than
//!   `PAGE_BYTES / bandwidth`;
//! - nothing for a first page that the read before has already brought and that this read only continues: the device
//!   has it at hand;
//! - `latency_s` once a batch: the reads of a batch overlap.
//!
//! Writes likewise with their own rates. Only whole counts are kept ([`DeviceUse`]), so a total
//! does not depend on the order of additions, and one recorded use can be priced for several
//! devices.

use serde::{Deserialize, Serialize};

/// Bytes of a page, the unit of the modelled rates.
pub const PAGE_BYTES: u64 = 4096;

/// Rates of a device, in 4 KiB pages a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceModel {
    /// Its name in reports.
    pub name: String,
    /// Sequential 4 KiB reads a second.
    pub sequential_read_iops: f64,
    /// Random 4 KiB reads a second.
    pub random_read_iops: f64,
    /// Sequential 4 KiB writes a second.
    pub sequential_write_iops: f64,
    /// Random 4 KiB writes a second.
    pub random_write_iops: f64,
    /// Most bytes a second in either direction, if this is less than the pages a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_bytes_per_s: Option<f64>,
    /// Additional seconds of each batch, such as a network round trip.
    #[serde(default)]
    pub latency_s: f64,
}

impl DeviceModel {
    /// The hard disk of LIRS Table 2.
    pub fn hdd() -> DeviceModel {
        DeviceModel::of_table_2("hdd", [40_000.0, 600.0, 36_000.0, 300.0])
    }

    /// The flash drive of LIRS Table 2.
    pub fn ssd() -> DeviceModel {
        DeviceModel::of_table_2("ssd", [563_000.0, 430_000.0, 230_000.0, 230_000.0])
    }

    /// The Optane drive of LIRS Table 2.
    pub fn optane() -> DeviceModel {
        DeviceModel::of_table_2("optane", [614_000.0, 550_000.0, 512_000.0, 500_000.0])
    }

    /// One node's share of DeepIO's parallel file system (Zhu et al., MASCOTS 2018): 4662.49 MB/s of
    /// large reads shared by 16 nodes. The paper gives no rate of small reads; we assume as many hard disks of LIRS
    /// Table 2 as have that bandwidth, 28.5, with 600 random reads a second each, shared likewise: 1 067 a node.
    /// Writes have the same rates.
    pub fn parallel_file_system() -> DeviceModel {
        const NODES: f64 = 16.0;
        let disk = DeviceModel::hdd();
        let sequential = 4662.49e6 / PAGE_BYTES as f64 / NODES;
        let random = disk.random_read_iops * sequential / disk.sequential_read_iops;
        DeviceModel::of_table_2("pfs", [sequential, random, sequential, random])
    }

    /// `hdd`, `ssd`, `optane` or `pfs`; `None` for any other name.
    pub fn preset(name: &str) -> Option<DeviceModel> {
        match name {
            "hdd" => Some(DeviceModel::hdd()),
            "ssd" => Some(DeviceModel::ssd()),
            "optane" => Some(DeviceModel::optane()),
            "pfs" => Some(DeviceModel::parallel_file_system()),
            _ => None,
        }
    }

    /// Rates in the table's column order: sequential and random read, sequential and random write.
    fn of_table_2(name: &str, iops: [f64; 4]) -> DeviceModel {
        DeviceModel {
            name: name.to_owned(),
            sequential_read_iops: iops[0],
            random_read_iops: iops[1],
            sequential_write_iops: iops[2],
            random_write_iops: iops[3],
            bandwidth_bytes_per_s: None,
            latency_s: 0.0,
        }
    }

    /// Seconds this device is busy with `used`.
    pub fn seconds(&self, used: &DeviceUse) -> f64 {
        let page_floor = self
            .bandwidth_bytes_per_s
            .map_or(0.0, |bandwidth| PAGE_BYTES as f64 / bandwidth);
        let pages = |count: u64, iops: f64| count as f64 * (1.0 / iops).max(page_floor);
        pages(used.random_read_pages, self.random_read_iops)
            + pages(used.sequential_read_pages, self.sequential_read_iops)
            + pages(used.random_write_pages, self.random_write_iops)
            + pages(used.sequential_write_pages, self.sequential_write_iops)
            + used.batches as f64 * self.latency_s
    }
}

/// The use of a device, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceUse {
    /// Pages read at the random rate.
    pub random_read_pages: u64,
    /// Pages read at the sequential rate.
    pub sequential_read_pages: u64,
    /// Pages written at the random rate.
    pub random_write_pages: u64,
    /// Pages written at the sequential rate.
    pub sequential_write_pages: u64,
    /// Batches; each waits for the latency once.
    pub batches: u64,
}

impl DeviceUse {
    /// The use since `earlier`.
    pub fn since(self, earlier: DeviceUse) -> DeviceUse {
        DeviceUse {
            random_read_pages: self.random_read_pages - earlier.random_read_pages,
            sequential_read_pages: self.sequential_read_pages - earlier.sequential_read_pages,
            random_write_pages: self.random_write_pages - earlier.random_write_pages,
            sequential_write_pages: self.sequential_write_pages - earlier.sequential_write_pages,
            batches: self.batches - earlier.batches,
        }
    }
}

/// The end of a device's last transfer: the file, and the offset after its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) file: u64,
    pub(crate) end: u64,
}

/// Pages at the random and at the sequential rate for `length` bytes at `offset` of `file`, given the position of the
/// head; the module's cost model.
pub(crate) fn pages(head: Option<Head>, file: u64, offset: u64, length: u64) -> (u64, u64) {
    if length == 0 {
        return (0, 0);
    }
    let first = offset / PAGE_BYTES;
    let touched = offset.saturating_add(length).div_ceil(PAGE_BYTES) - first;
    let Some(head) = head.filter(|head| head.file == file) else {
        return (1, touched - 1);
    };
    let next = head.end.div_ceil(PAGE_BYTES);
    if first == next {
        (0, touched)
    } else if first + 1 == next {
        let at_hand = u64::from(offset >= head.end);
        (0, touched - at_hand)
    } else {
        (1, touched - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(end: Option<u64>, offset: u64, length: u64, expected: (u64, u64)) {
        let head = end.map(|end| Head { file: 1, end });
        assert_eq!(
            pages(head, 1, offset, length),
            expected,
            "head {end:?}, {length} bytes at {offset}"
        );
    }

    #[test]
    fn the_first_page_is_random_unless_it_carries_on() {
        check(None, 0, 4096, (1, 0));
        check(None, 0, 3 * 4096, (1, 2));
        check(None, 100, 4096, (1, 1));
        check(Some(4096), 4096, 8192, (0, 2));
        check(Some(4096), 8192, 4096, (1, 0));
        check(Some(8192), 0, 4096, (1, 0));
        check(Some(4096), 4096, 0, (0, 0));
    }

    #[test]
    fn a_page_at_hand_is_charged_once() {
        check(Some(112), 112, 112, (0, 0));
        check(Some(4090), 4090, 112, (0, 1));
        // Reading bytes again brings the page again.
        check(Some(112), 0, 112, (0, 1));
    }

    #[test]
    fn another_file_is_elsewhere() {
        let head = Some(Head { file: 2, end: 4096 });
        assert_eq!(pages(head, 1, 4096, 4096), (1, 0));
    }

    #[test]
    fn presets_charge_what_the_table_says() {
        for (name, sequential, random) in [
            ("hdd", 40_000, 600),
            ("ssd", 563_000, 430_000),
            ("optane", 614_000, 550_000),
        ] {
            let model = DeviceModel::preset(name).expect("preset");
            let used = DeviceUse {
                random_read_pages: random,
                sequential_read_pages: 2 * sequential,
                ..DeviceUse::default()
            };
            assert!((model.seconds(&used) - 3.0).abs() < 1e-9, "{name}");
        }
        assert_eq!(DeviceModel::preset("tape"), None);
    }

    #[test]
    fn bandwidth_and_latency_add_their_share() {
        let model = DeviceModel {
            bandwidth_bytes_per_s: Some(4096.0 * 1000.0),
            latency_s: 0.5,
            ..DeviceModel::optane()
        };
        let used = DeviceUse {
            sequential_read_pages: 2000,
            batches: 3,
            ..DeviceUse::default()
        };
        assert!((model.seconds(&used) - 3.5).abs() < 1e-9);
    }
}
