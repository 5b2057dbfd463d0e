//! Reads from the backend: pieces of any alignment, extended to the backend's alignment.
//!
//! Pieces are cut at multiples of 1 MiB of their file, so that a long one keeps the device's queue deep. A part with
//! aligned offset, length and buffer is read straight into its buffer. For any other, the aligned surroundings are
//! read into bounce memory; parts that follow each other within a unit share it.

use std::sync::{Mutex, PoisonError};
use std::thread;

use pelton_storage::{AlignedBuffer, Granularity, RangeRead, Storage, huge_buffer};

use crate::CacheError;

/// Longer reads are cut: a device serves several of this length faster than one long one. A multiple
/// of every backend's unit.
pub(crate) const READ_BYTES: u64 = 1 << 20;
/// Bounce memory of one caller: eight reads in flight.
pub(crate) const BOUNCE_BYTES: usize = 8 << 20;

/// A piece of a file and its destination.
#[derive(Debug)]
pub(crate) struct BackendRead<'b> {
    /// First byte in the file.
    pub(crate) offset: u64,
    /// The destination.
    pub(crate) buffer: &'b mut [u8],
}

/// Bounce memory, allocated when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct Bounce(Option<AlignedBuffer>);

impl Bounce {
    fn memory(&mut self) -> &mut [u8] {
        self.0.get_or_insert_with(|| huge_buffer(BOUNCE_BYTES))
    }
}

/// Fills all buffers, and returns the bytes read from the backend, alignment included.
pub(crate) fn read_pieces<'b>(
    backend: &dyn Storage,
    reads: impl IntoIterator<Item = BackendRead<'b>>,
    bounce: &mut Bounce,
) -> Result<u64, CacheError> {
    let units = backend.granularity();
    let mut round = Round::default();
    let mut asked = 0;
    for part in reads.into_iter().flat_map(parts) {
        if suits(units, &part) {
            round.straight.push(part);
            continue;
        }
        if !round.has_room(units, &part) {
            asked += round.read(backend, bounce)?;
        }
        round.add(units, part);
    }
    Ok(asked + round.read(backend, bounce)?)
}

/// [`read_pieces`] for large amounts: if bounce memory is needed, two threads take turns at the device, so that it is
/// busy while one copies.
pub(crate) fn read_much<'b>(
    backend: &dyn Storage,
    reads: impl IntoIterator<Item = BackendRead<'b>>,
    bounces: &mut [Bounce; 2],
) -> Result<u64, CacheError> {
    let [first, second] = bounces;
    if backend.granularity() == Granularity::BYTE {
        return read_pieces(backend, reads, first);
    }
    let mut reads: Vec<BackendRead<'b>> = reads.into_iter().flat_map(parts).collect();
    // Between two parts of one read, so that no unit is read by both.
    let begins_inside = |part: &BackendRead<'_>| part.offset.is_multiple_of(READ_BYTES);
    let middle = reads.len() / 2;
    let cut = reads[middle..].iter().position(begins_inside);
    let rest = cut.map(|beyond| reads.split_off(middle + beyond));
    let Some(rest) = rest.filter(|rest| !rest.is_empty()) else {
        return read_pieces(backend, reads, first);
    };
    let rest = Mutex::new(rest);
    let rest = || std::mem::take(&mut *rest.lock().unwrap_or_else(PoisonError::into_inner));
    let (asked, more) = thread::scope(|scope| {
        let other = || read_pieces(backend, rest(), second);
        let other = thread::Builder::new().spawn_scoped(scope, other);
        let asked = read_pieces(backend, reads, first);
        match other {
            Ok(other) => (asked, other.join()),
            // The system refuses more threads: one after the other.
            Err(_) => (asked, Ok(read_pieces(backend, rest(), first))),
        }
    });
    Ok(asked? + more.unwrap_or(Err(CacheError::LoaderPanicked))?)
}

/// A read cut at multiples of [`READ_BYTES`] of the file.
fn parts(read: BackendRead<'_>) -> impl Iterator<Item = BackendRead<'_>> {
    let (mut offset, mut rest) = (read.offset, read.buffer);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let length = (READ_BYTES - offset % READ_BYTES).min(rest.len() as u64);
        let (buffer, later) = std::mem::take(&mut rest).split_at_mut(length as usize);
        let part = BackendRead { offset, buffer };
        (offset, rest) = (offset + length, later);
        Some(part)
    })
}

fn suits(units: Granularity, read: &BackendRead<'_>) -> bool {
    let unit = u64::from(units.offset_bytes);
    read.offset.is_multiple_of(unit)
        && (read.buffer.len() as u64).is_multiple_of(unit)
        && (read.buffer.as_ptr() as usize).is_multiple_of(units.memory_bytes as usize)
}

/// The reads of one batch.
#[derive(Default)]
struct Round<'b> {
    straight: Vec<BackendRead<'b>>,
    /// Aligned ranges of the file, one after another in the bounce memory.
    aligned: Vec<Aligned>,
    copies: Vec<Copy<'b>>,
    /// Bounce memory in use.
    used: u64,
}

struct Aligned {
    start: u64,
    end: u64,
    /// The end of its needed part.
    needed: u64,
}

/// Bytes to copy from an offset of the bounce memory to a buffer.
struct Copy<'b> {
    from: usize,
    to: &'b mut [u8],
}

/// The aligned surroundings of a part.
fn around(units: Granularity, part: &BackendRead<'_>) -> (u64, u64) {
    let unit = u64::from(units.offset_bytes);
    let end = part.offset + part.buffer.len() as u64;
    (part.offset - part.offset % unit, end.next_multiple_of(unit))
}

impl<'b> Round<'b> {
    fn has_room(&self, units: Granularity, part: &BackendRead<'_>) -> bool {
        let (start, end) = around(units, part);
        self.used + (end - start) <= BOUNCE_BYTES as u64
    }

    fn add(&mut self, units: Granularity, part: BackendRead<'b>) {
        let (start, end) = around(units, &part);
        let needed = part.offset + part.buffer.len() as u64;
        match self.aligned.last_mut() {
            // Extends the last one, or starts right after it.
            Some(last) if last.start <= start && start <= last.end => {
                self.used += end.saturating_sub(last.end);
                last.end = last.end.max(end);
                last.needed = last.needed.max(needed);
            }
            _ => {
                self.used += end - start;
                self.aligned.push(Aligned { start, end, needed });
            }
        }
        let last = self.aligned.last().expect("one was added");
        let from = self.used - (last.end - part.offset);
        self.copies.push(Copy {
            from: from as usize,
            to: part.buffer,
        });
    }

    /// Reads the added parts, and clears them.
    fn read(&mut self, backend: &dyn Storage, bounce: &mut Bounce) -> Result<u64, CacheError> {
        let mut ranges: Vec<RangeRead<'_>> = Vec::with_capacity(self.straight.len());
        let mut needed: Vec<u64> = Vec::with_capacity(self.straight.len());
        for BackendRead { offset, buffer } in self.straight.drain(..) {
            needed.push(offset + buffer.len() as u64);
            ranges.push(RangeRead {
                offset,
                buffer,
                filled: 0,
            });
        }
        let mut memory: &mut [u8] = match self.used {
            0 => &mut [],
            used => &mut bounce.memory()[..used as usize],
        };
        for range in self.aligned.drain(..) {
            let (own, rest) = memory.split_at_mut((range.end - range.start) as usize);
            memory = rest;
            let offsets = (range.start..).step_by(READ_BYTES as usize);
            for (offset, buffer) in offsets.zip(own.chunks_mut(READ_BYTES as usize)) {
                needed.push(range.needed.min(offset + buffer.len() as u64));
                ranges.push(RangeRead {
                    offset,
                    buffer,
                    filled: 0,
                });
            }
        }
        if ranges.is_empty() {
            return Ok(0);
        }
        backend.read_batch(&mut ranges)?;
        let mut asked = 0;
        for (range, expected) in ranges.iter().zip(needed) {
            let found = range.offset + range.filled as u64;
            if found < expected {
                let file = backend.name();
                return Err(CacheError::Shrunk {
                    file,
                    expected,
                    found,
                });
            }
            asked += range.filled as u64;
        }
        if self.used > 0 {
            let memory = bounce.memory();
            for Copy { from, to } in self.copies.drain(..) {
                to.copy_from_slice(&memory[from..from + to.len()]);
            }
        }
        self.used = 0;
        Ok(asked)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use pelton_storage::{MemoryStorage, StorageError};
    use proptest::prelude::*;

    use super::*;

    const UNIT: u32 = 512;

    /// Bytes read like a device, and how many of them went straight to their reader.
    #[derive(Debug)]
    struct Device {
        memory: MemoryStorage,
        reader: std::ops::Range<usize>,
        straight: AtomicU64,
    }

    impl Storage for Device {
        fn name(&self) -> String {
            "device".to_string()
        }

        fn size(&self) -> Result<u64, StorageError> {
            self.memory.size()
        }

        fn granularity(&self) -> Granularity {
            Granularity {
                offset_bytes: UNIT,
                memory_bytes: UNIT,
            }
        }

        fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
            for read in reads.iter() {
                let address = read.buffer.as_ptr() as usize;
                let length = read.buffer.len();
                for place in [read.offset as usize, length, address] {
                    assert!(place.is_multiple_of(UNIT as usize));
                }
                if self.reader.contains(&address) {
                    self.straight.fetch_add(length as u64, Ordering::Relaxed);
                }
            }
            self.memory.read_batch(reads)
        }
    }

    fn bytes(length: usize) -> Arc<[u8]> {
        (0..length)
            .map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8)
            .collect()
    }

    /// Reads `pieces` (offset, length) into memory that begins `begin` bytes after a unit; returns the bytes read and
    /// those that were not bounced.
    fn check(size: usize, pieces: &[(usize, usize)], begin: usize) -> (u64, u64) {
        let contents = bytes(size);
        let total: usize = pieces.iter().map(|(_, length)| length).sum();
        let mut memory = huge_buffer(begin + total);
        let start = memory.as_ptr() as usize;
        let device = Device {
            memory: MemoryStorage::new(Arc::clone(&contents)),
            reader: start..start + memory.len(),
            straight: AtomicU64::new(0),
        };
        let mut rest = &mut memory[begin..];
        let mut reads = Vec::new();
        for &(offset, length) in pieces {
            let (buffer, behind) = rest.split_at_mut(length);
            rest = behind;
            let offset = offset as u64;
            reads.push(BackendRead { offset, buffer });
        }
        let asked = read_much(&device, reads, &mut Default::default()).unwrap();
        let mut at = begin;
        for &(offset, length) in pieces {
            assert!(memory[at..at + length] == contents[offset..offset + length]);
            at += length;
        }
        (asked, device.straight.into_inner())
    }

    #[test]
    fn long_reads_go_straight_where_addresses_suit() {
        let (size, mib) = (20_000_000, 1 << 20);
        // Begins 100 bytes into a unit, in the file as in memory.
        let (asked, straight) = check(size, &[(100, size - 100)], 100);
        assert_eq!(asked, size as u64);
        assert!(straight >= size as u64 - 3 * mib, "{straight}");
        let (asked, straight) = check(size, &[(100, size - 100)], 0);
        assert_eq!((asked, straight), (size as u64, 0));
    }

    proptest! {
        #[test]
        fn pieces_arrive_whatever_their_alignment(
            gaps in prop::collection::vec((0..3000_usize, 0..6000_usize), 0..40),
            begin in 0..600_usize,
        ) {
            let mut offset = 0;
            let pieces: Vec<(usize, usize)> = gaps
                .into_iter()
                .map(|(gap, length)| {
                    let piece = (offset + gap, length);
                    offset += gap + length;
                    piece
                })
                .collect();
            let needed: usize = pieces.iter().map(|(_, length)| length).sum();
            let (asked, _) = check(offset.next_multiple_of(512), &pieces, begin);
            prop_assert!(asked as usize <= needed + 2 * 512 * pieces.len());
        }
    }
}
