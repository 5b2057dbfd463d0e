//! Replaces `remote.rs` in a build without the feature `cloud`, which cannot open addresses.

use std::path::{Path, PathBuf};

use pelton_format::{OpenRemote, is_remote};
use pelton_run::Interrupt;

use crate::error::DataError;

/// Has no values.
pub(crate) enum Remote {}

impl Remote {
    /// Refuses addresses.
    pub(crate) fn for_names(
        names: &[String],
        _: &Path,
        _: Option<u64>,
        _: &Interrupt,
    ) -> Result<Option<Remote>, DataError> {
        match names.iter().find(|name| is_remote(Path::new(name))) {
            None => Ok(None),
            Some(name) => Err(DataError::Config(format!(
                "{name}: this build opens local files only; build with the feature cloud, or copy the file"
            ))),
        }
    }

    pub(crate) fn names(&self, _: &str) -> Result<Vec<PathBuf>, DataError> {
        match *self {}
    }

    pub(crate) fn is_there(&self, _: &str) -> bool {
        match *self {}
    }

    pub(crate) fn named(&self, _: PathBuf) -> PathBuf {
        match *self {}
    }

    pub(crate) fn opener(&self) -> OpenRemote {
        match *self {}
    }

    pub(crate) fn note(&self, _: &[PathBuf]) -> Option<String> {
        match *self {}
    }
}
