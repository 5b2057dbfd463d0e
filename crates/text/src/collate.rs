//! Sentences of numbers side by side, in memory of the caller's.
//!
//! Three ways: [`pad`] gives each sentence a row of its own and fills it up, [`ragged`] puts them one after
//! another with a list of where each starts, [`pack`] puts several into a row and says for each token of
//! which sentence it is and where in it, so that state is reset and attention masked between them. Each
//! writes every element of what it fills, so the memory of the last batch is used again as it is.
//!
//! Cost: one copy of the tokens, and one store for each place that is filled up.

use crate::error::TextError;

/// What happens to sentences that do not fit into their row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TooLong {
    /// They are refused.
    #[default]
    Refuse,
    /// What fits is kept; the tokens left out are counted.
    Truncate,
}

/// A row of sentences in three parts of equal size.
#[derive(Debug)]
pub struct Packed<'a> {
    /// The tokens.
    pub tokens: &'a mut [u32],
    /// Of which sentence of its row each token is, from 1; 0 where the row is filled up.
    pub segments: &'a mut [u32],
    /// Where in its sentence each token is, from 0; 0 where the row is filled up.
    pub positions: &'a mut [u32],
}

/// Writes each sentence into a row of `length` tokens that `padding` fills up, and how many tokens of it are
/// there. Returns how many were left out.
///
/// Shapes: `tokens` \[rows, length\], `lengths` \[rows\], for as many rows as sentences; panics where they are
/// not.
/// Errors: with [`TooLong::Refuse`] the first row whose sentence is longer; nothing is written then.
pub fn pad(
    sentences: &[&[u32]],
    length: usize,
    padding: u32,
    too_long: TooLong,
    tokens: &mut [u32],
    lengths: &mut [u32],
) -> Result<u64, TextError> {
    assert_eq!(tokens.len(), sentences.len() * length, "rows of tokens");
    assert_eq!(lengths.len(), sentences.len(), "a length for each row");
    let mut left_out = 0;
    for (row, sentence) in sentences.iter().enumerate() {
        left_out += excess(row, sentence.len(), length, too_long)?;
    }
    for (row, sentence) in sentences.iter().enumerate() {
        let kept = sentence.len().min(length);
        let (text, rest) = tokens[row * length..][..length].split_at_mut(kept);
        text.copy_from_slice(&sentence[..kept]);
        rest.fill(padding);
        lengths[row] = kept as u32;
    }
    Ok(left_out)
}

/// Writes the sentences one after another, and where each starts; the last offset is where the last one ends.
///
/// Shapes: `values` as long as all sentences together, `offsets` [sentences + 1]; panics where they are not.
pub fn ragged(sentences: &[&[u32]], values: &mut [u32], offsets: &mut [u64]) {
    let total: usize = sentences.iter().map(|sentence| sentence.len()).sum();
    assert_eq!(values.len(), total, "values for every token");
    assert_eq!(
        offsets.len(),
        sentences.len() + 1,
        "an offset for each sentence and the end"
    );
    let mut at = 0;
    for (sentence, offset) in sentences.iter().zip(&mut *offsets) {
        *offset = at as u64;
        values[at..at + sentence.len()].copy_from_slice(sentence);
        at += sentence.len();
    }
    offsets[sentences.len()] = at as u64;
}

/// Writes rows of several sentences, or pieces of sentences, each into `length` tokens that `padding` fills
/// up. `row_ends` says for each row how many of the sentences come up to its end. Returns how many tokens
/// were left out.
///
/// Shapes: `tokens`, `segments` and `positions` [rows, length]; panics where they are not, or where
/// `row_ends` fall or do not end with the number of sentences.
/// Errors: with [`TooLong::Refuse`] the first row whose sentences are longer together; nothing is written
/// then.
pub fn pack(
    sentences: &[&[u32]],
    row_ends: &[usize],
    length: usize,
    padding: u32,
    too_long: TooLong,
    out: Packed<'_>,
) -> Result<u64, TextError> {
    let size = row_ends.len() * length;
    assert_eq!(
        row_ends.last().copied().unwrap_or(0),
        sentences.len(),
        "the last row's end"
    );
    assert!(row_ends.is_sorted(), "ends of rows do not fall");
    assert_eq!(out.tokens.len(), size, "rows of tokens");
    assert_eq!(out.segments.len(), size, "rows of segments");
    assert_eq!(out.positions.len(), size, "rows of positions");
    let starts = || std::iter::once(0).chain(row_ends.iter().copied());
    let rows = || {
        starts()
            .zip(row_ends)
            .map(|(from, &to)| &sentences[from..to])
    };
    let mut left_out = 0;
    for (row, sentences) in rows().enumerate() {
        let needed = sentences.iter().map(|sentence| sentence.len()).sum();
        left_out += excess(row, needed, length, too_long)?;
    }
    for (row, sentences) in rows().enumerate() {
        let places = row * length..(row + 1) * length;
        pack_row(
            sentences,
            padding,
            Packed {
                tokens: &mut out.tokens[places.clone()],
                segments: &mut out.segments[places.clone()],
                positions: &mut out.positions[places],
            },
        );
    }
    Ok(left_out)
}

fn pack_row(sentences: &[&[u32]], padding: u32, out: Packed<'_>) {
    let mut at = 0;
    for (segment, sentence) in (1..).zip(sentences) {
        let end = out.tokens.len().min(at + sentence.len());
        out.tokens[at..end].copy_from_slice(&sentence[..end - at]);
        out.segments[at..end].fill(segment);
        for (position, place) in (0..).zip(&mut out.positions[at..end]) {
            *place = position;
        }
        at = end;
    }
    out.tokens[at..].fill(padding);
    out.segments[at..].fill(0);
    out.positions[at..].fill(0);
}

/// How many tokens a row has no room for.
fn excess(row: usize, needed: usize, length: usize, too_long: TooLong) -> Result<u64, TextError> {
    if needed > length && too_long == TooLong::Refuse {
        return Err(TextError::TooLong {
            row,
            needed,
            length,
        });
    }
    Ok(needed.saturating_sub(length) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NINE: u32 = 99;

    #[test]
    fn padded_rows() {
        let sentences: [&[u32]; 3] = [&[5, 6], &[], &[7, 8, 9, 10]];
        let (mut tokens, mut lengths) = ([NINE; 9], [NINE; 3]);
        let error = pad(&sentences, 3, 0, TooLong::Refuse, &mut tokens, &mut lengths).unwrap_err();
        assert_eq!(
            error.to_string(),
            "row 2 needs 4 tokens where rows have 3; make rows longer, leave such sentences out, or have them truncated"
        );
        assert!(matches!(
            error,
            TextError::TooLong {
                row: 2,
                needed: 4,
                length: 3
            }
        ));
        assert_eq!(tokens, [NINE; 9], "nothing is written");
        let left_out = pad(
            &sentences,
            3,
            0,
            TooLong::Truncate,
            &mut tokens,
            &mut lengths,
        );
        assert_eq!(left_out.unwrap(), 1);
        assert_eq!(tokens, [5, 6, 0, 0, 0, 0, 7, 8, 9]);
        assert_eq!(lengths, [2, 0, 3]);
        assert_eq!(
            pad(&[], 3, 0, TooLong::Refuse, &mut [], &mut []).unwrap(),
            0
        );
    }

    #[test]
    fn ragged_values() {
        let (mut values, mut offsets) = ([NINE; 3], [99; 4]);
        ragged(&[&[5, 6], &[], &[7]], &mut values, &mut offsets);
        assert_eq!((values, offsets), ([5, 6, 7], [0, 2, 2, 3]));
        let mut offsets = [99];
        ragged(&[], &mut [], &mut offsets);
        assert_eq!(offsets, [0]);
    }

    #[test]
    fn packed_rows() {
        let sentences: [&[u32]; 4] = [&[5, 6], &[7], &[8, 9, 10, 11, 12], &[13]];
        let (mut tokens, mut segments, mut positions) = ([NINE; 12], [NINE; 12], [NINE; 12]);
        let mut pack = |too_long| {
            let out = Packed {
                tokens: &mut tokens,
                segments: &mut segments,
                positions: &mut positions,
            };
            super::pack(&sentences, &[2, 2, 4], 4, 0, too_long, out)
        };
        let error = pack(TooLong::Refuse).unwrap_err();
        assert!(matches!(
            error,
            TextError::TooLong {
                row: 2,
                needed: 6,
                length: 4
            }
        ));
        assert_eq!(pack(TooLong::Truncate).unwrap(), 2);
        assert_eq!(tokens, [5, 6, 7, 0, 0, 0, 0, 0, 8, 9, 10, 11]);
        assert_eq!(segments, [1, 1, 2, 0, 0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(positions, [0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]);
    }

    #[test]
    #[should_panic(expected = "rows of tokens")]
    fn a_buffer_of_another_size_is_a_mistake() {
        let _ = pad(&[&[1]], 2, 0, TooLong::Refuse, &mut [0; 3], &mut [0]);
    }

    proptest! {
        /// Every token comes back from a row by its segment, in the order of its positions.
        #[test]
        fn packed_sentences_come_back(
            rows in prop::collection::vec(prop::collection::vec(prop::collection::vec(1u32..9, 0..5), 0..4), 0..6),
        ) {
            let length = 20;
            let sentences: Vec<&[u32]> = rows.iter().flatten().map(Vec::as_slice).collect();
            let mut end = 0;
            let row_ends: Vec<usize> = rows.iter().map(|row| { end += row.len(); end }).collect();
            let size = rows.len() * length;
            let (mut tokens, mut segments, mut positions) =
                (vec![NINE; size], vec![NINE; size], vec![NINE; size]);
            let out = Packed {
                tokens: &mut tokens,
                segments: &mut segments,
                positions: &mut positions,
            };
            let left_out = pack(&sentences, &row_ends, length, 0, TooLong::Refuse, out).unwrap();
            prop_assert_eq!(left_out, 0);
            for (row, sentences) in rows.iter().enumerate() {
                let places = row * length..(row + 1) * length;
                for (segment, sentence) in (1..).zip(sentences) {
                    let found: Vec<(u32, u32)> = places.clone()
                        .filter(|&place| segments[place] == segment)
                        .map(|place| (positions[place], tokens[place]))
                        .collect();
                    let expected: Vec<(u32, u32)> = (0..).zip(sentence.iter().copied()).collect();
                    prop_assert_eq!(found, expected);
                }
                let used: usize = sentences.iter().map(Vec::len).sum();
                for place in places.skip(used) {
                    prop_assert_eq!((tokens[place], segments[place], positions[place]), (0, 0, 0));
                }
            }
        }
    }
}
