//! Asynchronous reads and writes of a [`ScratchFile`].
//!
//! A thread that reads blocks, works on them and writes others has its own queue: it starts transfers, which own
//! their buffers, and collects finished ones. Blocking calls ([`ScratchFile::write_at`]) leave a disk idle that needs
//! a megabyte in flight, unless there are far more threads than cores. If the file cannot be reached past the page
//! cache or the kernel has no io_uring, a transfer is finished as soon as it is started.

use std::io;
use std::sync::Arc;

#[cfg(target_os = "linux")]
use crate::owned_ring::OwnedRing;
use crate::transfer::Transfer;
use crate::{RangeRead, ScratchFile, Storage, StorageError};

/// One thread's transfers of a scratch file.
#[derive(Debug)]
pub struct ScratchQueue<T> {
    file: Arc<ScratchFile>,
    #[cfg(target_os = "linux")]
    ring: Option<OwnedRing<T>>,
    finished: Vec<(Transfer<T>, io::Result<()>)>,
}

impl<T> ScratchQueue<T> {
    /// A queue of up to `depth` concurrent transfers.
    pub fn new(file: Arc<ScratchFile>, depth: u32) -> Result<ScratchQueue<T>, StorageError> {
        #[cfg(target_os = "linux")]
        let ring = match file.ring_file()? {
            // Rings count against limits on locked memory and files; without one everything still works.
            Some(direct) => OwnedRing::new(direct, depth).ok(),
            None => None,
        };
        #[cfg(not(target_os = "linux"))]
        let _ = depth;
        Ok(ScratchQueue {
            file,
            #[cfg(target_os = "linux")]
            ring,
            finished: Vec::new(),
        })
    }

    /// Starts a transfer. Offset and length must be multiples of 4096. Asserts that fewer than the queue's depth are
    /// in flight.
    pub fn start(&mut self, mut transfer: Transfer<T>) -> Result<(), StorageError> {
        #[cfg(target_os = "linux")]
        if let Some(ring) = &mut self.ring {
            let offset = transfer.offset;
            return ring.start(transfer).map_err(|source| {
                self.file
                    .transfer_error("start a transfer", offset, 0, source)
            });
        }
        let range = &mut transfer.buffer[..transfer.length];
        let outcome = if transfer.write {
            self.file.write_at(transfer.offset, range)?;
            Ok(())
        } else {
            let mut reads = [RangeRead {
                offset: transfer.offset,
                buffer: range,
                filled: 0,
            }];
            self.file.read_batch(&mut reads)?;
            if reads[0].filled == transfer.length {
                Ok(())
            } else {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
        };
        self.finished.push((transfer, outcome));
        Ok(())
    }

    /// Transfers started and not yet returned.
    pub fn in_flight(&self) -> usize {
        #[cfg(target_os = "linux")]
        let kernel = self.ring.as_ref().map_or(0, OwnedRing::in_flight);
        #[cfg(not(target_os = "linux"))]
        let kernel = 0;
        kernel + self.finished.len()
    }

    /// Waits until at least `at_least` of the transfers in flight are finished and appends all finished ones to
    /// `done`. The first failure is returned; the queue must not be used after it.
    pub fn turn(
        &mut self,
        at_least: usize,
        done: &mut Vec<Transfer<T>>,
    ) -> Result<(), StorageError> {
        #[cfg(target_os = "linux")]
        if let Some(ring) = &mut self.ring {
            ring.turn(at_least, &mut self.finished)
                .map_err(|source| self.file.transfer_error("wait for transfers", 0, 0, source))?;
        }
        // Without a ring a transfer is finished when it is started.
        let _ = at_least;
        for (transfer, outcome) in self.finished.drain(..) {
            let (offset, length) = (transfer.offset, transfer.length);
            if let Err(source) = outcome {
                let operation = if transfer.write { "write" } else { "read" };
                return Err(self
                    .file
                    .transfer_error(operation, offset, length as u64, source));
            }
            #[cfg(target_os = "linux")]
            if transfer.write && self.ring.is_some() {
                self.file.count_written(offset, length as u64);
            }
            done.push(transfer);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuffer;

    fn buffer(byte: u8) -> AlignedBuffer {
        AlignedBuffer::from_iter(4096, std::iter::repeat_n(byte, 8192))
    }

    fn transfer(write: bool, block: u64, byte: u8) -> Transfer<u64> {
        Transfer {
            write,
            offset: block * 8192,
            length: 8192,
            buffer: buffer(byte),
            errand: block,
        }
    }

    /// Many more transfers than the queue is deep; every buffer comes back with its errand.
    #[test]
    fn what_was_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = Arc::new(ScratchFile::create(folder.path(), 1 << 20).unwrap());
        let mut queue = ScratchQueue::new(Arc::clone(&file), 4).unwrap();
        for write in [true, false] {
            let mut done = Vec::new();
            for block in 0..100 {
                while queue.in_flight() >= 4 {
                    queue.turn(1, &mut done).unwrap();
                }
                let byte = if write { block as u8 } else { 255 };
                queue.start(transfer(write, block, byte)).unwrap();
            }
            queue.turn(queue.in_flight(), &mut done).unwrap();
            assert_eq!(queue.in_flight(), 0);
            let mut blocks: Vec<u64> = done.iter().map(|transfer| transfer.errand).collect();
            blocks.sort_unstable();
            assert!(blocks.iter().copied().eq(0..100));
            for transfer in &done {
                assert!(transfer.buffer.iter().all(|&b| b == transfer.errand as u8));
            }
        }
        assert_eq!(file.bytes_written(), 100 * 8192);
        assert_eq!(file.size().unwrap(), 100 * 8192);
    }

    #[test]
    fn a_read_past_the_end_fails() {
        let folder = tempfile::tempdir().unwrap();
        let file = Arc::new(ScratchFile::create(folder.path(), 0).unwrap());
        let mut queue = ScratchQueue::new(file, 2).unwrap();
        let mut done = Vec::new();
        let outcome = queue
            .start(transfer(false, 1 << 20, 0))
            .and_then(|()| queue.turn(1, &mut done));
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("scratch file in"), "{error}");
    }

    /// Dropping a queue with transfers in flight waits for them.
    #[test]
    fn a_queue_may_be_dropped_at_any_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = Arc::new(ScratchFile::create(folder.path(), 1 << 20).unwrap());
        for round in 0..20 {
            let mut queue = ScratchQueue::new(Arc::clone(&file), 16).unwrap();
            for block in 0..16 {
                queue.start(transfer(round % 2 == 0, block, 1)).unwrap();
            }
            if round % 3 == 0 {
                queue.turn(1, &mut Vec::new()).unwrap();
            }
        }
    }
}
