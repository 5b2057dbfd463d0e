//! Checksums of tables in files of this crate.

/// All but the last four bytes, if those are the CRC32C of the rest.
pub(crate) fn without_checksum(bytes: &[u8]) -> Option<&[u8]> {
    let (body, checksum) = bytes.split_last_chunk::<4>()?;
    (u32::from_le_bytes(*checksum) == crc32c::crc32c(body)).then_some(body)
}
