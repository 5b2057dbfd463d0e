//! Why a loader could not start or continue.

use std::path::PathBuf;

use pelton_fetch::FetchError;
use pelton_format::FormatError;
use pelton_storage::StorageError;

/// Why a loader could not start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    /// Records could not be read ahead, memory does not suffice, or the loader was interrupted.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// An example could not be read or decoded, augmented or put into its batch.
    #[error(
        "{path}: record {record} (at byte {offset}): {problem}; repair or remove it, or skip bad examples with `on_bad_record` skip", path = path.display()
    )]
    Example {
        /// The file.
        path: PathBuf,
        /// Number of the record in its file, from 0.
        record: u64,
        /// Byte offset of the record.
        offset: u64,
        /// The problem.
        problem: String,
    },
    /// A record that does not exist.
    #[error("there is no record {id}; give indices below {records}")]
    NoRecord {
        /// The number asked for.
        id: u64,
        /// Records there are.
        records: u64,
    },
    /// A saved state that cannot be resumed.
    #[error(
        "the saved state of the loader cannot be used: {0}; start again, or resume with the same data and settings"
    )]
    State(String),
    /// Stages that do not match each other, or not this data set.
    #[error("{0}")]
    Stages(String),
}

impl From<FormatError> for FeedError {
    fn from(error: FormatError) -> FeedError {
        FetchError::from(error).into()
    }
}

impl From<StorageError> for FeedError {
    fn from(error: StorageError) -> FeedError {
        FetchError::from(error).into()
    }
}

impl FeedError {
    /// Whether the loader was interrupted.
    pub fn is_interruption(&self) -> bool {
        matches!(self, FeedError::Fetch(FetchError::Interrupted))
    }
}
