//! Reads from the page cache without waiting for the disk.
//!
//! `preadv2` with RWF_NOWAIT copies cached pages and returns at the first page that would need the disk. On warm data
//! it is one system call for each run of adjacent ranges and no ring at all. If there is memory for the whole file, a
//! copy in the process is faster ([`crate::Resident`]).

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::open_files::{open_file, regular_file};
use crate::{RangeRead, StorageError};
use pelton_key::splitmix64;

/// After this many consecutive misses a batch is considered cold, and the rest is not tried.
#[cfg(target_os = "linux")]
const MISSES_BEFORE_COLD: usize = 32;

/// Most adjacent ranges that one call copies.
#[cfg(target_os = "linux")]
const MOST_JOINED: usize = 16;

/// Fills what the page cache has, setting each `filled`, and returns the ranges still to read with the counts they
/// add to. Consecutive ranges of the file are one call.
#[cfg(target_os = "linux")]
pub(crate) fn read_cached<'a>(
    file: &File,
    reads: &'a mut [RangeRead<'_>],
) -> (Vec<RangeRead<'a>>, Vec<&'a mut usize>) {
    let mut rest = Vec::new();
    let mut totals = Vec::new();
    let mut misses = 0;
    let adjacent =
        |a: &RangeRead<'_>, b: &RangeRead<'_>| a.offset + a.buffer.len() as u64 == b.offset;
    let runs = reads
        .chunk_by_mut(adjacent)
        .flat_map(|run| run.chunks_mut(MOST_JOINED));
    for run in runs {
        let mut complete = false;
        run.iter_mut().for_each(|read| read.filled = 0);
        if misses < MISSES_BEFORE_COLD {
            complete = copy_cached(file, run);
            misses = if complete { 0 } else { misses + 1 };
        }
        if complete {
            continue;
        }
        for read in run {
            let done = read.filled;
            if done < read.buffer.len() {
                rest.push(RangeRead {
                    offset: read.offset + done as u64,
                    buffer: &mut read.buffer[done..],
                    filled: 0,
                });
                totals.push(&mut read.filled);
            }
        }
    }
    (rest, totals)
}

/// Copies adjacent ranges, [`MOST_JOINED`] at most, from the page cache up to the first page not in it; true
/// if they are complete, which they are too if they reach the end of the file.
#[cfg(target_os = "linux")]
fn copy_cached(file: &File, run: &mut [RangeRead<'_>]) -> bool {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    use std::io::IoSliceMut;

    loop {
        // The first range that is not full yet.
        let Some(from) = run.iter().position(|read| read.filled < read.buffer.len()) else {
            return true;
        };
        let offset = run[from].offset + run[from].filled as u64;
        let used = run.len() - from;
        let mut slices: [IoSliceMut<'_>; MOST_JOINED] =
            std::array::from_fn(|_| IoSliceMut::new(&mut []));
        for (slice, read) in slices.iter_mut().zip(&mut run[from..]) {
            *slice = IoSliceMut::new(&mut read.buffer[read.filled..]);
        }
        match preadv2(file, &mut slices[..used], offset, ReadWriteFlags::NOWAIT) {
            Ok(0) => return true,
            Ok(got) => fill(&mut run[from..], got),
            Err(Errno::INTR) => {}
            // EAGAIN: not cached. Any other error occurs again, with the file's name, in the slow path.
            Err(_) => return false,
        }
    }
}

/// Counts `got` bytes that were copied to ranges in order.
#[cfg(target_os = "linux")]
fn fill(run: &mut [RangeRead<'_>], mut got: usize) {
    for read in run {
        let part = got.min(read.buffer.len() - read.filled);
        read.filled += part;
        got -= part;
    }
}

/// Other systems have no RWF_NOWAIT: everything takes the slow path.
#[cfg(not(target_os = "linux"))]
pub(crate) fn read_cached<'a>(
    _file: &File,
    reads: &'a mut [RangeRead<'_>],
) -> (Vec<RangeRead<'a>>, Vec<&'a mut usize>) {
    let mut rest = Vec::new();
    let mut totals = Vec::new();
    for read in reads {
        read.filled = 0;
        rest.push(RangeRead {
            offset: read.offset,
            buffer: &mut *read.buffer,
            filled: 0,
        });
        totals.push(&mut read.filled);
    }
    (rest, totals)
}

/// Bytes of a part that is requested as a whole, as Linux does around a page of a mapped file: a disk reads them in
/// little more time than a page.
const PART: u64 = 128 << 10;

/// The parts of a file that were requested for the page cache.
///
/// A file that fits in memory is best read once, in large parts, even if its ranges are needed in a random order.
/// Each part is requested when the first of its ranges will be needed, and only once: if the page cache drops it, its
/// ranges are read as without this.
#[derive(Debug)]
pub(crate) struct ReadAround {
    asked: Vec<AtomicBool>,
}

impl ReadAround {
    pub fn new(size: u64) -> ReadAround {
        let parts = size.div_ceil(PART);
        ReadAround {
            asked: (0..parts).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// Starts reading the parts that contain a range, without waiting for them. Returns their bytes.
    pub fn ask(&self, file: &File, offset: u64, length: u64) -> u64 {
        let mut bytes = 0;
        for part in offset / PART..offset.saturating_add(length).div_ceil(PART) {
            // The file may have grown.
            let asked = usize::try_from(part).ok().and_then(|at| self.asked.get(at));
            let Some(asked) = asked else { break };
            if !asked.load(Ordering::Relaxed) && !asked.swap(true, Ordering::Relaxed) {
                will_need(file, part * PART);
                bytes += PART;
            }
        }
        bytes
    }
}

#[cfg(not(any(target_os = "macos", target_os = "ios")))]
fn will_need(file: &File, offset: u64) {
    use rustix::fs::{Advice, fadvise};
    use std::num::NonZeroU64;
    // Only a hint: a refusal changes nothing but speed.
    let _ = fadvise(file, offset, NonZeroU64::new(PART), Advice::WillNeed);
}

#[cfg(any(target_os = "macos", target_os = "ios"))]
fn will_need(_file: &File, _offset: u64) {}

/// Pages sampled by [`cached_fraction`]; the standard error is then at most 1/(2·√256) = 3 %.
#[cfg(target_os = "linux")]
const SAMPLED_PAGES: u64 = 256;

/// The fraction of a file in the page cache, by sampling, so that a caller can choose buffered reads for a warm file
/// and direct reads for a cold one. 1 for an empty file, 0 if the system does not say.
///
/// `mincore` was rejected: since Linux 5.2 it answers "all of it" to anyone who may not write the file. The cost of
/// sampling is that each missing sample is then read ahead, at most 1 MiB in all; samples differ from call to call so
/// that they do not count twice.
pub fn cached_fraction(path: &Path) -> Result<f64, StorageError> {
    regular_file(path)?;
    let open_error = |source| StorageError::failed(path.display(), "open it", source);
    let file = open_file(path).map_err(open_error)?;
    let size = file.metadata().map_err(open_error)?.len();
    Ok(sampled_fraction(&file, size))
}

#[cfg(target_os = "linux")]
fn sampled_fraction(file: &File, size: u64) -> f64 {
    use rustix::fs::{Advice, fadvise};
    use std::time::{SystemTime, UNIX_EPOCH};

    // Without this the first miss would read ahead into other samples. Only a hint.
    let _ = fadvise(file, 0, None, Advice::Random);
    let pages = size.div_ceil(4096);
    let samples = pages.min(SAMPLED_PAGES);
    if samples == 0 {
        return 1.0;
    }
    let seed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64);
    let mut cached = 0u64;
    for sample in 0..samples {
        // One random page from each of `samples` equal parts.
        let first = (u128::from(sample) * u128::from(pages) / u128::from(samples)) as u64;
        let after = (u128::from(sample + 1) * u128::from(pages) / u128::from(samples)) as u64;
        let page = first + splitmix64(seed ^ splitmix64(sample)) % (after - first);
        let mut byte = [0u8];
        let read = RangeRead {
            offset: page * 4096,
            buffer: &mut byte,
            filled: 0,
        };
        cached += u64::from(copy_cached(file, &mut [read]));
    }
    cached as f64 / samples as f64
}

#[cfg(not(target_os = "linux"))]
fn sampled_fraction(_file: &File, size: u64) -> f64 {
    let _ = splitmix64(size);
    if size == 0 { 1.0 } else { 0.0 }
}
