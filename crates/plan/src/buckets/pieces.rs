//! The pieces of a look-ahead's sentences: counted by length, and dealt to the rows that are packed.

use super::packing::{Packing, Pattern};
use crate::randomness::ln_factorial;
use crate::step_batch::Piece;

/// A part of a sentence, or all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Segment {
    /// The index of the sentence in its look-ahead.
    pub(crate) place: u32,
    pub(crate) piece: Piece,
}

/// Gives out the pieces of each length in turn.
pub(crate) struct NextPieces<'a> {
    pieces: &'a [Segment],
    /// For each length, falling: the next piece.
    next: Vec<(u32, usize)>,
}

impl<'a> NextPieces<'a> {
    /// Over pieces by falling length.
    pub(crate) fn new(pieces: &'a [Segment]) -> NextPieces<'a> {
        let mut next: Vec<(u32, usize)> = Vec::new();
        for (place, segment) in pieces.iter().enumerate() {
            let length = segment.piece.length;
            if next.last().is_none_or(|last| last.0 != length) {
                next.push((length, place));
            }
        }
        NextPieces { pieces, next }
    }

    /// Shows the pieces of a row.
    pub(crate) fn row(&mut self, pattern: &Pattern, mut add: impl FnMut(&Segment)) {
        for &(length, count) in &pattern.pieces {
            let of_length = self.next.partition_point(|next| next.0 > length);
            let place = &mut self.next[of_length].1;
            self.pieces[*place..][..count as usize]
                .iter()
                .for_each(&mut add);
            *place += count as usize;
        }
    }
}

/// Counts the pieces of look-aheads by length; kept between them.
#[derive(Debug)]
pub(crate) struct PieceCounter {
    packing: Packing,
    /// Pieces by length, and the lengths that occur.
    counts: Vec<u32>,
    seen: Vec<u32>,
}

impl PieceCounter {
    pub(crate) fn new(packing: Packing) -> PieceCounter {
        PieceCounter {
            packing,
            counts: vec![0; packing.row_length() as usize + 1],
            seen: Vec::new(),
        }
    }

    /// How many rows the pieces of sentences of these lengths fill.
    pub(crate) fn rows(&mut self, lengths: &[u32]) -> u64 {
        self.add(lengths);
        let counts = &mut self.counts;
        let pieces = self.seen.drain(..).map(|length| {
            let count = std::mem::take(&mut counts[length as usize]);
            (length, count)
        });
        self.packing.count_rows(pieces)
    }

    /// The rows for sentences of these lengths.
    pub(crate) fn pack(&mut self, lengths: &[u32]) -> Vec<Pattern> {
        let pieces = self.count(lengths);
        self.packing.pack(&pieces)
    }

    /// Counts the pieces of sentences, and notes the lengths that occur, falling.
    fn add(&mut self, lengths: &[u32]) {
        let row_length = self.packing.row_length();
        let (counts, seen) = (&mut self.counts, &mut self.seen);
        let mut add = |length: u32, pieces| {
            let count = &mut counts[length as usize];
            if *count == 0 {
                seen.push(length);
            }
            *count += pieces;
        };
        for &length in lengths {
            if length <= row_length {
                add(length, 1);
            } else {
                let whole = (length - 1) / row_length;
                add(row_length, whole);
                add(length - whole * row_length, 1);
            }
        }
        seen.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// How many pieces have each length, by falling length.
    fn count(&mut self, lengths: &[u32]) -> Vec<(u32, u32)> {
        self.add(lengths);
        let counts = &mut self.counts;
        let pieces = self.seen.drain(..);
        pieces
            .map(|length| (length, std::mem::take(&mut counts[length as usize])))
            .collect()
    }

    /// ln of the number of orders in which sentences of these lengths are emitted, if they come in any order: R!/∏
    /// m_p! · ∏ k_ℓ! / ∏ s_ℓ! of the derivation in `packed.rs`.
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

#[cfg(test)]
mod tests;
