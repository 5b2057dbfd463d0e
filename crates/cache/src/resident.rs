//! One window and its content.

use std::sync::Arc;

use pelton_comm::Window;

use crate::load_table::LoadTable;
use crate::runs::{Place, Runs};

/// Memory of all ranks that is open for reading, with its table.
#[derive(Debug)]
pub(crate) struct Resident {
    pub(crate) window: Window,
    pub(crate) table: Table,
}

/// The positions of bytes of the space.
#[derive(Clone, Debug)]
pub(crate) enum Table {
    /// A fixed placement.
    Runs(Runs),
    /// One load.
    Load(Arc<LoadTable>),
}

impl Table {
    /// The position of byte `at`; `None` if it is not in this window.
    #[inline]
    pub(crate) fn place(&self, at: u64) -> Option<Place> {
        match self {
            Table::Runs(runs) => Some(runs.place(at)),
            Table::Load(table) => table.place(at),
        }
    }
}
