//! A batch of reads through io_uring, at full queue depth.
//!
//! Each call of [`read_batch`] leases one ring from a process-wide pool, so several callers keep
//! several batches in flight without a lock on the way. Rings are shared between files rather than
//! owned by one: a dataset of a thousand shards then needs as many rings as it has reading
//! threads. Registered files were left out: at the few hundred thousand reads a second a drive
//! gives, the lookup they save is under one percent of a core.
//!
//! Ranges are cut into pieces of at most [`PIECE_BYTES`], so one long range fills the queue too.
//! Refilling waits for an eighth of the queue: one system call then moves several pieces, and the
//! device still sees at least 7/8 of the depth.
//!
//! Safety rests on one rule: the kernel owns a buffer from submission to completion, and a
//! [`Flight`] does not end, on whatever path, while the kernel owns any.

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

/// Whether the kernel lets this process use io_uring; asked once.
pub(crate) fn available() -> Result<(), io::Error> {
    static ANSWER: OnceLock<Result<(), i32>> = OnceLock::new();
    let answer = ANSWER.get_or_init(|| match Ring::new(8) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.raw_os_error().unwrap_or(0)),
    });
    answer.map_err(io::Error::from_raw_os_error)
}

/// Reads every range with at most `depth` requests in flight. A short read whose length is not a
/// multiple of `unit_bytes` is the end of the file; any other is continued.
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
    let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = idle.iter().position(|ring| ring.entries >= depth) {
        return Ok(idle.swap_remove(found));
    }
    drop(idle);
    Ring::new(depth)
}

struct Ring {
    uring: IoUring,
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
            // Completions lower this where they meet the end of the file.
            read.filled = read.buffer.len();
        }
        flight.run(depth);
        flight.failure.take().map_or(Ok(()), Err)
    }
}

/// One batch under way. Dropping it waits for every request the kernel still owns.
struct Flight<'ring, 'batch, 'buffers> {
    ring: &'ring mut Ring,
    file: BorrowedFd<'batch>,
    reads: &'batch mut [RangeRead<'buffers>],
    unit_bytes: usize,
    /// Remainders of short reads.
    unfinished: Vec<Piece>,
    /// Where cutting into pieces has got to.
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
        // before they are given back. Entries it never took are no danger: the ring is then not
        // clean, and is closed instead of being reused.
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
