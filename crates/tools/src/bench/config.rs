//! Settings of a measurement.

use std::path::PathBuf;
use std::time::Duration;

use pelton_data::{DataConfig, PeerConfig};
use pelton_feed::PipelineConfig;
use pelton_fetch::{Access, OnBadRecord};
use pelton_plan::Order;
use serde_json::{Value, json};

/// Settings of a measurement.
#[derive(Clone, Debug)]
pub struct BenchConfig {
    /// The data.
    pub data: DataConfig,
    /// Order of the epochs.
    pub order: Order,
    /// Examples in a batch; by default 4096, or fewer such that three batches fit in a load.
    pub batch: Option<u64>,
    /// The access path.
    pub access: Access,
    /// Memory for look-ahead and batches of each rank, in bytes.
    pub memory_bytes: u64,
    /// The same as a share of the bytes of all records in their files; overrides `memory_bytes`.
    pub memory_share: Option<f64>,
    /// Epochs.
    pub epochs: u64,
    /// Seed of the order.
    pub seed: u64,
    /// Loading threads.
    pub threads: usize,
    /// What to do with records that cannot be decoded.
    pub on_bad_record: OnBadRecord,
    /// Folder for scratch files.
    pub scratch_dir: PathBuf,
    /// Whether to drop the files' pages from the page cache first.
    pub cold: bool,
    /// If present, the data is read through the memory of all ranks.
    pub cache: Option<PeerConfig>,
    /// If present, records go through stages: decoded, augmented, echoed, collated.
    pub stages: Option<StagesConfig>,
}

impl BenchConfig {
    /// Settings that must be the same on all ranks.
    pub(super) fn shown(&self) -> Value {
        let stages = self.stages.as_ref();
        json!({
            "data": self.data,
            "order": self.order.to_string(),
            "batch": self.batch,
            "access": self.access.to_string(),
            "epochs": self.epochs,
            "seed": self.seed,
            "on_bad_record": self.on_bad_record.to_string(),
            "cache": self.cache,
            "stages": stages.map(|stages| json!({
                "pipeline": stages.pipeline,
                "state": stages.state.is_some(),
                "log": stages.log.is_some(),
            })),
        })
    }
}

/// A pipeline, and settings of its measurement.
#[derive(Clone, Debug, Default)]
pub struct StagesConfig {
    /// The pipeline.
    pub pipeline: PipelineConfig,
    /// Simulated compute time per batch.
    pub compute: Duration,
    /// File for the state of the pipeline after every batch, from which it resumes.
    pub state: Option<PathBuf>,
    /// Address to serve the counters at while the pipeline runs.
    pub metrics: Option<String>,
    /// File to which the ids of every batch are appended before its state is saved.
    pub log: Option<PathBuf>,
}
