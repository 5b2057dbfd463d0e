//! Many files as one run of bytes: file after file, each opened when it is read.
//!
//! A folder of a million images is more files than a process may hold open, so a read opens the files it touches,
//! checks that each is still the one that was listed, and closes it. Files that are read in parts stay open, up to
//! [`KEPT_OPEN`] of them; the least recently used is closed first. Opening costs a few microseconds if the folder's
//! entries are in memory; several threads do it at once, because on a disk each opening waits for two reads of its
//! own. Opening and reading through one chain of io_uring requests was rejected: it saves one system call of four and
//! needs a descriptor table.
//!
//! Cost: in memory, name, 8 bytes of offset and 8 of time a file.

use std::fmt;
use std::fs::{File, Metadata};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rayon::prelude::*;
use rustix::fs::OFlags;

use crate::{Granularity, RangeRead, Storage, StorageError, pread};

/// Descriptors kept open for files that are read in parts: far below the usual limit of 1024.
const KEPT_OPEN: usize = 64;

/// One file of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetFile {
    /// Path below the root.
    pub name: PathBuf,
    /// Size in bytes.
    pub size: u64,
    /// Time of last change in nanoseconds since 1970, from [`changed_ns`].
    pub changed_ns: i64,
}

/// Time of last change in nanoseconds since 1970; 0 if the filesystem does not know it.
pub fn changed_ns(status: &Metadata) -> i64 {
    let Ok(changed) = status.modified() else {
        return 0;
    };
    match changed.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_nanos()).unwrap_or(i64::MAX),
    }
}

/// Many files as one run of bytes.
pub struct FileSet {
    root: PathBuf,
    /// Names below the root, one after another.
    names: Vec<u8>,
    name_ends: Vec<u64>,
    /// Start of each file, and the end of the last.
    starts: Vec<u64>,
    changed_ns: Vec<i64>,
    /// A file that stores this list for later runs.
    kept_at: Option<PathBuf>,
    /// Most recently used at the end.
    open: Mutex<Vec<(usize, Arc<File>)>>,
}

impl FileSet {
    /// The files `files` below `root`, in that order.
    pub fn new(root: impl Into<PathBuf>, files: impl IntoIterator<Item = SetFile>) -> FileSet {
        let mut set = FileSet::empty(root);
        for file in files {
            set.push(&file.name, file.size, file.changed_ns);
        }
        set.shrink();
        set
    }

    /// No file below `root` yet.
    pub fn empty(root: impl Into<PathBuf>) -> FileSet {
        FileSet {
            root: root.into(),
            names: Vec::new(),
            name_ends: Vec::new(),
            starts: vec![0],
            changed_ns: Vec::new(),
            kept_at: None,
            open: Mutex::default(),
        }
    }

    /// Adds the file at `name` below the root, of `size` bytes and last changed at `changed_ns`.
    pub fn push(&mut self, name: &Path, size: u64, changed_ns: i64) {
        self.names
            .extend_from_slice(name.as_os_str().as_encoded_bytes());
        self.name_ends.push(self.names.len() as u64);
        self.starts.push(self.bytes().saturating_add(size));
        self.changed_ns.push(changed_ns);
    }

    /// Releases the memory that adding has reserved.
    pub fn shrink(&mut self) {
        self.names.shrink_to_fit();
        self.name_ends.shrink_to_fit();
        self.starts.shrink_to_fit();
        self.changed_ns.shrink_to_fit();
    }

    /// Sets the file that stores this list for later runs. It is removed once a file of the set is not as listed, so
    /// that the next run does not meet the same error.
    pub fn kept_at(self, path: PathBuf) -> FileSet {
        FileSet {
            kept_at: Some(path),
            ..self
        }
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.name_ends.len()
    }

    /// Whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.name_ends.is_empty()
    }

    /// First byte and length of file `i`; panics unless `i` is below [`FileSet::len`].
    #[inline]
    pub fn range(&self, i: usize) -> (u64, u64) {
        (self.starts[i], self.starts[i + 1] - self.starts[i])
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        *self.starts.last().expect("the first start is always there")
    }

    /// Time of last change of file `i` as listed; panics unless `i` is below [`FileSet::len`].
    pub fn changed_ns(&self, i: usize) -> i64 {
        self.changed_ns[i]
    }

    /// Path of file `i`; panics unless `i` is below [`FileSet::len`].
    pub fn path(&self, i: usize) -> PathBuf {
        self.root.join(self.file_name(i))
    }

    /// Path of file `i` below the root; panics unless `i` is below [`FileSet::len`].
    pub fn file_name(&self, i: usize) -> &Path {
        use std::os::unix::ffi::OsStrExt;
        let from = if i == 0 { 0 } else { self.name_ends[i - 1] };
        let name = &self.names[from as usize..self.name_ends[i] as usize];
        Path::new(std::ffi::OsStr::from_bytes(name))
    }

    /// Bytes the list takes in memory.
    pub fn heap_bytes(&self) -> u64 {
        let words = self.name_ends.capacity() + self.starts.capacity() + self.changed_ns.capacity();
        (self.names.capacity() + 8 * words) as u64
    }

    /// Opens file `i` and verifies that it is still the one listed.
    fn open_file(&self, i: usize) -> Result<File, StorageError> {
        let path = self.path(i);
        let failed = |error| StorageError::failed(path.display(), "open it", error);
        // Non-blocking: the file may have become a pipe.
        let file = File::options()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(&path)
            .map_err(failed)?;
        let status = file.metadata().map_err(failed)?;
        let (_, size) = self.range(i);
        let what = if !status.is_file() {
            "it is not a regular file any more".to_string()
        } else if status.len() != size {
            format!("its size: {size} bytes became {}", status.len())
        } else if changed_ns(&status) != self.changed_ns[i] {
            "its time of last change".to_string()
        } else {
            return Ok(file);
        };
        Err(self.changed(i, what))
    }

    /// File `i` is not as listed.
    fn changed(&self, i: usize, what: String) -> StorageError {
        if let Some(kept_at) = &self.kept_at {
            // It may be gone already, or in a read-only folder: the error is that of the file in any case.
            let _ = std::fs::remove_file(kept_at);
        }
        StorageError::changed(self.path(i).display(), what)
    }

    /// File `i`, which stays open for further reads of parts.
    fn kept_file(&self, i: usize) -> Result<Arc<File>, StorageError> {
        let open = || self.open.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut open = open();
            if let Some(at) = open.iter().position(|(number, _)| *number == i) {
                let held = open.remove(at);
                let file = Arc::clone(&held.1);
                open.push(held);
                return Ok(file);
            }
        }
        let file = Arc::new(self.open_file(i)?);
        let mut open = open();
        if open.len() >= KEPT_OPEN {
            open.remove(0);
        }
        open.push((i, Arc::clone(&file)));
        Ok(file)
    }

    /// Reads one part of one file.
    fn read_part(&self, part: &mut Part<'_>) -> Result<(), StorageError> {
        let (start, size) = self.range(part.file);
        let length = part.buffer.len();
        let mut read = RangeRead {
            offset: part.offset - start,
            buffer: &mut *part.buffer,
            filled: 0,
        };
        let outcome = if length as u64 == size {
            pread::read_range(&self.open_file(part.file)?, &mut read)
        } else {
            pread::read_range(&*self.kept_file(part.file)?, &mut read)
        };
        outcome.map_err(|(offset, source)| {
            StorageError::failed_at(self.path(part.file).display(), "read", offset, source)
        })?;
        if read.filled == length {
            return Ok(());
        }
        let end = part.offset - start + read.filled as u64;
        Err(self.changed(part.file, format!("it ends at byte {end}")))
    }
}

/// A part of one file, and its destination.
struct Part<'a> {
    file: usize,
    /// First byte, counted over all files.
    offset: u64,
    buffer: &'a mut [u8],
}

impl fmt::Debug for FileSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSet")
            .field("root", &self.root)
            .field("files", &self.len())
            .field("bytes", &self.bytes())
            .finish()
    }
}

impl Storage for FileSet {
    fn name(&self) -> String {
        self.root.display().to_string()
    }

    fn size(&self) -> Result<u64, StorageError> {
        Ok(self.bytes())
    }

    fn granularity(&self) -> Granularity {
        Granularity::BYTE
    }

    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        let total = self.bytes();
        let mut parts = Vec::with_capacity(reads.len());
        for read in reads {
            let there = total.saturating_sub(read.offset);
            read.filled = (read.buffer.len() as u64).min(there) as usize;
            let mut rest = &mut read.buffer[..read.filled];
            let mut offset = read.offset;
            // The last file that starts at or before the offset; empty files before it do not contain it.
            let mut file = self.starts.partition_point(|start| *start <= offset);
            while !rest.is_empty() {
                let end = self.starts[file];
                let length = (end - offset).min(rest.len() as u64) as usize;
                let (buffer, others) = rest.split_at_mut(length);
                if length > 0 {
                    parts.push(Part {
                        file: file - 1,
                        offset,
                        buffer,
                    });
                }
                rest = others;
                offset += length as u64;
                file += 1;
            }
        }
        match pread::pool() {
            Some(pool) if parts.len() > 1 => pool.install(|| {
                parts
                    .par_iter_mut()
                    .try_for_each(|part| self.read_part(part))
            }),
            _ => parts.iter_mut().try_for_each(|part| self.read_part(part)),
        }
    }
}
