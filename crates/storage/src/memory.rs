//! A storage in memory: for tests, small data sets, decompressed text.

use std::fmt;
use std::sync::Arc;

use crate::{Granularity, RangeRead, Storage, StorageError};

/// Bytes in memory; cloning shares them.
#[derive(Clone)]
pub struct MemoryStorage {
    name: String,
    bytes: Arc<[u8]>,
}

impl MemoryStorage {
    /// A storage over `bytes`, called `memory` in messages.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> MemoryStorage {
        MemoryStorage::named("memory", bytes)
    }

    /// A storage over `bytes`, called `name` in messages.
    pub fn named(name: impl Into<String>, bytes: impl Into<Arc<[u8]>>) -> MemoryStorage {
        MemoryStorage {
            name: name.into(),
            bytes: bytes.into(),
        }
    }
}

impl fmt::Debug for MemoryStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStorage")
            .field("name", &self.name)
            .field("bytes", &self.bytes.len())
            .finish()
    }
}

impl Storage for MemoryStorage {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn size(&self) -> Result<u64, StorageError> {
        Ok(self.bytes.len() as u64)
    }

    fn granularity(&self) -> Granularity {
        Granularity::BYTE
    }

    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        for read in reads {
            let start = usize::try_from(read.offset)
                .unwrap_or(usize::MAX)
                .min(self.bytes.len());
            let rest = &self.bytes[start..];
            read.filled = rest.len().min(read.buffer.len());
            read.buffer[..read.filled].copy_from_slice(&rest[..read.filled]);
        }
        Ok(())
    }

    /// No copy of it would be faster either.
    fn reads_page_cache(&self) -> bool {
        true
    }
}
