//! Why a job ended without its result.

use pelton_feed::FeedError;
use pelton_format::FormatError;
use pelton_linear::LinearError;
use pelton_plan::PlanError;
use pelton_storage::StorageError;

/// Why a job ended without its result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The configuration asks for something that cannot be.
    #[error("{0}")]
    Config(String),
    /// The data cannot be read as it is described.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The plan cannot be made.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Reading or writing failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The feed could not start or go on.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// The solver could not start or go on, or a model could not be read.
    #[error(transparent)]
    Linear(#[from] LinearError),
    /// A demo set is not known or could not be generated.
    #[error(transparent)]
    Demo(#[from] crate::demo::DemoError),
    /// The run folder could not be used.
    #[error(transparent)]
    RunFolder(#[from] crate::run_folder::RunFolderError),
    /// A checkpoint does not fit this run.
    #[error("{path}: the checkpoint {problem}; start anew with --overwrite")]
    Checkpoint {
        /// The checkpoint file.
        path: String,
        /// What does not fit.
        problem: String,
    },
    /// The reader of the output went away.
    #[error("the output was closed")]
    OutputClosed,
    /// The run was interrupted and its state saved.
    #[error("interrupted; the state is saved in {folder}, go on with --resume")]
    Interrupted {
        /// The run folder.
        folder: String,
    },
}

impl TrainError {
    /// Exit code of a command that ends with this error: 2 for bad usage or input, 1 for a failed
    /// run, 130 for an interruption.
    pub fn exit_code(&self) -> u8 {
        match self {
            TrainError::Interrupted { .. } => 130,
            TrainError::OutputClosed => 0,
            TrainError::Storage(error) => match error {
                StorageError::NotAFile { .. } => 2,
                StorageError::Io { source, .. }
                    if matches!(
                        source.kind(),
                        std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied
                    ) =>
                {
                    2
                }
                _ => 1,
            },
            TrainError::Feed(FeedError::Storage(_) | FeedError::Panicked(_)) => 1,
            TrainError::RunFolder(error) => error.exit_code(),
            _ => 2,
        }
    }
}
