//! The input of a table and its contents.

use std::path::{Path, PathBuf};

use pelton_train::TrainError;
use serde::Serialize;
use serde_json::Value;

use crate::experiment::Experiment;

/// Settings of reproducing a table.
#[derive(Clone, Debug)]
pub struct ReproduceConfig {
    /// The experiment to run.
    pub experiment: Experiment,
    /// Factor on the rows of generated data.
    pub scale: f64,
    /// Seeds to repeat with.
    pub seeds: u64,
    /// Folder for data, scratch files, raw runs and the report.
    pub out: PathBuf,
    /// Folder of real data sets, if any.
    pub real_data: Option<PathBuf>,
    /// The `pelton` program, for measuring this machine's disk; `None` skips that.
    pub program: Option<PathBuf>,
}

/// One figure: the published and the measured value.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The published table or figure.
    pub table: String,
    /// Data set or shape.
    pub data: String,
    /// Method, order or unit, and for times the device.
    pub method: String,
    /// Passes over a block in memory, if compared.
    pub inner_passes: Option<String>,
    /// The measured quantity, with its unit.
    pub figure: String,
    /// The published value; null if there is none.
    pub published: Value,
    /// The measured value; null if it could not be measured.
    pub measured: Value,
    /// Differences from the publication.
    pub differs: String,
    /// Milliseconds, if methods of selecting are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ms: Option<f64>,
    /// Whether such a method selected exactly the right elements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<bool>,
}

/// A reproduced table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reproduction {
    /// Its name.
    pub name: String,
    /// Its figures.
    pub rows: Vec<Row>,
    /// Notes on all figures.
    pub notes: Vec<String>,
    /// Files written: raw runs and the report.
    pub files: Vec<PathBuf>,
}

/// The median of some values; NaN if there are none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => 0.5 * (values[n / 2 - 1] + values[n / 2]),
    }
}

pub(crate) fn interrupted() -> TrainError {
    TrainError::stopped("reproducing a table")
}

pub(crate) fn unwritable(path: &Path, error: &std::io::Error) -> TrainError {
    TrainError::config(format!(
        "{}: cannot be written: {error}; make room or name another folder with `out`",
        path.display()
    ))
}

/// The difference between paired seeds in points, with its 95 % interval for several seeds.
pub(crate) fn difference(points: &[f64], than: &str) -> String {
    let (mean, half) = interval(points);
    match points.len() {
        1 => format!("{mean:+.2} points against {than}, one seed"),
        seeds => format!(
            "{mean:+.2} points against {than}, 95 % interval ± {half:.2} over {seeds} paired seeds"
        ),
    }
}

/// Mean and half the width of its 95 % interval (Student's t).
fn interval(values: &[f64]) -> (f64, f64) {
    const T: [f64; 10] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23];
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 {
        return (mean, f64::INFINITY);
    }
    let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let t = T.get(values.len() - 2).copied().unwrap_or(1.96);
    (mean, t * (variance / n).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_students() {
        // t of 4 degrees of freedom is 2.776; the deviation of 1 to 5 is the root of 2.5.
        let (mean, half) = interval(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((mean - 3.0).abs() < 1e-12 && (half - 2.78 * 0.5f64.sqrt()).abs() < 1e-9);
    }
}
