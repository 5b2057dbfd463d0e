//! What to measure.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use pelton_data::DataConfig;
use pelton_fetch::{Access, OnBadRecord};
use pelton_plan::Order;

use crate::pipeline::PipelineConfig;

/// Examples of a batch where nothing is said.
pub(super) const DEFAULT_BATCH: u64 = 4096;

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchConfig {
    /// The data.
    pub data: DataConfig,
    /// Order of the epochs.
    pub order: Order,
    /// Examples of a batch; where `None`, 4096, or as many as fit three times into a load.
    pub batch: Option<u64>,
    /// The access path.
    pub access: Access,
    /// Memory for look-ahead and batches of each rank, in bytes.
    pub memory_bytes: u64,
    /// The same as a share of the bytes of all records in their files; wins where present.
    pub memory_share: Option<f64>,
    /// Epochs.
    pub epochs: u64,
    /// Seed of the order.
    pub seed: u64,
    /// Loading threads.
    pub threads: usize,
    /// What happens to records that cannot be decoded.
    pub on_bad_record: OnBadRecord,
    /// Folder for scratch files.
    pub scratch_dir: PathBuf,
    /// Whether to drop the files' pages from the page cache first.
    pub cold: bool,
    /// Where present, the data is read through the memory of all ranks.
    pub cache: Option<PeerConfig>,
    /// Where present, records go through stages: decoded, augmented, echoed, put together.
    pub stages: Option<StagesConfig>,
}

/// A pipeline, and what else happens while it is measured.
#[derive(Clone, Debug, Default)]
pub struct StagesConfig {
    /// The pipeline.
    pub pipeline: PipelineConfig,
    /// Time that the consumer spends on each batch.
    pub compute: Duration,
    /// File that says where the pipeline stands after every batch, and from which it goes on.
    pub state: Option<PathBuf>,
    /// Address at which the counters are served while the pipeline runs.
    pub metrics: Option<String>,
    /// File to which the ids of every batch are appended before its state is saved.
    pub log: Option<PathBuf>,
}

/// Peers' memory between the backend and the feeds.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// Memory of all ranks together, in bytes.
    pub memory_bytes: u64,
    /// The same as a share of the data; wins where present.
    pub memory_share: Option<f64>,
    /// What happens where that does not hold the data.
    pub mode: Mode,
    /// Bytes that the opportunistic mode reads at once.
    pub unit_bytes: u64,
    /// Whether slots of a batch go to the ranks that hold their records.
    pub near: bool,
}

/// In which order records are taken when memory does not hold all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Exactly the order asked for; what is not in memory is read from the backend by itself.
    Ordered,
    /// From what is in memory, load by load.
    Opportunistic {
        /// Loads of an epoch; where absent, as few as fit. More leave memory for a part of the data that is read
        /// once, and shuffle less.
        loads: Option<u64>,
    },
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Ordered => "ordered",
            Mode::Opportunistic { .. } => "opportunistic",
        })
    }
}

impl FromStr for Mode {
    type Err = String;

    /// `ordered`, `opportunistic` or `opportunistic:LOADS`.
    fn from_str(text: &str) -> Result<Mode, String> {
        match text.split_once(':') {
            None if text == "ordered" => Ok(Mode::Ordered),
            None if text == "opportunistic" => Ok(Mode::Opportunistic { loads: None }),
            Some(("opportunistic", loads)) => match loads.parse() {
                Ok(loads) if loads > 0 => Ok(Mode::Opportunistic { loads: Some(loads) }),
                _ => Err(format!("{loads} is no number of loads; give 1 or more")),
            },
            _ => Err("give ordered, opportunistic or opportunistic:LOADS".to_string()),
        }
    }
}
