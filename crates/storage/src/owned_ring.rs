//! Reads and writes of one file that own their buffers, through io_uring.
//!
//! Unlike [`crate::ring`], which serves one batch and returns, this ring stays open: its owner starts transfers,
//! continues with other work and collects finished ones. A buffer is moved in when its transfer starts and moved out
//! when it is finished, so nothing is borrowed in between.
//!
//! Safety rests on one rule: the kernel owns a buffer from submission to completion, and an
//! [`OwnedRing`] neither gives one back nor ends while the kernel owns it.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use crate::transfer::Transfer;

/// EAGAIN and EINTR completions a ring may see before they count as an error.
const TRANSIENT_RETRIES: u32 = 10_000;

/// A ring with transfers that own their buffers. The caller gets the `T` of each back.
pub(crate) struct OwnedRing<T> {
    uring: IoUring,
    file: File,
    slots: Vec<Option<Underway<T>>>,
    free: Vec<usize>,
    transient_left: u32,
}

struct Underway<T> {
    transfer: Transfer<T>,
    /// Bytes of completions so far.
    done: usize,
}

impl<T> OwnedRing<T> {
    /// A ring for up to `depth` transfers at a time of `file`.
    pub(crate) fn new(file: File, depth: u32) -> io::Result<OwnedRing<T>> {
        let entries = depth.max(1).next_power_of_two();
        let uring = IoUring::builder()
            .setup_coop_taskrun()
            .build(entries)
            // Kernels before 5.19 do not know cooperative task running.
            .or_else(|_| IoUring::new(entries))?;
        Ok(OwnedRing {
            uring,
            file,
            slots: (0..entries).map(|_| None).collect(),
            free: (0..entries as usize).collect(),
            transient_left: TRANSIENT_RETRIES,
        })
    }

    /// Unfinished transfers.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Starts a transfer, which the kernel sees at the next [`turn`](Self::turn). Asserts that no more than the
    /// ring's depth are in flight.
    pub(crate) fn start(&mut self, transfer: Transfer<T>) -> io::Result<()> {
        assert!(transfer.length <= transfer.buffer.len());
        let slot = self.free.pop().expect("the owner counts its transfers");
        self.slots[slot] = Some(Underway { transfer, done: 0 });
        self.push(slot)
    }

    /// Submits started transfers to the kernel, waits until at least `at_least` of those in flight are finished and
    /// appends them to `finished`, each with its outcome.
    pub(crate) fn turn(
        &mut self,
        at_least: usize,
        finished: &mut Vec<(Transfer<T>, io::Result<()>)>,
    ) -> io::Result<()> {
        let wanted = finished.len() + at_least.min(self.in_flight());
        loop {
            let wait = wanted.saturating_sub(finished.len());
            match self.uring.submit_and_wait(wait) {
                Ok(_) => {}
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
            self.reap(finished)?;
            if finished.len() >= wanted {
                return Ok(());
            }
        }
    }

    fn push(&mut self, slot: usize) -> io::Result<()> {
        let Underway { transfer, done } = self.slots[slot].as_mut().expect("the slot was filled");
        let descriptor = types::Fd(self.file.as_raw_fd());
        let offset = transfer.offset + *done as u64;
        let rest = &mut transfer.buffer[*done..transfer.length];
        let (address, length) = (rest.as_mut_ptr(), rest.len() as u32);
        let entry = if transfer.write {
            opcode::Write::new(descriptor, address, length)
                .offset(offset)
                .build()
        } else {
            opcode::Read::new(descriptor, address, length)
                .offset(offset)
                .build()
        };
        let entry = entry.user_data(slot as u64);
        // SAFETY: the address is that of `length` bytes in a heap buffer that `self.slots` owns and no code touches
        // until the transfer's completion was taken; dropping the ring waits for every completion. The descriptor is
        // that of a file which the ring owns.
        let pushed = unsafe { self.uring.submission().push(&entry) };
        // There are as many entries as slots, so there is room once the kernel took those before.
        if pushed.is_err() {
            self.uring.submit()?;
            // SAFETY: as above.
            unsafe { self.uring.submission().push(&entry) }
                .map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))?;
        }
        Ok(())
    }

    fn reap(&mut self, finished: &mut Vec<(Transfer<T>, io::Result<()>)>) -> io::Result<()> {
        loop {
            let Some(completion) = self.uring.completion().next() else {
                return Ok(());
            };
            let slot = completion.user_data() as usize;
            match self.settle(slot, completion.result()) {
                None => self.push(slot)?,
                Some(outcome) => {
                    let underway = self.slots[slot].take().expect("it was under way");
                    self.free.push(slot);
                    finished.push((underway.transfer, outcome));
                }
            }
        }
    }

    /// The outcome of a completion for its transfer; `None` if the rest of it must be started again.
    fn settle(&mut self, slot: usize, result: i32) -> Option<io::Result<()>> {
        let underway = self.slots[slot].as_mut().expect("it was under way");
        let Ok(got) = usize::try_from(result) else {
            let error = io::Error::from_raw_os_error(-result);
            if is_transient(&error) && self.transient_left > 0 {
                self.transient_left -= 1;
                return None;
            }
            return Some(Err(error));
        };
        underway.done += got;
        if underway.done >= underway.transfer.length {
            return Some(Ok(()));
        }
        if got > 0 {
            return None;
        }
        let kind = if underway.transfer.write {
            io::ErrorKind::WriteZero
        } else {
            io::ErrorKind::UnexpectedEof
        };
        Some(Err(kind.into()))
    }
}

impl<T> Drop for OwnedRing<T> {
    fn drop(&mut self) {
        // Entries that the kernel never took are harmless: they vanish with the ring.
        let mut finished = Vec::new();
        loop {
            let untaken = self.uring.submission().len();
            if self.in_flight() <= untaken {
                return;
            }
            if self.uring.submit_and_wait(1).is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
            // The rest of a short transfer is not started again.
            while let Some(completion) = self.uring.completion().next() {
                let slot = completion.user_data() as usize;
                finished.extend(self.slots[slot].take());
                self.free.push(slot);
            }
            finished.clear();
        }
    }
}

impl<T> std::fmt::Debug for OwnedRing<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnedRing")
            .field("file", &self.file)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy
    )
}
