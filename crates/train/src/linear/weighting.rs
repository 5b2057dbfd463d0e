//! Weights of rows: factors on the cost by class and by record.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pelton_data::{OpenedData, several_classes};
use pelton_feed::BadExamples;
use pelton_fetch::OnBadRecord;
use pelton_format::{Dataset, npy_numbers};
use pelton_key::Digest;
use pelton_linear::{LinearError, Problem};
use pelton_run::RunContext;

use crate::config::LinearConfig;
use crate::error::TrainError;

/// Factors on the cost.
#[derive(Default)]
pub(super) struct Weighting {
    /// By class, to balance the classes.
    balance: Vec<f64>,
    /// By record.
    samples: Option<Arc<[f32]>>,
    /// Their file, unless they are from a column of the data.
    file: Option<PathBuf>,
}

impl Weighting {
    /// The factors of a configuration. All ranks call it.
    ///
    /// Errors: a file that cannot be read, or does not have a number for each record.
    pub fn from_config(
        config: &LinearConfig,
        data: &OpenedData,
        mut context: RunContext<'_>,
    ) -> Result<Weighting, TrainError> {
        let column = data.dataset.record_weights();
        let samples = match (samples(config, data.dataset.records())?, column) {
            (Some(_), Some(_)) => {
                return Err(TrainError::config(
                    "`sample_weights` and a column of weights are both given; leave one out"
                        .to_string(),
                ));
            }
            (given, column) => given.or_else(|| column.cloned()),
        };
        let mut balance = Vec::new();
        if config.balanced {
            let policy = match config.on_bad_record {
                OnBadRecord::Fail => BadExamples::Fail,
                _ => BadExamples::Skip { limit: None },
            };
            let setting = "`class_weight` balanced";
            let classes = several_classes(&data.dataset, setting, policy, &mut context)?;
            let mut shares = vec![0.0; data.dataset.labels().len()];
            for (record, class) in classes.iter().enumerate() {
                // A record of weight 2 counts as two records.
                let weight = samples.as_ref().map_or(1.0, |weights| weights[record]);
                shares[*class as usize] += f64::from(weight).max(0.0);
            }
            let mean = shares.iter().sum::<f64>() / shares.len() as f64;
            // A class with total weight 0 has factor 1.
            let factor = |share: &f64| if *share > 0.0 { mean / share } else { 1.0 };
            balance = shares.iter().map(factor).collect();
        }
        Ok(Weighting {
            balance,
            file: config.sample_weights.clone(),
            samples,
        })
    }

    /// The factors for rows in memory.
    pub fn of_rows(config: &LinearConfig, records: u64) -> Result<Weighting, TrainError> {
        Ok(Weighting {
            balance: Vec::new(),
            file: config.sample_weights.clone(),
            samples: samples(config, records)?,
        })
    }

    /// The problem with these factors on the rows of `dataset`.
    ///
    /// Errors: an invalid weight, with its file and line.
    pub fn apply(&self, problem: Problem, dataset: &Dataset) -> Result<Problem, TrainError> {
        self.apply_to_rows(problem).map_err(|error| match error {
            LinearError::SampleWeight { record, found } => self.located(record, found, dataset),
            error => error.into(),
        })
    }

    fn located(&self, record: u64, found: f32, dataset: &Dataset) -> TrainError {
        let wrong = format!("weight {found}; weights are numbers of at least 0");
        match &self.file {
            Some(file) if is_npy(file) => TrainError::config(format!(
                "{}: element {record} (from 0) is the {wrong}",
                file.display()
            )),
            Some(file) => TrainError::config(format!(
                "{}: line {} is the {wrong}",
                file.display(),
                record + 1
            )),
            None => {
                let wrong = format!("its column of weights holds the {wrong}");
                dataset.error_in(record, wrong).into()
            }
        }
    }

    /// The weights of the records, if any.
    pub fn of_records(&self) -> Option<&[f32]> {
        self.samples.as_deref()
    }

    /// [`Weighting::apply`] for rows in memory.
    pub fn apply_to_rows(&self, mut problem: Problem) -> Result<Problem, LinearError> {
        for (class, factor) in (0..).zip(&self.balance) {
            problem = problem.with_class_weight(class, *factor)?;
        }
        match &self.samples {
            Some(samples) => problem.with_sample_weights(Arc::clone(samples)),
            None => Ok(problem),
        }
    }

    /// Digest of the weights of records; 0 if there are none.
    pub fn digest(&self) -> u64 {
        self.samples.as_ref().map_or(0, |weights| {
            Digest::new("record weights")
                .words(weights.iter().map(|weight| u64::from(weight.to_bits())))
                .value()
        })
    }
}

/// The weights of all records, if any.
fn samples(config: &LinearConfig, records: u64) -> Result<Option<Arc<[f32]>>, TrainError> {
    let (weights, name) = match (&config.given_weights, &config.sample_weights) {
        (Some(given), _) => (Arc::clone(given), "`sample_weights`".to_string()),
        (None, Some(file)) => (numbers(file)?.into(), file.display().to_string()),
        (None, None) => return Ok(None),
    };
    if weights.len() as u64 != records {
        return Err(TrainError::config(format!(
            "{name}: has {} weights for {records} records; give one to each record, in their order",
            weights.len()
        )));
    }
    Ok(Some(weights))
}

fn is_npy(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "npy")
}

/// The numbers of an npy file, or of a text with one a line.
fn numbers(file: &Path) -> Result<Vec<f32>, TrainError> {
    if is_npy(file) {
        let numbers = npy_numbers(file)?;
        return Ok(numbers.into_iter().map(|number| number as f32).collect());
    }
    let text = pelton_storage::read_text(file).map_err(|error| {
        TrainError::config(format!(
            "{}: cannot be read ({error}); give an npy file, or a text with one weight a line",
            file.display()
        ))
    })?;
    let lines = text.lines().zip(1..);
    lines
        .map(|(line, number)| {
            line.trim().parse().map_err(|_| {
                TrainError::config(format!(
                    "{}: line {number} is {line:?}, which is not a number; give one weight a line, without a header",
                    file.display()
                ))
            })
        })
        .collect()
}
