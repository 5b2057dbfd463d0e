//! What may be opened, and how many files a process may have open.

use std::fs;
use std::path::Path;

use crate::StorageError;

/// Lets this process have `files` open at once, as far as the system allows: it gives a process a low limit, often
/// 1024, which the process itself may raise up to another. Where that is too low, opening the file too many says so.
pub fn allow_open_files(files: u64) {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        let (Some(now), most) = (limit.current, limit.maximum.unwrap_or(u64::MAX)) else {
            return;
        };
        if now < files && now < most {
            let raised = Rlimit {
                current: Some(files.min(most)),
                ..limit
            };
            let done = setrlimit(Resource::Nofile, raised);
            tracing::debug!(now, files, most, ?done, "limit of open files");
        }
    }
    #[cfg(not(unix))]
    let _ = files;
}

/// Refuses anything but a regular file, by name: opening a pipe would hang.
pub(crate) fn check_regular(path: &Path) -> Result<(), StorageError> {
    let status = fs::metadata(path).map_err(|e| StorageError::at_path(path, "open", e))?;
    if status.is_file() {
        return Ok(());
    }
    let found = if status.is_dir() {
        "a directory"
    } else {
        "a device, pipe or socket"
    };
    Err(StorageError::NotAFile {
        path: path.to_path_buf(),
        found,
    })
}
