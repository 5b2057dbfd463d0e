//! The flags of a training run.

use std::path::PathBuf;

use clap::Args;

use crate::bytes::Memory;

/// The output of a run, and how it is reported.
#[derive(Debug, Args)]
#[command(next_help_heading = "Run")]
pub struct RunArguments {
    /// Start from the configuration in this file (a run.toml); flags given here win
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Ranks that train together, each on its part of every batch: threads of this process (default: 1, or the processes
    /// that a launcher started)
    #[arg(long)]
    pub ranks: Option<usize>,
    /// Speed of a modelled network between these threads, in bytes a second into and out of each (3.125GB for
    /// 25 Gbit/s); messages are delayed accordingly
    #[arg(long, value_name = "RATE")]
    pub link: Option<Memory>,
    /// Run folder, also s3://BUCKET/NAME, gs:// or az:// (default: runs/NAME-OF-DATA)
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Resume from the run folder's last checkpoint
    #[arg(long)]
    pub resume: bool,
    /// Replace what is in the run folder
    #[arg(long, conflicts_with = "resume")]
    pub overwrite: bool,
    /// Print the results as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}
