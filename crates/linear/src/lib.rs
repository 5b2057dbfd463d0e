//! Linear support vector machines and logistic regression by dual coordinate descent, on blocks of
//! rows: the whole data when they fit in memory, else whatever fits.
//!
//! A [`Problem`] says what is minimised. [`solve_block`] improves [`Weights`] and [`Duals`] on the
//! rows of one block. [`LossSum`] and [`dual_value`] make the [`Certificate`] that says how far from
//! the optimum the solution can be at most. [`predict`] and [`Confusion`] use the weights; [`Model`]
//! saves them, also in LIBLINEAR's format.

mod error;
mod problem;

mod duals;
mod weights;

mod active;
mod block;
mod huge_pages;
mod random;
mod step;

mod kernels;
mod solve;

mod certificate;
mod gap;
mod predict;

mod model;

mod row_cache;
mod skip;

mod out_of_core;
mod saved_state;

mod spelling;

pub use block::Scratch;
pub use certificate::{Certificate, LossSum, add_dual_weights, dual_value};
pub use duals::Duals;
pub use error::LinearError;
pub use gap::gap_of_rows;
pub use kernels::Simd;
pub use model::Model;
pub use out_of_core::{EpochOutcome, OutOfCore, OutOfCoreOptions, Snapshot};
pub use predict::{Confusion, Prediction, predict, probabilities};
pub use problem::{Loss, Problem};
pub use row_cache::RowCache;
pub use saved_state::SavedState;
pub use skip::{SETTLED_SLACK, SkipTable};
pub use solve::{BlockReport, InnerPasses, solve_block};
pub use weights::Weights;
