//! The examples of an epoch in their order, by number: the base of all other parts of a plan.
//!
//! | order | one id | from a position on |
//! |---|---|---|
//! | sequential, full | one permutation evaluation | O(1) |
//! | block, mixture | one or two evaluations | O(1), once tables of the blocks or parts are made |
//! | opportunistic | two evaluations | O(log loads); one pass over the units an epoch if they are uneven |
//! | page | one evaluation a unit | one pass over the units before |
//! | draws by weight | a binary search | O(1) |
//! | queue | one draw | replay of the epoch |
//!
//! Rejected: a stored shuffled index (8 bytes a record and a shuffle before the first batch).

use std::sync::Arc;

use crate::mixture::Mixture;
use crate::ordering::{EpochWalk, Ids};
use crate::sampler::Weighted;

/// The order of the examples of every epoch, which go by their numbers: the records that are kept, counted.
#[derive(Debug)]
pub(crate) struct Examples {
    pub(crate) ids: Box<dyn Ids>,
    pub(crate) drawn: Drawn,
    /// Examples of an epoch.
    pub(crate) len: u64,
    pub(crate) seed: u64,
}

/// How often an epoch has each example.
#[derive(Debug)]
pub(crate) enum Drawn {
    /// Once.
    Once,
    /// As often as its part's share says.
    Mixed(Arc<Mixture>),
    /// As often as it is drawn.
    Weighted(Arc<Weighted>),
}

/// The examples of an epoch from a position on.
#[derive(Debug)]
pub(crate) struct IdWalk {
    position: u64,
    walk: Box<dyn EpochWalk>,
}

impl Examples {
    /// The examples of an epoch from a position on.
    pub(crate) fn walk(&self, epoch: u64, position: u64) -> IdWalk {
        let walk = self.ids.walk(epoch);
        let mut walk = IdWalk { position: 0, walk };
        walk.seek(position);
        walk
    }

    /// If some examples may come more often than others: the numbers that are drawn, and how often a mean epoch draws
    /// each.
    pub(crate) fn expected(&self) -> Option<Box<dyn Iterator<Item = (u64, f64)> + '_>> {
        match &self.drawn {
            Drawn::Once => None,
            Drawn::Mixed(mixture) => Some(Box::new(mixture.expected())),
            Drawn::Weighted(weighted) => {
                let draws = weighted.shares().map(|share| share * self.len as f64);
                Some(Box::new((0..).zip(draws).filter(|(_, draws)| *draws > 0.0)))
            }
        }
    }
}

impl IdWalk {
    /// The position of the next example.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Goes to a position.
    pub(crate) fn seek(&mut self, position: u64) {
        self.walk.seek(position);
        self.position = position;
    }

    /// The next examples. Asserts that the epoch has them.
    pub(crate) fn fill(&mut self, out: &mut [u64]) {
        if !out.is_empty() {
            self.walk.fill(self.position, out);
        }
        self.position += out.len() as u64;
    }
}
