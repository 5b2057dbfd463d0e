//! What a configuration names: files, patterns, built-in data, and the device under them.
//!
//! [`open`] turns a [`DataConfig`] into an [`OpenedData`]. [`for_each_batch`] and [`Pass`] read all of it once, [`plan_of`] makes the plan of an order over it.

mod config;
mod demo;
mod error;

mod open;

mod bad_records;
mod batches;
mod kept_lengths;
mod pass;
mod plan;
mod texts;

pub use bad_records::{check_limit, check_limit_on, check_some_left, met_by_all, problem_of};
pub use batches::{for_each_batch, hold_rows, stripe_records};
pub use config::{DataConfig, IoMode, as_text};
pub use demo::{DemoError, DemoSpec, cache_folder};
pub use error::DataError;
pub use kept_lengths::{in_turn, record_lengths};
pub use open::{
    Expected, OpenedData, cache_dir, check_scratch, check_threads, fetch_bytes, fetch_rows, open,
    row_layout,
};
pub use pass::Pass;
pub use plan::{plan_of, units_of};
pub use texts::Texts;
