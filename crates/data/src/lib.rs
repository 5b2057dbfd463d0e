//! Data named by a configuration: files, patterns, built-in data, and the device under them.
//!
//! ```
//! use pelton_comm::Comm;
//! use pelton_data::{DataConfig, open};
//! use pelton_run::{Interrupt, RunContext};
//!
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("rows.csv");
//! # std::fs::write(&file, "x,y,label\n1,2,cat\n3,4,dog\n")?;
//! let paths = [file.to_str().unwrap().to_string()];
//! let (comm, interrupt) = (Comm::alone(), Interrupt::default());
//! let mut observer = |_: pelton_run::Event<'_>| {};
//! let mut context = RunContext::new(&comm, &interrupt, &mut observer);
//! let opened = open(&DataConfig::default(), &paths, None, &mut context)?;
//! assert_eq!(opened.dataset.records(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`open`] turns a [`DataConfig`] into an [`OpenedData`]. [`for_each_batch`] and [`Pass`] read all of it once,
//! [`plan_of`] makes the plan of an order over it. A [`PreparedPipeline`] takes its records through stages to
//! batches.

mod class_setting;
mod config;
mod demo;
mod error;
mod ranges;

mod braces;
mod names;
mod pairs;
#[cfg_attr(not(feature = "cloud"), path = "no_remote.rs")]
mod remote;
#[cfg_attr(not(feature = "cloud"), path = "no_run_copy.rs")]
mod run_copy;

mod record_bytes;

mod alike;
mod open;

mod bad_records;
mod batches;
mod content;
mod pass;
mod plan;
mod texts;

mod held_out;
mod length_cache;
mod peers;
mod record_classes;
mod sampler;
mod vocabulary_cache;

mod pipeline_plan;

mod pipeline;

pub use bad_records::{
    check_limit, check_limit_on, check_some_left, left_out, met_by_all, problem_of,
};
pub use batches::{for_each_batch, hold_rows, stripe_records};
pub use class_setting::ClassSetting;
pub use config::DataConfig;
pub use content::{SavedContent, check_content, summed};
pub use demo::{DemoError, DemoSpec};
pub use error::DataError;
pub use held_out::{HeldOut, Validation};
pub use open::{Expected, OpenedData, check_scratch, check_threads, fetch_rows, open, row_layout};
pub use pass::Pass;
pub use peers::{Filling, PeerConfig, PeerFigures, PeerMode, Peers};
pub use pelton_feed::as_text;
pub use pelton_text::Vocabulary;
pub use pipeline::{PipelineLoader, PipelineTerms, PreparedPipeline};
pub use plan::{plan_of, units_of};
pub use ranges::{check_positive, check_range, check_seconds, check_share};
pub use record_bytes::fetch_bytes;
pub use record_classes::{check_classes, label_counts, several_classes};
pub use run_copy::{RunCopy, config_of, fetched_model};
pub use texts::Texts;
pub use vocabulary_cache::cached_vocabulary;
