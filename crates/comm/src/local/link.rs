//! Messages and windows between threads.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::exchange::{Exchange, Route};
use super::network::Network;
use crate::CommError;
use crate::transport::{GatherMessages, Get, Group, Memory, Transport, zeroed};

/// One rank's end of a communicator of threads.
pub(crate) struct Link {
    pub(crate) exchange: Arc<Exchange<Message>>,
    pub(crate) context: u64,
    /// This rank in the communicator.
    pub(crate) rank: usize,
    /// Ranks of the whole job, by rank in the communicator.
    pub(crate) members: Arc<[usize]>,
    pub(crate) sent_bytes: Cell<u64>,
    /// Objects that ranks show one another, by context.
    pub(crate) shelf: Arc<Shelf>,
    /// The modelled network; none if messages arrive at once.
    pub(crate) network: Option<Arc<Network>>,
    /// Of each route the next message, while it is in flight.
    pub(crate) early: RefCell<HashMap<Route, Message>>,
}

/// The message, and when it arrives; at once if none.
pub(crate) struct Message {
    bytes: Bytes,
    arrives: Option<Instant>,
}

/// Longest sleep while a message is in flight: others may arrive meanwhile.
const NAP: Duration = Duration::from_micros(200);

/// The object that a rank of each context shows.
pub(crate) type Shelf = Mutex<BTreeMap<u64, Arc<dyn Any + Send + Sync>>>;

impl Link {
    /// The only rank of a job.
    pub(crate) fn alone() -> Link {
        Link {
            exchange: Arc::new(Exchange::new(1)),
            context: 0,
            rank: 0,
            members: Arc::new([0]),
            sent_bytes: Cell::new(0),
            shelf: Arc::default(),
            network: None,
            early: RefCell::default(),
        }
    }

    fn shelf(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<dyn Any + Send + Sync>>> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn send(&self, to: usize, tag: u32, message: Bytes) -> Result<(), CommError> {
        if to != self.rank {
            self.sent_bytes
                .set(self.sent_bytes.get() + message.len() as u64);
        }
        let route = Route {
            context: self.context,
            from: self.members[self.rank],
            to: self.members[to],
            tag,
        };
        let network = self.network.as_ref().filter(|_| to != self.rank);
        let arrives = network
            .map(|network| network.arrival(route.from, route.to, message.len(), Instant::now()));
        let bytes = message;
        self.exchange.send(route, Message { bytes, arrives });
        Ok(())
    }

    fn try_receive(&self, from: usize, tag: u32) -> Result<Option<Bytes>, CommError> {
        let route = Route {
            context: self.context,
            from: self.members[from],
            to: self.members[self.rank],
            tag,
        };
        if self.network.is_none() {
            let message = self.exchange.try_receive(route)?;
            return Ok(message.map(|message| message.bytes));
        }
        let mut early = self.early.borrow_mut();
        let next = match early.remove(&route) {
            Some(message) => Some(message),
            None => self.exchange.try_receive(route)?,
        };
        let is_here = |message: &Message| message.arrives.is_none_or(|at| at <= Instant::now());
        match next {
            Some(message) if !is_here(&message) => {
                early.insert(route, message);
                Ok(None)
            }
            next => Ok(next.map(|message| message.bytes)),
        }
    }

    fn sent_bytes(&self) -> u64 {
        self.sent_bytes.get()
    }

    fn modelled_bytes_per_s(&self) -> Option<f64> {
        self.network.as_ref().map(|network| network.bytes_per_s)
    }

    fn arrivals(&self) -> u64 {
        self.exchange.arrivals(self.members[self.rank])
    }

    fn idle(&self, seen: u64) -> Result<(), CommError> {
        if self.early.borrow().is_empty() {
            self.exchange.wait(self.members[self.rank], seen)
        } else {
            std::thread::sleep(NAP)
        }
        Ok(())
    }

    fn failure(&self) -> Result<(), CommError> {
        self.exchange.failure()
    }

    fn split(&self, group: Option<&Group>) -> Result<Option<Box<dyn Transport>>, CommError> {
        let Some(group) = group else {
            return Ok(None);
        };
        let place = |&member: &usize| member == self.rank;
        let Some(rank) = group.members.iter().position(place) else {
            return Ok(None);
        };
        let members = group.members.iter().map(|member| self.members[*member]);
        Ok(Some(Box::new(Link {
            exchange: Arc::clone(&self.exchange),
            context: self
                .exchange
                .context(self.context, group.sequence, group.number),
            rank,
            members: members.collect(),
            sent_bytes: Cell::new(0),
            shelf: Arc::clone(&self.shelf),
            network: self.network.clone(),
            early: RefCell::default(),
        })))
    }

    fn show(&self, something: Option<Arc<dyn Any + Send + Sync>>) {
        match something {
            Some(something) => self.shelf().insert(self.context, something),
            None => self.shelf().remove(&self.context),
        };
    }

    fn shown(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.shelf().get(&self.context).cloned()
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>, CommError> {
        Ok(Box::new(LocalMemory {
            exchange: Arc::clone(&self.exchange),
            rank: self.rank,
            unshared: zeroed(self.members[self.rank], bytes)?,
            shared: Vec::new(),
        }))
    }
}

/// A window among threads: while shared, every rank holds a reference to the memory of each.
struct LocalMemory {
    exchange: Arc<Exchange<Message>>,
    rank: usize,
    /// This rank's memory while it is not shared, else empty.
    unshared: BytesMut,
    /// All ranks' memory while it is shared, else empty.
    shared: Vec<Bytes>,
}

impl Memory for LocalMemory {
    fn local(&self) -> &[u8] {
        self.shared.get(self.rank).map_or(&self.unshared, |own| own)
    }

    fn local_mut(&mut self) -> &mut [u8] {
        &mut self.unshared
    }

    fn share(&mut self, gather: GatherMessages<'_>) -> Result<(), CommError> {
        self.shared = gather(std::mem::take(&mut self.unshared).freeze())?;
        Ok(())
    }

    fn unshare(&mut self, gather: GatherMessages<'_>) -> Result<(), CommError> {
        let own = self.shared.swap_remove(self.rank);
        self.shared.clear();
        // When all ranks are here, all have dropped their references.
        gather(Bytes::new())?;
        // Never a copy, unless a rank keeps a reference because it failed.
        self.unshared = BytesMut::from(own);
        Ok(())
    }

    fn get(&self, gets: &mut [Get<'_>], work: &mut dyn FnMut()) -> Result<(), CommError> {
        self.exchange.failure()?;
        for get in gets {
            let start = get.offset as usize;
            let bytes = &self.shared[get.rank][start..start + get.buffer.len()];
            get.buffer.copy_from_slice(bytes);
        }
        work();
        Ok(())
    }

    fn free(self: Box<Self>) -> Result<(), CommError> {
        Ok(())
    }
}
