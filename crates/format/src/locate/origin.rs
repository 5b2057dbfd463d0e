//! The location of the bytes of a data file: local, decompressed, or remote.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pelton_storage::{Storage, regular_file};

use crate::locate::fingerprint::sample_file;
use crate::locate::places::compressed::{cache_dir, decompressed};
use crate::locate::places::input::{Input, input_of};
use crate::locate::places::stamp::Stamp;
use crate::record::error::FormatError;
use crate::record::kind::Compression;
use crate::record::mixing::mix;
use crate::record::options::OpenOptions;
use crate::record::remote::{RemoteFile, is_remote};

/// Bytes of a file by which its format is recognised.
const HEAD_BYTES: u64 = 64 << 10;

/// The location of the bytes of a file.
#[derive(Debug)]
pub(crate) struct Origin {
    /// The path as given, or the decompressed copy.
    pub(crate) source: PathBuf,
    /// The reader of the bytes, for remote files.
    pub(crate) remote: Option<Arc<dyn Storage>>,
    pub(crate) stamp: Stamp,
    /// The first bytes, decompressed.
    pub(crate) head: Vec<u8>,
}

impl Origin {
    /// The origin of the file `path`; decompresses it if necessary, and says so in `notes`.
    pub(crate) fn find(
        path: &Path,
        options: &OpenOptions,
        notes: &mut Vec<String>,
    ) -> Result<Origin, FormatError> {
        let origin = match &options.remote {
            Some(remote) if is_remote(path) => Origin::elsewhere(path, remote.open(path)?),
            _ => Origin::here(path)?,
        };
        let empty = || FormatError::empty().in_file(path);
        if origin.stamp.size == 0 {
            return Err(empty());
        }
        let Some(compression) = Compression::detect(&origin.head) else {
            return Ok(origin);
        };
        let copy = origin.decompressed(path, compression, options, notes)?;
        match copy.stamp.size {
            0 => Err(empty()),
            _ => Ok(copy),
        }
    }

    /// Whether a file has this name.
    pub(crate) fn is_there(path: &Path, options: &OpenOptions) -> bool {
        match &options.remote {
            Some(remote) if is_remote(path) => remote.open(path).is_ok(),
            _ => path.is_file(),
        }
    }

    fn here(path: &Path) -> Result<Origin, FormatError> {
        let stamp = Stamp::from_metadata(&regular_file(path)?);
        let mut head = Vec::new();
        pelton_storage::open_file(path)
            .map_err(|e| FormatError::io(path, "open it", e))?
            .take(HEAD_BYTES)
            .read_to_end(&mut head)
            .map_err(|e| FormatError::io(path, "read it", e))?;
        Ok(Origin {
            source: path.to_path_buf(),
            remote: None,
            stamp,
            head,
        })
    }

    fn elsewhere(path: &Path, file: RemoteFile) -> Origin {
        Origin {
            source: path.to_path_buf(),
            remote: Some(file.storage),
            stamp: Stamp {
                size: file.size,
                modified: None,
                touched_ns: 0,
                tag: file.tag,
            },
            head: file.head,
        }
    }

    fn decompressed(
        &self,
        path: &Path,
        compression: Compression,
        options: &OpenOptions,
        notes: &mut Vec<String>,
    ) -> Result<Origin, FormatError> {
        let (copy, fresh) = decompressed(
            || self.input(path),
            path,
            compression,
            &self.stamp,
            &cache_dir(options),
            &options.interrupt,
        )?;
        let done = if fresh {
            "decompressed to"
        } else {
            "read from its decompressed copy"
        };
        notes.push(format!("{}: {done} {}", path.display(), copy.display()));
        Origin::here(&copy)
    }

    /// Opens the bytes; messages call the file `path`.
    pub(crate) fn input(&self, path: &Path) -> Result<Input, FormatError> {
        input_of(&self.source, self.remote.as_ref(), self.stamp.size, path)
    }

    /// A fingerprint of the content: from samples of a local file, from the server's tag of a remote one.
    pub(crate) fn sample(&self, path: &Path) -> Result<u64, FormatError> {
        match self.remote {
            Some(_) => Ok(mix(mix(0, self.stamp.size), self.stamp.tag)),
            None => sample_file(&self.source, self.stamp.size)
                .map_err(|e| FormatError::io(path, "read it", e)),
        }
    }
}
