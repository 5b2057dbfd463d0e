//! Addresses, and what is wrong with them.

use std::fmt::Display;
use std::sync::Arc;

use object_store::ObjectStore;
use pelton_storage::{StorageError, StorageErrorKind};

/// An address in parts.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) store: Arc<dyn ObjectStore>,
    /// The file or folder within the store; empty for a file of a web server, which is a store of its own.
    pub(crate) path: String,
    /// The part before the path.
    pub(crate) root: String,
}

/// An address without its part from `?` on, for web servers, which may contain a key.
pub(crate) fn shown(url: &str) -> &str {
    let is_web = url
        .get(..4)
        .is_some_and(|start| start.eq_ignore_ascii_case("http"));
    let end = if is_web { url.find(['?', '#']) } else { None };
    &url[..end.unwrap_or(url.len())]
}

/// An address that cannot be used.
pub(crate) fn wrong(url: &str, what: impl Display, remedy: &str) -> StorageError {
    let kind = StorageErrorKind::Remote { lasts: true };
    StorageError::new(kind, shown(url), format!("{what}; {remedy}"))
}
