//! A file on a local filesystem, read in one of three modes.
//!
//! | mode | how | for |
//! |---|---|---|
//! | `Direct` | O_DIRECT through io_uring | data larger than memory, read in random order |
//! | `Buffered` | page cache first (RWF_NOWAIT), misses through io_uring, or by threads without it | warm data, or as much as memory holds |
//! | `Pread` | threads calling `pread` | systems without the others, and comparisons |
//!
//! A file that shrinks while it is read gives short ranges.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::StorageErrorKind::Unusable;
use crate::open_files::{open_file, regular_file};
use crate::page_cache::ReadAround;
use crate::{Granularity, RangeRead, Storage, StorageError, direct, page_cache, pread};

pelton_key::names! {
    /// How a local file is read.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum LocalMode: "an I/O mode" {
        /// `Direct` if the filesystem and io_uring permit it, else `Buffered`.
        #[default]
        Auto = "auto",
        /// Bypassing the page cache, through io_uring.
        Direct = "direct",
        /// From the page cache if it has the data; misses through io_uring, or by threads if that is refused.
        Buffered = "buffered",
        /// By a pool of threads calling `pread`.
        Pread = "pread",
    }
}

/// How to open a [`LocalFile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalOptions {
    /// How the file is read.
    pub mode: LocalMode,
    /// Requests in flight for each caller of `read_batch`; 1 to 4096.
    pub queue_depth: u32,
}

impl Default for LocalOptions {
    /// `Auto` at depth 128: drives reach their random rate at 64 to 128 requests in flight.
    fn default() -> LocalOptions {
        LocalOptions {
            mode: LocalMode::Auto,
            queue_depth: 128,
        }
    }
}

/// A file on a local filesystem.
#[derive(Debug)]
pub struct LocalFile {
    path: PathBuf,
    file: File,
    mode: LocalMode,
    /// Whether the mode was `Auto`.
    is_auto: bool,
    granularity: Granularity,
    queue_depth: u32,
    /// The parts of the file that were requested, if the page cache is to hold all of it in the end.
    around: Option<Arc<ReadAround>>,
}

impl LocalFile {
    /// Opens a regular file for reading. A mode other than `Auto` is an error if it is unavailable.
    pub fn open(path: impl AsRef<Path>, options: LocalOptions) -> Result<LocalFile, StorageError> {
        let path = path.as_ref();
        regular_file(path)?;
        let file =
            open_file(path).map_err(|e| StorageError::failed(path.display(), "open it", e))?;
        let queue_depth = options.queue_depth.clamp(1, 4096);
        let opened = |file, mode, granularity| LocalFile {
            path: path.to_path_buf(),
            file,
            mode,
            is_auto: options.mode == LocalMode::Auto,
            granularity,
            queue_depth,
            around: None,
        };
        match options.mode {
            LocalMode::Pread => Ok(opened(file, LocalMode::Pread, Granularity::BYTE)),
            LocalMode::Buffered => Ok(opened_buffered(opened(
                file,
                LocalMode::Buffered,
                Granularity::BYTE,
            ))),
            LocalMode::Direct => {
                let refused = |what| StorageError::new(Unusable, path.display(), what);
                ring_available().map_err(|source| {
                    refused(format!(
                        "the kernel refuses io_uring ({source}); use the pread mode"
                    ))
                    .caused_by(source)
                })?;
                let (file, units) = open_direct(path)?.ok_or_else(|| {
                    refused("its filesystem refuses direct reads; use buffered reads".into())
                })?;
                Ok(opened(file, LocalMode::Direct, units))
            }
            LocalMode::Auto => {
                let ring = ring_available();
                if let Err(error) = &ring {
                    tracing::info!(path = %path.display(), %error, "no io_uring: misses read by pread");
                }
                if ring.is_ok()
                    && !lives_in_memory(&file)
                    && let Ok(Some((file, units))) = open_direct(path)
                {
                    return Ok(opened(file, LocalMode::Direct, units));
                }
                Ok(opened_buffered(opened(
                    file,
                    LocalMode::Buffered,
                    Granularity::BYTE,
                )))
            }
        }
    }

    /// The mode in use; never `Auto`.
    pub fn mode(&self) -> LocalMode {
        self.mode
    }

    /// The path as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Requests in flight for each caller of `read_batch`.
    pub fn queue_depth(&self) -> u32 {
        self.queue_depth
    }

    /// The same open file at another depth.
    pub(crate) fn at_depth(&self, queue_depth: u32) -> Result<LocalFile, StorageError> {
        let file = self.file.try_clone();
        Ok(LocalFile {
            path: self.path.clone(),
            file: file.map_err(|e| StorageError::failed(self.name(), "open it", e))?,
            queue_depth,
            around: self.around.clone(),
            ..*self
        })
    }

    fn check_ranges(&self, reads: &[RangeRead<'_>]) -> Result<(), StorageError> {
        for read in reads {
            let length = read.buffer.len();
            self.granularity
                .check(read.offset, length, read.buffer.as_ptr())
                .map_err(|unit| {
                    let what = format!(
                        "read of {length} bytes at {} is not aligned to {unit}",
                        read.offset
                    );
                    StorageError::new(Unusable, self.name(), what)
                })?;
            // The kernel's offsets are signed.
            if read.offset > i64::MAX as u64 - length as u64 {
                let source = io::Error::from(io::ErrorKind::InvalidInput);
                return Err(self.read_error(read.offset, source));
            }
        }
        Ok(())
    }

    fn read_error(&self, offset: u64, source: io::Error) -> StorageError {
        StorageError::failed_at(self.name(), "read", offset, source)
    }

    fn read_through_ring(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        #[cfg(target_os = "linux")]
        if ring_available().is_ok() {
            use std::os::fd::AsFd;
            let unit = self.granularity.offset_bytes;
            return crate::ring::read_batch(self.file.as_fd(), reads, self.queue_depth, unit)
                .map_err(|failure| self.read_error(failure.offset, failure.source));
        }
        self.read_by_pread(reads)
    }

    fn read_by_pread(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        pread::read_batch(&self.file, reads)
            .map_err(|(offset, source)| self.read_error(offset, source))
    }
}

impl Storage for LocalFile {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn size(&self) -> Result<u64, StorageError> {
        let status = self.file.metadata();
        Ok(status
            .map_err(|e| StorageError::failed(self.name(), "examine it", e))?
            .len())
    }

    fn granularity(&self) -> Granularity {
        self.granularity
    }

    fn buffered(&self) -> Option<Arc<dyn Storage>> {
        let options = LocalOptions {
            mode: LocalMode::Buffered,
            queue_depth: self.queue_depth,
        };
        // Otherwise the caller has chosen, or the page cache is the data.
        let may_be_cold = self.is_auto && !lives_in_memory(&self.file);
        let opened = may_be_cold.then(|| LocalFile::open(&self.path, options))?;
        // If it can no longer be opened, reads of this one say why.
        let mut opened = opened.ok()?;
        opened.around = Some(Arc::new(ReadAround::new(opened.size().ok()?)));
        Some(Arc::new(opened))
    }

    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        self.check_ranges(reads)?;
        match self.mode {
            LocalMode::Pread => self.read_by_pread(reads),
            LocalMode::Direct => self.read_through_ring(reads),
            LocalMode::Auto | LocalMode::Buffered => {
                let (mut rest, totals) = page_cache::read_cached(&self.file, reads);
                if rest.is_empty() {
                    return Ok(());
                }
                self.read_through_ring(&mut rest)?;
                for (read, total) in rest.iter().zip(totals) {
                    *total += read.filled;
                }
                Ok(())
            }
        }
    }

    fn reads_page_cache(&self) -> bool {
        self.mode == LocalMode::Buffered
    }

    fn will_need(&self, offset: u64, length: u64) -> u64 {
        let around = self.around.as_ref();
        around.map_or(0, |around| around.ask(&self.file, offset, length))
    }
}

fn open_direct(path: &Path) -> Result<Option<(File, Granularity)>, StorageError> {
    direct::open(path, false).map_err(|e| StorageError::failed(path.display(), "open it", e))
}

/// Batches name their ranges exactly, so the kernel's read-ahead would only add to them.
fn opened_buffered(file: LocalFile) -> LocalFile {
    #[cfg(not(any(target_os = "macos", target_os = "ios")))]
    {
        use rustix::fs::{Advice, fadvise};
        // Only a hint: a refusal changes nothing but speed.
        let _ = fadvise(&file.file, 0, None, Advice::Random);
    }
    file
}

fn ring_available() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return crate::ring::available();
    #[cfg(not(target_os = "linux"))]
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

/// True on tmpfs and ramfs: there the page cache is the data, and direct reads would copy twice.
fn lives_in_memory(file: &File) -> bool {
    #[cfg(target_os = "linux")]
    {
        const TMPFS_MAGIC: u32 = 0x0102_1994;
        const RAMFS_MAGIC: u32 = 0x8584_58f6;
        rustix::fs::fstatfs(file).is_ok_and(|status| {
            let kind = status.f_type as u32;
            kind == TMPFS_MAGIC || kind == RAMFS_MAGIC
        })
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        false
    }
}
