//! Which rank holds which record, for those who deal out work.

use std::sync::Arc;

use crate::runs::Runs;
use crate::space::Space;

/// Answers which rank holds a record, from any thread; a pure function of data, plan and memory, equal
/// on all ranks.
#[derive(Debug)]
pub struct Placement {
    space: Arc<Space>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Runs(Runs),
}

impl Placement {
    pub(crate) fn of_runs(space: Arc<Space>, runs: Runs) -> Placement {
        let kind = Kind::Runs(runs);
        Placement { space, kind }
    }

    /// The rank that holds the first byte of a record while `epoch` reads it; `None` where only the backend
    /// does, or where the record has no bytes. Panics unless `id` is below the number of records.
    pub fn holder(&self, epoch: u64, id: u64) -> Option<u32> {
        let _ = epoch;
        let record = self.space.record(id);
        if record.is_empty() {
            return None;
        }
        match &self.kind {
            Kind::Runs(runs) => runs.place(record.start).held.map(|(rank, _)| rank),
        }
    }

    /// [`Placement::holder`] of each of `ids`, appended to `holders`.
    pub fn holders(&self, epoch: u64, ids: &[u64], holders: &mut Vec<Option<u32>>) {
        holders.extend(ids.iter().map(|&id| self.holder(epoch, id)));
    }
}
