//! Why a job ended without its result.

use std::path::Path;

use pelton_comm::CommError;
use pelton_data::{DataError, DemoError};
use pelton_feed::FeedError;
use pelton_fetch::FetchError;
use pelton_format::{Dataset, FormatError};
use pelton_linear::LinearError;
use pelton_plan::PlanError;
use pelton_run::{RunError, Set};
use pelton_storage::StorageError;
use pelton_text::TextError;

/// Why a job ended without its result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The data, or a request to it.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The solver could not start or continue, or a model could not be read.
    #[error(transparent)]
    Linear(#[from] LinearError),
    /// A net could not be made or run.
    #[cfg(feature = "nets")]
    #[error(transparent)]
    Net(#[from] pelton_nn::NnError),
    /// Training reached a value that is not finite.
    #[error("{what}; {remedy} with a smaller `rate`, a `warmup` or a `clip`")]
    NotANumber {
        /// The value that is no longer finite, and the point of the run.
        what: String,
        /// Where to resume from.
        remedy: &'static str,
    },
    /// The run was interrupted.
    #[error("interrupted; {}", if *saved { format!("the state is saved in {folder}, continue with `resume`") } else { "nothing is saved yet, start again".to_string() })]
    Interrupted {
        /// The run folder.
        folder: String,
        /// Whether it has a checkpoint.
        saved: bool,
    },
}

impl TrainError {
    /// Adds file and line of the record of `dataset`, if the error is a target that cannot be trained on.
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

    /// An invalid configuration.
    pub fn config(text: String) -> TrainError {
        DataError::Config(text).into()
    }

    /// A value that is not finite; `is_saved` says whether there is an earlier checkpoint.
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

    /// The error of an interrupted run in this folder, whose state is saved if it could be.
    pub(crate) fn interrupted_in(folder: &Path) -> TrainError {
        TrainError::Interrupted {
            folder: folder.display().to_string(),
            saved: folder.join(Set::Checkpoint.file()).exists(),
        }
    }

    /// Whether the job was interrupted.
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

/// Converts errors of crates below `data` like its own.
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
