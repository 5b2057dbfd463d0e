//! The number of sentences of each length; boundaries and padding depend on nothing else.

use std::collections::BTreeMap;

/// Lengths counted in an array; longer ones are counted in a tree.
const DENSE: usize = 1 << 16;

/// The number of sentences of each length.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LengthHistogram {
    /// Lengths that occur with their counts, rising.
    counts: Vec<(u32, u64)>,
    sentences: u64,
    tokens: u128,
}

impl LengthHistogram {
    /// The histogram of some lengths.
    pub fn new(lengths: impl IntoIterator<Item = u32>) -> LengthHistogram {
        let mut dense = vec![0_u64; DENSE];
        let mut long = BTreeMap::new();
        for length in lengths {
            match dense.get_mut(length as usize) {
                Some(count) => *count += 1,
                None => *long.entry(length).or_insert(0) += 1,
            }
        }
        let short = (0..).zip(dense).filter(|&(_, count)| count > 0);
        LengthHistogram::from_counts(short.chain(long).collect())
    }

    /// The histogram of weighted lengths; one that occurs counts at least once.
    pub(crate) fn expected(lengths: impl IntoIterator<Item = (u32, f64)>) -> LengthHistogram {
        let mut dense = vec![0.0; DENSE];
        let mut long = BTreeMap::new();
        for (length, count) in lengths {
            match dense.get_mut(length as usize) {
                Some(sum) => *sum += count,
                None => *long.entry(length).or_insert(0.0) += count,
            }
        }
        let short = (0..).zip(dense).filter(|&(_, count)| count > 0.0);
        let counts = short
            .chain(long)
            .map(|(length, count)| (length, whole(count)));
        LengthHistogram::from_counts(counts.collect())
    }

    /// From lengths that rise and how many sentences each has.
    pub(crate) fn from_counts(counts: Vec<(u32, u64)>) -> LengthHistogram {
        LengthHistogram {
            sentences: counts.iter().map(|&(_, count)| count).sum(),
            tokens: counts
                .iter()
                .map(|&(length, count)| u128::from(length) * u128::from(count))
                .sum(),
            counts,
        }
    }

    /// The lengths that occur, rising, and how many sentences have each.
    pub fn counts(&self) -> &[(u32, u64)] {
        &self.counts
    }

    /// Sentences in all.
    pub fn sentences(&self) -> u64 {
        self.sentences
    }

    /// Tokens in all.
    pub fn tokens(&self) -> u128 {
        self.tokens
    }

    /// The greatest length; 0 without sentences.
    pub fn longest(&self) -> u32 {
        self.counts.last().map_or(0, |&(length, _)| length)
    }

    /// Tokens of a mean sentence; 0 without sentences.
    pub fn mean(&self) -> f64 {
        self.tokens as f64 / self.sentences.max(1) as f64
    }
}

/// Rounds an expected number of sentences, to at least 1.
pub(crate) fn whole(count: f64) -> u64 {
    (count.round() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_lengths_are_rounded_and_none_is_lost() {
        let lengths = [(3, 0.4), (70_000, 1.2), (3, 2.3), (5, 0.1), (70_000, 1.4)];
        let histogram = LengthHistogram::expected(lengths);
        assert_eq!(histogram.counts(), [(3, 3), (5, 1), (70_000, 3)]);
    }

    #[test]
    fn short_and_long_lengths_are_counted() {
        let histogram = LengthHistogram::new([3, 1, 3, 70_000, u32::MAX, 0, 70_000]);
        assert_eq!(
            histogram.counts(),
            [(0, 1), (1, 1), (3, 2), (70_000, 2), (u32::MAX, 1)]
        );
        assert_eq!(histogram.sentences(), 7);
        assert_eq!(histogram.tokens(), 140_007 + u128::from(u32::MAX));
        assert_eq!(histogram.longest(), u32::MAX);
        assert_eq!(LengthHistogram::new([]), LengthHistogram::default());
        assert_eq!(LengthHistogram::default().mean(), 0.0);
    }
}
