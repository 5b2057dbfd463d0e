//! Which rows the next pass visits, and in which order.
//!
//! **Resting.** A row whose α lies at a bound with a gradient that holds it there firmly will not move
//! for a while. It is left out of the next 1, 3, 7, … passes, twice as long each time it is found
//! settled again, and is back to every pass as soon as it moves. LIBLINEAR's shrinking drops such
//! rows until the very end, so it must be cautious, and on noisy data drops nothing for dozens of
//! passes; a rest that ends by itself can start early. All rows are looked at before a block counts
//! as solved, so the solution is the same.
//!
//! **Order.** A uniformly random order over a large block makes each visit miss the caches and the
//! translation cache. Rows are therefore taken in *tiles* of neighbours; the tiles are permuted, and
//! then the rows within every stretch of `STRETCH` rows. A stretch fits the second cache, and holds
//! rows from a random choice of tiles.
//!
//! Cost: 3 bytes a row, about 2 ns a row and pass.

use crate::random::{Stream, derive};

/// Rows of a tile: some pages of short rows.
const TILE: usize = 16;
/// Rows of a stretch.
const STRETCH: usize = 2048;
/// Longest rest, as a power of two.
const LONGEST_REST: u8 = 7;

/// The rows in play.
#[derive(Debug, Default)]
pub(crate) struct Active {
    /// Rows to visit, in visiting order after [`Active::shuffle`].
    pub(crate) order: Vec<u32>,
    /// Written by a pass: whether it found the row settled.
    pub(crate) settled: Vec<bool>,
    /// Passes the row still rests.
    rest: Vec<u8>,
    /// How often in a row it was found settled.
    level: Vec<u8>,
    tiles: Vec<u32>,
    shuffled: Vec<u32>,
}

impl Active {
    /// Bytes on the heap for each row.
    pub(crate) const BYTES_A_ROW: usize = 12;

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        let words = self.order.capacity() + self.shuffled.capacity() + self.tiles.capacity();
        4 * words + self.settled.capacity() + self.rest.capacity() + self.level.capacity()
    }

    /// All `count` rows, none resting.
    pub(crate) fn start(&mut self, count: usize) {
        self.settled.clear();
        self.settled.resize(count, false);
        self.level.clear();
        self.level.resize(count, 0);
        self.wake_all();
    }

    /// Ends every rest; the rows remember how long they rested.
    pub(crate) fn wake_all(&mut self) {
        let count = self.settled.len();
        self.rest.clear();
        self.rest.resize(count, 0);
        self.order.clear();
        self.order.extend(0..count as u32);
    }

    /// After a pass: sends settled rows to rest and lists the rows of the next pass.
    pub(crate) fn advance(&mut self) {
        self.order.clear();
        let rows = self.rest.iter_mut().zip(&mut self.level);
        for (i, ((rest, level), &settled)) in rows.zip(&self.settled).enumerate() {
            if *rest == 0 {
                // Visited in the pass before.
                *level = if settled {
                    (*level + 1).min(LONGEST_REST)
                } else {
                    0
                };
                *rest = (1 << *level) - 1;
            } else {
                *rest -= 1;
            }
            if *rest == 0 {
                self.order.push(i as u32);
            }
        }
    }

    /// Puts the listed rows, which must be in ascending order, in the random order of `key`.
    pub(crate) fn shuffle(&mut self, key: u64) {
        let tiles = self.order.len().div_ceil(TILE) as u32;
        self.tiles.clear();
        self.tiles.extend(0..tiles);
        Stream::new(derive(key, 0)).shuffle(&mut self.tiles);
        self.shuffled.clear();
        self.shuffled.reserve(self.order.len());
        for &tile in &self.tiles {
            let start = tile as usize * TILE;
            let end = (start + TILE).min(self.order.len());
            self.shuffled.extend_from_slice(&self.order[start..end]);
        }
        let mut stream = Stream::new(derive(key, 1));
        for stretch in self.shuffled.chunks_mut(STRETCH) {
            stream.shuffle(stretch);
        }
        std::mem::swap(&mut self.order, &mut self.shuffled);
    }
}
