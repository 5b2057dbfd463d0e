//! Windows between connected ranks.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::reads::Wanted;
use super::world::World;
use crate::CommError;
use crate::transport::{GatherMessages, Get, Memory, zeroed};

/// One rank's side of a window.
pub(super) struct TcpMemory {
    world: Arc<World>,
    /// Ranks of the whole job, by rank in the communicator.
    members: Arc<[usize]>,
    /// The same on all ranks.
    number: u64,
    /// This rank's memory while it is not shared, else empty.
    unshared: BytesMut,
    /// The same while it is.
    shared: Bytes,
}

impl TcpMemory {
    pub(super) fn allocate(
        world: Arc<World>,
        members: Arc<[usize]>,
        number: u64,
        bytes: usize,
    ) -> Result<TcpMemory, CommError> {
        Ok(TcpMemory {
            unshared: zeroed(world.rank, bytes)?,
            world,
            members,
            number,
            shared: Bytes::new(),
        })
    }
}

impl Memory for TcpMemory {
    fn local(&self) -> &[u8] {
        if self.shared.is_empty() {
            &self.unshared
        } else {
            &self.shared
        }
    }

    fn local_mut(&mut self) -> &mut [u8] {
        &mut self.unshared
    }

    fn share(&mut self, gather: GatherMessages<'_>) -> Result<(), CommError> {
        self.shared = std::mem::take(&mut self.unshared).freeze();
        let shown = self.shared.clone();
        self.world.reads.windows().insert(self.number, shown);
        gather(Bytes::new())?;
        Ok(())
    }

    fn unshare(&mut self, gather: GatherMessages<'_>) -> Result<(), CommError> {
        // A rank that gets here has received all its answers.
        gather(Bytes::new())?;
        self.world.reads.windows().remove(&self.number);
        // A copy only if a thread has not yet dropped the last answer.
        self.unshared = BytesMut::from(std::mem::take(&mut self.shared));
        Ok(())
    }

    fn get(&self, gets: &mut [Get<'_>], work: &mut dyn FnMut()) -> Result<(), CommError> {
        self.world.inbox.exchange.failure()?;
        let mut wanted = BTreeMap::<usize, Wanted<'_>>::new();
        for get in gets.iter_mut().filter(|get| !get.buffer.is_empty()) {
            let peer = self.members[get.rank];
            if peer == self.world.rank {
                let start = get.offset as usize;
                get.buffer
                    .copy_from_slice(&self.local()[start..start + get.buffer.len()]);
                continue;
            }
            let of = wanted.entry(peer).or_default();
            of.offsets.push(get.offset);
            of.buffers.push(IoSliceMut::new(get.buffer));
        }
        self.world.reads.read(self.number, &mut wanted, work)
    }

    fn free(self: Box<Self>) -> Result<(), CommError> {
        Ok(())
    }
}
