//! The problem that a configuration poses over some rows.

use pelton_data::OpenedData;
use pelton_format::{ClassMap, Layout};
use pelton_linear::{Lbfgs, Problem};

use crate::config::LinearConfig;
use crate::error::TrainError;

/// The size of a problem over some rows.
pub(super) struct Shape {
    /// What messages call the rows.
    pub name: String,
    pub layout: Layout,
    pub records: u64,
    pub features: u64,
    /// Stored values of sparse rows.
    pub stored: u64,
}

impl Shape {
    pub fn of(data: &OpenedData) -> Shape {
        let dataset = &data.dataset;
        let first = data.paths.first().map(|path| path.display().to_string());
        Shape {
            name: first.unwrap_or_default(),
            layout: dataset.layout(),
            records: dataset.records(),
            features: dataset.features(),
            stored: dataset.nonzeros(),
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
    check_tables(&problem, shape)?;
    if let Some(bias) = config.bias {
        problem = problem.with_bias(bias)?;
    }
    if config.free_bias {
        problem = problem.with_free_bias();
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

/// Features up to which a table of all of them is made in a moment.
const FEW_FEATURES: u64 = 1 << 25;
/// Features for each stored value above which nearly all features are holes in the numbering.
const MOST_HOLES: u64 = 64;

/// Refuses data where hardly any of the features occur, since tables, checkpoint and model contain all of
/// them; and problems where α and w, with the two copies of w for writing a model, exceed the machine's memory,
/// such as one against the rest over labels that are not classes.
fn check_tables(problem: &Problem, shape: &Shape) -> Result<(), TrainError> {
    let (name, features, stored) = (&shape.name, shape.features, shape.stored);
    if features > FEW_FEATURES && features / MOST_HOLES > stored {
        return Err(TrainError::config(format!(
            "{name}: has {features} features by its largest index but only {stored} values, so a model would be {} bytes, almost all zeros; check the index, or renumber the features without gaps",
            4 * features
        )));
    }
    let values = u128::from(shape.records) + 3 * u128::from(features);
    let bytes = if problem.is_coupled() {
        u128::from(Lbfgs::bytes(problem))
    } else {
        4 * values * problem.subproblems() as u128
    };
    let system = rustix::system::sysinfo();
    let memory = u128::from(system.totalram) * u128::from(system.mem_unit.max(1));
    if bytes <= memory {
        return Ok(());
    }
    let (what, remedy) = match problem.subproblems() {
        1 => (
            format!("{features} features"),
            "renumber the features without gaps, or use a machine with more memory",
        ),
        models => (
            format!("{models} distinct labels, with weights for each"),
            "check that the label column contains classes, or give `positive` LABEL",
        ),
    };
    Err(TrainError::config(format!(
        "{name}: has {what}, which needs {bytes} bytes for the tables of the solver, and this machine has {memory}; {remedy}"
    )))
}
