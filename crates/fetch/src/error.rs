//! Why records could not be read ahead.

use pelton_format::FormatError;
use pelton_storage::{StorageError, StorageErrorKind};

/// Why records could not be read ahead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// Reading or writing failed.
    #[error(transparent)]
    Storage(StorageError),
    /// A record could not be read or decoded, or a file changed.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The budget cannot hold two batches and the read buffers.
    #[error(
        "a memory budget of {budget} bytes is too small: {needed} bytes are needed for {what}; raise `memory` or use smaller batches"
    )]
    BudgetTooSmall {
        /// The budget in bytes.
        budget: u64,
        /// The smallest budget that works, in bytes.
        needed: u64,
        /// The purpose of the bytes.
        what: String,
    },
    /// More bad records than the policy allows.
    #[error(
        "{found} records could not be read or decoded, over the limit of {limit}; the last one: {last}"
    )]
    TooManyBadRecords {
        /// Bad records met.
        found: u64,
        /// The limit given.
        limit: u64,
        /// Message of the last one.
        last: String,
    },
    /// A file ended before a record that was there when the data set was opened.
    #[error(
        "{path}: ends within the record at byte {offset} (has {found} of {expected} bytes): the file shrank while it was read; restore it and run again"
    )]
    Shrunk {
        /// The file.
        path: String,
        /// First byte of the record.
        offset: u64,
        /// Bytes the record should have.
        expected: u64,
        /// Bytes that were there.
        found: u64,
    },
    /// The access path cannot serve this order or filter.
    #[error("access path `{access}` cannot be used here: {reason}")]
    Unsupported {
        /// The access path.
        access: String,
        /// Why not, and what to use instead.
        reason: String,
    },
    /// The system has no more threads.
    #[error("no thread can be started: {0}; lower `threads`")]
    Thread(#[source] std::io::Error),
    /// The consumer no longer needs the batches.
    #[error("interrupted while data was read; nothing is saved, start again")]
    Interrupted,
    /// A thread of the feed ended by a panic, which is a defect of this program.
    #[error("a feed thread panicked: {0}; this is a bug, please report it")]
    Panicked(String),
}

impl FetchError {
    /// Whether reading again is useless: the read was interrupted, or a server already had all its attempts.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            FetchError::Interrupted => true,
            FetchError::Storage(error) => matches!(error.kind, StorageErrorKind::Remote { .. }),
            _ => false,
        }
    }
}

impl From<StorageError> for FetchError {
    fn from(error: StorageError) -> FetchError {
        if error.kind == StorageErrorKind::Interrupted {
            FetchError::Interrupted
        } else {
            FetchError::Storage(error)
        }
    }
}
