//! Messages between connected ranks.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;

use super::memory::TcpMemory;
use super::world::World;
use crate::local::Route;
use crate::transport::{Group, Memory, Transport};
use crate::{Comm, CommError};

/// One rank's end of a communicator of connected ranks.
pub(super) struct Link {
    world: Arc<World>,
    context: u64,
    /// This rank in the communicator.
    rank: usize,
    /// Ranks of the whole job, by rank in the communicator.
    members: Arc<[usize]>,
    sent_bytes: Cell<u64>,
    /// Windows made so far, equal on all ranks.
    windows: Cell<u64>,
}

/// The communicator of all ranks.
pub(crate) fn comm_of(world: &Arc<World>) -> Comm {
    let (rank, members) = (world.rank, (0..world.size()).collect());
    let link = Link::new(Arc::clone(world), 0, rank, members);
    Comm::new(Box::new(link))
}

impl Link {
    fn new(world: Arc<World>, context: u64, rank: usize, members: Arc<[usize]>) -> Link {
        Link {
            world,
            context,
            rank,
            members,
            sent_bytes: Cell::new(0),
            windows: Cell::new(0),
        }
    }

    fn route(&self, from: usize, to: usize, tag: u32) -> Route {
        Route {
            context: self.context,
            from: self.members[from],
            to: self.members[to],
            tag,
        }
    }
}

/// A number that ranks compute without communication and that is unique: 64-bit parts collide with probability 2⁻⁶⁴.
fn number_of(parent: u64, sequence: u64, part: u64) -> u64 {
    [parent, sequence, part]
        .iter()
        .fold(1, |number: u64, word| {
            let mixed = (number ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
            mixed ^ (mixed >> 32)
        })
}

impl Transport for Link {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn world_rank(&self, rank: usize) -> usize {
        self.members[rank]
    }

    fn send(&self, to: usize, tag: u32, message: Bytes) -> Result<(), CommError> {
        if to != self.rank {
            self.sent_bytes
                .set(self.sent_bytes.get() + message.len() as u64);
        }
        self.world.send(self.route(self.rank, to, tag), message);
        Ok(())
    }

    fn try_receive(&self, from: usize, tag: u32) -> Result<Option<Bytes>, CommError> {
        let route = self.route(from, self.rank, tag);
        self.world.inbox.exchange.try_receive(route)
    }

    fn sent_bytes(&self) -> u64 {
        self.sent_bytes.get()
    }

    fn arrivals(&self) -> u64 {
        self.world.inbox.exchange.arrivals(self.world.rank)
    }

    fn idle(&self, seen: u64) -> Result<(), CommError> {
        self.world.inbox.exchange.wait(self.world.rank, seen);
        Ok(())
    }

    fn failure(&self) -> Result<(), CommError> {
        self.world.inbox.exchange.failure()
    }

    fn split(&self, group: Option<&Group>) -> Result<Option<Box<dyn Transport>>, CommError> {
        let place = |group: &Group| group.members.iter().position(|&member| member == self.rank);
        let Some((group, rank)) = group.and_then(|group| Some((group, place(group)?))) else {
            return Ok(None);
        };
        let context = number_of(self.context, group.sequence, group.number as u64);
        let members = group.members.iter().map(|&member| self.members[member]);
        let world = Arc::clone(&self.world);
        let link = Link::new(world, context, rank, members.collect());
        Ok(Some(Box::new(link)))
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>, CommError> {
        let made = self.windows.replace(self.windows.get() + 1);
        let number = number_of(self.context, made, u64::MAX);
        let (world, members) = (Arc::clone(&self.world), Arc::clone(&self.members));
        let memory = TcpMemory::allocate(world, members, number, bytes)?;
        Ok(Box::new(memory))
    }
}
