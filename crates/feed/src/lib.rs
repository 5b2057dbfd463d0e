//! Batches of named arrays: records prefetched by a [`Fetch`](pelton_fetch::Fetch), then processed by stages.
//!
//! ```
//! use std::sync::Arc;
//!
//! use pelton_feed::{Loader, LoaderOptions, Stages};
//! use pelton_format::{Dataset, OpenOptions};
//! use pelton_plan::{Catalog, Order, Plan, PlanSpec};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("lines.txt");
//! # std::fs::write(&path, "a line\n".repeat(100))?;
//! let dataset = Arc::new(Dataset::open(&[path], &OpenOptions::default())?);
//! let spec = PlanSpec::new(Order::Full, 32, 7);
//! let plan = Arc::new(Plan::new(&spec, Catalog::new(dataset.records()))?);
//! let options = LoaderOptions {
//!     end_epoch: Some(1),
//!     ..LoaderOptions::with_memory(64 << 20)
//! };
//! let mut examples = 0;
//! for batch in Loader::new(dataset, plan, Stages::default(), &options)? {
//!     examples += batch?.len();
//! }
//! assert_eq!(examples, 100);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Loader`] executes a plan: threads read, decode, augment and collate records into batches, within a
//! memory budget, and batches come in exactly the plan's order. [`Samples`] makes single samples and batches on
//! request.

pub mod as_text;
pub mod settings;

mod config;

mod auto_echo;
mod bad_seen;
mod budget;
mod building;
mod collate;
mod collation;
mod dispatch;
mod error;
mod field_setting;
mod held_sample;
mod id_reader;
mod in_place;
mod in_place_reads;
mod known_fields;
mod labels;
mod loader;
mod meters;
mod numbers;
mod options;
mod read_ahead;
mod sample;
mod samples;
mod shared;
mod stage;
mod stages;
mod state;
mod steps;
mod worker;

pub use building::BadExample;
pub use collation::{Collate, Collation};
pub use config::{
    DecodeSetting, EchoSetting, LengthRange, LengthSetting, PipelineConfig, SampleSetting,
};
pub use error::FeedError;
pub use field_setting::{FieldKind, FieldSetting};
pub use labels::Labels;
pub use loader::Loader;
pub use meters::{LoaderMeters, StageMeters, StageVerdict};
pub use numbers::NumbersKind;
pub use options::{AutoEcho, BadExamples, EchoPoint, LoaderOptions, Near, Seen};
pub use sample::{Sample, Value};
pub use samples::Samples;
pub use stage::{Appearance, Slots, Stage, StageFailure, When};
pub use stages::{
    AugmentImages, BYTES, DecodeFields, DecodeImages, Exif, FEATURES, Function, IMAGE, LABEL,
    LengthsOf, MEMBERS, StageFn, Stages, TARGET_TOKENS, TEXT, TOKENS, TakeMember, Tokenise,
};
pub use state::LoaderState;
