//! Why a storage could not be opened, read or written.

use std::borrow::Cow;
use std::fmt::Display;
use std::io;

use crate::address::{shown_address, without_secrets};

/// Why a storage could not be opened, read or written: a file, and a sentence about it that ends with the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{path}{}{what}", if path.is_empty() { "" } else { ": " })]
#[non_exhaustive]
pub struct StorageError {
    /// File or description of the storage; empty if none is concerned.
    pub path: String,
    /// The kind, for callers to act on.
    pub kind: StorageErrorKind,
    what: Cow<'static, str>,
    source: Option<io::Error>,
}

/// The kinds of [`StorageError`] that callers treat differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StorageErrorKind {
    /// No file or folder has this path.
    NotFound,
    /// The path or a setting cannot be used: not a regular file, or no direct reads here.
    Unusable,
    /// The operating system or the device failed; [`source`](std::error::Error::source) is its own error.
    System,
    /// The disk is full, or would be.
    NoSpace,
    /// The file is not the one that was opened or listed.
    Changed,
    /// The reader was interrupted.
    Interrupted,
    /// A server refused a request or answered wrongly, after all attempts.
    Remote {
        /// Whether later attempts would fail too: a name, credentials or a setting is wrong.
        lasts: bool,
    },
}

impl StorageError {
    /// An error about `path`; `what` is a sentence with the remedy.
    #[cold]
    pub fn new(
        kind: StorageErrorKind,
        path: impl Display,
        what: impl Into<Cow<'static, str>>,
    ) -> StorageError {
        let what = what.into();
        let shown = match without_secrets(&what) {
            Cow::Owned(shown) => Some(shown.into()),
            Cow::Borrowed(_) => None,
        };
        StorageError {
            path: shown_address(&path.to_string()).into_owned(),
            kind,
            what: shown.unwrap_or(what),
            source: None,
        }
    }

    /// A failed operation on a path as a whole, such as `open it`.
    #[cold]
    pub fn failed(path: impl Display, operation: &str, source: io::Error) -> StorageError {
        use StorageErrorKind as Kind;
        use io::ErrorKind::{Interrupted, NotFound, QuotaExceeded, StorageFull};
        const TOO_MANY_OPEN_FILES: i32 = 24;
        // An error of a storage below already names its file and the remedy.
        let source = match source.downcast::<StorageError>() {
            Ok(error) => return error,
            Err(source) => source,
        };
        let (kind, what) = match source.kind() {
            NotFound if !(operation.contains("create") || operation.contains("write")) => (
                Kind::NotFound,
                "no such file or folder; check the path".into(),
            ),
            Interrupted => return StorageError::interrupted(path),
            StorageFull | QuotaExceeded => (
                Kind::NoSpace,
                "no space is left on the disk to write it; free some or choose another folder"
                    .into(),
            ),
            _ => {
                let remedy = match source.raw_os_error() {
                    Some(TOO_MANY_OPEN_FILES) => {
                        "the data has more files than a process may have open: raise the hard limit (`ulimit -Hn`), or merge files"
                    }
                    _ => "check the path, its permissions and the device",
                };
                (
                    Kind::System,
                    format!("cannot {operation} ({source}); {remedy}"),
                )
            }
        };
        StorageError::new(kind, path, what).caused_by(source)
    }

    /// A failed `read` or `write` at a byte offset.
    #[cold]
    pub fn failed_at(
        path: impl Display,
        operation: &str,
        offset: u64,
        source: io::Error,
    ) -> StorageError {
        let what = format!("{operation} failed at byte {offset}: {source}");
        StorageError::new(StorageErrorKind::System, path, what).caused_by(source)
    }

    /// The file is not the one that was listed; `what` is the difference.
    pub fn changed(path: impl Display, what: impl Display) -> StorageError {
        let what = format!(
            "changed after it was listed ({what}); leave data alone during a run and start again"
        );
        StorageError::new(StorageErrorKind::Changed, path, what)
    }

    /// The reader of `path` was interrupted.
    pub fn interrupted(path: impl Display) -> StorageError {
        let what = "interrupted while it was read; nothing is saved, start again";
        StorageError::new(StorageErrorKind::Interrupted, path, what)
    }

    /// The same error with the system's own.
    pub(crate) fn caused_by(self, source: io::Error) -> StorageError {
        StorageError {
            source: Some(source),
            ..self
        }
    }

    /// The operating system's own error, if one caused this.
    pub fn system(&self) -> Option<&io::Error> {
        self.source.as_ref()
    }
}
