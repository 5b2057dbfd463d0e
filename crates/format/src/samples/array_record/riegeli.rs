//! Chunks of records in Riegeli files; ArrayRecord is a kind of these.
//!
//! ```text
//! file    chunks one after another, interrupted by 24 bytes of block header at each multiple of 64 KiB
//! chunk   hash of the next 32 bytes u64 | bytes of data u64 | hash of data u64 | type u8 | records u56
//!         | bytes of all records u64 | data | padding
//! data    of type r: compression u8 | bytes of sizes varint | sizes | values
//! ```
//!
//! Sizes are a varint for each record, and values are their bytes, concatenated. If they are compressed, a varint
//! before them is their decompressed length. Hashes are HighwayHash-64. Numbers are little-endian. Block headers only
//! help to find chunks in damaged files, and are skipped.

use std::borrow::Cow;
use std::cell::RefCell;

use highway::{HighwayHash, HighwayHasher, Key};
use zstd::bulk::Decompressor;

use crate::samples::framed::example::varint;

/// Bytes from one block header to the next.
pub(crate) const BLOCK: u64 = 64 << 10;
/// Bytes of a block header.
const BLOCK_HEADER: u64 = 24;
/// Bytes of a chunk before its data.
pub(crate) const CHUNK_HEADER: usize = 40;
/// Most bytes of the records of a chunk that are decompressed.
const MOST_BYTES: u64 = 1 << 30;

/// "Riegeli/", "records\n", and both once more.
const KEY: Key = Key([
    0x2f69_6c65_6765_6952,
    0x0a73_6472_6f63_6572,
    0x2f69_6c65_6765_6952,
    0x0a73_6472_6f63_6572,
]);

/// The fault of a chunk.
pub(crate) type Wrong = &'static str;

const CUT: Wrong = "its chunk is cut off";

/// A chunk in memory, with valid checksums.
#[derive(Debug)]
pub(crate) struct Chunk<'a> {
    kind: u8,
    pub(crate) records: u64,
    /// Bytes of all records.
    pub(crate) record_bytes: u64,
    data: Cow<'a, [u8]>,
}

/// The chunk at the start of `bytes`, which is at offset `at` of its file.
pub(crate) fn chunk(at: u64, bytes: &[u8]) -> Result<Chunk<'_>, Wrong> {
    let mut header = [0; CHUNK_HEADER];
    let from = copy_between(at, bytes, &mut header).ok_or(CUT)?;
    let word = |i: usize| {
        let word = header[8 * i..].first_chunk();
        u64::from_le_bytes(*word.expect("a header has five words"))
    };
    if hash(&header[8..]) != word(0) {
        return Err("the checksum of its chunk's header does not fit");
    }
    let length = usize::try_from(word(1)).map_err(|_| CUT)?;
    let rest = bytes.get(from..).ok_or(CUT)?;
    let at = at + from as u64;
    let to_block = (BLOCK - at % BLOCK) % BLOCK;
    let data = if usize::try_from(to_block).is_ok_and(|block| length <= block) {
        Cow::Borrowed(rest.get(..length).ok_or(CUT)?)
    } else if length > rest.len() {
        return Err(CUT);
    } else {
        let mut data = vec![0; length];
        copy_between(at, rest, &mut data).ok_or(CUT)?;
        Cow::Owned(data)
    };
    if hash(&data) != word(2) {
        return Err("the checksum of its chunk does not fit");
    }
    Ok(Chunk {
        kind: header[24],
        records: word(3) >> 8,
        record_bytes: word(4),
        data,
    })
}

pub(crate) fn hash(bytes: &[u8]) -> u64 {
    HighwayHasher::new(KEY).hash64(bytes)
}

/// Fills `to` with the bytes from `at` of a file that are not block headers; returns how many of `bytes` that takes.
fn copy_between(at: u64, bytes: &[u8], to: &mut [u8]) -> Option<usize> {
    let (mut from, mut filled) = (0, 0);
    while filled < to.len() {
        let in_block = (at + from as u64) % BLOCK;
        from += BLOCK_HEADER.saturating_sub(in_block) as usize;
        let left = (BLOCK - in_block.max(BLOCK_HEADER)) as usize;
        let length = left.min(to.len() - filled);
        to[filled..filled + length].copy_from_slice(bytes.get(from..from + length)?);
        (from, filled) = (from + length, filled + length);
    }
    Some(from)
}

/// The sizes and the bytes of the records of a chunk.
pub(crate) struct Records<'a> {
    compression: u8,
    sizes: &'a [u8],
    values: &'a [u8],
    records: u64,
    record_bytes: u64,
}

impl Chunk<'_> {
    /// Its records, if they can be parsed.
    pub(crate) fn records(&self) -> Result<Records<'_>, Wrong> {
        match self.kind {
            b'r' => {}
            b't' => {
                return Err(
                    "its records are transposed, which is not read; write the file without transpose",
                );
            }
            _ => return Err("its chunk holds no records"),
        }
        let (compression, rest) = self.data.split_first().ok_or(CUT)?;
        match compression {
            0 | b'z' => {}
            b'b' => {
                return Err(
                    "its records are compressed by Brotli, which is not read; write the file with zstd or uncompressed",
                );
            }
            b's' => {
                return Err(
                    "its records are compressed by Snappy, which is not read; write the file with zstd or uncompressed",
                );
            }
            _ => return Err("its records are compressed in no known way"),
        }
        let (length, bytes) = varint(rest).ok_or(CUT)?;
        let rest = &rest[bytes..];
        let length = usize::try_from(length).map_err(|_| CUT)?;
        let (sizes, values) = rest.split_at_checked(length).ok_or(CUT)?;
        Ok(Records {
            compression: *compression,
            sizes,
            values,
            records: self.records,
            record_bytes: self.record_bytes,
        })
    }
}

thread_local! {
    static ZSTD: RefCell<Option<Decompressor<'static>>> = RefCell::default();
}

impl<'a> Records<'a> {
    /// The bytes of all records, in `scratch` if they are compressed.
    pub(crate) fn values<'s>(&self, scratch: &'s mut Vec<u8>) -> Result<&'s [u8], Wrong>
    where
        'a: 's,
    {
        let values = self.plain(self.values, self.record_bytes, scratch)?;
        if values.len() as u64 == self.record_bytes {
            Ok(values)
        } else {
            Err("its records have not the length that its chunk states")
        }
    }

    /// The sizes of the records.
    pub(crate) fn sizes(&self) -> Result<Vec<u64>, Wrong> {
        const WRONG: Wrong = "the sizes of its records do not fit";
        let mut scratch = Vec::new();
        // Ten bytes a size at most.
        let most = self.records.saturating_mul(10);
        let mut rest = self.plain(self.sizes, most, &mut scratch)?;
        let mut sizes = Vec::new();
        let mut sum = 0u64;
        while let Some((size, bytes)) = varint(rest) {
            rest = &rest[bytes..];
            sum = sum.checked_add(size).ok_or(WRONG)?;
            sizes.push(size);
        }
        let fits =
            rest.is_empty() && sizes.len() as u64 == self.records && sum == self.record_bytes;
        fits.then_some(sizes).ok_or(WRONG)
    }

    /// `bytes`, decompressed, at most `most` of them.
    fn plain<'s>(
        &self,
        bytes: &'s [u8],
        most: u64,
        scratch: &'s mut Vec<u8>,
    ) -> Result<&'s [u8], Wrong> {
        if self.compression == 0 {
            return Ok(bytes);
        }
        let (length, prefix) = varint(bytes).ok_or(CUT)?;
        if length > most.min(MOST_BYTES) {
            return Err("its records are longer than its chunk states, or than 1 GiB");
        }
        let bytes = &bytes[prefix..];
        scratch.clear();
        if length == 0 && bytes.is_empty() {
            return Ok(scratch);
        }
        scratch.reserve(length as usize);
        let done = ZSTD.with_borrow_mut(|kept| {
            let zstd = match kept {
                Some(zstd) => zstd,
                None => kept.insert(Decompressor::new()?),
            };
            zstd.decompress_to_buffer(bytes, scratch)
        });
        match done {
            Ok(done) if done as u64 == length => Ok(scratch),
            _ => Err("its compressed records are damaged"),
        }
    }
}
