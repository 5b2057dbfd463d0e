//! The positions of an epoch's order that a filter kept: one bit a position, and counts that give the row of a
//! kept position.
//!
//! The positions that a rank's batch covers may be many times its rows, so their ids are not stored: those of
//! kept rows are in the pane, the others are recomputed when needed.

/// Words between two counts.
const GROUP: usize = 8;

/// Bytes for each position, counts and room to grow included.
pub(crate) const BYTES_PER_POSITION: f64 = 0.25;

/// A growing list of decisions.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptBitmap {
    words: Vec<u64>,
    /// Positions kept before each group of words.
    before: Vec<u32>,
    positions: u64,
    rows: u32,
}

impl KeptBitmap {
    /// Adds the decision on the next position.
    #[inline]
    pub fn push(&mut self, keep: bool) {
        let bit = self.positions % 64;
        if bit == 0 {
            if self.words.len().is_multiple_of(GROUP) {
                self.before.push(self.rows);
            }
            self.words.push(0);
        }
        if keep {
            *self.words.last_mut().expect("just pushed") |= 1 << bit;
            self.rows += 1;
        }
        self.positions += 1;
    }

    /// Whether no position was declined.
    pub fn all(&self) -> bool {
        u64::from(self.rows) == self.positions
    }

    /// The number of kept positions before `position`, if that one is kept.
    #[inline]
    pub fn row_of(&self, position: u64) -> Option<u32> {
        let at = (position / 64) as usize;
        let word = *self.words.get(at)?;
        let bit = 1u64 << (position % 64);
        if word & bit == 0 {
            return None;
        }
        let group = at / GROUP;
        let whole = self.words[group * GROUP..at].iter();
        let rows = whole.map(|word| word.count_ones()).sum::<u32>();
        Some(self.before[group] + rows + (word & (bit - 1)).count_ones())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_positions_are_numbered_in_order() {
        for modulus in [1u64, 2, 7, 700] {
            let mut kept = KeptBitmap::default();
            let wanted =
                |position: u64| (position * position + 3).is_multiple_of(modulus) || position == 5;
            for position in 0..2_000 {
                kept.push(wanted(position));
            }
            let mut rows = 0;
            for position in 0..2_000 {
                let row = wanted(position).then_some(rows);
                assert_eq!(kept.row_of(position), row, "{position} by {modulus}");
                rows += u32::from(row.is_some());
            }
            assert_eq!(kept.row_of(2_000), None);
            assert_eq!(kept.all(), modulus == 1);
        }
    }
}
