//! The [`Storage`] trait: batched positional reads.
//!
//! One call carries a whole batch of ranges so that a backend can keep its device queue full;
//! a backend with several callers at once keeps several batches in flight, so the drained tail of
//! one batch overlaps the start of the next. A call-per-range interface was rejected: at 4 KiB a
//! modern drive wants more than 64 reads in flight, and a thread per read costs more than the read.

use std::fmt;
use std::io;
use std::path::PathBuf;

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
pub trait Storage: Send + Sync + fmt::Debug {
    /// What messages call this storage: a path, or a description such as `memory`.
    fn name(&self) -> String;

    /// Size in bytes now, asked of the backend anew at each call.
    fn size(&self) -> Result<u64, StorageError>;

    /// The units in which this storage reads.
    fn granularity(&self) -> Granularity;

    /// Reads every range of `reads`, in any order, at the backend's full queue depth; returns when
    /// all are done. May be called from several threads at once. The first failure is returned and
    /// the contents of the buffers are then unspecified.
    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError>;
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
