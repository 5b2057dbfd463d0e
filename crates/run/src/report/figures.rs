//! The contents of a page.

use serde::{Deserialize, Serialize};

/// The contents of the page, in order. Empty parts are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the run.
    pub title: String,
    /// "Was I input-bound, at which stage, and what would fix it?"
    pub verdict: String,
    /// Figures as (name, value with unit, explanation or empty), the most important first: four are large, the others
    /// in a table at the end.
    pub summary: Vec<(String, String, String)>,
    /// Curves of one share against another.
    pub curves: Vec<Curve>,
    /// Numbers with signs.
    pub signed: Vec<SignedBars>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Plots of figures over the course of the run.
    pub series: Vec<Plot>,
    /// How each stage spent its time.
    pub stages: Vec<StageUse>,
    /// Figures to compare as bars, such as randomness levels.
    pub bars: Vec<Bars>,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// The configuration that repeats the run.
    pub config_toml: String,
}

/// Lines over a common x axis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// Title of the figure.
    pub title: String,
    /// Unit or meaning of x.
    pub x_label: String,
    /// Unit or meaning of y.
    pub y_label: String,
    /// Whether y is logarithmic; values that are not positive are then skipped.
    pub log_y: bool,
    /// Lines as (name, points); points with values that are not finite are skipped.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// A curve of one share against another, both from 0 to 1, in a square with its diagonal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Title of the figure.
    pub title: String,
    /// Meaning of x.
    pub x_label: String,
    /// Meaning of y.
    pub y_label: String,
    /// The curve; points with values that are not finite are skipped.
    pub points: Vec<(f64, f64)>,
    /// A sentence about it; may be empty.
    pub note: String,
}

/// Numbers as bars to both sides of 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SignedBars {
    /// Title of the figure.
    pub title: String,
    /// A sentence about it, such as the meaning of the sign; may be empty.
    pub note: String,
    /// Bars as (name, value).
    pub bars: Vec<(String, f64)>,
}

/// Rows of texts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Title of the figure.
    pub title: String,
    /// Names of the columns.
    pub head: Vec<String>,
    /// The rows; columns of numbers, except the first column, are right-aligned.
    pub rows: Vec<Vec<String>>,
    /// A sentence about it; may be empty.
    pub note: String,
}

/// How one stage spent the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageUse {
    /// Name of the stage.
    pub name: String,
    /// Seconds of work.
    pub busy_s: f64,
    /// Seconds of waiting for others.
    pub wait_s: f64,
}

/// Figures of one kind for comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bars {
    /// Title of the figure.
    pub title: String,
    /// Unit after each value, such as `%`; may be empty.
    pub unit: String,
    /// Value of a full bar; the largest value if absent.
    pub full: Option<f64>,
    /// Bars as (name, value).
    pub bars: Vec<(String, f64)>,
}

/// Counts of values by range, with marked positions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Title of the figure.
    pub title: String,
    /// Unit or meaning of the values.
    pub x_label: String,
    /// Unit or meaning of the counts.
    pub y_label: String,
    /// Ranges as (from, to, count), rising.
    pub counts: Vec<(f64, f64, u64)>,
    /// Strips of marks under the bars.
    pub marks: Vec<Marks>,
}

/// Positions on the axis of a histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Marks {
    /// Their meaning.
    pub name: String,
    /// The positions.
    pub at: Vec<f64>,
}
