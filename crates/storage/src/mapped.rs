//! Copying ranges out of a mapped file.
//!
//! A range in the page cache costs a system call, and the kernel walks its tree of pages for it: 0.7 µs,
//! twice what copying 3 KB takes. From a map the same range costs its copying, the more so as the next one is asked
//! of the memory meanwhile. For that the mapped pages count as the process's memory, so the caller
//! decides whether there is room for them; and data that is not in memory is waited for one page at a time, so
//! where that happens the ordinary way is taken for a while.

#![allow(unsafe_code)]

use std::fs::File;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::RangeRead;
use crate::bus_errors::{Watched, page_bytes};

/// Ranges between two looks at whether the disk was waited for.
const LOOKED_AT: usize = 64;
/// Waits among so many ranges from which on the data is taken to lie on the disk; a single page that was given up
/// is read when its turn comes.
const MOST_WAITS: i64 = 4;
/// Batches that are then read the ordinary way.
const PAUSED_BATCHES: u32 = 64;
/// Bytes at the start of the next range that are asked for while one is copied; the processor does the rest.
const ASKED_FOR: usize = 256;
const CACHE_LINE: usize = 64;
const PAGE: usize = 4096;

/// A whole file in the address space of the process.
///
/// Its pages count as the process's memory once they were read. A file that is cut short while it is read, or
/// whose disk fails, is no danger: its ranges are then left to be read the ordinary way, which names what is wrong.
/// A program that sets a SIGBUS handler of its own after the first map must pass on what is not its own.
#[derive(Debug)]
pub struct MappedFile {
    watched: Watched,
    pages: Pages,
    /// Batches to leave alone before data is looked for in memory again.
    paused: AtomicU32,
}

/// Pages that are mapped until this is dropped.
#[derive(Debug)]
struct Pages {
    start: *mut u8,
    length: usize,
}

// SAFETY: the pages are only ever read, through copies that any thread may make.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `MappedFile::new` and nothing refers to it any more. A failure leaves it
        // mapped, which harms nobody.
        let _ = unsafe { munmap(self.start.cast(), self.length) };
    }
}

impl MappedFile {
    /// Maps as much as `file` has now; `None` if it has nothing or the system will not.
    pub(crate) fn new(file: &File) -> Option<MappedFile> {
        let length = usize::try_from(file.metadata().ok()?.len()).ok()?;
        if length == 0 {
            return None;
        }
        // SAFETY: a new mapping at an address of the system's choice takes nobody's memory.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ,
                MapFlags::SHARED,
                file,
                0,
            )
        };
        let start = start.ok()?.cast::<u8>();
        let pages = Pages { start, length };
        // SAFETY: the advice changes what is read ahead, which is nothing, never what the memory holds.
        let _ = unsafe { madvise(start.cast(), length, Advice::Random) };
        let end = start as usize + length.next_multiple_of(page_bytes());
        Some(MappedFile {
            watched: Watched::new(start as usize..end)?,
            pages,
            paused: AtomicU32::new(0),
        })
    }

    /// Fills every range, or says that the ordinary way is to be taken for them; what is filled is then unspecified.
    ///
    /// Ranges that reach past the end of what was mapped are for the ordinary way.
    pub fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> bool {
        if self.is_paused() || !self.watched.intact() {
            return false;
        }
        let within = |read: &RangeRead<'_>| {
            let end = read.offset.checked_add(read.buffer.len() as u64);
            end.is_some_and(|end| end <= self.pages.length as u64)
        };
        if !reads.iter().all(within) {
            return false;
        }
        let mut waits = waits_for_the_disk();
        for first in (0..reads.len()).step_by(LOOKED_AT) {
            for i in first..reads.len().min(first + LOOKED_AT) {
                if let Some(next) = reads.get(i + 1) {
                    self.ask_for(next.offset as usize, next.buffer.len());
                }
                let read = &mut reads[i];
                self.copy(read.offset as usize, read.buffer);
                read.filled = read.buffer.len();
            }
            let now = waits_for_the_disk();
            if now - waits > MOST_WAITS {
                self.paused.store(PAUSED_BATCHES, Ordering::Relaxed);
                return false;
            }
            waits = now;
        }
        self.watched.intact()
    }

    fn is_paused(&self) -> bool {
        let less = |left: u32| left.checked_sub(1);
        let left = self.paused.load(Ordering::Relaxed);
        left > 0
            && self
                .paused
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
                .is_ok()
    }

    /// Copies bytes that must lie within the map.
    fn copy(&self, offset: usize, into: &mut [u8]) {
        assert!(offset <= self.pages.length && into.len() <= self.pages.length - offset);
        // SAFETY: the source is mapped, for as long as `self` is; another process may write to it meanwhile, so it is
        // never more than the source of a copy of bytes. Pages that the file has no more are replaced
        // (`bus_errors`). The destination is exclusive and cannot overlap, as it is Rust's own memory.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.pages.start.add(offset).cast_const(),
                into.as_mut_ptr(),
                into.len(),
            );
        }
    }

    /// Asks the memory for the beginning of a range, and of what it has on the page after that.
    fn ask_for(&self, offset: usize, length: usize) {
        let next_page = offset.next_multiple_of(PAGE);
        let beginning = (offset..offset + length.min(ASKED_FOR)).step_by(CACHE_LINE);
        let on_next_page = (next_page < offset + length).then_some(next_page);
        for at in beginning.chain(on_next_page) {
            prefetch(self.pages.start.wrapping_add(at));
        }
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

/// How often this thread has waited for a page from the disk.
fn waits_for_the_disk() -> i64 {
    // SAFETY: an all-zero rusage is a valid one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is valid and is written by the call alone.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_majflt
}
