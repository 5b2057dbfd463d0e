//! Errors of peers' memory.

use std::io;
use std::sync::Arc;

use pelton_comm::CommError;
use pelton_format::FormatError;
use pelton_storage::StorageError;

/// Why data could not be loaded into the ranks' memory or read from it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// Ranks could not work together, for instance because one failed.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// The backend failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The files have changed since they were opened.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A file ends before its last record.
    #[error(
        "{file}: ends at byte {found} while {expected} were needed; it was cut short meanwhile: \
         restore it and start again"
    )]
    Shrunk {
        /// The file.
        file: String,
        /// The end that was needed.
        expected: u64,
        /// The end that was found.
        found: u64,
    },
    /// The plan does not cover the data set's records.
    #[error("the plan is over {planned} records and the data has {records}; make it again")]
    OtherPlan {
        /// Records of the plan.
        planned: u64,
        /// Records of the data.
        records: u64,
    },
    /// The plan omits some records, so its loads cover only the others.
    #[error(
        "data larger than the ranks' memory is taken whole; leave filters and mixtures out, or raise `peer_memory` until it holds the data"
    )]
    PartOfData,
    /// Another rank could not load its part.
    #[error("rank {rank} could not load its part: {reason}")]
    PeerFailed {
        /// The rank.
        rank: usize,
        /// Its error.
        reason: String,
    },
    /// Half of the memory is too small for a load.
    #[error(
        "load {load} of epoch {epoch} takes {needed} bytes on rank {rank}, with the load after it, and its \
         memory is {memory} bytes: {remedy} (now {loads} an epoch)"
    )]
    LoadTooLarge {
        /// The epoch.
        epoch: u64,
        /// Index of the load in it.
        load: u64,
        /// The rank with too little memory.
        rank: usize,
        /// Memory of two such loads there.
        needed: u64,
        /// Its memory.
        memory: u64,
        /// Loads of an epoch.
        loads: u64,
        /// Settings that would fit.
        remedy: String,
    },
    /// The loader failed in the background.
    #[error(transparent)]
    Loading(Arc<CacheError>),
    /// No thread can be started.
    #[error("no thread can be started to load data: {source}; raise the limit of threads")]
    NoThread {
        /// The system's own error.
        source: io::Error,
    },
    /// The loading thread panicked.
    #[error("the thread that loads data panicked; the message is on standard error")]
    LoaderPanicked,
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// Memory was read after [`PeerCache::finish`](crate::PeerCache::finish).
    #[error("peers' memory has been given back; read before it is finished")]
    Finished,
}

/// A failed read as a storage error; `name` is the file's.
pub(crate) fn read_error(name: String, offset: u64, source: Arc<CacheError>) -> StorageError {
    let kind = match *source {
        CacheError::Interrupted => io::ErrorKind::Interrupted,
        _ => io::ErrorKind::Other,
    };
    let source = io::Error::new(kind, source);
    StorageError::failed_at(name, "read of peers' memory", offset, source)
}
