//! Chooses the access path: a cost model of one epoch on each path.
//!
//! Symbols: D bytes of data, N records of b bytes, g the device's unit, f the share of the records
//! that the budget holds, I random reads a second (of 4 KiB), S sequential bytes a second, T the
//! share of an epoch that one sweep serves (see `sizing`), v the share of the records that are wanted:
//! 1, or less if the consumer declines some.
//!
//! Over ranks that own their records, D and N are those of the rank that owns most; records of others between its
//! runs are assumed not to be read. Ranks may share the device, which slows all paths equally.
//!
//! * direct: v·max(N/I, N·(b + g)/S) — every record costs a read;
//! * window: the units touched by a sweep, 1 − e^(−T·r) of all with r = (b + g)/b records a unit at
//!   least, v/T sweeps: max(ranges/I, bytes/S); holes shorter than S/I are read over. A consumer that declines
//!   records gets one block a sweep;
//! * scatter: (1 + a)·D/S + D/W with W the sequential write speed and a the share of the buckets that
//!   are read for two blocks. Declined records cost as much as others. It reads and writes at the
//!   same time, but drives share their bandwidth between the two: an SSD that gave 1.1 GB/s of either
//!   gave 0.5 of each. A block costs a random read or write at least.
//!
//! A batch on the direct path is also bound by what one core can issue, about 1 µs a read.

use std::fmt;

use crate::options::{Access, DeviceSpeed};

/// The inputs of the choice.
#[derive(Clone, Copy, Debug)]
pub struct AccessCase {
    /// Number of records.
    pub records: u64,
    /// Mean bytes of a record.
    pub record_bytes: f64,
    /// Bytes of the device's smallest read.
    pub unit_bytes: f64,
    /// Share of an epoch that one sweep of the window path serves, up to 1.
    pub sweep_share: f64,
    /// Share of the records that the consumer is expected to want, up to 1.
    pub wanted_share: f64,
    /// The plan of [`Access::Scatter`], if it can serve the order and the budget allows its buckets.
    pub scatter: Option<ScatterCase>,
    /// Epochs the first sequential pass of scatter is spread over.
    pub epochs: f64,
    /// The device.
    pub device: DeviceSpeed,
}

/// The inputs of the cost of [`Access::Scatter`].
#[derive(Clone, Copy, Debug)]
pub struct ScatterCase {
    /// Bytes of a block.
    pub block_bytes: f64,
    /// Buckets that are read twice over all buckets.
    pub rereads: f64,
}

/// The chosen path, and the cost of each.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessChoice {
    /// The cheapest path, or the direct one if it is nearly as cheap.
    pub access: Access,
    /// Modelled seconds an epoch on each path.
    pub seconds: Vec<(Access, f64)>,
}

impl fmt::Display for AccessChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "access {}: modelled seconds an epoch:", self.access)?;
        for (access, seconds) in &self.seconds {
            write!(f, " {access} {seconds:.3}")?;
        }
        Ok(())
    }
}

/// Seconds that one core needs to issue and complete one read.
const ISSUE_S: f64 = 1e-6;

/// How much slower than the cheapest path the direct one may be and still be chosen.
const NEARLY_AS_CHEAP: f64 = 0.15;

/// Time given to records that are read one by one before the first sweep, as a share of a sweep's. It occurs once a
/// run, while the first sweep is being planned; its cost was not measurable over a first epoch.
const SHARE_BEFORE_A_SWEEP: f64 = 1.0 / 16.0;

/// The cheapest access path of a case.
pub fn choose_access(case: &AccessCase) -> AccessChoice {
    let window = Access::Window { gap_bytes: None };
    let mut seconds = vec![
        (Access::Direct, direct_seconds(case)),
        (window, window_seconds(case)),
    ];
    if let Some(scatter) = &case.scatter {
        seconds.push((Access::Scatter, scatter_seconds(case, scatter)));
    }
    let cheapest = seconds
        .iter()
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .expect("there are always two paths");
    // Only the direct path returns a batch before much memory is filled.
    let access = if seconds[0].1 <= cheapest.1 * (1.0 + NEARLY_AS_CHEAP) {
        Access::Direct
    } else {
        cheapest.0
    };
    AccessChoice { access, seconds }
}

/// Records that may be read one by one before the first sweep of the window path, so that a batch is there
/// before it has passed over the files.
pub(crate) fn records_before_a_sweep(case: &AccessCase) -> u64 {
    let sweep_s = window_seconds(case) / sweeps(case);
    let record_s = direct_seconds(case) / (case.records as f64 * case.wanted_share);
    (SHARE_BEFORE_A_SWEEP * sweep_s / record_s) as u64
}

fn direct_seconds(case: &AccessCase) -> f64 {
    let records = case.records as f64 * case.wanted_share;
    let bytes = records * (case.record_bytes + case.unit_bytes);
    (records / case.device.random_reads_per_s)
        .max(bytes / case.device.read_bytes_per_s)
        .max(records * ISSUE_S)
}

fn window_seconds(case: &AccessCase) -> f64 {
    let device = &case.device;
    let data = case.records as f64 * case.record_bytes;
    let share = sweep_share(case);
    // Holes between the records that one sweep needs are exponential with this mean.
    let wanted = case.records as f64 * share;
    let hole = (data / wanted - case.record_bytes).max(0.0);
    let gap = device.break_even_gap_bytes() as f64;
    let split = if hole > 0.0 { (-gap / hole).exp() } else { 0.0 };
    let ranges = wanted * split + 1.0;
    let skipped = wanted * split * (hole + gap);
    let bytes = (data - skipped + ranges * case.unit_bytes)
        // Ranges within one unit share it.
        .min(data + case.unit_bytes)
        .max(wanted * case.record_bytes);
    sweeps(case) * (ranges / device.random_reads_per_s).max(bytes / device.read_bytes_per_s)
}

fn sweep_share(case: &AccessCase) -> f64 {
    case.sweep_share.clamp(1e-9, 1.0)
}

/// Sweeps of an epoch.
fn sweeps(case: &AccessCase) -> f64 {
    (case.wanted_share / sweep_share(case)).max(1.0)
}

fn scatter_seconds(case: &AccessCase, scatter: &ScatterCase) -> f64 {
    let device = &case.device;
    let data = case.records as f64 * case.record_bytes;
    let blocks = data / scatter.block_bytes.max(1.0) / device.random_reads_per_s;
    let read = (data / device.read_bytes_per_s).max(blocks) * (1.0 + scatter.rereads);
    let write = (data / device.write_bytes_per_s).max(blocks);
    // The first epoch needs a sequential pass and a write before it; the last writes nothing.
    read + write + data / device.read_bytes_per_s / case.epochs.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(record_bytes: f64, sweep_share: f64, device: DeviceSpeed) -> AccessCase {
        AccessCase {
            records: (4e9 / record_bytes) as u64,
            record_bytes,
            unit_bytes: 512.0,
            sweep_share,
            wanted_share: 1.0,
            scatter: Some(ScatterCase {
                block_bytes: 65_536.0,
                rereads: 0.0,
            }),
            epochs: 10.0,
            device,
        }
    }

    #[test]
    fn small_rows_are_never_read_one_by_one_from_a_drive() {
        let choice = choose_access(&case(120.0, 0.2, DeviceSpeed::default()));
        assert_eq!(choice.access, Access::Scatter, "{choice}");
        let choice = choose_access(&case(120.0, 0.9, DeviceSpeed::default()));
        assert_eq!(
            choice.access,
            Access::Window { gap_bytes: None },
            "{choice}"
        );
    }

    #[test]
    fn large_rows_are_read_one_by_one() {
        let choice = choose_access(&case(44_560.0, 0.2, DeviceSpeed::default()));
        let direct = choice.seconds[0].1;
        let best = choice.seconds.iter().map(|s| s.1).fold(f64::MAX, f64::min);
        assert!(direct <= best * 1.1, "{choice}");
    }

    #[test]
    fn a_sweep_for_each_block_is_dearer_than_buckets() {
        let mut case = case(360.0, 0.03, DeviceSpeed::default());
        case.wanted_share = 0.75;
        let buckets = |block_bytes, rereads| {
            Some(ScatterCase {
                block_bytes,
                rereads,
            })
        };
        case.scatter = buckets(8192.0, 0.125);
        let choice = choose_access(&case);
        assert_eq!(choice.access, Access::Scatter, "{choice}");
        // So few are wanted that single reads are the cheapest.
        case.wanted_share = 0.001;
        let choice = choose_access(&case);
        assert_eq!(choice.access, Access::Direct, "{choice}");
        // Blocks of a page on a disk with seeks are no better than records.
        case.wanted_share = 1.0;
        case.device.random_reads_per_s = 600.0;
        case.scatter = buckets(4096.0, 0.125);
        let choice = choose_access(&case);
        assert_ne!(choice.access, Access::Scatter, "{choice}");
    }

    /// A gigabyte of a million records is swept in 0.67 s at 1.5 GB/s; a 16th of that is enough for 4 166 reads at
    /// 100 000 a second.
    #[test]
    fn what_is_read_before_a_sweep_takes_a_small_share_of_its_time() {
        let million = |bytes, share| AccessCase {
            records: 1_000_000,
            ..case(bytes, share, DeviceSpeed::default())
        };
        assert_eq!(records_before_a_sweep(&million(1e3, 1.0)), 4_166);
        // A sweep that gathers a fifth of the records passes over nearly all bytes.
        let part = records_before_a_sweep(&million(1e3, 0.2));
        assert!((3_700..=3_900).contains(&part), "{part}");
        // Lines of 40 bytes are swept before many are read.
        assert_eq!(records_before_a_sweep(&million(40.0, 1.0)), 166);
        // A sweep that reads records apart does so at the same pace.
        let apart = records_before_a_sweep(&million(1e5, 0.001));
        assert!((55..=64).contains(&apart), "{apart}");
    }

    /// Blocks of 16 MB that are decoded whole, at a gigabyte a second.
    #[test]
    fn records_of_blocks_are_not_read_one_by_one() {
        let path = |sweep_share| {
            let decoding = DeviceSpeed {
                read_bytes_per_s: 1e9,
                ..DeviceSpeed::PAGE_CACHE
            };
            let case = AccessCase {
                unit_bytes: 16e6,
                ..case(40.0, sweep_share, decoding)
            };
            choose_access(&case).access
        };
        assert_eq!(path(0.9), Access::Window { gap_bytes: None });
        // Few sweeps cost no more than writing a shuffled copy, many do.
        assert_eq!(path(0.05), Access::Scatter);
    }

    #[test]
    fn a_disk_with_seeks_prefers_sequential_paths() {
        let disk = DeviceSpeed {
            random_reads_per_s: 600.0,
            read_bytes_per_s: 160e6,
            write_bytes_per_s: 150e6,
        };
        for record_bytes in [120.0, 400.0, 24_000.0] {
            let choice = choose_access(&case(record_bytes, 0.2, disk));
            assert_ne!(choice.access, Access::Direct, "{choice}");
        }
    }
}
