//! A read or write that owns its buffer.

use crate::AlignedBuffer;

/// A read or write of a range, with its buffer.
#[derive(Debug)]
pub struct Transfer<T> {
    /// Whether the buffer is written to the file, or filled from it.
    pub write: bool,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes of the range; the buffer is at least as long.
    pub length: usize,
    /// The bytes.
    pub buffer: AlignedBuffer,
    /// Returned to the caller with the finished transfer.
    pub errand: T,
}
