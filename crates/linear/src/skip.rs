//! *Skip*: rows that are settled at a bound are left unread for some epochs.
//!
//! A row with α at a bound and |G| > 0.1 at its last visit is not read for 1 epoch; if it is still settled then, for 2,
//! 4 and at most 8. In most problems the greater part of the rows settles early, so later epochs read little. Only
//! random access permits it: a sequential sweep reads every page anyway. Cost: one byte a row.

use pelton_format::RowTable;

/// Least |G| at which a row at a bound counts as settled.
pub const SETTLED_SLACK: f32 = 0.1;
/// Levels above this one wait no longer: 2^(4 − 1) = 8 epochs.
const TOP_LEVEL: u8 = 4;
const EPOCH_BITS: u32 = 5;
const EPOCH_MASK: u8 = (1 << EPOCH_BITS) - 1;

/// For every row the epoch in which it is next read, modulo 32, and how often it was found settled
/// in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkipTable {
    entries: Vec<u8>,
}

impl SkipTable {
    /// A table in which every row is due.
    pub fn new(records: usize) -> SkipTable {
        SkipTable {
            entries: vec![0; records],
        }
    }

    /// A table as [`SkipTable::as_bytes`] gave it.
    pub fn from_bytes(entries: Vec<u8>) -> SkipTable {
        SkipTable { entries }
    }

    /// The table's bytes, one a row, for a checkpoint.
    pub fn as_bytes(&self) -> &[u8] {
        &self.entries
    }

    /// Whether to read the row in `epoch`. The answer for one epoch changes only by
    /// [`SkipTable::record`].
    #[inline]
    pub fn is_due(&self, id: u64, epoch: u64) -> bool {
        let entry = self.entries[id as usize];
        if entry >> EPOCH_BITS == 0 {
            return true;
        }
        let wait = (entry & EPOCH_MASK).wrapping_sub(epoch as u8) & EPOCH_MASK;
        // Waits are 1 to 8 epochs; a row that was due and left out reads as long overdue.
        wait == 0 || wait > 1 << (TOP_LEVEL - 1)
    }

    /// Makes the row due.
    pub fn wake(&mut self, id: u64) {
        self.entries[id as usize] = 0;
    }

    /// Notes for each row of a block that it was visited, as [`SkipTable::record`] does.
    pub fn record_rows(&mut self, rows: &RowTable, epoch: u64, slack: &[f32]) {
        for (&id, &slack) in rows.ids().iter().zip(slack) {
            self.record(id, epoch, slack);
        }
    }

    /// Records that the row was visited in `epoch` and left with this slack: |G| if α is at a bound, negative
    /// otherwise.
    pub fn record(&mut self, id: u64, epoch: u64, slack: f32) {
        let entry = &mut self.entries[id as usize];
        if slack <= SETTLED_SLACK {
            *entry = 0;
            return;
        }
        let level = (*entry >> EPOCH_BITS).saturating_add(1).min(TOP_LEVEL);
        let due = (epoch as u8).wrapping_add(1 + (1 << (level - 1)));
        *entry = level << EPOCH_BITS | due & EPOCH_MASK;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Epochs in which one row is read when it is found settled each time.
    fn read_epochs(first: u64, epochs: u64) -> Vec<u64> {
        let mut table = SkipTable::new(1);
        let mut read = Vec::new();
        for epoch in first..first + epochs {
            if table.is_due(0, epoch) {
                read.push(epoch - first);
                table.record(0, epoch, 0.5);
            }
        }
        read
    }

    #[test]
    fn a_settled_row_waits_1_2_4_8_epochs() {
        for first in [0, 27, 250, 1000] {
            assert_eq!(read_epochs(first, 40), [0, 2, 5, 10, 19, 28, 37], "{first}");
        }
    }

    #[test]
    fn a_row_that_moved_is_read_every_epoch_again() {
        let mut table = SkipTable::new(2);
        table.record(1, 0, 0.5);
        assert!(!table.is_due(1, 1));
        assert!(table.is_due(0, 1));
        table.record(1, 2, -0.3);
        assert!(table.is_due(1, 3));
        table.record(1, 3, 0.05);
        assert!(table.is_due(1, 4));
        table.record(1, 4, 0.5);
        assert!(!table.is_due(1, 5));
        table.wake(1);
        assert!(table.is_due(1, 5));
    }
}
