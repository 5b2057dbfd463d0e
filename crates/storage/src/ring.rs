//! A batch of reads through io_uring, at full queue depth.
//!
//! Each call of [`read_batch`] leases one ring from a process-wide pool, so several callers keep several batches in
//! flight without a lock. Rings are shared between files rather than owned by one: a dataset of a thousand shards
//! then needs as many rings as it has reading threads. Registered files were left out: at the few hundred thousand
//! reads a second a drive gives, the lookup they save is under one percent of a core.
//!
//! Ranges are cut into pieces of at most [`PIECE_BYTES`], so one long range fills the queue too.
//! Refilling waits for an eighth of the queue: one system call then moves several pieces, and the
//! device still sees at least 7/8 of the depth.
//!
//! Safety rests on one rule: the kernel owns a buffer from submission to completion, and a [`Flight`] never ends
//! while the kernel owns any.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use crate::RangeRead;

/// Longest single request. Longer ones are cut by the kernel anyway (max_sectors_kb), and pieces
/// of this size already reach sequential bandwidth.
const PIECE_BYTES: usize = 1 << 20;

/// Idle rings kept for the next caller; more callers than this create and drop rings.
const IDLE_RINGS: usize = 16;

/// EAGAIN and EINTR completions a batch may see before they count as an error.
const TRANSIENT_RETRIES: u32 = 10_000;

/// A read that failed, with the offset it was at.
#[derive(Debug)]
pub(crate) struct RingFailure {
    pub(crate) offset: u64,
    pub(crate) source: io::Error,
}

static IDLE: Mutex<Vec<Ring>> = Mutex::new(Vec::new());

/// Whether the kernel lets this process use io_uring; determined once.
pub(crate) fn available() -> Result<(), io::Error> {
    static ANSWER: OnceLock<Result<(), i32>> = OnceLock::new();
    let answer = ANSWER.get_or_init(|| match Ring::new(8) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.raw_os_error().unwrap_or(0)),
    });
    answer.map_err(io::Error::from_raw_os_error)
}

/// Reads every range with at most `depth` requests in flight. A short read with a length that is not a multiple of
/// `unit_bytes` is the end of the file; any other is continued.
pub(crate) fn read_batch(
    file: BorrowedFd<'_>,
    reads: &mut [RangeRead<'_>],
    depth: u32,
    unit_bytes: u32,
) -> Result<(), RingFailure> {
    let mut ring = lease(depth).map_err(|source| RingFailure { offset: 0, source })?;
    let outcome = ring.read_batch(file, reads, depth as usize, unit_bytes as usize);
    if ring.is_clean() {
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_RINGS {
            idle.push(ring);
        }
    }
    outcome
}

fn lease(depth: u32) -> io::Result<Ring> {
    let process = std::process::id();
    let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    // A forked process has its parent's rings, and both would fill the same queues.
    idle.retain(|ring| ring.process == process);
    if let Some(found) = idle.iter().position(|ring| ring.entries >= depth) {
        return Ok(idle.swap_remove(found));
    }
    drop(idle);
    Ring::new(depth)
}

struct Ring {
    uring: IoUring,
    /// The process that made it.
    process: u32,
    entries: u32,
    slots: Vec<Piece>,
    free: Vec<usize>,
}

/// Part of a range: `length` bytes at `start` within the buffer of range `read`.
#[derive(Clone, Copy, Default)]
struct Piece {
    read: usize,
    start: usize,
    length: usize,
}

impl Ring {
    fn new(depth: u32) -> io::Result<Ring> {
        let entries = depth.next_power_of_two();
        let uring = IoUring::builder()
            .setup_coop_taskrun()
            .build(entries)
            // Kernels before 5.19 do not know cooperative task running.
            .or_else(|_| IoUring::new(entries))?;
        Ok(Ring {
            uring,
            process: std::process::id(),
            entries,
            slots: vec![Piece::default(); entries as usize],
            free: (0..entries as usize).collect(),
        })
    }

    /// True when nothing is queued or in flight, so the ring may serve another caller.
    fn is_clean(&mut self) -> bool {
        self.free.len() == self.slots.len() && self.uring.submission().is_empty()
    }

    fn read_batch(
        &mut self,
        file: BorrowedFd<'_>,
        reads: &mut [RangeRead<'_>],
        depth: usize,
        unit_bytes: usize,
    ) -> Result<(), RingFailure> {
        let mut flight = Flight {
            ring: self,
            file,
            reads,
            unit_bytes,
            unfinished: Vec::new(),
            next: Piece::default(),
            transient_left: TRANSIENT_RETRIES,
            failure: None,
        };
        for read in flight.reads.iter_mut() {
            // Completions lower this at the end of the file.
            read.filled = read.buffer.len();
        }
        flight.run(depth);
        flight.failure.take().map_or(Ok(()), Err)
    }
}

/// One batch in flight. Dropping it waits for every request the kernel still owns.
struct Flight<'ring, 'batch, 'buffers> {
    ring: &'ring mut Ring,
    file: BorrowedFd<'batch>,
    reads: &'batch mut [RangeRead<'buffers>],
    unit_bytes: usize,
    /// Remainders of short reads.
    unfinished: Vec<Piece>,
    /// How far ranges have been cut into pieces.
    next: Piece,
    transient_left: u32,
    failure: Option<RingFailure>,
}

impl Flight<'_, '_, '_> {
    fn run(&mut self, depth: usize) {
        loop {
            let mut more = true;
            while self.failure.is_none() && self.queued() < depth {
                match self.next_piece() {
                    Some(piece) => self.push(piece),
                    None => {
                        more = false;
                        break;
                    }
                }
            }
            let queued = self.queued();
            if queued == 0 {
                return;
            }
            let want = if more { (queued / 8).max(1) } else { queued };
            if let Err(source) = self.ring.uring.submit_and_wait(want)
                && !is_transient(&source)
            {
                self.fail(0, source);
                return;
            }
            self.reap();
        }
    }

    /// Requests pushed and not completed, whether or not the kernel has taken them yet.
    fn queued(&self) -> usize {
        self.ring.slots.len() - self.ring.free.len()
    }

    fn next_piece(&mut self) -> Option<Piece> {
        if let Some(piece) = self.unfinished.pop() {
            return Some(piece);
        }
        while self.next.read < self.reads.len() {
            let left = self.reads[self.next.read].buffer.len() - self.next.start;
            if left > 0 {
                let piece = Piece {
                    length: left.min(PIECE_BYTES),
                    ..self.next
                };
                self.next.start += piece.length;
                return Some(piece);
            }
            self.next.read += 1;
            self.next.start = 0;
        }
        None
    }

    fn push(&mut self, piece: Piece) {
        let read = &mut self.reads[piece.read];
        let address = read.buffer[piece.start..][..piece.length].as_mut_ptr();
        // The depth is at most the number of slots, so a slot and a queue entry are free.
        let Some(slot) = self.ring.free.pop() else {
            self.unfinished.push(piece);
            return;
        };
        self.ring.slots[slot] = piece;
        let descriptor = types::Fd(self.file.as_raw_fd());
        let entry = opcode::Read::new(descriptor, address, piece.length as u32)
            .offset(read.offset + piece.start as u64)
            .build()
            .user_data(slot as u64);
        // SAFETY: the address is that of `piece.length` writable bytes, borrowed mutably through
        // `self.reads` for longer than this flight, which ends only when the kernel has completed
        // every request; the descriptor is borrowed for as long. Pieces never overlap.
        let pushed = unsafe { self.ring.uring.submission().push(&entry) };
        if pushed.is_err() {
            self.ring.free.push(slot);
            self.unfinished.push(piece);
        }
    }

    fn reap(&mut self) {
        loop {
            let Some(completion) = self.ring.uring.completion().next() else {
                return;
            };
            let slot = completion.user_data() as usize;
            let piece = self.ring.slots[slot];
            self.ring.free.push(slot);
            self.complete(piece, completion.result());
        }
    }

    fn complete(&mut self, piece: Piece, result: i32) {
        let Ok(got) = usize::try_from(result) else {
            let source = io::Error::from_raw_os_error(-result);
            if is_transient(&source) && self.transient_left > 0 {
                self.transient_left -= 1;
                self.unfinished.push(piece);
            } else {
                let offset = self.reads[piece.read].offset + piece.start as u64;
                self.fail(offset, source);
            }
            return;
        };
        if got == piece.length {
            return;
        }
        let end = piece.start + got;
        if got == 0 || !got.is_multiple_of(self.unit_bytes) {
            let read = &mut self.reads[piece.read];
            read.filled = read.filled.min(end);
        } else {
            self.unfinished.push(Piece {
                start: end,
                length: piece.length - got,
                ..piece
            });
        }
    }

    fn fail(&mut self, offset: u64, source: io::Error) {
        self.failure.get_or_insert(RingFailure { offset, source });
    }
}

impl Drop for Flight<'_, '_, '_> {
    fn drop(&mut self) {
        // Normally empty by now. After a failure the kernel may own buffers: take every completion
        // before they are given back. Entries it never took are harmless: the ring is then not clean, and is closed
        // instead of being reused.
        loop {
            let untaken = self.ring.uring.submission().len();
            if self.queued() <= untaken {
                return;
            }
            if self.ring.uring.submit_and_wait(1).is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.reap();
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;

    fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().expect("temporary file");
        file.write_all(bytes).expect("write");
        file
    }

    fn skipped() -> bool {
        available().is_err_and(|error| {
            eprintln!("SKIPPED: io_uring is refused: {error}");
            true
        })
    }

    /// Forked processes used to fill the same queue as their parent and its other children.
    #[test]
    fn rings_of_another_process_are_not_used() {
        if skipped() {
            return;
        }
        let mut of_parent = Ring::new(8).expect("a ring");
        of_parent.process = 0;
        let depth = of_parent.entries;
        IDLE.lock().expect("no test panics with it").push(of_parent);
        let ring = lease(depth).expect("a ring");
        assert_eq!(ring.process, std::process::id());
    }

    /// Half of the requests are impossible, and fail while the others are in flight. None may
    /// still be in flight afterwards: the buffers are overwritten at once and must stay so.
    #[test]
    fn after_a_failure_the_kernel_owns_no_buffer() {
        if skipped() {
            return;
        }
        let file = file_of(&vec![1; 4 << 20]);
        for round in 0..50u64 {
            let mut buffers = vec![vec![0u8; 64 << 10]; 60];
            let mut reads: Vec<RangeRead<'_>> = buffers
                .iter_mut()
                .enumerate()
                .map(|(i, buffer)| RangeRead {
                    // Offsets with the sign bit set are invalid to the kernel.
                    offset: if i % 2 == 0 {
                        i as u64
                    } else {
                        (1 << 63) + round
                    },
                    buffer,
                    filled: 0,
                })
                .collect();
            let failure = read_batch(file.as_fd(), &mut reads, 32, 1).expect_err("invalid");
            assert_eq!(failure.offset, (1 << 63) + round);
            assert_eq!(failure.source.kind(), io::ErrorKind::InvalidInput);
            for buffer in &mut buffers {
                buffer.fill(9);
            }
            std::thread::sleep(Duration::from_micros(200));
            assert!(buffers.iter().flatten().all(|&byte| byte == 9));
        }
        let mut byte = [0u8];
        let mut reads = [RangeRead {
            offset: 5,
            buffer: &mut byte,
            filled: 0,
        }];
        read_batch(file.as_fd(), &mut reads, 32, 1).expect("the pool still works");
        assert_eq!((reads[0].filled, byte), (1, [1]));
    }

    /// A short read ends the range only at the end of the file.
    #[test]
    fn short_reads_are_continued_and_the_end_is_found() {
        if skipped() {
            return;
        }
        let file = file_of(b"0123456789");
        let mut ring = Ring::new(4).expect("ring");
        let (mut one, mut two) = ([0u8; 6], [0u8; 6]);
        let range = |offset, buffer| RangeRead {
            offset,
            buffer,
            filled: 0,
        };
        let mut reads = [range(1, &mut one[..]), range(7, &mut two[..])];
        let mut flight = Flight {
            ring: &mut ring,
            file: file.as_fd(),
            reads: &mut reads,
            unit_bytes: 2,
            unfinished: Vec::new(),
            next: Piece::default(),
            transient_left: 1,
            failure: None,
        };
        for read in flight.reads.iter_mut() {
            read.filled = read.buffer.len();
        }
        let first = flight.next_piece().expect("a piece");
        flight.complete(first, 4);
        let again = flight.next_piece().expect("the remainder");
        assert_eq!((again.read, again.start, again.length), (0, 4, 2));
        flight.complete(again, -rustix::io::Errno::INTR.raw_os_error());
        let again = flight.next_piece().expect("tried again");
        assert_eq!((again.read, again.start, again.length), (0, 4, 2));
        flight.complete(again, 2);
        let second = flight.next_piece().expect("a piece");
        flight.complete(second, 3);
        assert!(flight.next_piece().is_none());
        assert!(flight.failure.is_none());
        drop(flight);
        assert_eq!((reads[0].filled, reads[1].filled), (6, 3));
    }
}
