//! [`Comm`]: a rank among others.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::Pod;
use bytes::Bytes;

use crate::CommError;
use crate::local::Link;
use crate::number::{Number, Reduction, owned, reduce};
use crate::operation::{Barrier, Broadcast, Collect, Operation, ReduceShares, check_length, share};
use crate::pending::Pending;
use crate::transport::{Group, Memory, Transport};
use crate::underway::{Underway, copy_parts};

/// Tags below are the caller's; from here on they number collective operations.
const FIRST_TAG: u32 = 1 << 16;
/// Collective operations that can run at once; more than fit in memory. Intel MPI has tags up to 2¹⁹ over some networks.
const TAGS: u64 = 1 << 18;
/// The largest tag that is used.
#[cfg(not(loom))]
pub(crate) const LARGEST_TAG: u32 = FIRST_TAG + TAGS as u32 - 1;

/// One rank's end of a communicator: the ranks 0..size that work on one job.
///
/// All ranks make the same collective calls in the same order. A `Comm` may move to another thread
/// but is not shared between threads; [`Comm::duplicate`] makes another for a second thread, with separate
/// messages. Started operations progress while this rank is in any waiting call of the same `Comm`.
///
/// An operation that returned an error leaves its communicator unusable for collectives.
pub struct Comm {
    underway: Underway,
    /// Collective operations started so far; equal on all ranks.
    sequence: Cell<u64>,
}

/// The cost of a [`Comm`] so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent to other ranks; not those that others read from windows.
    pub sent_bytes: u64,
    /// Time spent waiting for other ranks and for the transport.
    pub waited: Duration,
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
            underway: Underway::new(link),
            sequence: Cell::new(0),
        }
    }

    /// This rank, 0..size.
    pub fn rank(&self) -> usize {
        self.link().rank()
    }

    /// Number of ranks, at least 1.
    pub fn size(&self) -> usize {
        self.link().size()
    }

    /// This rank's number in the whole job; differs from [`Comm::rank`] in a group of a split.
    pub fn world_rank(&self) -> usize {
        self.world_rank_of(self.rank())
    }

    pub(crate) fn world_rank_of(&self, rank: usize) -> usize {
        self.link().world_rank(rank)
    }

    /// The cost of this communicator so far.
    pub fn traffic(&self) -> Traffic {
        Traffic {
            sent_bytes: self.link().sent_bytes(),
            waited: self.underway.waited(),
        }
    }

    /// Bytes a second of each rank's modelled link ([`run_ranks_over`](crate::run_ranks_over)); none if messages
    /// travel as fast as they can.
    pub fn modelled_bytes_per_s(&self) -> Option<f64> {
        self.link().modelled_bytes_per_s()
    }

    /// Whether a rank is known to have failed: the error that waiting for it would give. For loops
    /// that compute for long.
    pub fn check(&self) -> Result<(), CommError> {
        self.link().failure()
    }

    /// Advances all running operations without waiting.
    pub fn advance(&self) {
        self.underway.advance();
    }

    /// Returns when all ranks have called it.
    pub fn barrier(&self) -> Result<(), CommError> {
        let operation = Barrier::start(self.link(), self.next_tag())?;
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

    /// [`Comm::broadcast`] that runs while this rank computes.
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
    /// Panics if `all` is not [`Comm::size`] times as long as `values`.
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

    /// [`Comm::all_gather`] that runs while this rank computes.
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
            .map(|(from, part)| self.underway.values_of(std::slice::from_ref(part), from))
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
        let peers = (0..self.size()).collect();
        Collect::exchange(self.link(), tag, "all-gather", peers, parts, expected)
    }

    /// Reduces `values` over all ranks, in place, to the same bits on all of them.
    ///
    /// The result depends on the operands and the number of ranks only. Up to eight ranks combine each element in their
    /// order; more do so along one dimension of a grid after another.
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

    /// [`Comm::all_reduce`] that runs while this rank computes.
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
    /// Panics if `counts` are not one a rank or do not add up to the length of `values`.
    pub fn reduce_scatter_ragged<T: Number>(
        &self,
        values: &[T],
        counts: &[usize],
        reduction: Reduction,
    ) -> Result<Vec<T>, CommError> {
        let message = Bytes::copy_from_slice(bytemuck::cast_slice(values));
        let operation = self.reduction_of::<T>(message, reduction, Some(counts))?;
        let arrived = self.run(Box::new(operation))?;
        self.underway.values_of(&arrived, self.rank())
    }

    /// [`Comm::reduce_scatter`] that runs while this rank computes.
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
        ReduceShares::start(self.link(), tag, how, values, shares, counts.is_none())
    }

    /// Sends `values` to `to` and returns at once; the message waits there until it is received.
    pub fn send<T: Pod>(&self, to: usize, tag: u16, values: &[T]) -> Result<(), CommError> {
        self.check_rank(to)?;
        let message = Bytes::copy_from_slice(bytemuck::cast_slice(values));
        self.link().send(to, u32::from(tag), message)
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
        check_length(self.link(), "receive", from, bytes.len(), arrived[0].len())?;
        bytes.copy_from_slice(&arrived[0]);
        Ok(())
    }

    /// Waits for the next message from `from` with `tag`, of any length.
    pub fn receive_vec<T: Pod>(&self, from: usize, tag: u16) -> Result<Vec<T>, CommError> {
        let arrived = self.run(Box::new(self.reception(from, tag)?))?;
        self.underway.values_of(&arrived, from)
    }

    /// [`Comm::receive_vec`] that runs while this rank computes. Messages from one rank with one tag
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
        Ok(Collect::receive(from, u32::from(tag)))
    }

    /// Divides the ranks into groups of the same `color`, each with its own communicator, ranked by `key` and
    /// then by their rank here; `None` for those that give no color.
    pub fn split(&self, color: Option<u64>, key: u64) -> Result<Option<Comm>, CommError> {
        let own = [u64::from(color.is_some()), color.unwrap_or(0), key];
        let mut all = vec![0; own.len() * self.size()];
        self.all_gather(&own, &mut all)?;
        let sequence = self.next_sequence();
        let ranks = || (0..).zip(all.chunks_exact(own.len()));
        let mut colors: Vec<u64> = ranks()
            .filter(|(_, reported)| reported[0] == 1)
            .map(|(_, reported)| reported[1])
            .collect();
        colors.sort_unstable();
        colors.dedup();
        let group = color.map(|color| {
            let alike = ranks().filter(|(_, reported)| reported[0] == 1 && reported[1] == color);
            let mut members: Vec<(u64, usize)> =
                alike.map(|(rank, reported)| (reported[2], rank)).collect();
            members.sort_unstable();
            Group {
                number: colors.partition_point(|other| *other < color),
                sequence,
                members: members.into_iter().map(|(_, rank)| rank).collect(),
            }
        });
        Ok(self.link().split(group.as_ref())?.map(Comm::new))
    }

    /// One more communicator of the same ranks, such as for a second thread.
    pub fn duplicate(&self) -> Result<Comm, CommError> {
        self.barrier()?;
        let group = Group {
            number: 0,
            sequence: self.next_sequence(),
            members: (0..self.size()).collect(),
        };
        let link = self.link().split(Some(&group))?;
        Ok(Comm::new(link.expect("a group of all ranks has this one")))
    }

    /// Calls `make` once for all ranks that are threads of one process, on rank 0 first, and returns its result. A
    /// rank with another `of` than rank 0 makes its own. All ranks call it.
    ///
    /// Errors: those of `make`; a failed rank.
    pub fn once<T, E>(&self, of: &str, make: impl FnOnce() -> Result<T, E>) -> Result<T, E>
    where
        T: Clone + Send + Sync + 'static,
        E: From<CommError>,
    {
        if self.rank() > 0 {
            self.barrier()?;
            let shown = self.link().shown();
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
            self.link()
                .show(Some(Arc::new((of.to_string(), made.clone()))));
            self.barrier()?;
            self.barrier()?;
            self.link().show(None);
        }
        Ok(made)
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

    fn pend<T: Pod>(&self, operation: Box<dyn Operation>) -> Pending<'_, T> {
        Pending::new(&self.underway, self.underway.start(operation))
    }

    fn run(&self, operation: Box<dyn Operation>) -> Result<Vec<Bytes>, CommError> {
        let ticket = self.underway.start(operation);
        self.underway.finish(ticket)
    }

    /// Memory for others to read.
    pub(crate) fn allocate_memory(&self, bytes: usize) -> Result<Box<dyn Memory>, CommError> {
        self.link().allocate(bytes)
    }

    fn link(&self) -> &dyn Transport {
        &*self.underway.link
    }
}
