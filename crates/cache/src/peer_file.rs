//! One file of the data set as a [`Storage`] over the ranks' memory.

use std::sync::Arc;

use pelton_storage::{Granularity, RangeRead, Storage, StorageError};

use crate::CacheError;
use crate::error::read_error;
use crate::peers::Peers;

/// A file with its bytes in the ranks' memory.
#[derive(Debug)]
pub(crate) struct PeerFile {
    pub(crate) peers: Arc<Peers>,
    pub(crate) file: usize,
}

impl PeerFile {
    fn backend(&self) -> &dyn Storage {
        &*self.peers.space.files()[self.file].backend
    }
}

impl Storage for PeerFile {
    fn name(&self) -> String {
        self.backend().name()
    }

    fn size(&self) -> Result<u64, StorageError> {
        self.backend().size()
    }

    fn granularity(&self) -> Granularity {
        Granularity::BYTE
    }

    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        self.peers.read(self.file, reads).map_err(|error| {
            match Arc::try_unwrap(error) {
                // The backend's own errors are returned unchanged.
                Ok(CacheError::Storage(error)) => error,
                Ok(error) => self.failure(reads, error.into()),
                Err(error) => self.failure(reads, error),
            }
        })
    }
}

impl PeerFile {
    fn failure(&self, reads: &[RangeRead<'_>], error: Arc<CacheError>) -> StorageError {
        let offset = reads.first().map_or(0, |read| read.offset);
        read_error(self.name(), offset, error)
    }
}
