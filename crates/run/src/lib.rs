//! The outputs of a run: its folder, metrics, events and report.
//!
//! ```
//! use pelton_run::{Plot, Report};
//!
//! let loss = vec![(1.0, 0.9), (2.0, 0.4)];
//! let report = Report {
//!     title: "a run".to_string(),
//!     series: vec![Plot {
//!         title: "Loss".to_string(),
//!         lines: vec![("training".to_string(), loss)],
//!         ..Plot::default()
//!     }],
//!     ..Report::default()
//! };
//! assert!(report.to_html().contains("<svg"));
//! ```
//!
//! A run owns a [`RunFolder`]: the configuration that repeats it, a line of metrics an epoch, a checkpoint
//! that it can resume from, and at the end the model and a [`Report`]. While it runs it reports events to an
//! [`Observer`]; nothing here prints.

mod atomically;
mod checkpoint;
mod checkpoint_file;
mod context;
mod entry;
mod error;
mod event;
mod manifest;
mod metrics_endpoint;
mod process;
mod prometheus;
mod report;
mod run_folder;
mod settings;
mod tensorboard;

pub use atomically::write_atomically;
pub use checkpoint::{Checkpoint, Tensor, encode_checkpoint, write_checkpoint};
pub use checkpoint_file::CheckpointFile;
pub use context::{RunContext, RunOptions};
pub use entry::Entry;
pub use error::RunError;
pub use event::{EpochRecord, Event, Interrupt, Observer};
pub use manifest::{Entries, Manifest, Set};
pub use metrics_endpoint::MetricsEndpoint;
pub use process::{cpu_seconds, peak_rss_bytes, reset_peak_rss};
pub use prometheus::{PROMETHEUS_TYPE, PrometheusText};
pub use report::{Bars, Curve, Histogram, Marks, Plot, Report, SignedBars, StageUse, Table};
pub use run_folder::{RunFolder, is_loose};
pub use safetensors::tensor::Dtype;
pub use settings::{Settings, decisive};
pub use tensorboard::EventWriter;
