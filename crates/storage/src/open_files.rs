//! Which files may be opened, and how many a process may have open.

use std::fs;
use std::path::Path;

use crate::{StorageError, StorageErrorKind};

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

/// Status of a regular file; anything else is refused by name, since opening a pipe would hang.
pub fn regular_file(path: &Path) -> Result<fs::Metadata, StorageError> {
    let failed = |e| StorageError::failed(path.display(), "open it", e);
    let status = fs::metadata(path).map_err(failed)?;
    if status.is_file() {
        return Ok(status);
    }
    let found = if status.is_dir() {
        "a folder"
    } else {
        "a device, pipe or socket"
    };
    let what = format!("is {found}; name a regular file");
    Err(StorageError::new(
        StorageErrorKind::Unusable,
        path.display(),
        what,
    ))
}
