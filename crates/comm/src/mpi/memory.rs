//! Windows between processes.

use std::sync::Arc;

use bytes::Bytes;

use super::raw::{PIECE_BYTES, RawComm, RawWindow};
use super::world::World;
use crate::CommError;
use crate::transport::{GatherMessages, Get, Memory};

/// One rank's side of a window.
pub(super) struct MpiMemory {
    world: Arc<World>,
    /// This rank in the window's communicator.
    rank: usize,
    /// Windows made before it in this process.
    number: u64,
    /// Only `free` takes it.
    window: Option<RawWindow>,
}

impl MpiMemory {
    pub(super) fn allocate(
        world: Arc<World>,
        comm: RawComm,
        bytes: usize,
    ) -> Result<MpiMemory, CommError> {
        Ok(MpiMemory {
            rank: comm.rank()?,
            number: world.number_window(),
            window: Some(RawWindow::allocate(comm, bytes)?),
            world,
        })
    }

    fn window(&self) -> &RawWindow {
        self.window.as_ref().expect("a window that is not freed")
    }
}

impl Memory for MpiMemory {
    fn local(&self) -> &[u8] {
        self.window().bytes()
    }

    fn local_mut(&mut self) -> &mut [u8] {
        let window = self.window.as_mut();
        window.expect("a window that is not freed").bytes_mut()
    }

    fn share(&mut self, gather: GatherMessages<'_>) -> Result<(), CommError> {
        self.window().sync()?;
        gather(Bytes::new())?;
        self.window().sync()
    }

    fn unshare(&mut self, gather: GatherMessages<'_>) -> Result<(), CommError> {
        // Every read ended with a flush, so a rank that comes here reads no more.
        gather(Bytes::new())?;
        self.window().sync()
    }

    fn get(&self, gets: &mut [Get<'_>], work: &mut dyn FnMut()) -> Result<(), CommError> {
        self.world.check_now_and_then()?;
        // On one machine all ranks end together. A flush of reads from a machine that is gone never ends.
        if self.world.notices.hosts.get().is_none() {
            return self.window().get(gets, self.rank, work);
        }
        let mut reads = Vec::new();
        for get in gets.iter_mut() {
            let mut offset = get.offset as usize;
            if get.rank == self.rank {
                let end = offset + get.buffer.len();
                get.buffer.copy_from_slice(&self.local()[offset..end]);
                continue;
            }
            for piece in get.buffer.chunks_mut(PIECE_BYTES) {
                let read = self.window().start_far_get(get.rank, offset, piece.len())?;
                offset += piece.len();
                reads.push((read, piece));
            }
        }
        work();
        for (mut read, piece) in reads {
            let mut rounds = 0;
            while !read.test()? {
                self.world.pause(&mut rounds)?;
            }
            piece.copy_from_slice(&read.take());
        }
        Ok(())
    }

    fn free(mut self: Box<Self>) -> Result<(), CommError> {
        self.window.take().map_or(Ok(()), RawWindow::free)
    }
}

impl Drop for MpiMemory {
    fn drop(&mut self) {
        if let Some(window) = self.window.take() {
            self.world.keep_window(self.number, window);
        }
    }
}
