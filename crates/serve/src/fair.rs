//! Fairness among clients: a limit on the slots of each, and queues in which clients take turns.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The sender of requests: an address, or for IPv6 the network of one customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client(IpAddr);

impl From<SocketAddr> for Client {
    fn from(address: SocketAddr) -> Client {
        Client(match address.ip().to_canonical() {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
            ip => ip,
        })
    }
}

/// Slots for requests; one client gets at most seven eighths.
pub(crate) struct Places {
    total: usize,
    taken: Mutex<HashMap<Client, usize>>,
}

/// One of these slots, until dropped.
pub(crate) struct Taken {
    client: Client,
    places: Arc<Places>,
}

impl Places {
    pub(crate) fn new(total: usize) -> Arc<Places> {
        let taken = Mutex::default();
        Arc::new(Places { total, taken })
    }

    /// Takes a slot; the error is the number of slots taken by the client, or by all clients.
    pub(crate) fn take(self: &Arc<Places>, client: Client) -> Result<Taken, usize> {
        let mut taken = locked(&self.taken);
        let all: usize = taken.values().sum();
        let own = taken.get(&client).copied().unwrap_or(0);
        if all >= self.total {
            return Err(all);
        }
        if own >= self.total - self.total / 8 {
            return Err(own);
        }
        taken.insert(client, own + 1);
        let places = Arc::clone(self);
        Ok(Taken { client, places })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut taken = locked(&self.places.taken);
        if let Some(own) = taken.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.client);
            }
        }
    }
}

/// A queue in which clients take turns.
pub(crate) struct Line<T> {
    waiting: Mutex<Waiting<T>>,
    changed: Condvar,
}

struct Waiting<T> {
    /// Items of each client, the next client first.
    of: VecDeque<(Client, VecDeque<T>)>,
    is_closed: bool,
}

impl<T> Line<T> {
    pub(crate) fn new() -> Line<T> {
        let (of, is_closed) = (VecDeque::new(), false);
        Line {
            waiting: Mutex::new(Waiting { of, is_closed }),
            changed: Condvar::new(),
        }
    }

    /// Appends an item; drops it if the queue is closed.
    pub(crate) fn push(&self, client: Client, one: T) {
        let mut waiting = locked(&self.waiting);
        if waiting.is_closed {
            return;
        }
        match waiting.of.iter_mut().find(|(of, _)| *of == client) {
            Some((_, own)) => own.push_back(one),
            None => waiting.of.push_back((client, [one].into())),
        }
        self.changed.notify_one();
    }

    /// Takes up to `most` waiting items.
    pub(crate) fn take_now(&self, most: usize) -> Vec<T> {
        locked(&self.waiting).next(most)
    }

    /// Waits for an item and takes up to `most`; empty once the queue is closed.
    pub(crate) fn take(&self, most: usize) -> Vec<T> {
        let waiting = locked(&self.waiting);
        let is_idle = |waiting: &mut Waiting<T>| waiting.of.is_empty() && !waiting.is_closed;
        let waiting = self.changed.wait_while(waiting, is_idle);
        waiting.unwrap_or_else(PoisonError::into_inner).next(most)
    }

    /// Drops all waiting items, and wakes the takers.
    pub(crate) fn close(&self) {
        let mut waiting = locked(&self.waiting);
        waiting.is_closed = true;
        waiting.of.clear();
        self.changed.notify_all();
    }
}

impl<T> Waiting<T> {
    fn next(&mut self, most: usize) -> Vec<T> {
        let mut next = Vec::new();
        while next.len() < most
            && let Some((client, mut own)) = self.of.pop_front()
        {
            next.extend(own.pop_front());
            if !own.is_empty() {
                self.of.push_back((client, own));
            }
        }
        next
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> Client {
        SocketAddr::new(text.parse().unwrap(), 1).into()
    }

    #[test]
    fn clients_are_addresses_or_networks() {
        assert_eq!(client("::ffff:10.0.0.1"), client("10.0.0.1"));
        assert_eq!(client("2001:db8:0:1::5"), client("2001:db8:0:1:9::"));
        assert_ne!(client("2001:db8:0:1::5"), client("2001:db8:0:2::5"));
        assert_ne!(client("10.0.0.1"), client("10.0.0.2"));
    }

    #[test]
    fn one_client_never_takes_all_places() {
        let (one, other) = (client("10.0.0.1"), client("10.0.0.2"));
        let places = Places::new(16);
        let mut taken: Vec<Taken> = (0..14).map(|_| places.take(one).ok().unwrap()).collect();
        assert_eq!(places.take(one).err(), Some(14));
        let others = [(); 2].map(|()| places.take(other).ok().unwrap());
        assert_eq!(places.take(other).err(), Some(16));
        taken.pop();
        drop(others);
        assert!(places.take(one).is_ok() && places.take(other).is_ok());
        // Few slots leave no reserve for others.
        let few = Places::new(2);
        let _taken = [(); 2].map(|()| few.take(one).ok().unwrap());
        assert_eq!(few.take(other).err(), Some(2));
    }

    #[test]
    fn clients_take_turns() {
        let (one, other) = (client("10.0.0.1"), client("10.0.0.2"));
        let line = Line::new();
        for at in 0..5 {
            line.push(one, at);
        }
        line.push(other, 10);
        line.push(other, 11);
        assert_eq!(line.take(4), [0, 10, 1, 11]);
        line.push(other, 12);
        assert_eq!(line.take_now(9), [2, 12, 3, 4]);
        assert_eq!(line.take_now(9), [0; 0]);
        line.push(one, 5);
        line.close();
        line.push(one, 6);
        assert_eq!(line.take(1), [0; 0]);
    }
}
