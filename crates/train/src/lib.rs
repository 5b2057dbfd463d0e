//! Training jobs: configuration, data, run folder, checkpoints and reports.
//!
//! One module a job: [`linear`] trains, [`evaluate`] measures and predicts with a model, [`mod@bench`]
//! measures a feed alone, [`capacity`] predicts it on more nodes, [`buckets`] says what padding
//! sentences costs, [`mod@vocabulary`] counts words, [`data_tools`] index, show, pack and probe, [`reproduce`] does
//! the work of published tables. Nothing here prints; jobs tell an [`Observer`] what happens.
//!
//! A job takes one resolved configuration ([`LinearConfig`], [`DataConfig`]), opens what it names
//! (`data`, or `demo` for generated sets) and returns its figures ([`LinearSummary`]). A training
//! run owns a [`RunFolder`]: the configuration that repeats it, a line of metrics an epoch, a
//! checkpoint that it can go on from, and at the end the model and a [`Report`].

mod bad_records;
mod config;
mod data;
mod demo;
mod error;
mod event;
mod kept_lengths;
mod metrics_endpoint;
mod pass;
mod summary;
mod texts;

mod checkpoint;
mod report;
mod run_folder;
mod tensorboard;

pub mod linear;

pub mod bench;
pub mod buckets;
pub mod capacity;
pub mod data_tools;
pub mod evaluate;
pub mod picture;
pub mod reproduce;
pub mod vocabulary;

pub use config::{DataConfig, IoMode, LinearConfig, Optimum, Solver};
pub use data::{Expected, OpenedData, SharedData, fetch_bytes, fetch_rows};
pub use demo::{DemoError, DemoSpec, cache_folder};
pub use error::TrainError;
pub use event::{EpochRecord, Event, Interrupt, Observer};
pub use metrics_endpoint::{MetricsEndpoint, prometheus_text};
pub use pelton_feed::{Access, BadExamples, Collate, Exif, OnBadRecord};
pub use pelton_format::{ClassName, Missing};
pub use pelton_image::Pipeline;
pub use pelton_linear::{InnerPasses, Loss, Scaling};
pub use pelton_plan::{BucketPolicy, Order};
pub use report::{Bars, Histogram, Marks, Plot, Report, StageUse};
pub use run_folder::{RunFolder, RunFolderError, write_atomically};
pub use summary::{LinearSummary, cpu_seconds, peak_rss_bytes};
pub use tensorboard::EventWriter;

/// Entry points over plain bytes, for fuzzing.
#[doc(hidden)]
pub mod raw;
