//! Errors of the system and of storages as those of formats.

use std::io;

use pelton_storage::StorageError;

use crate::error::FormatError;

impl From<StorageError> for FormatError {
    fn from(error: StorageError) -> FormatError {
        match error {
            StorageError::Interrupted { path } => FormatError::Interrupted { path: path.into() },
            error => FormatError::Storage(error),
        }
    }
}

impl FormatError {
    /// The typed error for a failed operation on a file.
    pub(crate) fn io(
        path: &std::path::Path,
        operation: &'static str,
        source: io::Error,
    ) -> FormatError {
        // What a storage says of a file that lies elsewhere has its name and a remedy in it.
        let source = match source.downcast::<StorageError>() {
            Ok(error) => return error.into(),
            Err(source) => source,
        };
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::NotFound if !operation.contains("create") => {
                FormatError::NotFound { path }
            }
            io::ErrorKind::Interrupted => FormatError::Interrupted { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                FormatError::NoSpace { path, source }
            }
            _ => FormatError::Io {
                path,
                operation,
                source,
            },
        }
    }
}
