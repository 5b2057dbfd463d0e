//! The job `reproduce`: the work of a published table, its figures beside ours.
//!
//! * `lirs-svm`: LIRS Tables 3 and 4, Figures 9 and 10: epochs to the best of fixed block
//!   minimization, accuracy, total time by device;
//! * `lirs-pages`: Figure 11: rows, pages and larger units;
//! * `lirs-memory`: Table 5: the tables in memory.
//!
//! A figure that comes from a modelled device says so; everything else was measured in this run.

mod memory;
mod pages;
mod shapes;
mod svm;
mod svm_time;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use serde_json::Value;

use crate::error::TrainError;
use crate::event::Observer;

/// How a table is reproduced.
#[derive(Clone, Debug)]
pub struct ReproduceConfig {
    /// `lirs-svm`, `lirs-pages` or `lirs-memory`.
    pub name: String,
    /// Scale of the generated data, 1 being the default number of rows.
    pub scale: f64,
    /// Seeds to repeat with.
    pub seeds: u64,
    /// Folder for data, scratch files and the raw runs.
    pub out: PathBuf,
    /// Folder of real data sets, where there is one.
    pub real_data: Option<PathBuf>,
}

/// One figure: what was published beside what was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The published table or figure.
    pub table: String,
    /// Data set or shape.
    pub data: String,
    /// Method, order or unit.
    pub method: String,
    /// What is measured, with its unit.
    pub figure: String,
    /// The published value; null where there is none.
    pub published: Value,
    /// The measured value.
    pub measured: Value,
    /// What differs from the publication.
    pub differs: String,
}

/// A reproduced table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reproduction {
    /// Its name.
    pub name: String,
    /// Its figures.
    pub rows: Vec<Row>,
    /// What holds for all of them.
    pub notes: Vec<String>,
}

/// Runs the work of a table.
pub fn reproduce(
    config: &ReproduceConfig,
    interrupt: &AtomicBool,
    observer: Observer<'_>,
) -> Result<Reproduction, TrainError> {
    if !(config.scale > 0.0 && config.scale <= 100.0) || config.seeds == 0 {
        return Err(TrainError::Config(
            "--scale takes a factor above 0 and at most 100, --seeds 1 or more".to_string(),
        ));
    }
    std::fs::create_dir_all(&config.out).map_err(|error| {
        TrainError::Config(format!(
            "{}: cannot be made: {error}; name another folder with --out",
            config.out.display()
        ))
    })?;
    match config.name.as_str() {
        "lirs-svm" => svm::lirs_svm(config, interrupt, observer),
        "lirs-pages" => pages::lirs_pages(config, interrupt, observer),
        "lirs-memory" => memory::lirs_memory(config, observer),
        name => Err(TrainError::Config(format!(
            "{name} is not a table; use lirs-svm, lirs-pages or lirs-memory"
        ))),
    }
}

/// The middle of some values; not a number where there are none.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => 0.5 * (values[n / 2 - 1] + values[n / 2]),
    }
}

fn interrupted() -> TrainError {
    TrainError::Config("interrupted; nothing is kept of a table that is not complete".to_string())
}
