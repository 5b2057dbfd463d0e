//! Which rows the next pass visits, and in which order.
//!
//! **Resting.** A row with α at a bound, held there firmly by its gradient, will not move for a while. It is left out
//! of the next 1, 3, 7, … passes, twice as long each time it is found settled again, and is back to every pass as soon
//! as it moves. LIBLINEAR's shrinking drops such rows until the very end, so it must be cautious, and on noisy data
//! drops nothing for dozens of passes; a temporary rest can start early. All rows are visited before a block counts as
//! solved, so the solution is the same.
//!
//! **Order.** A uniformly random order over a large block makes each visit miss the caches and the
//! translation cache. Rows are therefore taken in *tiles* of neighbours; the tiles are permuted, and
//! then the rows within every stretch of `STRETCH` rows. A stretch fits the second cache, and holds
//! rows from a random choice of tiles.
//!
//! **Waking.** Each row has the number of the pass it is next visited in, so a pass costs its visits, plus
//! reading one byte of every other row, eight at a time.
//!
//! Cost: 3 bytes a row, and 8 for the lists; 0.1 ns a resting row and pass.

use crate::random::{Stream, derive};

/// Rows of a tile: some pages of short rows.
const TILE: usize = 16;
/// Rows of a stretch.
const STRETCH: usize = 2048;
/// Longest rest, as a power of two.
const LONGEST_REST: u8 = 7;
/// The level of a row that is never visited.
const NEVER: u8 = u8::MAX;

/// The rows in play.
#[derive(Debug, Default)]
pub(crate) struct Active {
    /// Rows to visit, in the order of the last [`Active::shuffle`].
    pub(crate) order: Vec<u32>,
    /// The same rows in ascending order.
    listed: Vec<u32>,
    /// Written by a pass: whether it found the row settled.
    pub(crate) settled: Vec<bool>,
    /// The pass that comes next, and the one each row is visited in next, modulo 256: no rest is that long.
    now: u8,
    wakes: Vec<u8>,
    /// How often in a row it was found settled.
    level: Vec<u8>,
    tiles: Vec<u32>,
    /// Rows that are visited at all.
    visited: usize,
}

impl Active {
    /// Bytes on the heap for each row.
    pub(crate) const BYTES_A_ROW: usize = 12;

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        let words = self.order.capacity() + self.listed.capacity() + self.tiles.capacity();
        4 * words + self.settled.capacity() + self.wakes.capacity() + self.level.capacity()
    }

    /// Starts with all of `count` rows except those left out, none resting; returns how many.
    pub(crate) fn start(&mut self, count: usize, is_left_out: impl Fn(usize) -> bool) -> usize {
        self.settled.clear();
        self.settled.resize(count, false);
        self.level.clear();
        let level = |i| if is_left_out(i) { NEVER } else { 0 };
        self.level.extend((0..count).map(level));
        self.visited = self.level.iter().filter(|level| **level == 0).count();
        self.wake_all();
        self.visited
    }

    /// Ends every rest; the rows remember how long they rested.
    pub(crate) fn wake_all(&mut self) {
        let count = self.settled.len();
        self.wakes.clear();
        self.wakes.resize(count, self.now);
        self.listed.clear();
        self.listed.extend(0..count as u32);
        self.drop_left_out();
    }

    fn drop_left_out(&mut self) {
        if self.visited < self.level.len() {
            let level = &self.level;
            self.listed.retain(|i| level[*i as usize] != NEVER);
        }
    }

    /// After a pass: sends settled rows to rest and lists the rows of the next pass.
    pub(crate) fn advance(&mut self) {
        for &i in &self.listed {
            let i = i as usize;
            let level = &mut self.level[i];
            // Without a branch that cannot be predicted.
            *level = (*level + 1).min(LONGEST_REST) * u8::from(self.settled[i]);
            self.wakes[i] = self.now.wrapping_add(1 << *level);
        }
        self.now = self.now.wrapping_add(1);
        self.list_awake();
    }

    /// Lists the rows of the pass that comes next, in ascending order.
    fn list_awake(&mut self) {
        const LOW_BITS: u64 = u64::from_ne_bytes([0x7f; 8]);
        self.listed.clear();
        let wanted = u64::from_le_bytes([self.now; 8]);
        let (words, rest) = self.wakes.as_chunks::<8>();
        for (word, wakes) in words.iter().enumerate() {
            // The highest bit of each byte that is the one wanted.
            let differs = u64::from_le_bytes(*wakes) ^ wanted;
            let mut equal = !(((differs & LOW_BITS) + LOW_BITS) | differs | LOW_BITS);
            while equal != 0 {
                self.listed
                    .push(8 * word as u32 + equal.trailing_zeros() / 8);
                equal &= equal - 1;
            }
        }
        let last = 8 * words.len() as u32;
        let awake = (last..).zip(rest).filter(|(_, wakes)| **wakes == self.now);
        self.listed.extend(awake.map(|(i, _)| i));
        self.drop_left_out();
    }

    /// Puts the listed rows in the random order of `key`.
    pub(crate) fn shuffle(&mut self, key: u64) {
        let tiles = self.listed.len().div_ceil(TILE) as u32;
        self.tiles.clear();
        self.tiles.extend(0..tiles);
        Stream::new(derive(key, 0)).shuffle(&mut self.tiles);
        self.order.clear();
        self.order.reserve(self.listed.len());
        for &tile in &self.tiles {
            let start = tile as usize * TILE;
            let end = (start + TILE).min(self.listed.len());
            self.order.extend_from_slice(&self.listed[start..end]);
        }
        let mut stream = Stream::new(derive(key, 1));
        for stretch in self.order.chunks_mut(STRETCH) {
            stream.shuffle(stretch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same as [`Active`], row by row.
    struct Plain {
        rest: Vec<u8>,
        level: Vec<u8>,
    }

    impl Plain {
        fn advance(&mut self, settled: impl Fn(usize) -> bool) -> Vec<u32> {
            let mut awake = Vec::new();
            for i in 0..self.rest.len() {
                if self.rest[i] == 0 {
                    let level = if settled(i) { self.level[i] + 1 } else { 0 };
                    self.level[i] = level.min(LONGEST_REST);
                    self.rest[i] = (1 << self.level[i]) - 1;
                } else {
                    self.rest[i] -= 1;
                }
                if self.rest[i] == 0 {
                    awake.push(i as u32);
                }
            }
            awake
        }
    }

    #[test]
    fn rows_rest_longer_each_time_they_are_found_settled() {
        for count in [0, 1, 7, 8, 9, 100, 1003] {
            let mut active = Active::default();
            let mut plain = Plain {
                rest: vec![0; count],
                level: vec![0; count],
            };
            active.start(count, |_| false);
            for pass in 0..700_u64 {
                // Rows that never move, that always do, and that do at times.
                let settled = |i: usize| match i % 3 {
                    0 => true,
                    1 => false,
                    _ => derive(pass, i as u64).is_multiple_of(4),
                };
                active.shuffle(pass);
                for &i in &active.order {
                    active.settled[i as usize] = settled(i as usize);
                }
                active.advance();
                assert_eq!(active.listed, plain.advance(settled), "pass {pass}");
                if pass % 300 == 299 {
                    active.wake_all();
                    plain.rest.fill(0);
                    assert!(active.listed.iter().copied().eq(0..count as u32));
                }
            }
        }
    }

    #[test]
    fn rows_left_out_are_never_listed() {
        let mut active = Active::default();
        assert_eq!(active.start(100, |i| i % 5 == 2), 80);
        for pass in 0..600 {
            active.shuffle(pass);
            assert!(active.order.iter().all(|i| i % 5 != 2), "pass {pass}");
            for &i in &active.order {
                active.settled[i as usize] = i % 2 == 0;
            }
            active.advance();
        }
        active.wake_all();
        assert_eq!(active.listed.len(), 80);
    }
}
