//! Training jobs, one module a job: [`linear`] trains, [`evaluate`] measures and predicts with a model.
//!
//! ```
//! use pelton_comm::Comm;
//! use pelton_train::{DataConfig, Event, Interrupt, LinearConfig, RunContext, linear};
//!
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("rows.svm");
//! # std::fs::write(&file, "+1 1:1\n-1 1:-1\n".repeat(10))?;
//! let config = LinearConfig {
//!     data: DataConfig {
//!         paths: vec![file.to_str().unwrap().to_string()],
//!         ..DataConfig::default()
//!     },
//!     ..LinearConfig::default()
//! };
//! let (comm, interrupt) = (Comm::alone(), Interrupt::default());
//! let mut observer = |_: Event<'_>| {};
//! let trained = linear::fit(&config, RunContext::new(&comm, &interrupt, &mut observer))?;
//! assert!(trained.certificate.relative_gap() < 1e-3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A job takes one resolved configuration ([`LinearConfig`]), opens the data it names and returns its figures
//! ([`LinearSummary`]). Nothing here prints; jobs report events to an [`Observer`].

mod checkpoint;
mod config;
mod error;
mod in_store;
mod start;
mod summary;
mod trained;

#[cfg(feature = "nets")]
mod deep;
#[cfg(feature = "nets")]
mod ranked;

#[cfg(feature = "nets")]
pub mod changed_classes;
#[cfg(feature = "nets")]
mod class_index;
#[cfg(feature = "nets")]
mod class_sizes;
#[cfg(feature = "nets")]
pub mod class_weights;
#[cfg(feature = "nets")]
pub mod classify;
#[cfg(feature = "nets")]
pub mod embeddings;
#[cfg(feature = "nets")]
pub mod finished;
#[cfg(feature = "nets")]
pub mod image;
#[cfg(feature = "nets")]
mod label_ranks;
#[cfg(feature = "nets")]
pub mod language;
pub mod linear;
#[cfg(feature = "nets")]
pub mod retrieval;
#[cfg(feature = "nets")]
pub mod verification;

pub mod evaluate;

#[cfg(feature = "nets")]
pub use class_sizes::SizeAccuracy;
#[cfg(feature = "nets")]
pub use deep::{
    CourseSetting, FitConfig, NetEpoch, NetSummary, Optimizer, Ready, Targets, TestSample,
    growing_batch, thread_pool,
};
#[cfg(feature = "nets")]
pub use image::ImageConfig;
#[cfg(feature = "nets")]
pub use label_ranks::LabelRanks;
#[cfg(feature = "nets")]
pub use language::LanguageConfig;
#[cfg(feature = "nets")]
pub use pelton_nn::GrowingBatch;

pub use config::{LinearConfig, Optimum, Solver, Stated, Target, read_over};
pub use error::TrainError;
pub use in_store::{config_here, in_run_folder, model_here};
pub use pelton_data::{
    ClassSetting, DataConfig, DataError, Validation, check_positive, check_range, check_share,
};
pub use pelton_feed::settings::{Configured, Form, Setting};
pub use pelton_fetch::{Access, OnBadRecord};
pub use pelton_format::{ClassName, Decimal, FeatureType, Header, Missing, NamedKind};
pub use pelton_linear::TargetFigures;
pub use pelton_linear::{InnerPasses, Loss, Model, Penalty, Scaling, ThresholdGoal};
pub use pelton_plan::Order;
pub use pelton_run::{EpochRecord, Event, Interrupt, Observer, RunContext};
pub use pelton_storage::{
    Memory, Output, memory_budget, path_text, refuse_address, shown_address, without_secrets,
};
pub use summary::{CostFigures, LinearSummary, SearchFigures, TestFigures, ThresholdFigures};

/// Entry points over plain bytes, for fuzzing.
#[doc(hidden)]
pub mod raw;

/// For tests: makes every use of Rayon's global pool panic in this process, as it would if the system refused threads.
pub fn forbid_rayons_pool() {
    let refuse = |_| Err(std::io::Error::other("forbidden"));
    let pool = rayon::ThreadPoolBuilder::new().spawn_handler(refuse);
    let _ = pool.build_global();
}
