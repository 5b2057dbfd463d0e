//! The job `reproduce`: the work of a published table, its figures beside ours.
//!
//! * `lirs-svm`: LIRS Tables 3 and 4, Figures 9 and 10: epochs to the best of fixed block
//!   minimization, accuracy, total time by device;
//! * `lirs-pages`: Figure 11: rows, pages and larger units;
//! * `lirs-memory`: Table 5: the tables in memory;
//! * `deepio-bandwidth`: DeepIO Figures 10 to 12: reading through ranks' memory;
//! * `deepio-order`: DeepIO Figures 7 and 8: training against the randomness of the order;
//! * `buckets`: padding of the Penn Treebank by ways of bucketing it;
//! * `echo`: data echoing: training on a slow source whose examples are used several times.
//!
//! [`Experiment`] says what is compared, `published` holds the paper's figures, `held` the data,
//! `convergence` trains, `modelled` and `measured` price the reading. A figure of a modelled device
//! says so; everything else is measured or counted in this run.

mod experiment;
mod published;

mod held;
mod method;

mod convergence;
mod measured;
mod modelled;

mod buckets;
mod deepio_bandwidth;
mod deepio_order;
mod echo;
mod memory;
mod pages;
mod svm;

mod drawing;
mod raw_runs;

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

pub use experiment::{Experiment, SetConfig};

use pelton_run::{RunContext, write_atomically};
use pelton_train::TrainError;

/// How a table is reproduced.
#[derive(Clone, Debug)]
pub struct ReproduceConfig {
    /// What is compared.
    pub experiment: Experiment,
    /// Factor on the rows of generated data.
    pub scale: f64,
    /// Seeds to repeat with.
    pub seeds: u64,
    /// Folder for data, scratch files, raw runs and the report.
    pub out: PathBuf,
    /// Folder of real data sets, where there is one.
    pub real_data: Option<PathBuf>,
    /// The `pelton` program, which is run to measure this machine's disk; `None` leaves that out.
    pub program: Option<PathBuf>,
}

/// One figure: what was published beside what was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The published table or figure.
    pub table: String,
    /// Data set or shape.
    pub data: String,
    /// Method, order or unit, and for times the device.
    pub method: String,
    /// Passes over a block in memory, where they are compared.
    pub inner_passes: Option<String>,
    /// What is measured, with its unit.
    pub figure: String,
    /// The published value; null where there is none.
    pub published: Value,
    /// The measured value; null where it could not be measured.
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
    /// Files left behind: raw runs and the report.
    pub files: Vec<PathBuf>,
}

/// Runs the work of a table and leaves raw runs and a report in the folder.
///
/// Errors: bad configuration; data that cannot be generated or read; an interruption.
pub fn reproduce(
    config: &ReproduceConfig,
    context: RunContext<'_>,
) -> Result<Reproduction, TrainError> {
    let RunContext {
        interrupt,
        observer,
        ..
    } = context;
    let scale_fits = config.scale > 0.0 && config.scale <= 1000.0;
    if !scale_fits || !(1..=1000).contains(&config.seeds) {
        return Err(TrainError::config(format!(
            "`scale` {} `seeds` {}: a scale is above 0 and at most 1000, seeds are 1 to 1000",
            config.scale, config.seeds
        )));
    }
    let data = config.out.join("data");
    std::fs::create_dir_all(&data).map_err(|error| {
        TrainError::config(format!(
            "{}: cannot be made: {error}; name another folder with `out`",
            data.display()
        ))
    })?;
    let mut reproduction = match config.experiment.name.as_str() {
        "lirs-svm" => svm::lirs_svm(config, interrupt, observer)?,
        "lirs-pages" => pages::lirs_pages(config, interrupt, observer)?,
        "deepio-bandwidth" => deepio_bandwidth::deepio_bandwidth(config, interrupt, observer)?,
        "lirs-memory" => memory::lirs_memory(config, interrupt, observer)?,
        "deepio-order" => deepio_order::deepio_order(config, interrupt, observer)?,
        "buckets" => buckets::buckets_table(config, interrupt)?,
        "echo" => echo::echo_table(config, interrupt, observer)?,
        name => {
            return Err(TrainError::config(format!(
                "{name} is not a table; use lirs-svm, lirs-pages, lirs-memory, deepio-bandwidth, deepio-order, buckets or echo"
            )));
        }
    };
    let page = config.out.join(format!("{}.html", reproduction.name));
    let html = drawing::report(&reproduction).to_html();
    write_atomically(&page, |path| std::fs::write(path, html))?;
    reproduction.files.push(page);
    Ok(reproduction)
}

/// The middle of some values; not a number where there are none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => 0.5 * (values[n / 2 - 1] + values[n / 2]),
    }
}

fn interrupted() -> TrainError {
    TrainError::stopped("reproducing a table")
}

fn unwritable(path: &Path, error: &std::io::Error) -> TrainError {
    TrainError::config(format!(
        "{}: cannot be written: {error}; make room or name another folder with `out`",
        path.display()
    ))
}

#[cfg(test)]
mod tests;
