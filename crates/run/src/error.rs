//! Why a run's files or figures could not be saved or shown.

use std::io;
use std::path::{Path, PathBuf};

use pelton_storage::StorageError;

/// Why a run's files or figures could not be saved or shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The folder already contains a run.
    #[error(
        "{}: contains {} run; continue with `resume`, start again with `overwrite`, or name another \
         folder with `out`",
        path.display(),
        if *finished { "a finished" } else { "an unfinished" }
    )]
    Exists {
        /// The folder.
        path: PathBuf,
        /// Whether that run is finished.
        finished: bool,
    },
    /// The folder contains something other than a run.
    #[error(
        "{}: contains files that do not belong to a run ({found}); name another folder with `out`",
        path.display()
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// One of the files.
        found: String,
    },
    /// Another process uses the folder.
    #[error("{}: another process is writing this run; wait for it or name another folder with `out`", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The folder cannot be created or written to.
    #[error("{}: the run folder cannot be created or written to ({source}); name another with `out`", path.display())]
    Unusable {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The device is full.
    #[error(
        "{}: cannot be written because no space is left; make room and continue with `resume`, or name a folder on \
         another device with `out`",
        path.display()
    )]
    Full {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file cannot be read or written.
    #[error("{}: cannot {action} it ({source}); check the device and continue with `resume`", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The attempted action.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A checkpoint does not fit this run.
    #[error("{}: the checkpoint {problem}; restore it, or train again with `overwrite`", path.display())]
    Checkpoint {
        /// The checkpoint file.
        path: PathBuf,
        /// The mismatch.
        problem: String,
    },
    /// A file does not belong to its model or checkpoint.
    #[error("{}: {problem}; restore it, or train again with `overwrite`", path.display())]
    Differs {
        /// The file.
        path: PathBuf,
        /// The mismatch.
        problem: String,
    },
    /// A setting of a resumed run, or of its configuration, differs from that of its files.
    #[error(
        "{}: the run was started with `{name}` {then} and cannot continue with {now}; give {then}, or train again with \
         `overwrite`",
        path.display()
    )]
    OtherSetting {
        /// The configuration of the run.
        path: PathBuf,
        /// The setting.
        name: String,
        /// Its value at the start of the run.
        then: String,
        /// The value given.
        now: String,
    },
    /// The folder was replaced after it was opened.
    #[error(
        "{}: the run folder was removed, moved or replaced while the run wrote to it; give each run a folder of its own \
         with `out`",
        path.display()
    )]
    Lost {
        /// The folder.
        path: PathBuf,
    },
    /// The run folder is not local.
    #[error(transparent)]
    Remote(StorageError),
    /// Figures cannot be served at an address.
    #[error(
        "metrics cannot be served at {address} ({source}); give another address and port with `metrics`"
    )]
    Address {
        /// The address.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The configuration is not representable as TOML.
    #[error("{}: the configuration cannot be written as TOML ({source}); change the value it names", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The writer's error.
        source: toml::ser::Error,
    },
}

impl RunError {
    /// The error that a file could not be written, opened or cut, or that the disk is full.
    pub fn io(path: &Path, action: &'static str, source: io::Error) -> RunError {
        let path = path.to_path_buf();
        if is_full(&source) {
            RunError::Full { path, source }
        } else {
            RunError::Io {
                path,
                action,
                source,
            }
        }
    }

    /// Exit code of a command that ends with this error: 1 if a run failed, otherwise 2.
    pub fn exit_code(&self) -> u8 {
        match self {
            RunError::Full { .. } | RunError::Io { .. } | RunError::Lost { .. } => 1,
            _ => 2,
        }
    }
}

/// Whether an error, or one that it wraps, means that a device or quota is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    let mut at: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = at {
        let Some(io) = error.downcast_ref::<io::Error>() else {
            at = error.source();
            continue;
        };
        if matches!(
            io.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        ) {
            return true;
        }
        // `source` of an io::Error skips the error it wraps.
        at = io.get_ref().map(|inner| inner as _);
    }
    false
}
