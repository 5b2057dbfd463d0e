//! Collective operations as state machines over messages.
//!
//! An operation sends as much as possible when it starts and continues as messages arrive. Waiting for one operation
//! advances all running ones, so ranks may wait for them in different orders.
//! Messages per rank, for n ranks and operands of D bytes:
//!
//! | operation | messages | bytes sent |
//! |---|---|---|
//! | barrier (dissemination) | log2 n | 0 |
//! | broadcast (binomial tree) | ≤ log2 n | ≤ D log2 n |
//! | all-gather, each rank's D | n − 1 | D (n − 1) |
//! | reduce-scatter | m | D (n − 1)/n |
//! | all-reduce up to 4 KiB | m | D m |
//! | all-reduce | 2 m | 2 D (n − 1)/n |
//!
//! Up to 8 ranks m is n − 1. More are arranged in a grid with a product of factors up to 8, where n has these, and reduce
//! along one dimension after another: m is the sum of the factors less one each, 22 for 1024 ranks. A prime number of
//! ranks above 8 gains nothing.

use std::ops::Range;

use bytes::Bytes;

use crate::CommError;
use crate::number::{Reduce, Reduction};
use crate::transport::Transport;

/// Largest operand for an all-reduce by one exchange of whole vectors instead of two of shares: below a page the
/// number of messages counts, not their length.
const WHOLE_BYTES: usize = 4096;

/// A running operation.
pub(crate) trait Operation: Send {
    /// Advances as far as possible without waiting; returns the result when done.
    fn advance(&mut self, link: &dyn Transport) -> Result<Option<Vec<Bytes>>, CommError>;

    /// Sender and tag of a message that others may await too: the earlier operation gets the earlier
    /// message. Collective operations have separate tags.
    fn reception(&self) -> Option<(usize, u32)> {
        None
    }
}

/// The elements of a vector of `length` that belong to `rank`: the shares of all ranks cover it in
/// order, and their lengths differ by at most one.
pub fn share(length: usize, rank: usize, size: usize) -> Range<usize> {
    let bound = |rank: usize| (length as u128 * rank as u128 / size as u128) as usize;
    bound(rank)..bound(rank + 1)
}

/// One message from each of several ranks.
pub(crate) struct Collect {
    tag: u32,
    name: &'static str,
    /// The senders.
    peers: Vec<usize>,
    /// Bytes that each message must have; `None` if any length will do.
    expected: Option<Vec<usize>>,
    /// By sender.
    arrived: Vec<Option<Bytes>>,
    /// Whether it is a message that is not part of a collective operation.
    is_reception: bool,
}

impl Collect {
    /// Sends `parts[i]` to `peers[i]`, one of which may be this rank, and awaits one message from each.
    pub(crate) fn exchange(
        link: &dyn Transport,
        tag: u32,
        name: &'static str,
        peers: Vec<usize>,
        parts: Vec<Bytes>,
        expected: Option<Vec<usize>>,
    ) -> Result<Collect, CommError> {
        let mut arrived = vec![None; peers.len()];
        for ((peer, part), own) in peers.iter().zip(parts).zip(&mut arrived) {
            if *peer == link.rank() {
                *own = Some(part);
            } else {
                link.send(*peer, tag, part)?;
            }
        }
        Ok(Collect {
            tag,
            name,
            peers,
            expected,
            arrived,
            is_reception: false,
        })
    }

    /// Awaits one message, from `from`.
    pub(crate) fn receive(from: usize, tag: u32) -> Collect {
        Collect {
            tag,
            name: "receive",
            peers: vec![from],
            expected: None,
            arrived: vec![None],
            is_reception: true,
        }
    }
}

/// The error for a message that is not as long as it should be.
pub(crate) fn check_length(
    link: &dyn Transport,
    operation: &'static str,
    peer: usize,
    expected: usize,
    found: usize,
) -> Result<(), CommError> {
    if expected == found {
        return Ok(());
    }
    Err(CommError::LengthMismatch {
        operation,
        rank: link.world_rank(link.rank()),
        peer: link.world_rank(peer),
        expected,
        found,
    })
}

impl Operation for Collect {
    fn advance(&mut self, link: &dyn Transport) -> Result<Option<Vec<Bytes>>, CommError> {
        let mut complete = true;
        for (place, &peer) in self.peers.iter().enumerate() {
            if self.arrived[place].is_none() {
                let message = link.try_receive(peer, self.tag)?;
                if let (Some(message), Some(expected)) = (&message, &self.expected) {
                    check_length(link, self.name, peer, expected[place], message.len())?;
                }
                complete &= message.is_some();
                self.arrived[place] = message;
            }
        }
        Ok(complete.then(|| self.arrived.drain(..).flatten().collect()))
    }

    fn reception(&self) -> Option<(usize, u32)> {
        self.is_reception.then(|| (self.peers[0], self.tag))
    }
}

/// Most ranks along a dimension, where their number has such factors.
const MOST_ALONG: usize = 8;

/// The grid of `size` ranks: how many there are along each dimension.
pub(crate) fn grid(mut size: usize) -> Vec<usize> {
    let mut along = Vec::new();
    while size > MOST_ALONG {
        let factor = (2..=MOST_ALONG)
            .rev()
            .find(|factor| size.is_multiple_of(*factor));
        along.push(factor.unwrap_or(size));
        size /= factor.unwrap_or(size);
    }
    if size > 1 || along.is_empty() {
        along.push(size);
    }
    along
}

/// Messages that each of `size` ranks sends in a reduce-scatter; an all-reduce of more than 4 KiB takes twice as many.
pub fn reduction_messages(size: usize) -> usize {
    grid(size).iter().map(|ranks| ranks - 1).sum()
}

/// A reduction of shares, and for an all-reduce the exchange of the reduced ones.
///
/// It goes along the dimensions of the grid: along the first one, a rank gets the sums of the shares of a block of
/// ranks, along the next one those of a part of this block. The reduced shares go back in the opposite order.
pub(crate) struct ReduceShares {
    tag: u32,
    reduce: Reduce,
    reduction: Reduction,
    name: &'static str,
    /// Where the share of each rank begins, in bytes, and the end.
    bounds: Vec<usize>,
    /// Ranks along each dimension.
    grid: Vec<usize>,
    /// The dimension that messages go along now.
    along: usize,
    how: How,
    collect: Collect,
}

/// What moves along a dimension.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// Whole vectors, to be reduced.
    Whole,
    /// Parts, to be reduced; `true` if the reduced parts return to all ranks.
    Scatter(bool),
    /// Reduced parts.
    Gather,
}

impl ReduceShares {
    /// Reduces `values`; rank r owns the next `shares[r]` bytes.
    pub(crate) fn start(
        link: &dyn Transport,
        tag: u32,
        (reduce, reduction): (Reduce, Reduction),
        values: Bytes,
        shares: Vec<usize>,
        everywhere: bool,
    ) -> Result<ReduceShares, CommError> {
        let mut bounds = vec![0];
        bounds.extend(shares.iter().scan(0, |end, share| {
            *end += share;
            Some(*end)
        }));
        let mut reduction = ReduceShares {
            tag,
            reduce,
            reduction,
            name: if everywhere {
                "all-reduce"
            } else {
                "reduce-scatter"
            },
            bounds,
            grid: grid(link.size()),
            along: 0,
            how: match everywhere {
                true if values.len() <= WHOLE_BYTES => How::Whole,
                _ => How::Scatter(everywhere),
            },
            collect: Collect::receive(0, tag),
        };
        reduction.exchange(link, values)?;
        Ok(reduction)
    }

    /// Sends `held` along the current dimension: in parts, or all of it.
    fn exchange(&mut self, link: &dyn Transport, held: Bytes) -> Result<(), CommError> {
        let (ranks, step) = (
            self.grid[self.along],
            self.grid[self.along + 1..].iter().product::<usize>(),
        );
        let place = link.rank() / step % ranks;
        let first = link.rank() - place * step;
        // The ranks that have the same block, and the parts of it.
        let block = link.rank() / (step * ranks) * (step * ranks);
        let part = |of: usize| self.bounds[block + of * step]..self.bounds[block + (of + 1) * step];
        let begin = self.bounds[block];
        let (mut parts, mut expected) = (Vec::new(), Vec::new());
        for of in 0..ranks {
            let (sent, comes) = match self.how {
                How::Whole => (held.clone(), held.len()),
                How::Scatter(_) => {
                    let range = part(of);
                    (
                        held.slice(range.start - begin..range.end - begin),
                        part(place).len(),
                    )
                }
                How::Gather => (held.clone(), part(of).len()),
            };
            parts.push(sent);
            expected.push(comes);
        }
        let peers = (0..ranks).map(|of| first + of * step).collect();
        self.collect = Collect::exchange(link, self.tag, self.name, peers, parts, Some(expected))?;
        Ok(())
    }
}

impl Operation for ReduceShares {
    fn advance(&mut self, link: &dyn Transport) -> Result<Option<Vec<Bytes>>, CommError> {
        while let Some(arrived) = self.collect.advance(link)? {
            let is_last = self.along + 1 == self.grid.len();
            let held = match self.how {
                How::Gather if self.along == 0 => return Ok(Some(arrived)),
                How::Gather => arrived.concat().into(),
                How::Whole | How::Scatter(_) => (self.reduce)(&arrived, self.reduction),
            };
            match self.how {
                How::Whole | How::Scatter(false) if is_last => return Ok(Some(vec![held])),
                How::Scatter(true) if is_last => self.how = How::Gather,
                How::Gather => self.along -= 1,
                How::Whole | How::Scatter(_) => self.along += 1,
            }
            self.exchange(link, held)?;
        }
        Ok(None)
    }
}

/// A message from one rank to all, along a binomial tree.
pub(crate) struct Broadcast {
    tag: u32,
    root: usize,
    length: usize,
    message: Option<Bytes>,
}

impl Broadcast {
    /// `message` is what the root sends; every rank knows its length.
    pub(crate) fn start(tag: u32, root: usize, length: usize, message: Option<Bytes>) -> Broadcast {
        Broadcast {
            tag,
            root,
            length,
            message,
        }
    }
}

impl Operation for Broadcast {
    fn advance(&mut self, link: &dyn Transport) -> Result<Option<Vec<Bytes>>, CommError> {
        let size = link.size();
        // Counted from the root, a rank's parent is the number without its lowest bit; its children
        // have one more bit, lower than that.
        let place = (link.rank() + size - self.root) % size;
        let lowest = if place == 0 {
            size.next_power_of_two()
        } else {
            place & place.wrapping_neg()
        };
        let rank_at = |place: usize| (place + self.root) % size;
        if self.message.is_none() {
            let parent = rank_at(place - lowest);
            let Some(message) = link.try_receive(parent, self.tag)? else {
                return Ok(None);
            };
            check_length(link, "broadcast", parent, self.length, message.len())?;
            self.message = Some(message);
        }
        let message = self.message.take().unwrap_or_default();
        let mut bit = lowest / 2;
        while bit > 0 {
            if place + bit < size {
                link.send(rank_at(place + bit), self.tag, message.clone())?;
            }
            bit /= 2;
        }
        Ok(Some(vec![message]))
    }
}

/// A barrier: in round k each rank hears from the one 2^k before it, and so after all rounds has
/// heard, through others, from every rank.
pub(crate) struct Barrier {
    tag: u32,
    distance: usize,
}

impl Barrier {
    pub(crate) fn start(link: &dyn Transport, tag: u32) -> Result<Barrier, CommError> {
        let barrier = Barrier { tag, distance: 1 };
        barrier.announce(link)?;
        Ok(barrier)
    }

    fn announce(&self, link: &dyn Transport) -> Result<(), CommError> {
        if self.distance < link.size() {
            let next = (link.rank() + self.distance) % link.size();
            link.send(next, self.tag, Bytes::new())?;
        }
        Ok(())
    }
}

impl Operation for Barrier {
    fn advance(&mut self, link: &dyn Transport) -> Result<Option<Vec<Bytes>>, CommError> {
        let size = link.size();
        while self.distance < size {
            let before = (link.rank() + size - self.distance) % size;
            if link.try_receive(before, self.tag)?.is_none() {
                return Ok(None);
            }
            self.distance *= 2;
            self.announce(link)?;
        }
        Ok(Some(Vec::new()))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{grid, reduction_messages, share};

    #[test]
    fn grids_have_short_dimensions() {
        for size in 1..=1100 {
            let along = grid(size);
            assert_eq!(along.iter().product::<usize>(), size);
            assert!(size == 1 || along.iter().all(|ranks| *ranks > 1));
        }
        assert_eq!([1, 2, 8, 13].map(reduction_messages), [0, 1, 7, 12]);
        let many = [12, 16, 64, 256, 1024].map(reduction_messages);
        assert_eq!(many, [6, 8, 14, 17, 22]);
    }

    #[test]
    fn shares_cover_in_order_and_evenly() {
        for size in 1..20 {
            for length in (0..70).chain([isize::MAX as usize]) {
                let mut next = 0;
                for rank in 0..size {
                    let share = share(length, rank, size);
                    assert_eq!(
                        share.start, next,
                        "rank {rank} of {size}, {length} elements"
                    );
                    let even = length / size;
                    assert!((even..=even + 1).contains(&share.len()));
                    next = share.end;
                }
                assert_eq!(next, length);
            }
        }
    }
}
