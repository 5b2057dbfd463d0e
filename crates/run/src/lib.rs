//! The outputs of a run: its folder, metrics, events and report.
//!
//! A run owns a [`RunFolder`]: the configuration that repeats it, a line of metrics an epoch, a checkpoint
//! that it can resume from, and at the end the model and a [`Report`]. While it runs it reports events to an
//! [`Observer`]; nothing here prints.

mod checkpoint;
mod context;
mod error;
mod event;
mod metrics_endpoint;
mod process;
mod report;
mod run_folder;
mod settings;
mod tensorboard;

pub use checkpoint::{Checkpoint, Tensor, encode_checkpoint, read_checkpoint, write_checkpoint};
pub use context::{RunContext, RunOptions};
pub use error::RunError;
pub use event::{EpochRecord, Event, Interrupt, Observer};
pub use metrics_endpoint::MetricsEndpoint;
pub use process::{cpu_seconds, peak_rss_bytes, reset_peak_rss};
pub use report::{Bars, Histogram, Marks, Plot, Report, StageUse};
pub use run_folder::{RunFolder, write_atomically};
pub use safetensors::tensor::Dtype;
pub use tensorboard::EventWriter;
