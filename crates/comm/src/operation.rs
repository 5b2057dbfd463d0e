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
//! | reduce-scatter | n − 1 | D (n − 1)/n |
//! | all-reduce up to 4 KiB | n − 1 | D (n − 1) |
//! | all-reduce | 2 (n − 1) | 2 D (n − 1)/n |

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
    /// Bytes that each message must have; `None` if any length will do.
    expected: Option<Vec<usize>>,
    /// By rank; those not awaited are empty from the start.
    arrived: Vec<Option<Bytes>>,
    /// The one sender of a message that is not part of a collective operation.
    received_from: Option<usize>,
}

impl Collect {
    /// Sends `parts[r]` to every rank r and awaits one message from each.
    pub(crate) fn exchange(
        link: &dyn Transport,
        tag: u32,
        name: &'static str,
        parts: Vec<Bytes>,
        expected: Option<Vec<usize>>,
    ) -> Result<Collect, CommError> {
        let mut arrived = vec![None; parts.len()];
        for (rank, part) in parts.into_iter().enumerate() {
            if rank == link.rank() {
                arrived[rank] = Some(part);
            } else {
                link.send(rank, tag, part)?;
            }
        }
        Ok(Collect {
            tag,
            name,
            expected,
            arrived,
            received_from: None,
        })
    }

    /// Awaits one message, from `from`.
    pub(crate) fn receive(link: &dyn Transport, from: usize, tag: u32) -> Collect {
        let mut arrived = vec![Some(Bytes::new()); link.size()];
        arrived[from] = None;
        Collect {
            tag,
            name: "receive",
            expected: None,
            arrived,
            received_from: Some(from),
        }
    }

    fn accept(&self, link: &dyn Transport, peer: usize, message: &Bytes) -> Result<(), CommError> {
        let Some(expected) = &self.expected else {
            return Ok(());
        };
        check_length(link, self.name, peer, expected[peer], message.len())
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
        for rank in 0..self.arrived.len() {
            if self.arrived[rank].is_none() {
                let message = link.try_receive(rank, self.tag)?;
                if let Some(message) = &message {
                    self.accept(link, rank, message)?;
                }
                complete &= message.is_some();
                self.arrived[rank] = message;
            }
        }
        Ok(complete.then(|| self.arrived.drain(..).flatten().collect()))
    }

    fn reception(&self) -> Option<(usize, u32)> {
        self.received_from.map(|from| (from, self.tag))
    }
}

/// A reduction of shares, and for an all-reduce the exchange of the reduced ones.
pub(crate) struct ReduceShares {
    tag: u32,
    reduce: Reduce,
    reduction: Reduction,
    /// Bytes of each rank's share.
    shares: Vec<usize>,
    /// Whether every rank gets all shares.
    everywhere: bool,
    collect: Collect,
    reduced: bool,
}

impl ReduceShares {
    /// Reduces `values`; rank r owns the next `shares[r]` bytes.
    pub(crate) fn start(
        link: &dyn Transport,
        tag: u32,
        (reduce, reduction): (Reduce, Reduction),
        mut values: Bytes,
        shares: Vec<usize>,
        everywhere: bool,
    ) -> Result<ReduceShares, CommError> {
        let name = if everywhere {
            "all-reduce"
        } else {
            "reduce-scatter"
        };
        let whole = values.len();
        let (parts, expected) = if everywhere && whole <= WHOLE_BYTES {
            (vec![values; shares.len()], whole)
        } else {
            let parts = shares.iter().map(|share| values.split_to(*share)).collect();
            (parts, shares[link.rank()])
        };
        let expected = Some(vec![expected; shares.len()]);
        Ok(ReduceShares {
            tag,
            reduce,
            reduction,
            everywhere: everywhere && whole > WHOLE_BYTES,
            collect: Collect::exchange(link, tag, name, parts, expected)?,
            shares,
            reduced: false,
        })
    }
}

impl Operation for ReduceShares {
    fn advance(&mut self, link: &dyn Transport) -> Result<Option<Vec<Bytes>>, CommError> {
        let Some(arrived) = self.collect.advance(link)? else {
            return Ok(None);
        };
        if self.reduced {
            return Ok(Some(arrived));
        }
        let own = (self.reduce)(&arrived, self.reduction);
        if !self.everywhere {
            return Ok(Some(vec![own]));
        }
        self.reduced = true;
        let (parts, shares) = (vec![own; link.size()], std::mem::take(&mut self.shares));
        self.collect = Collect::exchange(link, self.tag, "all-reduce", parts, Some(shares))?;
        self.advance(link)
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
    use super::share;

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
