//! The flags of the stages behind reading.

use std::path::PathBuf;

use clap::Args;
use pelton_tools::PipelineConfig;

use crate::given::Given;

/// How records are processed into batches.
pub type PipelineArguments = Given<PipelineConfig>;

/// Stages and how they are measured; naming any of it takes records through stages.
#[derive(Args, Debug)]
pub struct StagesArguments {
    #[command(flatten)]
    pub pipeline: PipelineArguments,
    /// Second text, for --decode pairs: its line N belongs to line N of the data, which must be one text
    #[arg(long, requires = "decode", value_name = "FILE")]
    pub pair: Option<PathBuf>,
    /// Milliseconds that a simulated consumer spends on each batch
    #[arg(long, value_name = "MS")]
    pub compute_ms: Option<f64>,
    /// Serve the counters as Prometheus text at this address during the run, such as 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,
    /// File for the state of the pipeline; if it exists, the run resumes from it
    #[arg(long)]
    pub state: Option<PathBuf>,
    /// File for the ids of all examples consumed, 8 bytes each, little-endian; a resumed run cuts it to the
    /// saved state
    #[arg(long, requires = "state")]
    pub log: Option<PathBuf>,
}
