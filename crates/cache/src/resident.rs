//! One window and what lies where in it.

use std::ops::Range;
use std::sync::Arc;

use pelton_comm::Window;

use crate::load_table::LoadTable;
use crate::runs::{Place, Runs};
use crate::space::Space;

/// Memory of all ranks that is open for reading, with its table.
#[derive(Debug)]
pub(crate) struct Resident {
    pub(crate) window: Window,
    pub(crate) table: Table,
}

/// Which bytes of the space lie where.
#[derive(Clone, Debug)]
pub(crate) enum Table {
    /// A fixed placement, with where each rank keeps its checksums.
    Runs { runs: Runs, sums: Vec<Sums> },
    /// One load.
    Load(Arc<LoadTable>),
}

/// Checksums of the records that lie in a range of the space, in the memory of one rank. Of a record
/// that reaches out of the range, the checksum is that of the part inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) range: Range<u64>,
    /// The first record that has bytes in the range.
    pub(crate) first: u64,
    /// Where its checksum is; those of the following records follow.
    pub(crate) at: u64,
}

/// Bytes of a checksum.
pub(crate) const SUM_BYTES: u64 = 4;

impl Sums {
    /// Those of `range`, which start at `at`, and where they end.
    pub(crate) fn of(space: &Space, range: Range<u64>, at: u64) -> (Sums, u64) {
        let records = records_in(space, &range);
        let end = at + SUM_BYTES * (records.end - records.start);
        let first = records.start;
        (Sums { range, first, at }, end)
    }
}

/// The records that have bytes in a range of the space; none where it is empty.
pub(crate) fn records_in(space: &Space, range: &Range<u64>) -> Range<u64> {
    if range.is_empty() {
        return 0..0;
    }
    let first = space.record_over(range.start);
    let end = space.first_record_from(range.end);
    first..end.max(first)
}

impl Table {
    /// Where byte `at` is; `None` where it is not in this window, nor in that of what stays while this one
    /// needs it.
    #[inline]
    pub(crate) fn place(&self, at: u64) -> Option<Place> {
        match self {
            Table::Runs { runs, .. } => Some(runs.place(at)),
            Table::Load(table) => table.place(at),
        }
    }

    /// The checksums for what `rank` holds at `at`.
    pub(crate) fn sums(&self, rank: usize, at: u64) -> Sums {
        match self {
            Table::Runs { sums, .. } => sums[rank].clone(),
            Table::Load(table) => table.sums_at(at),
        }
    }
}
