//! The [`Storage`] trait: batched positional reads.
//!
//! One call carries a whole batch of ranges so that a backend can keep its device queue full;
//! a backend with several callers at once keeps several batches in flight, so the drained tail of
//! one batch overlaps the start of the next. A call-per-range interface was rejected: at 4 KiB a
//! modern drive wants more than 64 reads in flight, and a thread per read costs more than the read.

use std::fmt;
use std::sync::Arc;

use crate::error::StorageError;

/// A buffer with address and capacity suitable for direct I/O (4096-byte alignment).
pub type AlignedBuffer = aligned_vec::AVec<u8, aligned_vec::ConstAlign<4096>>;

/// The units in which a storage reads. Offsets and lengths of a [`RangeRead`] must be multiples of `offset_bytes`,
/// buffer addresses multiples of `memory_bytes`; both are powers of two, 1 without a constraint.
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

    /// The smallest readable range that contains `length` bytes at `offset`: `(start, length)`, both multiples of
    /// `offset_bytes`; `None` if it would exceed the largest offset.
    pub fn align_out(self, offset: u64, length: u64) -> Option<(u64, u64)> {
        let unit = u64::from(self.offset_bytes);
        let start = offset - offset % unit;
        let end = offset.checked_add(length)?.checked_next_multiple_of(unit)?;
        Some((start, end - start))
    }

    /// Whether a range of `length` bytes at `offset` into memory at `address` is aligned; otherwise the unit that it
    /// violates.
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
/// length, or less if the range reaches past the end of the storage.
#[derive(Debug)]
pub struct RangeRead<'a> {
    /// First byte of the range.
    pub offset: u64,
    /// The destination; its length is the length of the range.
    pub buffer: &'a mut [u8],
    /// Bytes read, set by the storage.
    pub filled: usize,
}

/// Byte ranges by offset, many at a time. Implementations pass `conformance::check_storage`.
///
/// A decorator passes hints ([`will_need`](Storage::will_need)) on to the storage behind it
/// (`conformance::check_decorator`). It also passes on alternative paths to the same bytes
/// ([`reads_page_cache`](Storage::reads_page_cache), [`buffered`](Storage::buffered)), unless that path would bypass
/// the decorator.
pub trait Storage: Send + Sync + fmt::Debug {
    /// The name of this storage in messages: a path, or a description such as `memory`.
    fn name(&self) -> String;

    /// Current size in bytes, queried from the backend at each call.
    fn size(&self) -> Result<u64, StorageError>;

    /// The units in which this storage reads.
    fn granularity(&self) -> Granularity;

    /// Reads every range of `reads`, in any order, at the backend's full queue depth; returns when
    /// all are done. May be called from several threads at once. The first failure is returned and
    /// the contents of the buffers are then unspecified.
    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError>;

    /// Whether ranges come from the system's page cache by one call each; a caller with memory for all of them can
    /// avoid that with a copy of its own ([`crate::Resident`]).
    fn reads_page_cache(&self) -> bool {
        false
    }

    /// Announces a range that will be read soon, so that the storage can prefetch it. It does not wait for the data,
    /// and does nothing if that would not help. Returns the bytes that it began to read.
    fn will_need(&self, _offset: u64, _length: u64) -> u64 {
        0
    }

    /// The same bytes through the page cache, which may not have them yet, unless the user chose another mode: for a
    /// caller that knows that memory suffices for all of them. [`Storage::will_need`] then prefetches larger parts.
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
