//! Which records a filter keeps, decided for all of them before the order is made.
//!
//! A filter that drops examples during reading makes batches of unknown size, on which ranks must agree. Here
//! the kept records are numbered `0..len` once; the order, and everything after it, uses these indices.
//!
//! One bit a record, plus the number of kept records before every 1024th record (1/16 bit) and the position of
//! every 4096th kept record (at most 1/64 bit): [`rank`](Selection::rank) looks at 16 words, [`get`](Selection::get)
//! at some more. Rejected: a list of the kept records (32 or 64 times as much).

use std::cell::Cell;
use std::ops::Range;

use crate::error::PlanError;
use pelton_key::Digest;

/// Words of the bitmap per count.
const BLOCK_WORDS: usize = 16;
const BLOCK_RECORDS: u64 = 64 * BLOCK_WORDS as u64;
/// Kept records from one hint to the next.
const HINT_KEPT: u64 = 4096;

/// The first bytes of a stored selection, then the version.
const MAGIC: [u8; 8] = *b"PELTSEL1";
/// Magic, records, checksum.
const FRAME_BYTES: u64 = 24;

/// The records of `0..records` that are kept, numbered `0..len` in their order.
///
/// ```
/// use pelton_plan::Selection;
///
/// let even = Selection::new(10, |id| id % 2 == 0);
/// assert_eq!((even.len(), even.get(3), even.rank(7)), (5, 6, 4));
/// let stored = even.to_bytes();
/// assert_eq!(Selection::from_bytes(&stored, 10)?, even);
/// # Ok::<(), pelton_plan::PlanError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    records: u64,
    len: u64,
    words: Vec<u64>,
    /// Kept records before each block.
    before: Vec<u64>,
    /// The block that holds every [`HINT_KEPT`]-th kept record.
    hints: Vec<u64>,
}

impl Selection {
    /// The records of `0..records` for which `keeps` returns true; it is called once for each, in order.
    pub fn new(records: u64, mut keeps: impl FnMut(u64) -> bool) -> Selection {
        let words = (0..records).step_by(64).map(|first| {
            let ids = first..records.min(first.saturating_add(64));
            ids.fold(0, |word, id| word | u64::from(keeps(id)) << (id % 64))
        });
        Selection::of_words(records, words.collect())
    }

    fn of_words(records: u64, words: Vec<u64>) -> Selection {
        let mut len = 0;
        let mut before = Vec::with_capacity(words.len().div_ceil(BLOCK_WORDS));
        let mut hints = Vec::new();
        for (block, words) in (0..).zip(words.chunks(BLOCK_WORDS)) {
            before.push(len);
            len += words
                .iter()
                .map(|word| u64::from(word.count_ones()))
                .sum::<u64>();
            while (hints.len() as u64) * HINT_KEPT < len {
                hints.push(block);
            }
        }
        Selection {
            records,
            len,
            words,
            before,
            hints,
        }
    }

    /// Records that were asked about.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Records that are kept.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a record is kept. Asserts `id < records`.
    pub fn contains(&self, id: u64) -> bool {
        assert!(id < self.records, "record {id} of {}", self.records);
        self.words[(id / 64) as usize] >> (id % 64) & 1 == 1
    }

    /// Kept records before `id`: the index of `id` among them if it is kept. Asserts `id <= records`.
    pub fn rank(&self, id: u64) -> u64 {
        assert!(id <= self.records, "record {id} of {}", self.records);
        if id == self.records {
            return self.len;
        }
        let (block, word) = ((id / BLOCK_RECORDS) as usize, (id / 64) as usize);
        let whole = &self.words[block * BLOCK_WORDS..word];
        let of_whole: u64 = whole.iter().map(|word| u64::from(word.count_ones())).sum();
        let below = self.words[word] & ((1 << (id % 64)) - 1);
        self.before[block] + of_whole + u64::from(below.count_ones())
    }

    /// The kept record of a number. Asserts `number < len`.
    pub fn get(&self, number: u64) -> u64 {
        assert!(number < self.len, "kept record {number} of {}", self.len);
        let hint = (number / HINT_KEPT) as usize;
        let first = self.hints[hint] as usize;
        let end = self
            .hints
            .get(hint + 1)
            .map_or(self.before.len(), |&block| block as usize + 1);
        let after = self.before[first..end].partition_point(|&before| before <= number);
        let block = first + after - 1;
        let mut left = number - self.before[block];
        let mut word = block * BLOCK_WORDS;
        loop {
            let ones = u64::from(self.words[word].count_ones());
            if left < ones {
                return 64 * word as u64 + u64::from(nth_one(self.words[word], left as u32));
            }
            left -= ones;
            word += 1;
        }
    }

    /// The first kept record from `id` on.
    fn next_from(&self, id: u64) -> Option<u64> {
        let first = (id / 64) as usize;
        let mut word = self.words.get(first)? & (u64::MAX << (id % 64));
        let mut at = first;
        while word == 0 {
            at += 1;
            word = *self.words.get(at)?;
        }
        Some(64 * at as u64 + u64::from(word.trailing_zeros()))
    }

    /// The numbers of the kept records among some. Asserts that the records exist.
    pub(crate) fn numbers(&self, ids: &Range<u64>) -> Range<u64> {
        self.rank(ids.start)..self.rank(ids.end)
    }

    /// A number that changes with any change of the kept records.
    pub fn fingerprint(&self) -> u64 {
        digest(self.records, &self.words)
    }

    /// Memory it takes.
    pub fn memory_bytes(&self) -> u64 {
        8 * (self.words.len() + self.before.len() + self.hints.len()) as u64
    }

    /// The selection as bytes, with a checksum: one bit a record and 24 bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FRAME_BYTES as usize + 8 * self.words.len());
        bytes.extend(MAGIC);
        bytes.extend(self.records.to_le_bytes());
        bytes.extend(self.fingerprint().to_le_bytes());
        bytes.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    /// Parses the bytes of [`to_bytes`](Self::to_bytes) for `records` records.
    ///
    /// Errors: other bytes, other records, or a checksum that does not fit. Nothing is allocated before the
    /// number of bytes is the one expected.
    pub fn from_bytes(bytes: &[u8], records: u64) -> Result<Selection, PlanError> {
        let expected = FRAME_BYTES + records.div_ceil(64).saturating_mul(8);
        let found = bytes.len() as u64;
        if found != expected {
            return Err(PlanError::SelectionBytes {
                what: format!("it has {found} bytes, and {records} records need {expected}"),
            });
        }
        let number = |at: usize| {
            let bytes = bytes[at..at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        let fault = |what: &str| {
            let what = what.to_owned();
            Err(PlanError::SelectionBytes { what })
        };
        if bytes[..8] != MAGIC {
            return fault("it does not begin like a selection");
        }
        if number(8) != records {
            let found = number(8);
            return Err(PlanError::SelectionMismatch { found, records });
        }
        let words: Vec<u64> = (FRAME_BYTES as usize..bytes.len())
            .step_by(8)
            .map(number)
            .collect();
        if digest(records, &words) != number(16) {
            return fault("its checksum is wrong");
        }
        let beyond = records % 64;
        if beyond > 0 && words.last().is_some_and(|&last| last >> beyond != 0) {
            return fault("it keeps records after the last one");
        }
        Ok(Selection::of_words(records, words))
    }

    /// Looks kept records up, each after the one before in few steps.
    pub(crate) fn walk(&self) -> impl Fn(u64) -> u64 {
        // The number and the record that were last asked for.
        let last = Cell::new(None);
        move |number| {
            let next = match last.get() {
                Some((before, id)) if before + 1 == number => self.next_from(id + 1),
                _ => None,
            };
            let id = next.unwrap_or_else(|| self.get(number));
            last.set(Some((number, id)));
            id
        }
    }
}

fn digest(records: u64, words: &[u64]) -> u64 {
    let digest = Digest::new("selection").word(records);
    digest.words(words.iter().copied()).value()
}

/// The position of the `place`-th set bit of a word, which has more set bits.
fn nth_one(mut word: u64, mut place: u32) -> u32 {
    let mut at = 0;
    for half in [32, 16, 8, 4] {
        let ones = (word & ((1 << half) - 1)).count_ones();
        if place >= ones {
            place -= ones;
            word >>= half;
            at += half;
        }
    }
    for _ in 0..place {
        word &= word - 1;
    }
    at + word.trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_key::KeyedRng;

    fn check(records: u64, keeps: impl Fn(u64) -> bool) {
        let selection = Selection::new(records, &keeps);
        let kept: Vec<u64> = (0..records).filter(|&id| keeps(id)).collect();
        assert_eq!(selection.len(), kept.len() as u64, "{records}");
        assert_eq!(selection.is_empty(), kept.is_empty());
        let walk = selection.walk();
        for (number, &id) in (0..).zip(&kept) {
            assert_eq!(selection.get(number), id, "{number} of {records}");
            assert_eq!(walk(number), id, "{number} of {records}");
        }
        let mut before = 0;
        for id in 0..records {
            assert_eq!(selection.rank(id), before, "{id} of {records}");
            assert_eq!(selection.contains(id), keeps(id));
            before += u64::from(keeps(id));
        }
        assert_eq!(selection.rank(records), before);
        let stored = selection.to_bytes();
        assert_eq!(Selection::from_bytes(&stored, records).unwrap(), selection);
    }

    #[test]
    fn numbers_and_records_go_there_and_back() {
        for records in (0..200).chain([1023, 1024, 1025, 4097, 70_000]) {
            check(records, |_| true);
            check(records, |_| false);
            for one_in in [2, 3, 64, 1000, 20_000] {
                let drawn = |id| KeyedRng::at(one_in, id).below(one_in) == 0;
                check(records, drawn);
                check(records, |id| !drawn(id));
                check(records, |id| id / 2000 % one_in == 0);
            }
        }
    }

    #[test]
    fn it_takes_little_more_than_a_bit_a_record() {
        for one_in in [1, 2, 100] {
            let selection = Selection::new(1 << 20, |id| id % one_in == 0);
            assert!(8 * selection.memory_bytes() * 10 <= 11 << 20);
        }
    }

    #[test]
    fn a_change_changes_the_fingerprint() {
        let selection =
            |records, dropped| Selection::new(records, |id| id != dropped).fingerprint();
        let mut seen: Vec<u64> = (0..=200).map(|dropped| selection(200, dropped)).collect();
        seen.push(selection(201, 200));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 202);
        // Stored in checkpoints and selections.
        assert_eq!(selection(200, 7), 13_120_499_517_886_297_538);
    }

    #[test]
    fn other_bytes_are_refused() {
        let stored = Selection::new(100, |id| id % 3 == 0).to_bytes();
        let check = |bytes: &[u8], records, says: &str| {
            let refused = Selection::from_bytes(bytes, records).unwrap_err();
            assert!(refused.to_string().contains(says), "{refused}");
        };
        for len in 0..stored.len() {
            check(&stored[..len], 100, "need 40");
        }
        check(&stored, 1 << 62, "bytes, and");
        check(&stored, 101, "100 records");
        for at in 0..stored.len() {
            let mut changed = stored.clone();
            changed[at] ^= 0x10;
            let refused = Selection::from_bytes(&changed, 100);
            assert!(refused.is_err(), "byte {at}");
        }
        let mut beyond = Selection::of_words(100, vec![0, 1 << 40]).to_bytes();
        check(&beyond, 100, "after the last");
        beyond[0] = b'p';
        check(&beyond, 100, "does not begin");
    }
}
