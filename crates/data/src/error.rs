//! Why data could not be opened, read or taken through a job.

use std::io;

use pelton_cache::CacheError;
use pelton_comm::CommError;
use pelton_feed::FeedError;
use pelton_fetch::FetchError;
use pelton_format::FormatError;
use pelton_plan::PlanError;
use pelton_run::RunError;
use pelton_storage::{StorageError, StorageErrorKind, without_secrets};
use pelton_text::TextError;

use crate::demo::DemoError;

/// Why data could not be opened, read or taken through a job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The configuration is invalid.
    #[error("{}", without_secrets(.0))]
    Config(String),
    /// The data cannot be read as described.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The plan cannot be made.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Reading or writing failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Records could not be read ahead.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// A loader could not start or continue.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// A vocabulary could not be counted, written or read.
    #[error(transparent)]
    Text(#[from] TextError),
    /// Communication between ranks failed, or another rank failed.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// Peers' memory could not be filled or read.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// A demo set is not known or could not be generated.
    #[error(transparent)]
    Demo(#[from] DemoError),
    /// The run folder could not be used.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The files of a run could not be sent to an object store.
    #[error("{source}; all files of the run are in {}, and `resume` on this machine sends them", local.display())]
    NotSent {
        /// The folder that has them.
        local: std::path::PathBuf,
        /// Why.
        source: StorageError,
    },
    /// The reader of the output went away.
    #[error("the output was closed")]
    OutputClosed,
    /// The output cannot be written.
    #[error("the {what} cannot be written ({source}); make room or send the output elsewhere")]
    Output {
        /// Name of the output.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A job that leaves nothing behind was interrupted.
    #[error("interrupted while {job}; nothing is saved, start again")]
    Stopped {
        /// The job.
        job: &'static str,
    },
    /// The state of a pipeline cannot be saved.
    #[error("{}: cannot be written ({source}); make room or check the device, then resume with the same command", path.display())]
    PipelineState {
        /// The file.
        path: std::path::PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Every record read is bad.
    #[error("all {found} records read are bad; the first: {first}; check `format` and `decode`")]
    AllBad {
        /// How many there are.
        found: u64,
        /// The error of the first one.
        first: String,
    },
    /// A pipeline was interrupted; its state is in a file.
    #[error("interrupted; the state is saved in {}, resume with the same command", state.display())]
    PipelineInterrupted {
        /// The file.
        state: std::path::PathBuf,
    },
}

impl DataError {
    /// Whether the job was interrupted.
    pub fn is_interruption(&self) -> bool {
        self.exit_code() == 130
    }

    /// Exit code of a command that ends with this error: 2 for bad usage or input, 1 for a failed
    /// run, 130 for an interruption.
    pub fn exit_code(&self) -> u8 {
        match self {
            DataError::PipelineInterrupted { .. }
            | DataError::Stopped { .. }
            | DataError::Cache(CacheError::Interrupted) => 130,
            // The input of one rank is wrong, or its settings are.
            DataError::Comm(CommError::RanksDiffer { .. } | CommError::Setting { .. })
            | DataError::Cache(CacheError::Comm(CommError::RanksDiffer { .. })) => 2,
            DataError::OutputClosed => 0,
            DataError::Output { .. }
            | DataError::PipelineState { .. }
            | DataError::AllBad { .. }
            | DataError::NotSent { .. }
            | DataError::Comm(_) => 1,
            DataError::Storage(error)
            | DataError::Text(TextError::Storage(error))
            | DataError::Cache(CacheError::Storage(error)) => of_storage(error),
            DataError::Cache(CacheError::Format(error)) => of_format(error),
            DataError::Format(error) | DataError::Demo(DemoError::Write(error)) => of_format(error),
            DataError::Fetch(error) | DataError::Feed(FeedError::Fetch(error)) => of_fetch(error),
            DataError::Cache(_) => 1,
            DataError::Run(error) => error.exit_code(),
            _ => 2,
        }
    }
}

fn of_fetch(error: &FetchError) -> u8 {
    match error {
        FetchError::Interrupted => 130,
        FetchError::Storage(error) => of_storage(error),
        FetchError::Format(error) => of_format(error),
        FetchError::Panicked(_) | FetchError::Shrunk { .. } => 1,
        _ => 2,
    }
}

/// A wrong path or setting is bad input; a full disk, a failing device and a file that changes
/// during the run are failed runs.
fn of_storage(error: &StorageError) -> u8 {
    use StorageErrorKind as Kind;
    match error.kind {
        Kind::NotFound | Kind::Unusable | Kind::Remote { lasts: true } => 2,
        Kind::Interrupted => 130,
        Kind::System => error.system().map_or(1, of_system),
        _ => 1,
    }
}

/// A wrong path or wrong content is bad input; a full disk, a failing device and a file that changes meanwhile
/// are failed runs.
fn of_format(error: &FormatError) -> u8 {
    error.storage().map_or(2, of_storage)
}

fn of_system(error: &io::Error) -> u8 {
    use io::ErrorKind::*;
    if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
        return 2;
    }
    match error.kind() {
        Interrupted => 130,
        NotFound | PermissionDenied | NotADirectory | IsADirectory | ReadOnlyFilesystem
        | AlreadyExists | InvalidFilename => 2,
        _ => 1,
    }
}
