//! Why a job ended without its result.

use std::path::Path;

use pelton_comm::CommError;
use pelton_data::{DataError, DemoError};
use pelton_feed::FeedError;
use pelton_fetch::FetchError;
use pelton_format::{Dataset, FormatError};
use pelton_linear::LinearError;
use pelton_plan::PlanError;
use pelton_run::RunError;
use pelton_storage::StorageError;
use pelton_text::TextError;

/// Why a job ended without its result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The data, or what is asked of it.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The solver could not start or continue, or a model could not be read.
    #[error(transparent)]
    Linear(#[from] LinearError),
    /// A net could not be made or run.
    #[cfg(feature = "nets")]
    #[error(transparent)]
    Net(#[from] pelton_nn::NnError),
    /// Training went astray.
    #[error("{what}; {remedy} with a smaller `rate`, a `warmup` or a `clip`")]
    NotANumber {
        /// What is no longer finite, and where in the run.
        what: String,
        /// Where to resume from.
        remedy: &'static str,
    },
    /// The run was interrupted and its state saved.
    #[error("interrupted; the state is saved in {folder}, continue with `resume`")]
    Interrupted {
        /// The run folder.
        folder: String,
    },
}

impl TrainError {
    /// With the file and line of the record of `dataset` whose target cannot be trained on, where that is what is wrong.
    pub(crate) fn located_in(self, dataset: &Dataset) -> TrainError {
        let (record, wrong) = match &self {
            TrainError::Linear(LinearError::NegativeTarget {
                record,
                found,
                loss,
            }) => (
                *record,
                format!(
                    "has the target {found}, and loss {loss} takes targets of at least 0; correct it, or train with another loss"
                ),
            ),
            TrainError::Linear(LinearError::Target { record, found }) => (
                *record,
                format!(
                    "has the target {found}, which is not a finite number; remove the record or correct it"
                ),
            ),
            _ => return self,
        };
        dataset.error_in(record, wrong).into()
    }

    /// The configuration asks for something that cannot be.
    pub fn config(text: String) -> TrainError {
        DataError::Config(text).into()
    }

    /// Training went astray; whether there is a checkpoint from before.
    #[cfg(feature = "nets")]
    pub(crate) fn not_a_number(what: String, is_saved: bool) -> TrainError {
        let remedy = if is_saved {
            "continue from the last checkpoint with `resume`"
        } else {
            "there is no checkpoint to resume from: train with `overwrite`"
        };
        TrainError::NotANumber { what, remedy }
    }

    /// A checkpoint does not fit this run.
    pub(crate) fn checkpoint(path: &Path, problem: &str) -> TrainError {
        let path = path.to_path_buf();
        let problem = problem.to_string();
        RunError::Checkpoint { path, problem }.into()
    }

    /// A job that leaves nothing behind was interrupted.
    pub fn stopped(job: &'static str) -> TrainError {
        DataError::Stopped { job }.into()
    }

    /// Whether the job ended because it was to end early.
    pub fn is_interruption(&self) -> bool {
        self.exit_code() == 130
    }

    /// Exit code of a command that ends with this error: 2 for bad usage or input, 1 for a failed
    /// run, 130 for an interruption.
    pub fn exit_code(&self) -> u8 {
        match self {
            TrainError::Interrupted { .. }
            | TrainError::Linear(LinearError::Interrupted { .. }) => 130,
            TrainError::Data(error) => error.exit_code(),
            _ => 2,
        }
    }
}

/// Errors of crates below `data` are converted like its own errors.
macro_rules! through_data {
    ($($below:ty),+) => {
        $(impl From<$below> for TrainError {
            fn from(error: $below) -> TrainError {
                DataError::from(error).into()
            }
        })+
    };
}

through_data!(
    CommError,
    DemoError,
    FeedError,
    FetchError,
    FormatError,
    PlanError,
    RunError,
    StorageError,
    TextError
);
