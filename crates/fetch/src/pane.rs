//! A pane while it is being loaded: its rows arrive in any order and are put in the plan's order by
//! a table of slots, so no row is moved twice.

use std::sync::{Mutex, MutexGuard};

use pelton_format::{ContentSum, RowTable, Rows, Slot};

use crate::planner::{PlannedBatch, PlannedPane};

const MISSING: Slot = Slot {
    segment: u32::MAX,
    row: u32::MAX,
};

/// A pane being loaded.
#[derive(Debug)]
pub(crate) struct PaneBuild {
    pub number: u64,
    pub ids: Vec<u64>,
    pub cells: Cells,
    batches: Vec<PlannedBatch>,
    sums: bool,
    assembly: Mutex<Assembly>,
}

#[derive(Debug)]
struct Assembly {
    segments: Vec<Rows>,
    slots: Vec<Slot>,
    open: Vec<Segment>,
    /// Checksum of the rows of each batch; empty unless requested.
    contents: Vec<ContentSum>,
}

/// A segment that is being filled.
#[derive(Debug)]
pub(crate) struct Segment {
    pub rows: Rows,
    /// The slot of each row in the pane.
    pub slots: Vec<u32>,
    /// Bytes of the records that were decoded into it.
    pub bytes: usize,
}

/// A pane ready for the consumer.
#[derive(Debug)]
pub(crate) struct Pane {
    pub number: u64,
    pub batches: Vec<PlannedBatch>,
    pub table: RowTable,
}

impl PaneBuild {
    /// A pane without rows yet, its slots divided among `cell_count` cells of the id range
    /// `ids_from..ids_to`.
    pub fn new(number: u64, planned: PlannedPane, division: CellDivision) -> PaneBuild {
        let slots = vec![MISSING; planned.ids.len()];
        PaneBuild {
            number,
            cells: Cells::new(&planned.ids, division),
            ids: planned.ids,
            batches: planned.batches,
            sums: planned.sums,
            assembly: Assembly::new(slots),
        }
    }

    /// A pane without rows yet that is not divided into cells.
    pub fn whole(number: u64, planned: PlannedPane) -> PaneBuild {
        let slots = vec![MISSING; planned.ids.len()];
        PaneBuild {
            number,
            cells: Cells::default(),
            ids: planned.ids,
            batches: planned.batches,
            sums: planned.sums,
            assembly: Assembly::new(slots),
        }
    }

    /// Adds a segment; its row `i` belongs in slot `slots[i]`.
    pub fn add(&self, rows: Rows, slots: &[u32]) {
        debug_assert_eq!(rows.len(), slots.len());
        let contents = self.contents(&rows, slots);
        self.assembly().add(rows, slots, &contents);
    }

    /// Checksums of a segment's rows by batch, computed by the thread that has just decoded them in sequence. The
    /// consumer, which takes them in the plan's order, would miss the CPU cache at each.
    fn contents(&self, rows: &Rows, slots: &[u32]) -> Vec<ContentSum> {
        if !self.sums {
            return Vec::new();
        }
        let mut contents = vec![ContentSum::default(); self.batches.len()];
        for (row, &slot) in slots.iter().enumerate() {
            let slot = slot as usize;
            let ends_before = |batch: &PlannedBatch| batch.start + batch.len <= slot;
            let batch = self.batches.partition_point(ends_before);
            contents[batch].add(self.ids[slot], rows.label(row), rows.row(row));
        }
        contents
    }

    /// A segment that was put back before it was full, if there is one.
    pub fn take_open(&self) -> Option<Segment> {
        self.assembly().open.pop()
    }

    /// Puts back a segment that has room for more rows; no more of these exist than there are
    /// threads that fill one.
    pub fn put_open(&self, segment: Segment) {
        self.assembly().open.push(segment);
    }

    fn assembly(&self) -> MutexGuard<'_, Assembly> {
        self.assembly.lock().expect("no holder of this lock panics")
    }

    /// The finished pane; rows that never arrived are left out of their batches.
    pub fn finish(mut self) -> Pane {
        let open = std::mem::take(&mut self.assembly().open);
        for segment in open {
            self.add(segment.rows, &segment.slots);
        }
        let Assembly {
            segments,
            mut slots,
            contents,
            ..
        } = self
            .assembly
            .into_inner()
            .expect("no holder of this lock panics");
        for (batch, content) in self.batches.iter_mut().zip(contents) {
            batch.content = content;
        }
        if slots.contains(&MISSING) {
            leave_out_missing(&mut self.batches, &mut slots, &mut self.ids);
        }
        Pane {
            number: self.number,
            batches: self.batches,
            table: RowTable::from_parts(segments, slots, self.ids),
        }
    }
}

impl Assembly {
    fn new(slots: Vec<Slot>) -> Mutex<Assembly> {
        Mutex::new(Assembly {
            segments: Vec::new(),
            slots,
            open: Vec::new(),
            contents: Vec::new(),
        })
    }

    fn add(&mut self, rows: Rows, slots: &[u32], contents: &[ContentSum]) {
        self.contents.resize(contents.len(), ContentSum::default());
        for (content, more) in self.contents.iter_mut().zip(contents) {
            *content += *more;
        }
        let segment = self.segments.len() as u32;
        for (row, &slot) in slots.iter().enumerate() {
            self.slots[slot as usize] = Slot {
                segment,
                row: row as u32,
            };
        }
        self.segments.push(rows);
    }
}

fn leave_out_missing(batches: &mut [PlannedBatch], slots: &mut Vec<Slot>, ids: &mut Vec<u64>) {
    let mut kept = 0;
    for batch in batches {
        let start = kept;
        for i in batch.start..batch.start + batch.len {
            if slots[i] != MISSING {
                slots[kept] = slots[i];
                ids[kept] = ids[i];
                kept += 1;
            }
        }
        batch.start = start;
        batch.len = kept - start;
    }
    slots.truncate(kept);
    ids.truncate(kept);
}

/// Divides the id space into cells: `count` equal runs of `from..to`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellDivision {
    pub from: u64,
    pub to: u64,
    pub count: u64,
}

impl CellDivision {
    fn cell_of(&self, id: u64) -> usize {
        let span = (self.to - self.from).max(1);
        ((id - self.from) as u128 * self.count as u128 / span as u128) as usize
    }
}

/// The slots of a pane grouped by the part of the id space of their records (counting sort, 4 bytes a row).
#[derive(Debug, Default)]
pub(crate) struct Cells {
    starts: Vec<u32>,
    slots: Vec<u32>,
}

impl Cells {
    fn new(ids: &[u64], division: CellDivision) -> Cells {
        let mut starts = vec![0u32; division.count as usize + 1];
        for &id in ids {
            starts[division.cell_of(id) + 1] += 1;
        }
        for cell in 1..starts.len() {
            starts[cell] += starts[cell - 1];
        }
        let mut next = starts.clone();
        let mut slots = vec![0u32; ids.len()];
        for (slot, &id) in ids.iter().enumerate() {
            let place = &mut next[division.cell_of(id)];
            slots[*place as usize] = slot as u32;
            *place += 1;
        }
        Cells { starts, slots }
    }

    /// Slots of the rows in one cell, in plan order.
    pub fn slots(&self, cell: usize) -> &[u32] {
        &self.slots[self.starts[cell] as usize..self.starts[cell + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_partition_the_slots_by_id_range() {
        let ids = [5u64, 19, 10, 0, 12, 9];
        let division = CellDivision {
            from: 0,
            to: 20,
            count: 4,
        };
        let cells = Cells::new(&ids, division);
        assert_eq!(cells.slots(0), &[3]);
        assert_eq!(cells.slots(1), &[0, 5]);
        assert_eq!(cells.slots(2), &[2, 4]);
        assert_eq!(cells.slots(3), &[1]);
    }

    #[test]
    fn missing_rows_shorten_their_batch_only() {
        let batch = |start, len| PlannedBatch {
            place: Default::default(),
            ends_epoch: false,
            start,
            len,
            content: ContentSum::default(),
        };
        let mut batches = vec![batch(0, 2), batch(2, 2)];
        let found = |row| Slot { segment: 0, row };
        let mut slots = vec![found(0), MISSING, found(1), found(2)];
        let mut ids = vec![7, 8, 9, 10];
        leave_out_missing(&mut batches, &mut slots, &mut ids);
        assert_eq!(ids, [7, 9, 10]);
        assert_eq!((batches[0].start, batches[0].len), (0, 1));
        assert_eq!((batches[1].start, batches[1].len), (1, 2));
    }
}
