//! The pieces of a look-ahead's sentences: counted by length, and dealt to the rows that are packed.

use super::packing::{Packing, Pattern};
use super::row_count::RowCounter;
use crate::randomness::ln_factorial;

/// A part of a sentence, or all of it, in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The sentence.
    pub id: u64,
    /// Its first token in this row; 0 unless it is longer than a row.
    pub start: u32,
    /// Its tokens in this row.
    pub length: u32,
}

/// Segments side by side, the longest first; what they leave of the row is padding.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PackedRow {
    /// The segments. State is reset at the start of each.
    pub segments: Vec<Segment>,
}

/// Deals the pieces of each length in turn.
pub(crate) struct NextPieces<'a> {
    pieces: &'a [Segment],
    /// For each length, falling: the next piece.
    next: Vec<(u32, usize)>,
}

impl<'a> NextPieces<'a> {
    /// Over pieces by falling length.
    pub(crate) fn new(pieces: &'a [Segment]) -> NextPieces<'a> {
        let mut next: Vec<(u32, usize)> = Vec::new();
        for (place, piece) in pieces.iter().enumerate() {
            if next
                .last()
                .is_none_or(|&(length, _)| length != piece.length)
            {
                next.push((piece.length, place));
            }
        }
        NextPieces { pieces, next }
    }

    pub(crate) fn row(&mut self, pattern: &Pattern) -> PackedRow {
        let mut segments = Vec::new();
        for &(length, count) in &pattern.pieces {
            let of_length = self.next.partition_point(|next| next.0 > length);
            let place = &mut self.next[of_length].1;
            segments.extend_from_slice(&self.pieces[*place..][..count as usize]);
            *place += count as usize;
        }
        PackedRow { segments }
    }
}

/// Counts the pieces of a look-ahead by length; kept between look-aheads.
#[derive(Debug)]
pub(crate) struct PieceCounter {
    packing: Packing,
    /// Pieces by length.
    counts: Vec<u32>,
    /// Whether there are so many sentences that lengths which occur are found among all, and not noted.
    is_dense: bool,
    /// Lengths that occur.
    seen: Vec<u32>,
    rows: RowCounter,
}

impl PieceCounter {
    pub(crate) fn new(packing: Packing) -> PieceCounter {
        PieceCounter {
            packing,
            counts: vec![0; packing.row_length() as usize + 1],
            is_dense: packing.row_length() <= packing.look_ahead(),
            seen: Vec::new(),
            rows: RowCounter::new(packing),
        }
    }

    /// Adds sentences of some lengths, so many of each.
    #[inline]
    pub(crate) fn add(&mut self, sentences: impl IntoIterator<Item = (u32, u32)>) {
        let row_length = self.packing.row_length();
        if !self.is_dense {
            for (length, times) in sentences {
                cut(row_length, length, times, |length, pieces| {
                    self.add_pieces(length, pieces);
                });
            }
            return;
        }
        let counts = &mut self.counts[..=row_length as usize];
        for (length, times) in sentences {
            cut(row_length, length, times, |length, pieces| {
                counts[length as usize] += pieces;
            });
        }
    }

    /// Adds pieces of a length, which is no more than a row's.
    #[inline]
    pub(crate) fn add_pieces(&mut self, length: u32, pieces: u32) {
        let count = &mut self.counts[length as usize];
        if !self.is_dense && *count == 0 && pieces > 0 {
            self.seen.push(length);
        }
        *count += pieces;
    }

    /// The rows that the pieces fill. None are left for the next call.
    pub(crate) fn rows(&mut self) -> u64 {
        self.put_seen_in_order();
        let counts = &mut self.counts;
        let pieces = self.seen.drain(..).map(|length| {
            let count = std::mem::take(&mut counts[length as usize]);
            (length, count)
        });
        self.rows.rows(pieces)
    }

    /// The lengths that occur, falling.
    fn put_seen_in_order(&mut self) {
        if self.is_dense {
            let counts = (0_u32..=self.packing.row_length())
                .rev()
                .zip(self.counts.iter().rev());
            let occur = counts.filter(|&(_, &count)| count > 0);
            self.seen.extend(occur.map(|(length, _)| length));
        } else {
            self.seen.sort_unstable_by(|a, b| b.cmp(a));
        }
    }

    /// The rows for sentences of these lengths.
    pub(crate) fn pack(&mut self, lengths: &[u32]) -> Vec<Pattern> {
        let pieces = self.count(lengths);
        self.packing.pack(&pieces)
    }

    /// How many pieces have each length, by falling length.
    fn count(&mut self, lengths: &[u32]) -> Vec<(u32, u32)> {
        self.add(lengths.iter().map(|&length| (length, 1)));
        self.put_seen_in_order();
        self.seen
            .drain(..)
            .map(|length| (length, std::mem::take(&mut self.counts[length as usize])))
            .collect()
    }

    /// ln of the number of ways in which sentences of these lengths are emitted, any order of them coming
    /// in: R!/∏ m_p! · ∏ k_ℓ! / ∏ s_ℓ! of the derivation in `stream/rows.rs`.
    pub(crate) fn ln_orders(&mut self, lengths: &[u32]) -> f64 {
        let row_length = self.packing.row_length();
        let ln = |count: u32| ln_factorial(f64::from(count));
        let patterns = self.pack(lengths);
        let mut orders = ln(patterns.iter().map(|pattern| pattern.rows).sum());
        orders -= patterns.iter().map(|pattern| ln(pattern.rows)).sum::<f64>();
        let whole = lengths.iter().filter(|&&length| length >= row_length);
        orders += ln(whole.count() as u32);
        let shorter = self
            .count(lengths)
            .into_iter()
            .filter(|&(length, _)| length < row_length);
        orders += shorter.map(|(_, count)| ln(count)).sum::<f64>();
        let rests: Vec<u32> = lengths
            .iter()
            .filter(|&&length| length > row_length && length % row_length != 0)
            .map(|length| length % row_length)
            .collect();
        orders
            - self
                .count(&rests)
                .into_iter()
                .map(|(_, cut)| ln(cut))
                .sum::<f64>()
    }
}

/// Shows the pieces of sentences of one length: (length, how many).
#[inline(always)]
fn cut(row_length: u32, length: u32, times: u32, mut add: impl FnMut(u32, u32)) {
    if length <= row_length {
        return add(length, times);
    }
    let whole = (length - 1) / row_length;
    add(row_length, whole * times);
    add(length - whole * row_length, times);
}

#[cfg(test)]
mod tests;
