//! *Cache*: undecided rows stay in memory between blocks (selective block minimization, Chang and
//! Roth, KDD 2011).
//!
//! After each block the rows with the smallest slack, those strictly between their bounds first, are
//! copied into the cache until its bytes are used; they take part in the next block and are not read
//! from storage meanwhile. Which rows a block leaves out is decided when it is planned, one block
//! ahead, so the cache remembers which rows it held one block ago.

use pelton_format::{Layout, Row, RowTable, Rows};

/// Rows kept in memory between blocks.
#[derive(Clone, Debug)]
pub struct RowCache {
    capacity_bytes: usize,
    layout: Layout,
    rows: Rows,
    ids: Vec<u64>,
    held: IdSet,
    held_before: IdSet,
    held_at_epoch_start: Option<IdSet>,
}

impl RowCache {
    /// An empty cache of at most `capacity_bytes` for rows out of `records`.
    ///
    /// Memory: the capacity, and a quarter byte a record.
    pub fn new(capacity_bytes: usize, layout: Layout, records: usize) -> RowCache {
        RowCache {
            capacity_bytes,
            layout,
            rows: empty(capacity_bytes, layout),
            ids: Vec::new(),
            held: IdSet::new(records),
            held_before: IdSet::new(records),
            held_at_epoch_start: None,
        }
    }

    /// Begins an epoch. With `freeze`, the rows held now are the ones not read during all of it,
    /// whether they stay or not, so that every record is either held now or read once.
    pub fn begin_epoch(&mut self, freeze: bool) {
        self.held_at_epoch_start = freeze.then(|| self.held.clone());
    }

    /// Number of rows held.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether no row is held.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Ids of the rows held, in order.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// Ids held one block before, ascending.
    pub fn ids_before(&self) -> Vec<u64> {
        self.held_before.ids()
    }

    /// Calls `read` with the rows held.
    pub fn with_rows<T>(&mut self, read: impl FnOnce(&RowTable) -> T) -> T {
        let mut table = RowTable::new();
        self.attach(&mut table);
        let result = read(&table);
        self.rows = table.detach();
        result
    }

    /// Ids frozen by [`RowCache::begin_epoch`], ascending.
    pub fn ids_at_epoch_start(&self) -> Option<Vec<u64>> {
        self.held_at_epoch_start.as_ref().map(IdSet::ids)
    }

    /// Whether a block that is being planned leaves the row out because it is held. A block is
    /// planned while the one before it has yet to be trained; `replay` asks for what was held one
    /// block ago, as the first block after a resumed start needs, which was planned before the
    /// checkpoint.
    #[inline]
    pub fn holds(&self, id: u64, replay: bool) -> bool {
        match &self.held_at_epoch_start {
            Some(frozen) => frozen.contains(id),
            None if replay => self.held_before.contains(id),
            None => self.held.contains(id),
        }
    }

    /// Lists the held rows at the end of `block`.
    pub fn attach(&mut self, block: &mut RowTable) {
        let rows = std::mem::replace(&mut self.rows, Rows::new(self.layout));
        block.attach(rows, &self.ids);
    }

    /// Takes the held rows off a block that is given up.
    pub fn take_back(&mut self, block: &mut RowTable) {
        self.rows = block.detach();
    }

    /// Chooses anew from the rows of `block`, to which the held rows are attached, by their slack,
    /// and takes the held rows off the block.
    pub fn select(&mut self, block: &mut RowTable, slack: &[f32], order: &mut Vec<u32>) {
        order.clear();
        order.extend((0..block.len() as u32).filter(|&i| slack[i as usize].is_finite()));
        // Ties by id, so that the choice does not depend on the order of the rows.
        order.sort_unstable_by(|&a, &b| {
            let key = |i: u32| (slack[i as usize], block.id(i as usize));
            let (a, b) = (key(a), key(b));
            a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
        });
        let mut bytes = 0;
        let chosen = order.iter().take_while(|&&i| {
            bytes += row_bytes(block.row(i as usize));
            bytes <= self.capacity_bytes
        });
        let chosen = chosen.count();
        order.truncate(chosen);
        // Rows that were held stay in the order they have, rows that come follow in the block's.
        order.sort_unstable();
        let first_held = block.len() - self.ids.len();
        let (coming, staying) =
            order.split_at(order.partition_point(|&i| (i as usize) < first_held));
        self.rows = block.detach();
        let mut staying = staying.iter().map(|&i| i as usize - first_held).peekable();
        let mut stays = Vec::with_capacity(self.ids.len());
        stays.extend((0..self.ids.len()).map(|i| staying.next_if_eq(&i).is_some()));
        self.rows.retain(|i| stays[i]);
        let mut stays = stays.iter();
        self.ids.retain(|_| *stays.next().expect("as many as ids"));
        for &i in coming {
            let i = i as usize;
            self.rows.push(block.label(i), block.row(i));
            self.ids.push(block.id(i));
        }
        std::mem::swap(&mut self.held, &mut self.held_before);
        self.held.replace(&self.ids);
    }

    /// Puts back rows that a checkpoint lists as held, read anew in the order of
    /// [`RowCache::ids`], and the ids held one block before.
    pub fn restore(
        &mut self,
        rows: Rows,
        ids: Vec<u64>,
        ids_before: &[u64],
        ids_at_epoch_start: Option<&[u64]>,
    ) {
        assert_eq!(rows.len(), ids.len());
        self.held_at_epoch_start = ids_at_epoch_start.map(|ids| {
            let mut set = self.held.clone();
            set.replace(ids);
            set
        });
        for i in 0..rows.len() {
            self.rows.push(rows.label(i), rows.row(i));
        }
        self.ids = ids;
        self.held.replace(&self.ids);
        self.held_before.replace(ids_before);
    }
}

/// A segment that never needs to grow: its room is reserved, and takes memory as rows fill it.
fn empty(capacity_bytes: usize, layout: Layout) -> Rows {
    let mut rows = Rows::new(layout);
    match layout {
        Layout::Dense { width } => {
            let most = capacity_bytes / row_bytes(Row::Dense(&vec![0.0; width]));
            rows.reserve(most, most * width);
        }
        Layout::Sparse | Layout::Bytes => {
            rows.reserve(capacity_bytes / 16, capacity_bytes / 8);
        }
    }
    rows
}

fn row_bytes(row: Row<'_>) -> usize {
    // Label and id, and for a sparse row its end and an index a value.
    match row {
        Row::Dense(values) => 12 + 4 * values.len(),
        Row::Sparse { values, .. } => 16 + 8 * values.len(),
        Row::Bytes(bytes) => 20 + bytes.len(),
    }
}

/// A set of record ids: one bit a record.
#[derive(Clone, Debug)]
struct IdSet {
    words: Vec<u64>,
    ids: Vec<u64>,
}

impl IdSet {
    fn new(records: usize) -> IdSet {
        IdSet {
            words: vec![0; records.div_ceil(64)],
            ids: Vec::new(),
        }
    }

    fn contains(&self, id: u64) -> bool {
        self.words[(id / 64) as usize] >> (id % 64) & 1 == 1
    }

    fn replace(&mut self, ids: &[u64]) {
        for &id in &self.ids {
            self.words[(id / 64) as usize] = 0;
        }
        self.ids.clear();
        self.ids.extend_from_slice(ids);
        for &id in ids {
            self.words[(id / 64) as usize] |= 1 << (id % 64);
        }
    }

    fn ids(&self) -> Vec<u64> {
        let mut ids = self.ids.clone();
        ids.sort_unstable();
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout::Dense { width: 3 };

    fn row(id: u64) -> [f32; 3] {
        [id as f32, 0.5, -(id as f32)]
    }

    fn block(ids: &[u64]) -> RowTable {
        let mut rows = Rows::new(LAYOUT);
        for &id in ids {
            rows.push_dense(id as u32 % 2, &row(id));
        }
        RowTable::from_rows(rows, ids.to_vec())
    }

    #[test]
    fn the_rows_of_least_slack_are_held_with_their_own_values() {
        let rows_held = 4;
        let mut cache = RowCache::new(rows_held * 24, LAYOUT, 1000);
        let memory = cache.rows.heap_bytes();
        // Slack by id, so that the choice among all rows seen is known.
        let slack_of = |id: u64| (id * 37 % 101) as f32 / 100.0 - 0.3;
        let mut seen: Vec<u64> = Vec::new();
        for step in 0..30 {
            let new: Vec<u64> = (step * 7..step * 7 + 7).collect();
            let mut block = block(&new);
            cache.attach(&mut block);
            let slack: Vec<f32> = block.ids().iter().map(|&id| slack_of(id)).collect();
            cache.select(&mut block, &slack, &mut Vec::new());
            assert_eq!(block.len(), 7, "the held rows are off the block");
            seen.extend(new);
            seen.sort_by(|&a, &b| slack_of(a).total_cmp(&slack_of(b)).then(a.cmp(&b)));
            seen.truncate(rows_held);
            let mut held = cache.ids().to_vec();
            held.sort_unstable();
            let mut expected = seen.clone();
            expected.sort_unstable();
            assert_eq!(held, expected, "step {step}");
            let ids = cache.ids().to_vec();
            cache.with_rows(|rows| {
                for (i, &id) in ids.iter().enumerate() {
                    assert_eq!(rows.row(i), Row::Dense(&row(id)));
                    assert_eq!(rows.label(i), id as u32 % 2);
                    assert_eq!(rows.id(i), id);
                }
            });
            for id in 0..1000 {
                assert_eq!(cache.holds(id, false), ids.contains(&id));
            }
            assert_eq!(cache.rows.heap_bytes(), memory, "it never grows");
        }
    }
}
