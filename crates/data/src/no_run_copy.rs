//! Replaces `run_copy.rs` in a build without the feature `cloud`, which cannot open addresses.

use std::path::{Path, PathBuf};

use pelton_run::{Interrupt, RunOptions};

use crate::error::DataError;

/// Has no values.
#[derive(Debug)]
pub enum RunCopy {}

impl RunCopy {
    /// Refuses the address.
    pub fn begin(options: &RunOptions, _: &Interrupt) -> Result<RunCopy, DataError> {
        Err(refused(&options.out))
    }

    /// The options with the folder on this machine.
    pub fn options(&self) -> RunOptions {
        match *self {}
    }

    /// Takes the last failure to send files that is to be noted.
    pub fn note(&self) -> fn() -> Option<String> {
        match *self {}
    }

    /// Sends what is left.
    pub fn end(self) -> Result<(), DataError> {
        match self {}
    }
}

/// Refuses the address.
pub fn config_of(run: &Path, _: &Interrupt) -> Result<Option<PathBuf>, DataError> {
    Err(refused(run))
}

/// Refuses the address.
pub fn fetched_model(run: &Path, _: &Interrupt) -> Result<PathBuf, DataError> {
    Err(refused(run))
}

fn refused(run: &Path) -> DataError {
    DataError::Config(format!(
        "{}: this build has its runs in local folders only; build with the feature cloud, or name a folder",
        run.display()
    ))
}
