//! [`Comm`]: a rank among others.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use bytes::Bytes;

use crate::CommError;
use crate::local::Link;
use crate::number::{Number, Reduction, owned, reduce};
use crate::operation::{Barrier, Broadcast, Collect, Operation, ReduceShares, check_length, share};
use crate::pending::Pending;
use crate::transport::{Group, Transport};
use crate::window::FillWindow;

/// Tags below are the caller's; from here on they number collective operations.
const FIRST_TAG: u32 = 1 << 16;
/// Collective operations that can be under way at once; more than fit in memory.
const TAGS: u64 = 1 << 20;
/// The largest tag that is used.
#[cfg(feature = "mpi")]
pub(crate) const LARGEST_TAG: u32 = FIRST_TAG + TAGS as u32 - 1;

/// One rank's end of a communicator: the ranks 0..size that work on one job.
///
/// All ranks make the same collective calls in the same order. A `Comm` may move to another thread
/// but is not shared between threads; [`Comm::duplicate`] makes one more for a second thread, with
/// messages of its own. Operations that were started go on while this rank is in any call of the
/// same `Comm` that waits.
///
/// An operation that returned an error leaves its communicator unusable for collectives.
pub struct Comm {
    link: Box<dyn Transport>,
    /// Collective operations started so far; equal on all ranks.
    sequence: Cell<u64>,
    /// Operations under way or done and not fetched, in the order of their start.
    active: RefCell<BTreeMap<u64, Active>>,
    /// Key of the next entry of `active`.
    next_ticket: Cell<u64>,
    waited: Cell<Duration>,
}

/// What a [`Comm`] has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent to other ranks; not those that others read from windows.
    pub sent_bytes: u64,
    /// Time spent waiting for other ranks and for the transport.
    pub waited: Duration,
}

enum Active {
    Running {
        operation: Box<dyn Operation>,
        /// Nobody fetches the result; the operation goes on because other ranks need it.
        abandoned: bool,
    },
    Done(Result<Vec<Bytes>, CommError>),
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Comm(rank {} of {})", self.rank(), self.size())
    }
}

impl Comm {
    /// A rank alone: every collective returns at once.
    pub fn alone() -> Comm {
        Comm::new(Box::new(Link::alone()))
    }

    pub(crate) fn new(link: Box<dyn Transport>) -> Comm {
        Comm {
            link,
            sequence: Cell::new(0),
            active: RefCell::default(),
            next_ticket: Cell::new(0),
            waited: Cell::default(),
        }
    }

    /// This rank, 0..size.
    pub fn rank(&self) -> usize {
        self.link.rank()
    }

    /// Ranks there are, at least 1.
    pub fn size(&self) -> usize {
        self.link.size()
    }

    /// This rank's number in the whole job; differs from [`Comm::rank`] in a group of a split.
    pub fn world_rank(&self) -> usize {
        self.world_rank_of(self.rank())
    }

    pub(crate) fn world_rank_of(&self, rank: usize) -> usize {
        self.link.world_rank(rank)
    }

    /// What this communicator has cost so far.
    pub fn traffic(&self) -> Traffic {
        Traffic {
            sent_bytes: self.link.sent_bytes(),
            waited: self.waited.get(),
        }
    }

    /// Bytes a second of each rank's modelled link ([`run_ranks_over`](crate::run_ranks_over)); none where messages
    /// travel as fast as they can.
    pub fn modelled_bytes_per_s(&self) -> Option<f64> {
        self.link.modelled_bytes_per_s()
    }

    /// Whether a rank is known to have failed: the error that waiting for it would give. For loops
    /// that compute for long.
    pub fn check(&self) -> Result<(), CommError> {
        self.link.failure()
    }

    /// Returns when all ranks have come here.
    pub fn barrier(&self) -> Result<(), CommError> {
        let operation = Barrier::start(&*self.link, self.next_tag())?;
        self.run(Box::new(operation))?;
        Ok(())
    }

    /// Copies `values` of `root` to all ranks; equally long everywhere.
    pub fn broadcast<T: Pod>(&self, values: &mut [T], root: usize) -> Result<(), CommError> {
        let bytes = bytemuck::cast_slice_mut(values);
        let message = (self.rank() == root).then(|| Bytes::copy_from_slice(bytes));
        let operation = self.broadcast_of(root, bytes.len(), message)?;
        let arrived = self.run(Box::new(operation))?;
        if self.rank() != root {
            bytes.copy_from_slice(&arrived[0]);
        }
        Ok(())
    }

    /// [`Comm::broadcast`] that goes on while this rank computes.
    pub fn start_broadcast<T: Pod + Send + Sync>(
        &self,
        values: Vec<T>,
        root: usize,
    ) -> Result<Pending<'_, T>, CommError> {
        let length = size_of_val(&values[..]);
        let message = (self.rank() == root).then(|| owned(values));
        let operation = self.broadcast_of(root, length, message)?;
        Ok(self.pend(Box::new(operation)))
    }

    fn broadcast_of(
        &self,
        root: usize,
        length: usize,
        message: Option<Bytes>,
    ) -> Result<Broadcast, CommError> {
        self.check_rank(root)?;
        Ok(Broadcast::start(self.next_tag(), root, length, message))
    }

    /// Puts `values` of all ranks, equally many, one after the other into `all`.
    ///
    /// Panics where `all` is not [`Comm::size`] times as long as `values`.
    pub fn all_gather<T: Pod>(&self, values: &[T], all: &mut [T]) -> Result<(), CommError> {
        assert_eq!(
            all.len(),
            values.len() * self.size(),
            "length of the result"
        );
        let message = Bytes::copy_from_slice(bytemuck::cast_slice(values));
        let operation = self.gather_of(message, true)?;
        copy_parts(&self.run(Box::new(operation))?, all);
        Ok(())
    }

    /// [`Comm::all_gather`] that goes on while this rank computes.
    pub fn start_all_gather<T: Pod + Send + Sync>(
        &self,
        values: Vec<T>,
    ) -> Result<Pending<'_, T>, CommError> {
        let operation = self.gather_of(owned(values), true)?;
        Ok(self.pend(Box::new(operation)))
    }

    /// Returns `values` of all ranks, by rank; their lengths may differ.
    pub fn all_gather_ragged<T: Pod>(&self, values: &[T]) -> Result<Vec<Vec<T>>, CommError> {
        let message = Bytes::copy_from_slice(bytemuck::cast_slice(values));
        let arrived = self.gather_messages(message)?;
        let parts = (0..).zip(&arrived);
        parts
            .map(|(from, part)| self.values_of(std::slice::from_ref(part), from))
            .collect()
    }

    /// All ranks' messages, by rank; in one process they are handed over, not copied.
    pub(crate) fn gather_messages(&self, message: Bytes) -> Result<Vec<Bytes>, CommError> {
        let operation = self.gather_of(message, false)?;
        self.run(Box::new(operation))
    }

    fn gather_of(&self, message: Bytes, equal: bool) -> Result<Collect, CommError> {
        let expected = equal.then(|| vec![message.len(); self.size()]);
        let (tag, parts) = (self.next_tag(), vec![message; self.size()]);
        Collect::exchange(&*self.link, tag, "all-gather", parts, expected)
    }

    /// Reduces `values` over all ranks, in place, to the same bits on all of them.
    ///
    /// Each element is combined in the order of the ranks: the result depends on the operands and the
    /// number of ranks only.
    pub fn all_reduce<T: Number>(
        &self,
        values: &mut [T],
        reduction: Reduction,
    ) -> Result<(), CommError> {
        let message = Bytes::copy_from_slice(bytemuck::cast_slice(values));
        let operation = self.reduction_of::<T>(message, reduction, None)?;
        copy_parts(&self.run(Box::new(operation))?, values);
        Ok(())
    }

    /// [`Comm::all_reduce`] that goes on while this rank computes.
    pub fn start_all_reduce<T: Number>(
        &self,
        values: Vec<T>,
        reduction: Reduction,
    ) -> Result<Pending<'_, T>, CommError> {
        let operation = self.reduction_of::<T>(owned(values), reduction, None)?;
        Ok(self.pend(Box::new(operation)))
    }

    /// Reduces `values` over all ranks and returns this rank's [`share`] of the result.
    pub fn reduce_scatter<T: Number>(
        &self,
        values: &[T],
        reduction: Reduction,
    ) -> Result<Vec<T>, CommError> {
        self.reduce_scatter_ragged(values, &self.shares(values.len()), reduction)
    }

    /// Reduces `values` over all ranks; rank r gets the `counts[r]` elements after those of the ranks
    /// before it. `counts` are the same everywhere.
    ///
    /// Panics where `counts` are not one a rank or do not add up to the length of `values`.
    pub fn reduce_scatter_ragged<T: Number>(
        &self,
        values: &[T],
        counts: &[usize],
        reduction: Reduction,
    ) -> Result<Vec<T>, CommError> {
        let message = Bytes::copy_from_slice(bytemuck::cast_slice(values));
        let operation = self.reduction_of::<T>(message, reduction, Some(counts))?;
        let arrived = self.run(Box::new(operation))?;
        self.values_of(&arrived, self.rank())
    }

    /// [`Comm::reduce_scatter`] that goes on while this rank computes.
    pub fn start_reduce_scatter<T: Number>(
        &self,
        values: Vec<T>,
        reduction: Reduction,
    ) -> Result<Pending<'_, T>, CommError> {
        let counts = self.shares(values.len());
        let operation = self.reduction_of::<T>(owned(values), reduction, Some(&counts))?;
        Ok(self.pend(Box::new(operation)))
    }

    fn shares(&self, length: usize) -> Vec<usize> {
        let size = self.size();
        (0..size)
            .map(|rank| share(length, rank, size).len())
            .collect()
    }

    /// A reduce-scatter by `counts`, or an all-reduce.
    fn reduction_of<T: Number>(
        &self,
        values: Bytes,
        reduction: Reduction,
        counts: Option<&[usize]>,
    ) -> Result<ReduceShares, CommError> {
        let unit = size_of::<T>();
        let length = values.len() / unit;
        let shares = counts.map_or_else(|| self.shares(length), <[usize]>::to_vec);
        assert_eq!(shares.len(), self.size(), "one count a rank");
        assert_eq!(shares.iter().sum::<usize>(), length, "sum of the counts");
        let shares = shares.iter().map(|share| share * unit).collect();
        let (tag, how) = (self.next_tag(), (reduce::<T> as _, reduction));
        ReduceShares::start(&*self.link, tag, how, values, shares, counts.is_none())
    }

    /// Sends `values` to `to` and returns at once; the message waits there until it is received.
    pub fn send<T: Pod>(&self, to: usize, tag: u16, values: &[T]) -> Result<(), CommError> {
        self.check_rank(to)?;
        let message = Bytes::copy_from_slice(bytemuck::cast_slice(values));
        self.link.send(to, u32::from(tag), message)
    }

    /// Waits for the next message from `from` with `tag`, which must fill `values`.
    pub fn receive<T: Pod>(
        &self,
        from: usize,
        tag: u16,
        values: &mut [T],
    ) -> Result<(), CommError> {
        let arrived = self.run(Box::new(self.reception(from, tag)?))?;
        let bytes = bytemuck::cast_slice_mut(values);
        check_length(
            &*self.link,
            "receive",
            from,
            bytes.len(),
            arrived[from].len(),
        )?;
        bytes.copy_from_slice(&arrived[from]);
        Ok(())
    }

    /// Waits for the next message from `from` with `tag`, of any length.
    pub fn receive_vec<T: Pod>(&self, from: usize, tag: u16) -> Result<Vec<T>, CommError> {
        let arrived = self.run(Box::new(self.reception(from, tag)?))?;
        self.values_of(&arrived, from)
    }

    /// [`Comm::receive_vec`] that goes on while this rank computes. Messages from one rank with one tag
    /// go to receptions in the order in which these were started.
    pub fn start_receive<T: Pod>(
        &self,
        from: usize,
        tag: u16,
    ) -> Result<Pending<'_, T>, CommError> {
        Ok(self.pend(Box::new(self.reception(from, tag)?)))
    }

    fn reception(&self, from: usize, tag: u16) -> Result<Collect, CommError> {
        self.check_rank(from)?;
        Ok(Collect::receive(&*self.link, from, u32::from(tag)))
    }

    /// Divides the ranks into groups of the same `color`, each with a communicator of its own, ranked
    /// by `key` and then by their rank here; `None` for those that give no color.
    pub fn split(&self, color: Option<u64>, key: u64) -> Result<Option<Comm>, CommError> {
        let own = [u64::from(color.is_some()), color.unwrap_or(0), key];
        let mut all = vec![0; own.len() * self.size()];
        self.all_gather(&own, &mut all)?;
        let sequence = self.next_sequence();
        let ranks = || (0..).zip(all.chunks_exact(own.len()));
        let mut colors: Vec<u64> = ranks()
            .filter(|(_, told)| told[0] == 1)
            .map(|(_, told)| told[1])
            .collect();
        colors.sort_unstable();
        colors.dedup();
        let group = color.map(|color| {
            let alike = ranks().filter(|(_, told)| told[0] == 1 && told[1] == color);
            let mut members: Vec<(u64, usize)> =
                alike.map(|(rank, told)| (told[2], rank)).collect();
            members.sort_unstable();
            Group {
                number: colors.partition_point(|other| *other < color),
                sequence,
                members: members.into_iter().map(|(_, rank)| rank).collect(),
            }
        });
        Ok(self.link.split(group.as_ref())?.map(Comm::new))
    }

    /// One more communicator of the same ranks, such as for a second thread.
    pub fn duplicate(&self) -> Result<Comm, CommError> {
        self.barrier()?;
        let group = Group {
            number: 0,
            sequence: self.next_sequence(),
            members: (0..self.size()).collect(),
        };
        let link = self.link.split(Some(&group))?;
        Ok(Comm::new(link.expect("a group of all ranks has this one")))
    }

    /// What `make` makes, once for all ranks that are threads of one process, and on rank 0 before any other. A rank
    /// that wants something else than rank 0, as `of` says, makes its own. All ranks call it.
    ///
    /// Errors: those of `make`; a failed rank.
    pub fn once<T, E>(&self, of: &str, make: impl FnOnce() -> Result<T, E>) -> Result<T, E>
    where
        T: Clone + Send + Sync + 'static,
        E: From<CommError>,
    {
        if self.rank() > 0 {
            self.barrier()?;
            let shown = self.link.shown();
            let shown = shown
                .as_deref()
                .and_then(|shown| shown.downcast_ref::<(String, T)>());
            let made = match shown {
                Some((what, made)) if what == of => made.clone(),
                _ => make()?,
            };
            self.barrier()?;
            return Ok(made);
        }
        let made = make()?;
        if self.size() > 1 {
            self.link
                .show(Some(Arc::new((of.to_string(), made.clone()))));
            self.barrier()?;
            self.barrier()?;
            self.link.show(None);
        }
        Ok(made)
    }

    /// Allocates zeroed memory for others to read; each rank chooses its own number of `bytes`.
    pub fn allocate(&self, bytes: usize) -> Result<FillWindow, CommError> {
        // Agreed before the memory is asked for, so that no rank is left alone in a call that waits.
        let told = self.all_gather_ragged(&[bytes as u64])?;
        let memory = self.link.allocate(bytes)?;
        Ok(FillWindow::new(
            memory,
            told.into_iter().flatten().collect(),
        ))
    }

    fn check_rank(&self, rank: usize) -> Result<(), CommError> {
        let size = self.size();
        if rank < size {
            return Ok(());
        }
        Err(CommError::NoSuchRank { rank, size })
    }

    fn next_tag(&self) -> u32 {
        FIRST_TAG + (self.next_sequence() % TAGS) as u32
    }

    fn next_sequence(&self) -> u64 {
        self.sequence.replace(self.sequence.get() + 1)
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

/// Operations under way.
impl Comm {
    fn pend<T: Pod>(&self, operation: Box<dyn Operation>) -> Pending<'_, T> {
        Pending::new(self, self.start(operation))
    }

    fn run(&self, operation: Box<dyn Operation>) -> Result<Vec<Bytes>, CommError> {
        let ticket = self.start(operation);
        self.finish(ticket)
    }

    fn start(&self, operation: Box<dyn Operation>) -> u64 {
        let ticket = self.next_ticket.replace(self.next_ticket.get() + 1);
        let entry = Active::Running {
            operation,
            abandoned: false,
        };
        self.active.borrow_mut().insert(ticket, entry);
        ticket
    }

    /// Advances every operation under way, in the order of their start.
    pub(crate) fn advance(&self) {
        // Routes on which an earlier reception waits: what arrives there meanwhile is not for later ones.
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

    /// Whether an operation is done, also where it failed.
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

    /// Lets an operation go on without anyone who fetches its result.
    pub(crate) fn abandon(&self, ticket: u64) {
        let mut active = self.active.borrow_mut();
        match active.get_mut(&ticket) {
            Some(Active::Running { abandoned, .. }) => *abandoned = true,
            Some(Active::Done(_)) => drop(active.remove(&ticket)),
            None => {}
        }
    }
}

/// Copies messages one after the other into `values`, which they fill.
fn copy_parts<T: Pod>(parts: &[Bytes], values: &mut [T]) {
    let mut rest: &mut [u8] = bytemuck::cast_slice_mut(values);
    for part in parts {
        let (place, behind) = rest.split_at_mut(part.len());
        place.copy_from_slice(part);
        rest = behind;
    }
}
