//! The published bucketing, for comparison: it drops sentences that do not fill a batch.
//!
//! Boundaries as in `auto`, but sentences left over at the long end get a separate bucket; the last sentences
//! of each bucket, in file order, that do not fill a batch are left out, the same in every epoch;
//! and one order of the batches is drawn for all epochs (MXNet's `bucket_io.py` of 2016), so that RL\*
//! is 0. Nothing else in this crate drops a sentence.

/// Figures of the published scheme.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedAuto {
    /// Buckets that emit a batch.
    pub buckets: u64,
    /// Batches of an epoch.
    pub batches: u64,
    /// Sentences left out of every epoch.
    pub dropped: u64,
    /// Padding over cells, of the sentences used.
    pub padded_fraction: f64,
}

impl PublishedAuto {
    /// Of sentences of these lengths, in file order. Asserts `batch > 0`.
    pub fn new(lengths: &[u32], batch: u64) -> PublishedAuto {
        assert!(batch > 0, "a batch of no sentences");
        let mut sorted: Vec<(u32, usize)> = lengths.iter().copied().zip(0..).collect();
        sorted.sort_unstable();
        let mut figures = PublishedAuto {
            buckets: 0,
            batches: 0,
            dropped: 0,
            padded_fraction: 0.0,
        };
        let (mut cells, mut tokens) = (0_u128, 0_u128);
        let mut bucket: Vec<(u32, usize)> = Vec::new();
        for of_length in sorted.chunk_by(|a, b| a.0 == b.0) {
            bucket.extend(of_length);
            if (bucket.len() as u64) < batch {
                continue;
            }
            let batches = bucket.len() as u64 / batch;
            bucket.sort_unstable_by_key(|&(_, place)| place);
            let used = &bucket[..(batches * batch) as usize];
            figures.buckets += 1;
            figures.batches += batches;
            figures.dropped += (bucket.len() - used.len()) as u64;
            cells += used.len() as u128 * u128::from(of_length[0].0);
            tokens += used
                .iter()
                .map(|&(length, _)| u128::from(length))
                .sum::<u128>();
            bucket.clear();
        }
        // The bucket of leftover sentences never fills a batch.
        figures.dropped += bucket.len() as u64;
        figures.padded_fraction = (cells - tokens) as f64 / cells.max(1) as f64;
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths 1 to 5 in batches of two: buckets end at 1, 3 and 5; the first drops one of three.
    #[test]
    fn a_case_by_hand() {
        let figures = PublishedAuto::new(&[1, 5, 2, 1, 3, 5, 1, 9, 2], 2);
        assert_eq!(figures.buckets, 3);
        assert_eq!(figures.batches, 3);
        // One of length 1 (its bucket has three), none of lengths 2 (two) and 5 after 3 … 5 (three, one
        // dropped), and the sentence of length 9.
        assert_eq!(figures.dropped, 3);
        let cells = 1.0 * 2.0 + 2.0 * 2.0 + 5.0 * 2.0;
        assert_eq!(figures.padded_fraction, (cells - (2.0 + 4.0 + 8.0)) / cells);
        assert_eq!(PublishedAuto::new(&[], 4).padded_fraction, 0.0);
    }
}
