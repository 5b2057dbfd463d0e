//! The loop that all jobs on deep nets share: feed, step, metrics, evaluation, checkpoint.
//!
//! `class_means` looks at the data before the first step; `config` holds a run's settings; `fit` is the loop and
//! `progress` its state; `source` yields batches, `batch` converts one of the feed to a net's input; `saving` writes
//! and reads checkpoints; `outcome` writes the results. The jobs themselves are [`image`](crate::image) and
//! [`language`](crate::language).

mod batch;
mod class_means;
mod config;
mod fit;
mod outcome;
mod progress;
mod saving;
mod sharing;
mod source;
mod summary;
mod tested;

pub use batch::{Ready, Targets};
pub use config::{CourseSetting, FitConfig, Optimizer, growing_batch};
pub use fit::thread_pool;
pub use progress::NetEpoch;
pub use summary::{NetSummary, TestSample};

pub(crate) use class_means::ClassMeans;
pub(crate) use config::{MOST_WIDTH, check_memory};
pub(crate) use fit::{Fit, fit, measure};
pub(crate) use saving::{MODEL, Shards, load_parameters, write_model};
pub(crate) use source::{Prepared, TextStream};
