//! Reads spans of a file.

use std::ops::Range;

use pelton_storage::{AlignedBuffer, RangeRead, Storage, StorageError};

/// Reads `length` bytes at `from`; returns their range in the buffer.
pub(crate) fn read_span(
    storage: &dyn Storage,
    from: u64,
    length: u64,
    buffer: &mut AlignedBuffer,
) -> Result<Range<usize>, StorageError> {
    let units = storage.granularity();
    let (offset, whole) = units.align_out(from, length).unwrap_or((from, length));
    buffer.resize(whole as usize, 0);
    let mut read = [RangeRead {
        offset,
        buffer: &mut buffer[..],
        filled: 0,
    }];
    storage.read_batch(&mut read)?;
    let skip = (from - offset) as usize;
    Ok(skip..skip + length as usize)
}
