//! The input of a table and its contents.

use std::path::{Path, PathBuf};

use pelton_train::TrainError;
use serde::Serialize;
use serde_json::Value;

use crate::experiment::Experiment;

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

/// One figure: what was published next to what was measured.
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
    /// Milliseconds, where ways of selecting are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ms: Option<f64>,
    /// Whether such a way selected what it should.
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
    /// What holds for all of them.
    pub notes: Vec<String>,
    /// Files written: raw runs and the report.
    pub files: Vec<PathBuf>,
}

/// The middle of some values; not a number where there are none.
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

/// How far paired seeds differ in points, with the interval of 95 % where there are several.
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
