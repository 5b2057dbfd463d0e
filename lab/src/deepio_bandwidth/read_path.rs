//! Read paths for an epoch, and the results of several runs of one.

use pelton_tools::bench::{BenchReport, PeerConfig, PeerMode};
use serde_json::json;

use crate::experiment::SetConfig;
use crate::table::{Row, median};

/// Table name of DeepIO's figures.
const FIGURE: &str = "Figure 10";

/// A path for reading an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ReadPath {
    /// All data in memory, slots assigned in runs.
    Anywhere,
    /// All data in memory, slots to the ranks that hold their records.
    Near,
    /// Memory for this share of the data.
    Hybrid(PeerMode, f64),
    /// Only the backend.
    Backend,
}

impl ReadPath {
    pub fn name(self) -> String {
        match self {
            ReadPath::Anywhere => "in memory, slots dealt out".to_string(),
            ReadPath::Near => "in memory, slots to their holders".to_string(),
            ReadPath::Hybrid(mode, memory) => {
                let loads = match mode {
                    PeerMode::Opportunistic { loads: Some(loads) } => format!(" in {loads} loads"),
                    _ => String::new(),
                };
                format!("hybrid, {mode}{loads}, memory {memory} of the data")
            }
            ReadPath::Backend => "backend alone".to_string(),
        }
    }

    pub fn memory(self) -> f64 {
        match self {
            ReadPath::Anywhere | ReadPath::Near => 1.0,
            ReadPath::Hybrid(_, memory) => memory,
            ReadPath::Backend => 0.0,
        }
    }

    /// Epochs to measure. The first load happens before the clock starts, and records kept in memory first help in the
    /// second epoch; other paths take equally long for every epoch.
    pub fn epochs(self) -> u64 {
        match self {
            ReadPath::Hybrid(PeerMode::Opportunistic { .. }, _) => 3,
            _ => 1,
        }
    }

    pub fn peers(self, unit_bytes: u64) -> Option<PeerConfig> {
        let mode = match self {
            ReadPath::Backend => return None,
            ReadPath::Hybrid(mode, _) => mode,
            _ => PeerMode::Ordered,
        };
        Some(PeerConfig {
            memory_bytes: 0,
            memory_share: Some(self.memory()),
            mode,
            unit_bytes,
            near: Some(self != ReadPath::Anywhere),
        })
    }
}

/// Sizes of batches and units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Examples of a global batch.
    pub batch: u64,
    /// Least bytes of a unit.
    pub unit_bytes: u64,
}

/// Results of several runs of one read path on some ranks.
pub(super) struct Measured {
    pub ranks: usize,
    pub way: ReadPath,
    pub runs: Vec<BenchReport>,
}

impl Measured {
    pub fn median(&self, figure: impl Fn(&BenchReport) -> f64) -> f64 {
        median(self.runs.iter().map(figure).collect())
    }
}

pub(super) fn row(
    set: &SetConfig,
    method: String,
    figure: &str,
    measured: f64,
    differs: &str,
) -> Row {
    Row {
        table: FIGURE.to_string(),
        data: set.name.clone(),
        method,
        figure: figure.to_string(),
        measured: json!(measured),
        differs: differs.to_string(),
        ..Row::default()
    }
}
