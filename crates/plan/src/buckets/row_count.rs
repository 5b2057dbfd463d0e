//! How many rows best-fit decreasing fills, without what is in them.
//!
//! Rows with the same room are alike to what comes later, so that they are counted by their room; the least room that
//! is enough is found in a set of bits, of which a bit stands for a word of the level below. Nothing is allocated, where
//! [`Packing::pack`] makes a list for each kind of row.

use super::packing::Packing;

/// Counts rows; kept between look-aheads.
#[derive(Debug)]
pub(crate) struct RowCounter {
    row_length: u32,
    /// How many rows have each room.
    rows: Vec<u32>,
    rooms: BitSet,
}

impl RowCounter {
    pub(crate) fn new(packing: Packing) -> RowCounter {
        let rooms = packing.row_length() as usize + 1;
        RowCounter {
            row_length: packing.row_length(),
            rows: vec![0; rooms],
            rooms: BitSet::new(rooms),
        }
    }

    /// The rows of [`Packing::pack`] for the same pieces: (length, how many), lengths falling.
    pub(crate) fn rows(&mut self, pieces: impl IntoIterator<Item = (u32, u32)>) -> u64 {
        let mut all = 0;
        for (length, mut left) in pieces {
            while left > 0 {
                let found = self.rooms.next_from(length as usize);
                let room = found.map_or(self.row_length, |room| room as u32);
                let fit = room.checked_div(length).unwrap_or(u32::MAX).min(left);
                let mut rows = left / fit;
                match found {
                    Some(_) => {
                        rows = rows.min(self.rows[room as usize]);
                        self.rows[room as usize] -= rows;
                        if self.rows[room as usize] == 0 {
                            self.rooms.remove(room as usize);
                        }
                    }
                    None => all += u64::from(rows),
                }
                let less = (room - fit * length) as usize;
                self.rows[less] += rows;
                self.rooms.insert(less);
                left -= rows * fit;
            }
        }
        while let Some(room) = self.rooms.next_from(0) {
            self.rows[room] = 0;
            self.rooms.remove(room);
        }
        all
    }
}

/// A set of small numbers.
#[derive(Debug)]
struct BitSet {
    /// A bit for each number; then a bit for each word before that is not 0, until one word is left.
    levels: Vec<Vec<u64>>,
}

impl BitSet {
    /// Of the numbers `0..len`.
    fn new(len: usize) -> BitSet {
        let mut levels = vec![vec![0; len.div_ceil(64)]];
        while let Some(words) = levels.last().map(Vec::len).filter(|&words| words > 1) {
            levels.push(vec![0; words.div_ceil(64)]);
        }
        BitSet { levels }
    }

    fn insert(&mut self, mut number: usize) {
        for words in &mut self.levels {
            words[number / 64] |= 1 << (number % 64);
            number /= 64;
        }
    }

    fn remove(&mut self, mut number: usize) {
        for words in &mut self.levels {
            words[number / 64] &= !(1 << (number % 64));
            if words[number / 64] != 0 {
                return;
            }
            number /= 64;
        }
    }

    /// The least number from `number` on that it has.
    fn next_from(&self, mut number: usize) -> Option<usize> {
        for (level, words) in self.levels.iter().enumerate() {
            let word = words.get(number / 64)? & (u64::MAX << (number % 64));
            if word != 0 {
                let mut found = number / 64 * 64 + word.trailing_zeros() as usize;
                for words in self.levels[..level].iter().rev() {
                    found = found * 64 + words[found].trailing_zeros() as usize;
                }
                return Some(found);
            }
            number = number / 64 + 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_key::KeyedRng;

    #[test]
    fn as_many_rows_are_counted_as_are_packed() {
        let mut rng = KeyedRng::new(8);
        for round in 0..3000 {
            let row_length = 1 + rng.below([6, 40, 300, 9000][round % 4]) as u32;
            let packing = Packing::new(row_length, 1).unwrap();
            let mut counter = RowCounter::new(packing);
            for _ in 0..3 {
                let mut lengths: Vec<u32> = (0..rng.below(40))
                    .map(|_| rng.below(u64::from(row_length) + 1) as u32)
                    .collect();
                lengths.sort_unstable_by(|a, b| b.cmp(a));
                lengths.dedup();
                let mut count = || 1 + rng.below([1, 3, 200][round % 3]) as u32;
                let pieces: Vec<(u32, u32)> = lengths.into_iter().map(|n| (n, count())).collect();
                let packed = packing.pack(&pieces);
                let packed: u64 = packed.iter().map(|pattern| u64::from(pattern.rows)).sum();
                assert_eq!(
                    counter.rows(pieces.iter().copied()),
                    packed,
                    "{row_length}: {pieces:?}"
                );
            }
        }
    }

    #[test]
    fn a_set_of_bits_finds_the_next_one() {
        let mut rng = KeyedRng::new(2);
        for len in [1, 63, 64, 65, 4096, 4097, 300_000] {
            let mut set = BitSet::new(len);
            let mut plain = std::collections::BTreeSet::new();
            for _ in 0..2000 {
                let number = rng.below(len as u64) as usize;
                if rng.below(3) == 0 {
                    set.remove(number);
                    plain.remove(&number);
                } else {
                    set.insert(number);
                    plain.insert(number);
                }
                let from = rng.below(len as u64) as usize;
                assert_eq!(set.next_from(from), plain.range(from..).next().copied());
                assert_eq!(set.next_from(0), plain.first().copied());
            }
        }
    }
}
