//! The [`Storage`] trait: batched positional reads.
//!
//! One call carries a whole batch of ranges so that a backend can keep its device queue full;
//! a backend with several callers at once keeps several batches in flight, so the drained tail of
//! one batch overlaps the start of the next. A call-per-range interface was rejected: at 4 KiB a
//! modern drive wants more than 64 reads in flight, and a thread per read costs more than the read.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A buffer whose address and capacity suit direct I/O (4096-byte alignment).
pub type AlignedBuffer = aligned_vec::AVec<u8, aligned_vec::ConstAlign<4096>>;

/// The units in which a storage reads. Offsets and lengths of a [`RangeRead`] must be multiples of
/// `offset_bytes`, buffer addresses multiples of `memory_bytes`; both are powers of two, 1 where
/// anything goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granularity {
    /// Offsets and lengths are multiples of this many bytes.
    pub offset_bytes: u32,
    /// Buffer addresses are multiples of this many bytes.
    pub memory_bytes: u32,
}

impl Granularity {
    /// No constraint: any offset, length and address.
    pub const BYTE: Granularity = Granularity {
        offset_bytes: 1,
        memory_bytes: 1,
    };

    /// The smallest readable range that holds `length` bytes at `offset`: `(start, length)`, both
    /// multiples of `offset_bytes`; `None` where it would pass the largest offset.
    pub fn align_out(self, offset: u64, length: u64) -> Option<(u64, u64)> {
        let unit = u64::from(self.offset_bytes);
        let start = offset - offset % unit;
        let end = offset.checked_add(length)?.checked_next_multiple_of(unit)?;
        Some((start, end - start))
    }

    /// Whether a range of `length` bytes at `offset` into memory at `address` may be read as it
    /// is; otherwise the unit it breaks.
    pub(crate) fn check(self, offset: u64, length: usize, address: *const u8) -> Result<(), u32> {
        let unit = u64::from(self.offset_bytes);
        if !offset.is_multiple_of(unit) || !(length as u64).is_multiple_of(unit) {
            return Err(self.offset_bytes);
        }
        if length > 0 && !(address as usize).is_multiple_of(self.memory_bytes as usize) {
            return Err(self.memory_bytes);
        }
        Ok(())
    }
}

/// One range of a batch: `buffer.len()` bytes from `offset`.
///
/// After a successful [`Storage::read_batch`], `filled` is the number of bytes read: the buffer's
/// length, or less where the range reaches past the end of the storage.
#[derive(Debug)]
pub struct RangeRead<'a> {
    /// First byte of the range.
    pub offset: u64,
    /// Where the bytes go; its length is the length of the range.
    pub buffer: &'a mut [u8],
    /// Bytes read, set by the storage.
    pub filled: usize,
}

/// Byte ranges by offset, many at a time. Implementations pass `conformance::check_storage`.
///
/// A decorator passes hints ([`will_need`](Storage::will_need)) on to the storage behind it
/// (`conformance::check_decorator`). Offers of another path to the same bytes
/// ([`reads_page_cache`](Storage::reads_page_cache), [`buffered`](Storage::buffered)) it passes on unless that path would
/// bypass what it does.
pub trait Storage: Send + Sync + fmt::Debug {
    /// What messages call this storage: a path, or a description such as `memory`.
    fn name(&self) -> String;

    /// Size in bytes now, asked of the backend again at each call.
    fn size(&self) -> Result<u64, StorageError>;

    /// The units in which this storage reads.
    fn granularity(&self) -> Granularity;

    /// Reads every range of `reads`, in any order, at the backend's full queue depth; returns when
    /// all are done. May be called from several threads at once. The first failure is returned and
    /// the contents of the buffers are then unspecified.
    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError>;

    /// Whether ranges come from the system's page cache by a call each, which a caller with memory for all of them
    /// saves with a copy of its own ([`crate::Resident`]).
    fn reads_page_cache(&self) -> bool {
        false
    }

    /// Tells the storage of a range that will be read soon, so that it can begin. It does not wait for the data, and does
    /// nothing where that would not help. Gives the bytes that it began to read.
    fn will_need(&self, _offset: u64, _length: u64) -> u64 {
        0
    }

    /// The same bytes through the page cache, which may not have them yet, where nobody asked for another way: for a
    /// caller that knows there to be memory for all of them. What [`Storage::will_need`] names comes with what lies around it.
    fn buffered(&self) -> Option<Arc<dyn Storage>> {
        None
    }
}

impl<S: Storage + ?Sized> Storage for Arc<S> {
    fn name(&self) -> String {
        (**self).name()
    }

    fn size(&self) -> Result<u64, StorageError> {
        (**self).size()
    }

    fn granularity(&self) -> Granularity {
        (**self).granularity()
    }

    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        (**self).read_batch(reads)
    }

    fn reads_page_cache(&self) -> bool {
        (**self).reads_page_cache()
    }

    fn will_need(&self, offset: u64, length: u64) -> u64 {
        (**self).will_need(offset, length)
    }

    fn buffered(&self) -> Option<Arc<dyn Storage>> {
        (**self).buffered()
    }
}

/// Why a storage could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The operating system refused an operation.
    #[error("{path}: {operation} failed at byte {offset}: {source}")]
    Io {
        /// File or description of the storage.
        path: String,
        /// What was attempted, such as `open` or `read`.
        operation: &'static str,
        /// Byte offset of the attempt, 0 where it has none.
        offset: u64,
        /// The system's own error.
        source: io::Error,
    },
    /// The path is not a regular file.
    #[error("{}: is {found}, not a regular file", path.display())]
    NotAFile {
        /// The path as given.
        path: PathBuf,
        /// What lies there, such as `a directory`.
        found: &'static str,
    },
    /// Nothing lies at the path.
    #[error("{}: no such file or folder; check the path", path.display())]
    NotFound {
        /// The path as given.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// The file or folder exists but its permissions forbid the operation.
    #[error("{}: permission to {operation} it is refused; check its owner and mode", path.display())]
    PermissionDenied {
        /// The path as given.
        path: PathBuf,
        /// What was attempted, such as `open`.
        operation: &'static str,
        /// The system's own error.
        source: io::Error,
    },
    /// A folder was needed and something else lies there.
    #[error("{}: is not a folder", path.display())]
    NotAFolder {
        /// The path as given.
        path: PathBuf,
    },
    /// The filesystem cannot bypass its page cache for this file.
    #[error("{}: its filesystem refuses direct reads; use buffered reads", path.display())]
    DirectUnsupported {
        /// The path as given.
        path: PathBuf,
    },
    /// The kernel offers no io_uring.
    #[error("{}: the kernel refuses io_uring ({source}); use the pread mode", path.display())]
    RingUnavailable {
        /// The file that was to be read.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// The operating system starts no more threads.
    #[error(
        "the thread `{name}` cannot be started ({source}); raise the limit on processes (pids of a container, or ulimit -u), or use fewer threads"
    )]
    Threads {
        /// What the thread is for.
        name: String,
        /// The system's own error.
        source: io::Error,
    },
    /// A file of a set is no longer the one that was listed.
    #[error("{}: changed after it was listed ({what}); leave data alone during a run and start again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// What differs.
        what: String,
    },
    /// A server refused a request, or did not answer as it must.
    #[error("{url}: {}{what}; {remedy}", of_bytes(bytes))]
    Remote {
        /// The file or folder, without what follows `?`.
        url: String,
        /// The bytes asked for, where the request was for bytes.
        bytes: Option<Range<u64>>,
        /// The status of the last answer, where there was one.
        status: Option<u16>,
        /// Whether a later attempt would end alike: a name, credentials or a setting is wrong.
        lasts: bool,
        /// What happened, with the number of attempts.
        what: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The one that waited for a read was told to end.
    #[error("{path}: interrupted while it was read")]
    Interrupted {
        /// File or description of the storage.
        path: String,
    },
    /// A file whose bytes are decoded before they are read is damaged.
    #[error("{path}: {what}; fetch or write it again")]
    Damaged {
        /// File or description of the storage.
        path: String,
        /// What does not hold.
        what: String,
    },
    /// The disk is full, or would be.
    #[error(
        "{}: {needed} bytes are needed and {available} are free; free some or choose another folder",
        path.display()
    )]
    NoSpace {
        /// The folder or file being written.
        path: PathBuf,
        /// Bytes that had to be written.
        needed: u64,
        /// Bytes free at that moment.
        available: u64,
    },
    /// A range, buffer or address does not fit [`Storage::granularity`].
    #[error("{path}: read of {length} bytes at {offset} is not aligned to {expected}")]
    Misaligned {
        /// File or description of the storage.
        path: String,
        /// First byte of the range.
        offset: u64,
        /// Length of the range in bytes.
        length: usize,
        /// The unit required.
        expected: u32,
    },
}

/// The bytes of a request, in front of what happened to it.
fn of_bytes(bytes: &Option<Range<u64>>) -> String {
    bytes.as_ref().map_or_else(String::new, |bytes| {
        format!("bytes {} to {}: ", bytes.start, bytes.end)
    })
}

impl StorageError {
    /// The typed error for a failed operation on a path as a whole.
    pub(crate) fn at_path(path: &Path, operation: &'static str, source: io::Error) -> StorageError {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::NotFound => StorageError::NotFound { path, source },
            io::ErrorKind::PermissionDenied => StorageError::PermissionDenied {
                path,
                operation,
                source,
            },
            _ => StorageError::Io {
                path: path.display().to_string(),
                operation,
                offset: 0,
                source,
            },
        }
    }
}
