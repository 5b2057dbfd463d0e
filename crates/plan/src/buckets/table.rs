//! A small number for each sentence, in as few bytes as the greatest needs.

use pelton_key::Digest;

/// A number for each sentence: its bucket, or its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Table {
    Bytes(Vec<u8>),
    Pairs(Vec<u16>),
    Words(Vec<u32>),
}

impl Table {
    /// The values of `number` for `0..records`; all must be at most `greatest`.
    pub(crate) fn new(records: u64, greatest: u32, number_of: impl Fn(u64) -> u32) -> Table {
        let numbers = (0..records).map(|id| {
            let number = number_of(id);
            assert!(number <= greatest, "sentence {id} has changed its length");
            number
        });
        match greatest {
            0..=0xFF => Table::Bytes(numbers.map(|number| number as u8).collect()),
            0x100..=0xFFFF => Table::Pairs(numbers.map(|number| number as u16).collect()),
            _ => Table::Words(numbers.collect()),
        }
    }

    /// The numbers of some ids.
    pub(crate) fn gather(&self, ids: &[u64], out: &mut [u32]) {
        match self {
            Table::Bytes(table) => gather(table, ids, out),
            Table::Pairs(table) => gather(table, ids, out),
            Table::Words(table) => gather(table, ids, out),
        }
    }

    /// A digest of the numbers, independent of their width in bytes.
    pub(crate) fn digest(&self) -> u64 {
        fn of<T: Copy + Into<u32>>(table: &[T]) -> u64 {
            let words = table.iter().map(|&number| u64::from(number.into()));
            Digest::new("table")
                .word(table.len() as u64)
                .words(words)
                .value()
        }
        match self {
            Table::Bytes(table) => of(table),
            Table::Pairs(table) => of(table),
            Table::Words(table) => of(table),
        }
    }

    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Table::Bytes(table) => table.len() as u64,
            Table::Pairs(table) => 2 * table.len() as u64,
            Table::Words(table) => 4 * table.len() as u64,
        }
    }
}

/// Loads that do not wait for one another: the cache misses of a large table overlap.
fn gather<T: Copy + Into<u32>>(table: &[T], ids: &[u64], out: &mut [u32]) {
    for (slot, &id) in out.iter_mut().zip(ids) {
        *slot = table[id as usize].into();
    }
}
