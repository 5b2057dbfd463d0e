//! A part of a file in the cache: a sparse file of slots, each a block with a check word.
//!
//! ```text
//! slot    check word u64 | block          where the file has a hole, the word is 0
//! word    CRC-32C of block, file and number << 32 | bytes of the block
//! ```
//!
//! A half-written block, after a kill or a power failure, does not match its check word and counts as missing. So
//! nothing is ever synced, and processes share a folder without locks: all write the same bytes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

/// Bytes of a block.
pub(crate) const BLOCK: u64 = 16 << 10;
/// Blocks of a segment, which is 16 MiB of a file and the unit of eviction.
pub(crate) const BLOCKS: u64 = 1024;
const WORD: usize = 8;
const SLOT: u64 = BLOCK + WORD as u64;
/// How often a file in use updates its time.
const TOUCH: Duration = Duration::from_secs(30);

/// An open segment.
#[derive(Debug)]
pub(crate) struct Segment {
    file: File,
    /// Identifies the file and its state.
    key: u64,
    touched: Mutex<Option<Instant>>,
}

impl Segment {
    pub(crate) fn new(file: File, key: u64) -> Segment {
        Segment {
            file,
            key,
            touched: Mutex::new(None),
        }
    }

    fn word(&self, number: u64, block: &[u8]) -> u64 {
        let sum = crc32c::crc32c(block);
        let sum = crc32c::crc32c_append(sum, &self.key.to_le_bytes());
        let sum = crc32c::crc32c_append(sum, &number.to_le_bytes());
        u64::from(sum) << 32 | block.len() as u64
    }

    /// Passes on each of the blocks `numbers`, which are in this segment of a file of `size` bytes; `None` for a
    /// missing one.
    pub(crate) fn read(
        &self,
        numbers: Range<u64>,
        size: u64,
        scratch: &mut Vec<u8>,
        mut each: impl FnMut(u64, Option<&[u8]>),
    ) {
        let bytes = (numbers.end - numbers.start) * SLOT;
        scratch.resize(bytes as usize, 0);
        let filled = read_up_to(&self.file, scratch, numbers.start % BLOCKS * SLOT);
        let filled = filled.unwrap_or(0);
        for (slot, number) in scratch[..filled].chunks(SLOT as usize).zip(numbers.clone()) {
            let length = WORD + length_of(number, size);
            let block = slot.get(WORD..length).filter(|block| {
                let word = slot[..WORD].try_into().expect("eight bytes");
                u64::from_le_bytes(word) == self.word(number, block)
            });
            each(number, block);
        }
        let looked_at = (filled as u64).div_ceil(SLOT);
        for number in numbers.start + looked_at..numbers.end {
            each(number, None);
        }
        self.touch();
    }

    /// Writes the blocks from `number` on, which are in this segment and have the bytes `bytes`.
    pub(crate) fn write(&self, number: u64, bytes: &[u8], scratch: &mut Vec<u8>) -> io::Result<()> {
        scratch.clear();
        for (number, block) in (number..).zip(bytes.chunks(BLOCK as usize)) {
            scratch.extend_from_slice(&self.word(number, block).to_le_bytes());
            scratch.extend_from_slice(block);
        }
        self.file.write_all_at(scratch, number % BLOCKS * SLOT)
    }

    /// Marks the segment as used, once in a while.
    fn touch(&self) {
        let Ok(mut touched) = self.touched.try_lock() else {
            return;
        };
        if touched.is_none_or(|at| at.elapsed() > TOUCH) {
            *touched = Some(Instant::now());
            // A segment that cannot be marked is merely removed earlier.
            let _ = self.file.set_modified(SystemTime::now());
        }
    }
}

/// Bytes of a block of a file of `size` bytes.
pub(crate) fn length_of(number: u64, size: u64) -> usize {
    size.saturating_sub(number * BLOCK).min(BLOCK) as usize
}

fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
