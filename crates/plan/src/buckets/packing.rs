//! Packs pieces into rows by best-fit decreasing, from the number of pieces of each length.
//!
//! The pieces of a look-ahead go into rows of one length, the longest first, each into the fullest row that still
//! has room for it; among equally full rows, the one filled last. It does not matter which sentence a piece
//! belongs to, so rows are filled in groups: the rows with the same free room take as many pieces of a length as
//! fit, and then the next fullest do. That gives the same rows as filling piece by piece, in a few steps for each
//! length, however many pieces have it.
//!
//! Best-fit decreasing needs at most 11/9 of the fewest rows, plus four (Johnson, 1974); with sentences
//! of many lengths it nearly always fills all rows but the last.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::PlanError;

/// Rows of one length, packed from a look-ahead of the order.
///
/// A sentence longer than a row is cut into rows' lengths and a rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Packing {
    row_length: u32,
    look_ahead: u32,
}

impl Packing {
    /// Default sentences of a look-ahead: one row in hundreds then stays unfilled.
    pub const DEFAULT_LOOK_AHEAD: u32 = 8192;

    /// Most tokens of a row: the lengths of a look-ahead are counted in an array.
    const MAX_ROW_LENGTH: u32 = 1 << 20;

    /// Most sentences of a look-ahead, which is held in memory.
    const MAX_LOOK_AHEAD: u32 = 1 << 24;

    /// Rows of `row_length` tokens from `look_ahead` sentences at a time.
    pub fn new(row_length: u32, look_ahead: u32) -> Result<Packing, PlanError> {
        for (what, asked, limit) in [
            ("row length", row_length, Packing::MAX_ROW_LENGTH),
            ("look-ahead", look_ahead, Packing::MAX_LOOK_AHEAD),
        ] {
            if asked > limit {
                return Err(PlanError::PackingTooLarge { what, asked, limit });
            }
        }
        let packing = Packing {
            row_length,
            look_ahead,
        };
        if row_length > 0 && look_ahead > 0 {
            Ok(packing)
        } else {
            Err(PlanError::EmptyPolicy {
                policy: packing.to_string(),
            })
        }
    }

    /// Tokens of a row.
    pub fn row_length(self) -> u32 {
        self.row_length
    }

    /// Sentences that are packed together.
    pub fn look_ahead(self) -> u32 {
        self.look_ahead
    }

    /// The pieces a sentence is cut into, as (start, length): whole rows, then the rest.
    pub(crate) fn pieces(self, length: u32) -> impl Iterator<Item = (u32, u32)> {
        let whole = length.saturating_sub(1) / self.row_length;
        (0..=whole).map(move |piece| {
            let start = piece * self.row_length;
            (start, self.row_length.min(length - start))
        })
    }

    /// The rows for pieces given as (length, how many), lengths falling and no greater than a row.
    /// Patterns come in a fixed order, without duplicates.
    pub(crate) fn pack(self, pieces: &[(u32, u32)]) -> Vec<Pattern> {
        let mut rows = Rows::default();
        for &(length, count) in pieces {
            let mut count = count;
            while count > 0 {
                let (room, pattern) = rows.fullest(length).unwrap_or_else(|| {
                    let empty = Pattern {
                        rows: u32::MAX,
                        pieces: Vec::new(),
                    };
                    (self.row_length, empty)
                });
                count -= rows.fill(room, pattern, length, count);
            }
        }
        let mut patterns: Vec<Pattern> = rows.by_room.into_values().flatten().collect();
        patterns.sort_unstable_by(|a, b| b.pieces.cmp(&a.pieces));
        patterns.dedup_by(|next, kept| {
            let alike = next.pieces == kept.pieces;
            kept.rows += if alike { next.rows } else { 0 };
            alike
        });
        patterns
    }

    /// The number of rows that [`pack`](Self::pack) fills, without their contents: rows with the same room are
    /// equivalent for later pieces.
    pub(crate) fn count_rows(self, pieces: impl IntoIterator<Item = (u32, u32)>) -> u64 {
        let mut rows_by_room: BTreeMap<u32, u32> = BTreeMap::new();
        let mut all = 0;
        for (length, mut left) in pieces {
            while left > 0 {
                let fullest = rows_by_room.range_mut(length..).next();
                let room = fullest.as_ref().map_or(self.row_length, |(room, _)| **room);
                let fit = room.checked_div(length).unwrap_or(u32::MAX).min(left);
                let mut rows = left / fit;
                match fullest {
                    None => all += u64::from(rows),
                    Some((_, kept)) if *kept > rows => *kept -= rows,
                    Some((_, kept)) => {
                        rows = *kept;
                        rows_by_room.remove(&room);
                    }
                }
                *rows_by_room.entry(room - fit * length).or_default() += rows;
                left -= rows * fit;
            }
        }
        all
    }
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pack:{}", self.row_length)?;
        match self.look_ahead {
            Packing::DEFAULT_LOOK_AHEAD => Ok(()),
            look_ahead => write!(f, ":{look_ahead}"),
        }
    }
}

/// Rows that hold pieces of the same lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// How many rows there are of it.
    pub(crate) rows: u32,
    /// Lengths, falling, and how many pieces a row has of each.
    pub(crate) pieces: Vec<(u32, u32)>,
}

/// Open rows, by the room they have left.
#[derive(Default)]
struct Rows {
    by_room: BTreeMap<u32, Vec<Pattern>>,
}

impl Rows {
    /// Takes out the rows with the least room that is enough for `length`.
    fn fullest(&mut self, length: u32) -> Option<(u32, Pattern)> {
        let (&room, patterns) = self.by_room.range_mut(length..).next()?;
        let pattern = patterns.pop().expect("rooms without rows are removed");
        if patterns.is_empty() {
            self.by_room.remove(&room);
        }
        Some((room, pattern))
    }

    /// Puts up to `count` pieces into rows of `pattern`, as many into each as fit, keeps these rows and
    /// those left over, and returns how many pieces fitted.
    fn fill(&mut self, room: u32, mut pattern: Pattern, length: u32, count: u32) -> u32 {
        let fit = room.checked_div(length).unwrap_or(u32::MAX).min(count);
        let rows = (count / fit).min(pattern.rows);
        let mut pieces = pattern.pieces.clone();
        pieces.push((length, fit));
        self.keep(room - fit * length, Pattern { rows, pieces });
        // Rows of an empty pattern are made when they are needed.
        if !pattern.pieces.is_empty() && pattern.rows > rows {
            pattern.rows -= rows;
            self.keep(room, pattern);
        }
        rows * fit
    }

    fn keep(&mut self, room: u32, pattern: Pattern) {
        self.by_room.entry(room).or_default().push(pattern);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_key::KeyedRng;

    /// Best-fit decreasing piece by piece, as sorted lists of lengths.
    fn one_by_one(row_length: u32, lengths: &[u32]) -> Vec<Vec<u32>> {
        let mut lengths = lengths.to_vec();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        let mut rows: Vec<(u32, Vec<u32>)> = Vec::new();
        for length in lengths {
            match rows
                .iter_mut()
                .filter(|(room, _)| *room >= length)
                .min_by_key(|(room, _)| *room)
            {
                Some((room, row)) => {
                    *room -= length;
                    row.push(length);
                }
                None => rows.push((row_length - length, vec![length])),
            }
        }
        rows.into_iter().map(|(_, row)| row).collect()
    }

    fn counted(lengths: &[u32]) -> Vec<(u32, u32)> {
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        for &length in lengths {
            *counts.entry(length).or_default() += 1;
        }
        counts.into_iter().rev().collect()
    }

    #[test]
    fn groups_pack_as_tightly_as_pieces_one_by_one() {
        let mut rng = KeyedRng::new(5);
        for _ in 0..2000 {
            let row_length = 1 + rng.below(40) as u32;
            let lengths: Vec<u32> = (0..rng.below(60))
                .map(|_| rng.below(u64::from(row_length) + 1) as u32)
                .collect();
            let packing = Packing::new(row_length, 1).unwrap();
            let patterns = packing.pack(&counted(&lengths));
            let mut packed: Vec<u32> = Vec::new();
            let mut rows = Vec::new();
            for pattern in &patterns {
                assert!(pattern.rows > 0);
                let row: Vec<u32> = pattern
                    .pieces
                    .iter()
                    .flat_map(|&(length, count)| std::iter::repeat_n(length, count as usize))
                    .collect();
                assert!(row.iter().sum::<u32>() <= row_length, "{row:?}");
                for _ in 0..pattern.rows {
                    packed.extend(&row);
                    rows.push(row.iter().sum::<u32>());
                }
            }
            packed.sort_unstable();
            let mut expected = lengths.clone();
            expected.sort_unstable();
            assert_eq!(packed, expected);
            // Rows of equal room may be chosen differently, which never changes how full rows get.
            let mut plain: Vec<u32> = one_by_one(row_length, &lengths)
                .iter()
                .map(|row| row.iter().sum())
                .collect();
            plain.sort_unstable();
            rows.sort_unstable();
            assert_eq!(rows, plain, "{row_length}: {lengths:?}");
            assert!(patterns.windows(2).all(|two| two[0].pieces > two[1].pieces));
            let counted = packing.count_rows(counted(&lengths));
            assert_eq!(counted, patterns.iter().map(|p| u64::from(p.rows)).sum());
        }
    }

    #[test]
    fn a_long_sentence_is_cut_at_row_ends() {
        let pieces = |length| {
            Packing::new(10, 1)
                .unwrap()
                .pieces(length)
                .collect::<Vec<_>>()
        };
        assert_eq!(pieces(0), [(0, 0)]);
        assert_eq!(pieces(10), [(0, 10)]);
        assert_eq!(pieces(11), [(0, 10), (10, 1)]);
        assert_eq!(pieces(30), [(0, 10), (10, 10), (20, 10)]);
        let most = Packing::new(1 << 20, 1).unwrap().pieces(u32::MAX);
        assert_eq!(
            most.map(|(_, length)| u64::from(length)).sum::<u64>(),
            u32::MAX.into()
        );
    }
}
