//! The loop that all jobs on deep nets share: feed, step, metrics, evaluation, checkpoint.
//!
//! `config` is what a run is asked to be; `fit` is the loop; `batch` makes what a net takes from a batch of the feed;
//! `saving` writes and reads checkpoints; `outcome` writes what is left behind. The jobs themselves are
//! [`image`](crate::image) and [`language`](crate::language).

mod batch;
mod config;
mod fit;
mod outcome;
mod saving;
mod summary;

pub use config::{CourseSetting, FitConfig, Optimizer, growing_batch};
pub use summary::NetSummary;

pub(crate) use batch::{Ready, Targets};
pub(crate) use fit::{Fit, fit};
