//! A temporary file for data that does not fit in memory, such as buckets being shuffled.
//!
//! The file loses its name as soon as it is open, so it vanishes with the process even after a crash. Its space is
//! reserved up front: a full disk is then reported before the work, and concurrent direct writes do not queue for the
//! lock that growing a file takes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::whole_file::{remove_if_abandoned, temporary_in};
use crate::{Granularity, LocalFile, LocalMode, LocalOptions, RangeRead, Storage};
use crate::{StorageError, StorageErrorKind, direct};

/// Prefix of the name that a file has while it is opened.
const PREFIX: &str = ".pelton-scratch-";

/// Removes files of processes that were killed before theirs lost its name.
fn remove_left_over(folder: &Path) {
    let entries = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let is_ours = |name: &[u8]| name.starts_with(PREFIX.as_bytes());
    for entry in entries.filter(|entry| is_ours(entry.file_name().as_encoded_bytes())) {
        remove_if_abandoned(&entry.path());
    }
}

/// An unnamed temporary file: written at offsets by any number of threads, read back as a [`Storage`].
#[derive(Debug)]
pub struct ScratchFile {
    folder: PathBuf,
    reader: LocalFile,
    buffered: File,
    direct: Option<(File, Granularity)>,
    bytes_written: AtomicU64,
    /// One past the last byte written, which reads see as the end.
    end: AtomicU64,
}

impl ScratchFile {
    /// A new file in `folder` for about `expected_bytes`; fails with [`StorageErrorKind::NoSpace`] if fewer are free.
    pub fn create(
        folder: impl AsRef<Path>,
        expected_bytes: u64,
    ) -> Result<ScratchFile, StorageError> {
        let folder = folder.as_ref();
        let failed = |operation| move |e| StorageError::failed(folder.display(), operation, e);
        if !fs::metadata(folder).map_err(failed("open it"))?.is_dir() {
            let what = "is not a folder; name one";
            return Err(StorageError::new(
                StorageErrorKind::Unusable,
                folder.display(),
                what,
            ));
        }
        let available = free_bytes(folder)?;
        if available < expected_bytes {
            return Err(no_space(folder, expected_bytes, available));
        }
        remove_left_over(folder);
        let named = temporary_in(folder, tempfile::Builder::new().prefix(PREFIX));
        let named = named.map_err(failed("create a file in it"))?;
        reserve(named.as_file(), folder, expected_bytes)?;
        let direct = direct::open(named.path(), true).map_err(failed("open a file in it"))?;
        let reader = LocalFile::open(
            named.path(),
            LocalOptions {
                mode: LocalMode::Auto,
                ..LocalOptions::default()
            },
        )?;
        let (buffered, name) = named.into_parts();
        name.close().map_err(failed("unlink a file in"))?;
        Ok(ScratchFile {
            folder: folder.to_path_buf(),
            reader,
            buffered,
            direct,
            bytes_written: AtomicU64::new(0),
            end: AtomicU64::new(0),
        })
    }

    /// Writes all of `bytes` at `offset`, bypassing the page cache if offset, address and length are multiples of
    /// [`ScratchFile::write_granularity`].
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        let past_cache = match &self.direct {
            Some((file, units)) => {
                let whole = bytes.len() - bytes.len() % units.offset_bytes as usize;
                match units.check(offset, whole, bytes.as_ptr()) {
                    Ok(()) if whole > 0 => {
                        self.write_all(file, offset, &bytes[..whole])?;
                        whole
                    }
                    _ => 0,
                }
            }
            None => 0,
        };
        let (rest, rest_offset) = (&bytes[past_cache..], offset + past_cache as u64);
        if !rest.is_empty() {
            self.write_all(&self.buffered, rest_offset, rest)?;
        }
        self.count_written(offset, bytes.len() as u64);
        Ok(())
    }

    /// Counts bytes that were written to the file.
    pub(crate) fn count_written(&self, offset: u64, length: u64) {
        self.bytes_written.fetch_add(length, Ordering::Relaxed);
        if length > 0 {
            self.end.fetch_max(offset + length, Ordering::Release);
        }
    }

    /// The file for another ring, if it can be read and written without the page cache in units of 4096 bytes.
    #[cfg(target_os = "linux")]
    pub(crate) fn ring_file(&self) -> Result<Option<File>, StorageError> {
        match &self.direct {
            Some((file, units))
                if units.offset_bytes <= 4096
                    && units.memory_bytes <= 4096
                    && self.reader.mode() == LocalMode::Direct =>
            {
                let file = file.try_clone();
                file.map(Some).map_err(|e| {
                    StorageError::failed(self.folder.display(), "open a file in it", e)
                })
            }
            _ => Ok(None),
        }
    }

    /// Bytes written so far; a byte written twice counts twice.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }

    /// The units in which writes bypass the page cache, `None` if none do.
    pub fn write_granularity(&self) -> Option<Granularity> {
        self.direct.as_ref().map(|(_, units)| *units)
    }

    /// The file as a storage, for reads at other depths.
    pub(crate) fn reader(&self) -> &LocalFile {
        &self.reader
    }

    /// Waits until all writes are on the device.
    pub(crate) fn sync(&self) -> Result<(), StorageError> {
        self.buffered
            .sync_data()
            .map_err(|e| StorageError::failed(self.folder.display(), "sync a file in it", e))
    }

    fn write_all(&self, file: &File, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        file.write_all_at(bytes, offset)
            .map_err(|source| self.transfer_error("write", offset, bytes.len() as u64, source))
    }

    /// The typed error of a failed transfer of `length` bytes.
    pub(crate) fn transfer_error(
        &self,
        operation: &'static str,
        offset: u64,
        length: u64,
        source: io::Error,
    ) -> StorageError {
        if is_full(&source) {
            return no_space(&self.folder, length, free_bytes(&self.folder).unwrap_or(0));
        }
        StorageError::failed_at(self.name(), operation, offset, source)
    }
}

impl Storage for ScratchFile {
    fn name(&self) -> String {
        format!("scratch file in {}", self.folder.display())
    }

    fn size(&self) -> Result<u64, StorageError> {
        Ok(self.end.load(Ordering::Acquire))
    }

    fn granularity(&self) -> Granularity {
        self.reader.granularity()
    }

    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        self.reader.read_batch(reads)?;
        // The reserved space beyond the last write is not data.
        let end = self.size()?;
        for read in reads {
            let there = end.saturating_sub(read.offset);
            read.filled = read
                .filled
                .min(usize::try_from(there).unwrap_or(usize::MAX));
        }
        Ok(())
    }
}

fn no_space(folder: &Path, needed: u64, available: u64) -> StorageError {
    let what = format!(
        "{needed} bytes are needed and {available} are free; free some or choose another folder"
    );
    StorageError::new(StorageErrorKind::NoSpace, folder.display(), what)
}

/// Bytes an ordinary user may still write in `folder`.
fn free_bytes(folder: &Path) -> Result<u64, StorageError> {
    let status = rustix::fs::statvfs(folder)
        .map_err(|e| StorageError::failed(folder.display(), "examine it", e.into()))?;
    Ok(status.f_bavail.saturating_mul(status.f_frsize))
}

/// Reserves the space if the filesystem supports it; otherwise writes find out.
fn reserve(file: &File, folder: &Path, bytes: u64) -> Result<(), StorageError> {
    #[cfg(target_os = "linux")]
    if bytes > 0 {
        use rustix::fs::{FallocateFlags, fallocate};
        if let Err(errno) = fallocate(file, FallocateFlags::empty(), 0, bytes)
            && is_full(&errno.into())
        {
            return Err(no_space(folder, bytes, free_bytes(folder)?));
        }
    }
    let _ = (file, folder, bytes);
    Ok(())
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// One does not take another's new file, which is not locked yet, for one that a kill left.
    #[test]
    fn several_are_made_in_a_folder_at_once() {
        let folder = tempfile::tempdir().expect("temporary folder");
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..400 {
                        ScratchFile::create(folder.path(), 0).expect("create");
                    }
                });
            }
        });
    }

    #[test]
    fn a_file_that_a_kill_left_is_removed_unless_in_use() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let left = folder.path().join(".pelton-scratch-Ab12");
        fs::write(&left, [0; 9]).expect("written");
        let held = temporary_in(folder.path(), tempfile::Builder::new().prefix(PREFIX));
        let held = held.expect("a file");
        ScratchFile::create(folder.path(), 0).expect("create");
        assert!(!left.exists() && held.path().exists());
    }

    /// /dev/full acts like a full disk for one write.
    #[test]
    fn a_write_to_a_full_disk_is_no_space() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let mut scratch = ScratchFile::create(folder.path(), 0).expect("create");
        let full = File::options().write(true).open("/dev/full");
        scratch.buffered = full.expect("open /dev/full");
        let error = scratch.write_at(3, &[1; 5]).expect_err("full");
        assert_eq!(error.kind, StorageErrorKind::NoSpace);
        assert!(
            error.to_string().contains(": 5 bytes are needed"),
            "{error}"
        );
        assert_eq!(scratch.bytes_written(), 0);
    }
}
