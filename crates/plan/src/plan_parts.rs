//! The stages of a plan, one after another.

use crate::batching::{Batching, Last};
use crate::bucketed::Bucketed;
use crate::echo::{Echo, EchoPlan};
use crate::numbering::Numbering;
use crate::orders::Order;
use crate::packed::Packed;
use crate::runs::Runs;
use crate::sequence::Sequence;

/// All that a plan is made of.
#[derive(Debug)]
pub(crate) struct PlanParts {
    pub(crate) records: u64,
    pub(crate) order: Order,
    pub(crate) batching: Batching,
    pub(crate) last: Last,
    pub(crate) sequence: Sequence,
    pub(crate) groups: Groups,
    pub(crate) numbering: Numbering,
    pub(crate) batch_echo: Echo,
    pub(crate) fingerprint: u64,
}

/// How appearances are put into batches.
#[derive(Debug)]
pub(crate) enum Groups {
    Runs(Runs),
    Bucketed(Box<Bucketed>),
    Packed(Box<Packed>),
}

impl PlanParts {
    pub(crate) fn fresh_steps(&self, epoch: u64) -> u64 {
        match &self.groups {
            Groups::Runs(runs) => runs.steps(),
            Groups::Bucketed(bucketed) => bucketed.steps(&self.sequence, epoch),
            Groups::Packed(packed) => packed.steps(&self.sequence, epoch),
        }
    }

    pub(crate) fn batch_echo_of(&self, epoch: u64) -> EchoPlan {
        let (fresh, seed) = (self.fresh_steps(epoch), self.sequence.examples.seed);
        EchoPlan::of_batches(fresh, self.batch_echo, seed)
    }
}
