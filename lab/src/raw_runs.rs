//! Raw runs as CSV, written as they finish, so an interrupted table keeps them.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use pelton_train::TrainError;

use crate::table::unwritable;

/// A CSV file being written.
pub(super) struct RawRuns {
    path: PathBuf,
    file: BufWriter<File>,
}

impl RawRuns {
    /// A new file with a line of column names.
    pub fn create(path: &Path, columns: &str) -> Result<RawRuns, TrainError> {
        let file = File::create(path).map_err(|error| unwritable(path, &error))?;
        let mut raw = RawRuns {
            path: path.to_path_buf(),
            file: BufWriter::new(file),
        };
        raw.line(&[columns])?;
        Ok(raw)
    }

    /// Opens a file for appending, or creates one.
    pub fn append(path: &Path) -> Result<RawRuns, TrainError> {
        let open = || {
            let file = File::options().append(true).create(true).open(path)?;
            Ok((file, std::fs::read(path)?))
        };
        let (file, bytes) = open().map_err(|error| unwritable(path, &error))?;
        let mut raw = RawRuns {
            path: path.to_path_buf(),
            file: BufWriter::new(file),
        };
        if bytes.last().is_some_and(|&last| last != b'\n') {
            // The last line is truncated; starts a new one.
            raw.line(&[])?;
        }
        Ok(raw)
    }

    /// Appends a line. The caller must quote cells with commas.
    pub fn line(&mut self, cells: &[&str]) -> Result<(), TrainError> {
        writeln!(self.file, "{}", cells.join(","))
            .and_then(|()| self.file.flush())
            .map_err(|error| unwritable(&self.path, &error))
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }
}
