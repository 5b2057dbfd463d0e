//! The problem that a configuration poses over some rows.

use std::sync::Arc;

use pelton_data::OpenedData;
use pelton_format::{ClassMap, Layout};
use pelton_key::{Stage, key};
use pelton_linear::{Lbfgs, Problem};
use pelton_plan::Permutation;
use pelton_storage::memory_limit;

use crate::config::LinearConfig;
use crate::error::TrainError;

/// The size of a problem over some rows.
pub(super) struct Shape {
    /// Name of the rows in messages.
    pub name: String,
    pub layout: Layout,
    pub records: u64,
    pub features: u64,
    /// Stored values of sparse rows.
    pub stored: u64,
    /// The feature that is an offset.
    pub offset: Option<usize>,
}

impl Shape {
    pub fn from_data(data: &OpenedData) -> Shape {
        let dataset = &data.dataset;
        let first = data.paths.first().map(|path| path.display().to_string());
        Shape {
            name: first.unwrap_or_default(),
            layout: dataset.layout(),
            records: dataset.records(),
            features: dataset.features(),
            stored: dataset.nonzeros(),
            offset: dataset.columns().and_then(|columns| columns.offset()),
        }
    }

    /// Mean number of values of a row.
    pub fn values_of_a_row(&self) -> f64 {
        match self.layout {
            Layout::Dense { width } => width as f64,
            _ => self.stored as f64 / self.records.max(1) as f64,
        }
    }
}

pub(super) fn problem(
    config: &LinearConfig,
    labels: &ClassMap,
    shape: &Shape,
) -> Result<Problem, TrainError> {
    let features = usize::try_from(shape.features).unwrap_or(usize::MAX);
    let mut problem = Problem::new(config.loss, config.cost, features, labels.len())?;
    problem = problem.with_penalty(config.penalty)?;
    check_tables(&problem, shape)?;
    if let Some(bias) = config.bias {
        problem = problem.with_bias(bias)?;
    }
    if config.free_bias {
        problem = problem.with_free_bias();
    }
    if let Some(offset) = shape.offset {
        problem = problem.with_offset(offset)?;
    }
    let mut weighted = Vec::new();
    for (label, weight) in &config.class_weights {
        let class = labels.class_called(label).ok_or_else(|| {
            let known = match labels.names() {
                [] => format!("{:?}", labels.values()),
                names => names.join(", "),
            };
            TrainError::config(format!(
                "`class_weight` {label}={weight}: no record has the label {label}; the labels are {known}"
            ))
        })?;
        if weighted.contains(&class) {
            return Err(TrainError::config(format!(
                "`class_weight` gives label {label} two factors; give one"
            )));
        }
        weighted.push(class);
        problem = problem.with_class_weight(class, *weight)?;
    }
    Ok(problem)
}

/// A model for each cost and fold of a configuration, if it has folds.
pub(super) fn with_folds(
    config: &LinearConfig,
    problem: Problem,
    shape: &Shape,
) -> Result<Problem, TrainError> {
    let Some(folds) = config.folds else {
        return Ok(problem);
    };
    let costs = config.listed_costs();
    let factors: Vec<f64> = costs.iter().map(|cost| cost / costs[0]).collect();
    // Counted before the folds are made.
    let models = costs.len() as u64 * u64::from(folds);
    let what = format!("{} costs × {folds} folds make {models} models", costs.len());
    let remedy = "give fewer costs or folds, or train on a part of the data";
    check_memory(shape, models * problem.subproblems() as u64, &what, remedy)?;
    let order = Permutation::new(shape.records, key(config.seed, 0, Stage::HeldOut));
    let fold_of = |record| (order.get(record) % u64::from(folds)) as u8;
    let of_record: Arc<[u8]> = (0..shape.records).map(fold_of).collect();
    Ok(problem.with_grid(&factors, Some((of_record, folds as u8)))?)
}

/// Up to this many features, allocating a table of all of them takes a moment.
const FEW_FEATURES: u64 = 1 << 25;
/// With more features than this per stored value, nearly all features are holes in the numbering.
const MOST_HOLES: u64 = 64;

/// Refuses data in which hardly any features occur, since tables, checkpoint and model contain all of them; and
/// problems for which α and w, with the two copies of w for writing a model, exceed the memory that this process may
/// have, such as one against the rest over labels that are not classes.
fn check_tables(problem: &Problem, shape: &Shape) -> Result<(), TrainError> {
    let (name, features, stored) = (&shape.name, shape.features, shape.stored);
    if features > FEW_FEATURES && features / MOST_HOLES > stored {
        return Err(TrainError::config(format!(
            "{name}: has {features} features by its largest index but only {stored} values, so a model would be {} bytes, almost all zeros; check the index, or renumber the features without gaps",
            4 * features
        )));
    }
    let (what, remedy) = match problem.subproblems() {
        1 => (
            format!("has {features} features"),
            "renumber the features without gaps, or use a machine with more memory",
        ),
        models => (
            format!("has {models} distinct labels, with weights for each"),
            "check that the label column contains classes, or give `positive` LABEL",
        ),
    };
    if problem.is_coupled() {
        return check_bytes(name, u128::from(Lbfgs::bytes(problem)), &what, remedy);
    }
    check_memory(shape, problem.subproblems() as u64, &what, remedy)
}

/// Refuses a number of subproblems if their α and w exceed the memory that this process may have.
fn check_memory(
    shape: &Shape,
    subproblems: u64,
    what: &str,
    remedy: &str,
) -> Result<(), TrainError> {
    let (name, features) = (&shape.name, shape.features);
    let values = u128::from(shape.records) + 3 * u128::from(features);
    let bytes = 4 * values * u128::from(subproblems);
    check_bytes(name, bytes, what, remedy)
}

fn check_bytes(name: &str, bytes: u128, what: &str, remedy: &str) -> Result<(), TrainError> {
    // If the system reports no limit, the allocation may fail.
    match memory_limit() {
        Some(memory) if bytes > u128::from(memory) => Err(TrainError::config(format!(
            "{name}: {what}, which needs {bytes} bytes for the tables of the solver, and this process may have {memory}; {remedy}"
        ))),
        _ => Ok(()),
    }
}
