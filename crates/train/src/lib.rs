//! Training jobs: configuration, data, run folder, checkpoints and reports.

mod demo;
mod report;
mod run_folder;
mod tensorboard;

pub use demo::{DemoError, DemoSpec, cache_folder};
pub use report::{Bars, Plot, Report, StageUse};
pub use run_folder::{RunFolder, RunFolderError, write_atomically};
pub use tensorboard::EventWriter;
