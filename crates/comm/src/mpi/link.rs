//! Messages between processes.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::memory::MpiMemory;
use super::raw::{PIECE_BYTES, RawComm, Request, forget_done};
use super::world::World;
use crate::transport::{Group, Memory, Transport};
use crate::{Comm, CommError};

/// One rank's end of a communicator of processes.
pub(super) struct Link {
    world: Arc<World>,
    comm: RawComm,
    rank: usize,
    /// Ranks of the whole job, by rank in the communicator.
    members: Vec<usize>,
    sending: RefCell<Vec<Request>>,
    /// By sender and tag: incomplete messages.
    receiving: RefCell<HashMap<(usize, u32), Arriving>>,
    sent_bytes: Cell<u64>,
    /// Rounds of the current wait.
    rounds: Cell<u32>,
}

#[derive(Default)]
struct Arriving {
    pieces: Vec<u8>,
    next: Option<Request>,
}

/// A communicator of all ranks.
pub(crate) fn comm_of(world: &Arc<World>) -> Result<Comm, CommError> {
    let comm = world.duplicate()?;
    let members = (0..comm.size()?).collect();
    let link = Link::new(Arc::clone(world), comm, members)?;
    Ok(Comm::new(Box::new(link)))
}

impl Link {
    fn new(world: Arc<World>, comm: RawComm, members: Vec<usize>) -> Result<Link, CommError> {
        Ok(Link {
            world,
            comm,
            rank: comm.rank()?,
            members,
            sending: RefCell::default(),
            receiving: RefCell::default(),
            sent_bytes: Cell::new(0),
            rounds: Cell::new(0),
        })
    }

    /// Forgets the messages that are delivered.
    fn move_on(&self) -> Result<(), CommError> {
        forget_done(&mut self.sending.borrow_mut())
    }

    /// The next whole message, if it has arrived.
    fn assemble(&self, from: usize, tag: u32) -> Result<Option<Bytes>, CommError> {
        let mut receiving = self.receiving.borrow_mut();
        let mut arriving = receiving.remove(&(from, tag)).unwrap_or_default();
        loop {
            let next = match arriving.next.take() {
                Some(next) => Some(next),
                None => self
                    .comm
                    .try_receive(Some(from), tag)?
                    .map(|(_, next)| next),
            };
            let Some(mut next) = next else {
                break;
            };
            if !next.test()? {
                arriving.next = Some(next);
                break;
            }
            let piece = next.take();
            let last = piece.len() < PIECE_BYTES;
            if last && arriving.pieces.is_empty() {
                return Ok(Some(piece.into()));
            }
            arriving.pieces.extend_from_slice(&piece);
            if last {
                return Ok(Some(arriving.pieces.into()));
            }
        }
        if arriving.next.is_some() || !arriving.pieces.is_empty() {
            receiving.insert((from, tag), arriving);
        }
        Ok(None)
    }
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

    fn send(&self, to: usize, tag: u32, mut message: Bytes) -> Result<(), CommError> {
        if to != self.rank {
            self.sent_bytes
                .set(self.sent_bytes.get() + message.len() as u64);
        }
        loop {
            let piece = message.split_to(message.len().min(PIECE_BYTES));
            let last = piece.len() < PIECE_BYTES;
            let mut request = self.comm.send(to, tag, piece)?;
            if !request.test()? {
                self.sending.borrow_mut().push(request);
            }
            if last {
                return Ok(());
            }
        }
    }

    fn try_receive(&self, from: usize, tag: u32) -> Result<Option<Bytes>, CommError> {
        let message = self.assemble(from, tag)?;
        if message.is_some() {
            self.rounds.set(0);
        } else {
            self.world.notices.check_alive(self.members[from])?;
        }
        Ok(message)
    }

    fn sent_bytes(&self) -> u64 {
        self.sent_bytes.get()
    }

    fn arrivals(&self) -> u64 {
        0
    }

    fn idle(&self, _seen: u64) -> Result<(), CommError> {
        self.move_on()?;
        let mut rounds = self.rounds.get();
        self.world.pause(&mut rounds)?;
        self.rounds.set(rounds);
        Ok(())
    }

    fn failure(&self) -> Result<(), CommError> {
        self.world.notices.poll()?;
        self.world.notices.failure()
    }

    fn split(&self, group: Option<&Group>) -> Result<Option<Box<dyn Transport>>, CommError> {
        let place = |group: &Group| group.members.iter().position(|member| *member == self.rank);
        let color = group.map(|group| group.number);
        let comm = self.comm.split(color, group.and_then(place).unwrap_or(0))?;
        let (Some(group), Some(comm)) = (group, comm) else {
            return Ok(None);
        };
        self.world.keep_comm(comm);
        let members = group.members.iter().map(|member| self.members[*member]);
        let link = Link::new(Arc::clone(&self.world), comm, members.collect())?;
        Ok(Some(Box::new(link)))
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>, CommError> {
        let memory = MpiMemory::allocate(Arc::clone(&self.world), self.comm, bytes)?;
        Ok(Box::new(memory))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.world.notices.deliver(self.sending.take());
    }
}
