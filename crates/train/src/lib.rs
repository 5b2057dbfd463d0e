//! Training jobs: configuration, data, run folder, checkpoints and reports.

mod demo;

pub use demo::{DemoError, DemoSpec, cache_folder};
