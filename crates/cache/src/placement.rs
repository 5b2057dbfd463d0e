//! The rank that holds each record, for callers that distribute work.

use std::sync::Arc;

use crate::load_table::{LoadNumber, LoadTable};
use crate::loads::Loads;
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
    Loads(Arc<Loads>),
}

impl Placement {
    pub(crate) fn of_runs(space: Arc<Space>, runs: Runs) -> Placement {
        let kind = Kind::Runs(runs);
        Placement { space, kind }
    }

    pub(crate) fn of_loads(loads: Arc<Loads>) -> Placement {
        Placement {
            space: Arc::clone(&loads.space),
            kind: Kind::Loads(loads),
        }
    }

    /// The rank that holds the middle byte of a record, and so most of it, while `epoch` reads it; `None` if only the
    /// backend does, or if the record has no bytes. Panics unless `id` is below the number of records.
    pub fn holder(&self, epoch: u64, id: u64) -> Option<u32> {
        self.find(epoch, id, &mut None)
    }

    /// [`Placement::holder`] of each of `ids`, appended to `holders`. Cheaper than one by one if records are of the
    /// same load, as those of a batch are.
    pub fn holders(&self, epoch: u64, ids: &[u64], holders: &mut Vec<Option<u32>>) {
        let mut last = None;
        holders.extend(ids.iter().map(|&id| self.find(epoch, id, &mut last)));
    }

    fn find(
        &self,
        epoch: u64,
        id: u64,
        last: &mut Option<(LoadNumber, Arc<LoadTable>)>,
    ) -> Option<u32> {
        let record = self.space.record(id);
        if record.is_empty() {
            return None;
        }
        let middle = record.start + (record.end - record.start) / 2;
        let place = match &self.kind {
            Kind::Runs(runs) => Some(runs.place(middle)),
            Kind::Loads(loads) => {
                let load = loads.order(epoch).load_of(id).unwrap_or(0);
                let number = LoadNumber { epoch, load };
                let table = match last.take() {
                    Some((kept, table)) if kept == number => table,
                    _ => loads.table(number),
                };
                let (_, table) = last.insert((number, table));
                table.place(middle)
            }
        };
        let (rank, _) = place?.held?;
        Some(rank)
    }
}
