//! Keeps files in memory once they were read.
//!
//! A range in the page cache costs a system call, and the kernel walks its tree of pages for it: 0.7 µs, twice what
//! copying 3 KB takes. From the process's own memory the same range costs only its copy. Mapping the file was
//! rejected: reading a page that the file no longer has raises a signal, which only a process-wide handler can
//! survive.
//!
//! The file is cut into blocks, each read whole through the ordinary storage after as many reads of its ranges as
//! would have paid for it; until then ranges cost a call each, as usual. So a run of one epoch, and a first batch,
//! wait for no block, and no run takes more than twice the time of the better choice. A thread that needs a block
//! which another is reading reads its range directly, so none waits.
//!
//! Cost: the bytes of the file in memory, on huge pages, which the system gives as blocks fill them.

#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::huge_pages::untouched_zeros;
use crate::{Granularity, RangeRead, Storage, StorageError};

/// Bytes of a block: read in little more time than a call takes, and eight fill a huge page.
const BLOCK: usize = 256 << 10;
/// Bytes at the start of the next range that are prefetched while one is copied; the processor does the rest.
const ASKED_FOR: usize = 256;
const CACHE_LINE: usize = 64;

/// States of a block other than its number of requested ranges: being read by a thread, present, unavailable.
const BEING_READ: u16 = u16::MAX - 2;
const PRESENT: u16 = u16::MAX - 1;
const GONE: u16 = u16::MAX;

/// A storage that keeps blocks in memory.
///
/// A block keeps its content from when it was read; callers that must notice changes check the file. A block that
/// cannot be read whole is read range by range, which reports the error.
pub struct Resident {
    inner: Arc<dyn Storage>,
    memory: Memory,
    states: Vec<AtomicU16>,
    /// Ranges of a block that are read directly first.
    direct: u16,
}

impl Resident {
    /// After this many ranges of a block it pays to read the block: a range takes 0.35 to 0.7 µs more than a copy,
    /// and a block some 50 µs, or 140 in memory that was not used before. Over 20 epochs 3 KB records are read at
    /// 1.72 M a second, and at 1.11 M with four times as many ranges (`bench/results/resident.csv`).
    pub const PAYS_AFTER: u16 = 128;

    /// Keeps `inner` in memory, as large as it is now: each block once `direct` ranges of it were read directly, at
    /// most 65 000.
    pub fn new(inner: Arc<dyn Storage>, direct: u16) -> Result<Resident, StorageError> {
        let length = usize::try_from(inner.size()?).unwrap_or(usize::MAX);
        let blocks = length.div_ceil(BLOCK);
        Ok(Resident {
            inner,
            memory: Memory::new(length),
            states: (0..blocks).map(|_| AtomicU16::new(0)).collect(),
            direct: direct.min(65_000),
        })
    }

    /// Bytes that are in memory now.
    pub fn present_bytes(&self) -> u64 {
        let present = |(_, state): &(usize, &AtomicU16)| state.load(Ordering::Relaxed) == PRESENT;
        let blocks = self.states.iter().enumerate().filter(present);
        blocks.map(|(block, _)| self.length_of(block) as u64).sum()
    }

    fn length_of(&self, block: usize) -> usize {
        BLOCK.min(self.memory.length - block * BLOCK)
    }

    /// Fills a range from memory, if it is there or can be loaded.
    fn fill(&self, read: &mut RangeRead<'_>) -> bool {
        let (Ok(start), length) = (usize::try_from(read.offset), read.buffer.len()) else {
            return false;
        };
        let Some(end) = start
            .checked_add(length)
            .filter(|&end| end <= self.memory.length)
        else {
            return false;
        };
        let blocks = start / BLOCK..end.div_ceil(BLOCK);
        if !blocks.into_iter().all(|block| self.has(block)) {
            return false;
        }
        // SAFETY: every block of the range is present, and a present block no longer changes.
        read.buffer
            .copy_from_slice(unsafe { self.memory.bytes(start, length) });
        read.filled = length;
        true
    }

    /// Whether a block is in memory; this call may load it.
    #[inline]
    fn has(&self, block: usize) -> bool {
        let state = &self.states[block];
        match state.load(Ordering::Acquire) {
            PRESENT => true,
            BEING_READ | GONE => false,
            wanted if wanted >= self.direct => self.bring(block, wanted),
            wanted => {
                // A simultaneous count of another thread may be lost.
                let relaxed = Ordering::Relaxed;
                let _ = state.compare_exchange(wanted, wanted + 1, relaxed, relaxed);
                false
            }
        }
    }

    #[cold]
    fn bring(&self, block: usize, wanted: u16) -> bool {
        let state = &self.states[block];
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        let claimed = state.compare_exchange(wanted, BEING_READ, acquire, relaxed);
        if claimed.is_err() {
            return false;
        }
        // SAFETY: this thread alone has set the state to "being read", only the code below leaves that state, and
        // bytes of a block in that state are given to no other.
        let buffer = unsafe { self.memory.bytes_mut(block * BLOCK, self.length_of(block)) };
        let mut whole = [RangeRead {
            offset: (block * BLOCK) as u64,
            buffer,
            filled: 0,
        }];
        let read = self.inner.read_batch(&mut whole);
        let present = read.is_ok() && whole[0].filled == whole[0].buffer.len();
        state.store(if present { PRESENT } else { GONE }, Ordering::Release);
        present
    }

    /// Prefetches the beginning of a range into the processor's cache.
    fn ask_for(&self, read: &RangeRead<'_>) {
        let length = read.buffer.len().min(ASKED_FOR);
        for at in (0..length).step_by(CACHE_LINE) {
            prefetch(self.memory.start.wrapping_add(read.offset as usize + at));
        }
    }
}

impl Storage for Resident {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn size(&self) -> Result<u64, StorageError> {
        self.inner.size()
    }

    fn granularity(&self) -> Granularity {
        self.inner.granularity()
    }

    fn will_need(&self, offset: u64, length: u64) -> u64 {
        self.inner.will_need(offset, length)
    }

    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        let (mut rest, mut totals) = (Vec::new(), Vec::new());
        let mut reads = reads.iter_mut().peekable();
        while let Some(read) = reads.next() {
            if let Some(next) = reads.peek() {
                self.ask_for(next);
            }
            if !self.fill(read) {
                rest.push(RangeRead {
                    offset: read.offset,
                    buffer: &mut *read.buffer,
                    filled: 0,
                });
                totals.push(&mut read.filled);
            }
        }
        if rest.is_empty() {
            return Ok(());
        }
        self.inner.read_batch(&mut rest)?;
        for (read, total) in rest.iter().zip(totals) {
            *total = read.filled;
        }
        Ok(())
    }
}

impl fmt::Debug for Resident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resident")
            .field("inner", &self.inner)
            .field("bytes", &self.memory.length)
            .finish_non_exhaustive()
    }
}

/// Memory that one thread writes in parts while others read other parts.
struct Memory {
    start: *mut u8,
    length: usize,
}

// SAFETY: the memory belongs to this value alone; the callers of its functions guarantee exclusive access to parts.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(length: usize) -> Memory {
        let bytes = untouched_zeros(length).into_boxed_slice();
        Memory {
            start: Box::into_raw(bytes).cast(),
            length,
        }
    }

    /// # Safety
    ///
    /// Nothing writes to the range while the bytes are borrowed.
    unsafe fn bytes(&self, start: usize, length: usize) -> &[u8] {
        assert!(start <= self.length && length <= self.length - start);
        // SAFETY: the range is within the allocation, and its bytes were initialised with zeros.
        unsafe { std::slice::from_raw_parts(self.start.add(start), length) }
    }

    /// # Safety
    ///
    /// Nothing else reads or writes the range while the bytes are borrowed.
    #[expect(clippy::mut_from_ref)] // that is what the caller sees to
    unsafe fn bytes_mut(&self, start: usize, length: usize) -> &mut [u8] {
        assert!(start <= self.length && length <= self.length - start);
        // SAFETY: as in `bytes`.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), length) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let bytes = std::ptr::slice_from_raw_parts_mut(self.start, self.length);
        // SAFETY: it is the box that `new` took apart, and nothing borrows from it any more.
        drop(unsafe { Box::from_raw(bytes) });
    }
}

#[cfg(target_arch = "x86_64")]
fn prefetch(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch reads nothing that the program can see and fails for no address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
fn prefetch(_at: *const u8) {}
