//! Reads shards whole, for their checksums.

use crate::locate::places::byte_source::ByteSource;
use crate::record::error::FormatError;

/// Bytes that are read at a time.
const PIECE: u64 = 1 << 20;

/// Calls `each` with the bytes in order.
pub(crate) fn pieces(
    bytes: &mut impl ByteSource,
    check_interrupt: &impl Fn() -> Result<(), FormatError>,
    each: &mut dyn FnMut(&[u8]),
) -> Result<(), FormatError> {
    let size = bytes.size();
    for at in (0..size).step_by(PIECE as usize) {
        check_interrupt()?;
        each(bytes.bytes(at, PIECE.min(size - at) as usize)?);
    }
    Ok(())
}
