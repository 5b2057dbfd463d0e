//! Linear models over arrays and files, for the classifiers of `estimators.py`.
//!
//! An array arrives piece by piece as bytes, which are copied once, into the solver's memory: the solver stores rows of
//! f32 contiguously, and only unsafe code could borrow memory that Python may change meanwhile. NumPy makes the
//! pieces, so all types and memory orders take the same path, without another copy of the whole array.

use std::borrow::Cow;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use bytemuck::Pod;
use pelton_comm::Comm;
use pelton_data::{DataConfig, DataError as JobError, Expected, check_threads, hold_rows, open};
use pelton_fetch::FetchOptions;
use pelton_format::{ClassMap, FormatErrorKind, Layout, Row, RowLayout, Rows, Schema};
use pelton_run::{Event, Interrupt, RunContext};
use pelton_train::evaluate::open_model;
use pelton_train::linear::{Fitted, Start, fit, fit_rows};
use pelton_train::{LinearConfig, Missing, Model, TrainError};
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;

use crate::array::Array;
use crate::error::{DataError, configuration, of_job, of_settings};
use crate::interruptible::interruptible;

/// Rows of an array, to which pieces of it are added in order.
#[pyclass(module = "pelton._pelton")]
pub(crate) struct LinearRows {
    layout: Layout,
    features: usize,
    /// One of each piece.
    segments: Vec<Rows>,
    rows: usize,
}

#[pymethods]
impl LinearRows {
    /// For `rows` rows of `features` features: dense, or sparse with `stored` values together, which become dense where
    /// they are many.
    #[new]
    #[pyo3(signature = (rows, features, stored=None))]
    fn new(rows: usize, features: usize, stored: Option<usize>) -> LinearRows {
        let full = |stored: usize| {
            RowLayout::DenseWhereFull.makes_dense(rows as u64, features as u64, stored as u64)
        };
        LinearRows {
            layout: match stored {
                Some(stored) if !full(stored) => Layout::Sparse,
                _ => Layout::Dense { width: features },
            },
            features,
            segments: Vec::new(),
            rows: 0,
        }
    }

    /// Adds dense rows: of each the number of its class as u32, and the f32 of all.
    fn push_dense(&mut self, classes: &[u8], values: &[u8]) -> PyResult<()> {
        let (classes, values) = (numbers::<u32>(classes)?, numbers::<f32>(values)?);
        if values.len() != classes.len().saturating_mul(self.features) {
            return Err(misshapen());
        }
        let mut segment = Rows::new(self.layout);
        segment.reserve(classes.len(), values.len());
        for (row, &class) in values.chunks_exact(self.features.max(1)).zip(&*classes) {
            self.check_finite(row, |column| column)?;
            segment.push_dense(class, row);
            self.rows += 1;
        }
        self.segments.push(segment);
        Ok(())
    }

    /// Adds sparse rows: of each the number of its class and how many values it has as u32, and of all the
    /// features, which ascend in each row, as u32 and the values as f32.
    fn push_sparse(
        &mut self,
        classes: &[u8],
        lengths: &[u8],
        features: &[u8],
        values: &[u8],
    ) -> PyResult<()> {
        let (classes, lengths) = (numbers::<u32>(classes)?, numbers::<u32>(lengths)?);
        let (features, values) = (numbers::<u32>(features)?, numbers::<f32>(values)?);
        let sum: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
        if classes.len() != lengths.len()
            || features.len() != values.len()
            || sum != values.len() as u64
        {
            return Err(misshapen());
        }
        let mut segment = Rows::new(self.layout);
        segment.reserve(
            classes.len(),
            match self.layout {
                Layout::Dense { width } => classes.len().saturating_mul(width),
                _ => values.len(),
            },
        );
        let (mut features, mut values) = (&features[..], &values[..]);
        for (&class, &length) in classes.iter().zip(&*lengths) {
            let (indices, row);
            (indices, features) = features.split_at(length as usize);
            (row, values) = values.split_at(length as usize);
            let known = indices
                .last()
                .is_none_or(|&last| (last as usize) < self.features);
            if !known || !indices.is_sorted_by(|a, b| a < b) {
                return Err(PyValueError::new_err(format!(
                    "row {}: its column indices are not ascending, or exceed the number of columns",
                    self.rows
                )));
            }
            self.check_finite(row, |place| indices[place] as usize)?;
            push(&mut segment, class, indices, row);
            self.rows += 1;
        }
        self.segments.push(segment);
        Ok(())
    }

    /// Trains on the rows, which have the classes 0, 1, … below `classes`, and gives them up; what is in `centre` was
    /// subtracted from each feature, and `target_centre` from targets.
    #[pyo3(signature = (config, classes, threads, centre=None, target_centre=0.0, weights=None, start=None))]
    #[expect(clippy::too_many_arguments, reason = "they are Python's keywords")]
    fn fit(
        &mut self,
        py: Python<'_>,
        config: &str,
        classes: usize,
        threads: usize,
        centre: Option<Vec<f64>>,
        target_centre: f64,
        weights: Option<&[u8]>,
        start: Option<&str>,
    ) -> PyResult<Found> {
        let config = parse(config, weights, start)?;
        let segments = std::mem::take(&mut self.segments);
        let (labels, features) = (ClassMap::counted(classes), self.features);
        train(py, threads, start.is_some(), move |interrupt| {
            fit_rows(
                &config,
                segments,
                labels,
                features,
                (centre.as_deref(), target_centre),
                interrupt,
            )
        })
    }
}

impl LinearRows {
    fn check_finite(&self, row: &[f32], column: impl Fn(usize) -> usize) -> PyResult<()> {
        match row.iter().position(|value| !value.is_finite()) {
            None => Ok(()),
            Some(place) => Err(PyValueError::new_err(format!(
                "row {}, column {}: NaN, infinity or a value too large for 32-bit floating point; replace it or scale the column",
                self.rows,
                column(place)
            ))),
        }
    }
}

/// Appends a row that has `values` in the columns `indices`.
fn push(rows: &mut Rows, class: u32, indices: &[u32], values: &[f32]) {
    if rows.layout() == Layout::Sparse {
        return rows.push_sparse(class, indices, values);
    }
    let filled: Result<(), Infallible> = rows.push_dense_with(|row| {
        for (&index, &value) in indices.iter().zip(values) {
            row[index as usize] = value;
        }
        Ok(class)
    });
    let Ok(()) = filled;
}

/// A model as Python takes it: label values and names of the classes, for each subproblem coefficients and intercept,
/// primal and dual value, their relative gap, epochs, advice for easier training, notes on the data, how sure the coefficients
/// are where there is no penalty and what another training can begin from if that is wanted, the names of the features if
/// they have some, and the columns that they come from: these three in JSON.
type Found = (
    Vec<f64>,
    Vec<String>,
    Vec<(Array, f64)>,
    (f64, f64, f64),
    u64,
    Option<String>,
    Vec<String>,
    Option<String>,
    Option<String>,
    Vec<String>,
    Option<String>,
);

/// Trains on the files that a configuration in JSON names.
#[pyfunction]
#[pyo3(signature = (config, threads, weights=None, start=None))]
pub(crate) fn fit_linear(
    py: Python<'_>,
    config: &str,
    threads: usize,
    weights: Option<&[u8]>,
    start: Option<&str>,
) -> PyResult<Found> {
    let config = parse(config, weights, start)?;
    train(py, threads, start.is_some(), move |interrupt| {
        let comm = Comm::alone();
        let observer = &mut |_: Event<'_>| {};
        fit(&config, RunContext::new(&comm, interrupt, observer))
    })
}

/// The rows of files as those of a CSR matrix: ends of rows, features and values. `columns` are those of a model in JSON,
/// which says how cells become features.
#[pyfunction]
#[pyo3(signature = (data, features, columns=None))]
pub(crate) fn linear_rows(
    py: Python<'_>,
    data: &str,
    features: u64,
    columns: Option<&str>,
) -> PyResult<(Array, Array, Array)> {
    let config: DataConfig = serde_json::from_str(data).map_err(|error| of_settings(&error))?;
    let columns = columns.map(serde_json::from_str::<Schema>).transpose();
    let columns = columns.map_err(|error| of_settings(&error))?;
    let expected = Expected {
        labels: None,
        any_label: true,
        features,
        means: None,
        columns: columns.map(Arc::new),
    };
    let table = interruptible(py, |interrupt| {
        let comm = Comm::alone();
        let observer = &mut |_: Event<'_>| {};
        let context = &mut RunContext::new(&comm, interrupt, observer);
        let opened = open(&config, &config.paths, Some(&expected), context)?;
        let feed = FetchOptions {
            interrupt: Arc::clone(interrupt),
            ..FetchOptions::with_memory(64 << 20)
        };
        hold_rows(&opened.dataset, &feed).map(|(rows, _)| rows)
    })?;
    let table = table.map_err(|error| of_job(py, &error))?;
    let (mut ends, mut indices, mut values) = (vec![0_i64], Vec::new(), Vec::new());
    for i in 0..table.len() {
        match table.row(i) {
            Row::Dense(row) => {
                let entries = (0..).zip(row).filter(|(_, value)| **value != 0.0);
                for (at, value) in entries {
                    indices.push(at);
                    values.push(*value);
                }
            }
            Row::Sparse {
                indices: at,
                values: row,
            } => {
                indices.extend(at.iter().map(|at| *at as i32));
                values.extend_from_slice(row);
            }
            Row::Bytes(_) => {}
        }
        ends.push(values.len() as i64);
    }
    let array = |array| Array::from_array(array);
    Ok((
        array(pelton_batch::Array::from_slice(&ends)),
        array(pelton_batch::Array::from_slice(&indices)),
        array(pelton_batch::Array::from_slice(&values)),
    ))
}

/// The settings, with the f32 of the records' weights, and what training begins from: nothing where that is empty.
fn parse(config: &str, weights: Option<&[u8]>, start: Option<&str>) -> PyResult<LinearConfig> {
    let config: LinearConfig = serde_json::from_str(config).map_err(|error| of_settings(&error))?;
    let weights = weights.map(numbers::<f32>).transpose()?;
    let start = start.filter(|start| !start.is_empty());
    let start = start.map(serde_json::from_str::<Start>).transpose();
    Ok(LinearConfig {
        given_weights: weights.map(|weights| weights.into()),
        given_start: start.map_err(|error| of_settings(&error))?.map(Arc::new),
        ..config
    })
}

/// Trains on its own threads: those of a longer-lived pool would be missing in a forked process.
fn train(
    py: Python<'_>,
    threads: usize,
    keeps_start: bool,
    work: impl FnOnce(&Interrupt) -> Result<Fitted, TrainError> + Send,
) -> PyResult<Found> {
    check_threads("`threads`", threads).map_err(|error| of_job(py, &error))?;
    let pool = pelton_storage::thread_pool(threads);
    let pool = pool.map_err(|error| configuration(error.to_string()))?;
    let fitted = interruptible(py, |interrupt| pool.install(|| work(interrupt)))?;
    let fitted = fitted.map_err(|error| of_train(py, &error))?;
    let (model, certificate) = (&fitted.model, fitted.certificate);
    let vectors = vectors_of(model);
    let gap = certificate.relative_gap();
    let start = keeps_start
        .then(|| serde_json::to_string(&Start::from_model(model)).ok())
        .flatten();
    let columns = model.columns.as_deref();
    let schema = columns.and_then(|columns| serde_json::to_string(columns).ok());
    let columns = columns.map(|columns| columns.feature_names());
    Ok((
        fitted.model.classes.values().to_vec(),
        fitted.model.classes.names().to_vec(),
        vectors,
        (certificate.primal, certificate.dual, gap),
        fitted.epochs,
        fitted.advice,
        fitted.notes,
        fitted
            .inference
            .as_ref()
            .and_then(|found| serde_json::to_string(found).ok()),
        start,
        columns.unwrap_or_default(),
        schema,
    ))
}

/// Coefficients for unscaled features and the intercept of each subproblem.
fn vectors_of(model: &Model) -> Vec<(Array, f64)> {
    let vectors = (0..model.weights.subproblems()).map(|subproblem| {
        let (coefficients, intercept) = model.coefficients(subproblem);
        let coefficients = Array::from_array(pelton_batch::Array::from_slice(&coefficients));
        (coefficients, intercept)
    });
    vectors.collect()
}

/// A finished model: its loss, label values and names of the classes, for each subproblem coefficients and intercept, the
/// columns in JSON, what missing numbers become, and the score that decides between two classes if it is not 0.
type Finished = (
    String,
    Vec<f64>,
    Vec<String>,
    Vec<(Array, f64)>,
    Option<String>,
    Option<Vec<f32>>,
    Option<f64>,
);

/// The model of a run folder or a model file.
#[pyfunction]
pub(crate) fn linear_model(py: Python<'_>, path: PathBuf) -> PyResult<Finished> {
    let opened = open_model(&path).map_err(|error| of_train(py, &error))?;
    let (model, features) = (&opened.model, opened.model.weights.features());
    let fills_zeros = (opened.config).is_some_and(|run| run.data.missing == Some(Missing::Zero));
    let zeros = || fills_zeros.then(|| vec![0.0; features]);
    let columns = model.columns.as_deref();
    Ok((
        model.loss.to_string(),
        model.classes.values().to_vec(),
        model.classes.names().to_vec(),
        vectors_of(model),
        columns.and_then(|columns| serde_json::to_string(columns).ok()),
        model.means.clone().or_else(zeros),
        model.threshold.map(|threshold| threshold.score()),
    ))
}

/// The exception of a training job's error.
pub(crate) fn of_train(py: Python<'_>, error: &TrainError) -> PyErr {
    match error {
        error if error.is_interruption() => PyKeyboardInterrupt::new_err(()),
        TrainError::Data(JobError::Format(cause))
            if matches!(cause.kind(), FormatErrorKind::LabelColumn) =>
        {
            configuration(error)
        }
        TrainError::Data(error) => of_job(py, error),
        TrainError::Linear(error) => configuration(error),
        error => DataError::new_err(error.to_string()),
    }
}

/// The numbers that some bytes are.
fn numbers<T: Pod>(bytes: &[u8]) -> PyResult<Cow<'_, [T]>> {
    if !bytes.len().is_multiple_of(size_of::<T>()) {
        return Err(misshapen());
    }
    Ok(match bytemuck::try_cast_slice(bytes) {
        Ok(numbers) => Cow::Borrowed(numbers),
        Err(_) => Cow::Owned(bytemuck::pod_collect_to_vec(bytes)),
    })
}

fn misshapen() -> PyErr {
    PyValueError::new_err("the arrays of the rows have lengths that do not match")
}
