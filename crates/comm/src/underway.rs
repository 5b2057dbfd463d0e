//! The running operations of one rank, which advance while it waits for any of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use bytes::Bytes;

use crate::CommError;
use crate::operation::{Operation, check_length};
use crate::transport::Transport;

/// The operations of a communicator that are running, or done and not fetched, and their transport.
pub(crate) struct Underway {
    pub(crate) link: Box<dyn Transport>,
    /// In the order of their start.
    active: RefCell<BTreeMap<u64, Active>>,
    /// Key of the next entry of `active`.
    next_ticket: Cell<u64>,
    waited: Cell<Duration>,
}

enum Active {
    Running {
        operation: Box<dyn Operation>,
        /// The result is discarded; the operation continues because other ranks need it.
        abandoned: bool,
    },
    Done(Result<Vec<Bytes>, CommError>),
}

impl fmt::Debug for Underway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Underway")
            .field("rank", &self.link.rank())
            .finish_non_exhaustive()
    }
}

impl Underway {
    pub(crate) fn new(link: Box<dyn Transport>) -> Underway {
        Underway {
            link,
            active: RefCell::default(),
            next_ticket: Cell::new(0),
            waited: Cell::default(),
        }
    }

    /// Time spent waiting.
    pub(crate) fn waited(&self) -> Duration {
        self.waited.get()
    }

    pub(crate) fn start(&self, operation: Box<dyn Operation>) -> u64 {
        let ticket = self.next_ticket.replace(self.next_ticket.get() + 1);
        let entry = Active::Running {
            operation,
            abandoned: false,
        };
        self.active.borrow_mut().insert(ticket, entry);
        ticket
    }

    /// Advances every running operation, in the order of their start.
    pub(crate) fn advance(&self) {
        // Routes on which an earlier reception waits: messages that arrive there are not for later ones.
        let mut taken = Vec::new();
        self.active.borrow_mut().retain(|_, entry| {
            let Active::Running {
                operation,
                abandoned,
            } = entry
            else {
                return true;
            };
            let route = operation.reception();
            if route.is_some_and(|route| taken.contains(&route)) {
                return true;
            }
            let Some(result) = operation.advance(&*self.link).transpose() else {
                taken.extend(route);
                return true;
            };
            let keep = !*abandoned;
            *entry = Active::Done(result);
            keep
        });
    }

    /// Whether an operation is done, also if it failed.
    pub(crate) fn is_done(&self, ticket: u64) -> bool {
        !matches!(
            self.active.borrow().get(&ticket),
            Some(Active::Running { .. })
        )
    }

    /// Waits for an operation.
    pub(crate) fn finish(&self, ticket: u64) -> Result<Vec<Bytes>, CommError> {
        let start = Instant::now();
        let result = loop {
            let seen = self.link.arrivals();
            self.advance();
            if self.is_done(ticket) {
                break self.take(ticket);
            }
            if let Err(error) = self.link.idle(seen) {
                break Err(error);
            }
        };
        self.waited.set(self.waited.get() + start.elapsed());
        result
    }

    fn take(&self, ticket: u64) -> Result<Vec<Bytes>, CommError> {
        match self.active.borrow_mut().remove(&ticket) {
            Some(Active::Done(result)) => result,
            _ => panic!("operation {ticket} was fetched before it was done"),
        }
    }

    /// Lets an operation continue, discarding its result.
    pub(crate) fn abandon(&self, ticket: u64) {
        let mut active = self.active.borrow_mut();
        match active.get_mut(&ticket) {
            Some(Active::Running { abandoned, .. }) => *abandoned = true,
            Some(Active::Done(_)) => drop(active.remove(&ticket)),
            None => {}
        }
    }

    /// The values of messages one after the other; `from` sent the last.
    pub(crate) fn values_of<T: Pod>(
        &self,
        parts: &[Bytes],
        from: usize,
    ) -> Result<Vec<T>, CommError> {
        let bytes: usize = parts.iter().map(Bytes::len).sum();
        let length = bytes / size_of::<T>();
        check_length(&*self.link, "receive", from, length * size_of::<T>(), bytes)?;
        let mut values = vec![T::zeroed(); length];
        copy_parts(parts, &mut values);
        Ok(values)
    }
}

/// Copies messages one after the other into `values`, which they fill.
pub(crate) fn copy_parts<T: Pod>(parts: &[Bytes], values: &mut [T]) {
    let mut rest: &mut [u8] = bytemuck::cast_slice_mut(values);
    for part in parts {
        let (place, behind) = rest.split_at_mut(part.len());
        place.copy_from_slice(part);
        rest = behind;
    }
}
