//! A 64-bit fingerprint of a file from 64 blocks spread evenly over it.
//!
//! It distinguishes data sets and detects most edits that keep size and time; it does not prove equality. Reading the
//! whole file was rejected: opening must not cost a pass.

use crate::record::mixing::mix;
use std::io::{self, Read, Seek, SeekFrom};

const BLOCKS: u64 = 64;
const BLOCK_BYTES: u64 = 4096;

/// The fingerprint of the first `size` bytes; files of up to 256 KiB are read whole.
pub(crate) fn sample(file: &mut (impl Read + Seek), size: u64) -> io::Result<u64> {
    let mut hash = mix(0, size);
    let mut block = Vec::with_capacity(BLOCK_BYTES as usize);
    for i in 0..BLOCKS {
        let from = if size <= BLOCKS * BLOCK_BYTES {
            i * BLOCK_BYTES
        } else {
            (u128::from(size - BLOCK_BYTES) * u128::from(i) / u128::from(BLOCKS - 1)) as u64
        };
        if from >= size {
            break;
        }
        file.seek(SeekFrom::Start(from))?;
        block.clear();
        file.take(BLOCK_BYTES.min(size - from))
            .read_to_end(&mut block)?;
        hash = mix(
            hash,
            u64::from(crc32c::crc32c(&block)) << 32 | block.len() as u64,
        );
    }
    Ok(hash)
}

/// [`sample`] of a file on disk.
pub(crate) fn sample_file(path: &std::path::Path, size: u64) -> io::Result<u64> {
    sample(&mut pelton_storage::open_file(path)?, size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn any_byte_of_a_small_file_matters() {
        let bytes: Vec<u8> = (0..9000u32).map(|i| i as u8).collect();
        let whole = sample(&mut Cursor::new(&bytes), 9000).unwrap();
        for at in (0..bytes.len()).step_by(97) {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_ne!(sample(&mut Cursor::new(&other), 9000).unwrap(), whole);
        }
        assert_ne!(sample(&mut Cursor::new(&bytes), 8999).unwrap(), whole);
    }

    #[test]
    fn ends_of_a_large_file_matter() {
        let mut bytes = vec![7u8; 1_000_000];
        let whole = sample(&mut Cursor::new(&bytes), 1_000_000).unwrap();
        bytes[999_999] = 8;
        assert_ne!(sample(&mut Cursor::new(&bytes), 1_000_000).unwrap(), whole);
    }
}
