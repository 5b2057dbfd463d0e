//! The bucket of a length, the number of sentences in its batches, and their cost in padding.
//!
//! A layout depends only on the histogram of lengths, so its figures are exact and the same in every epoch. A
//! batch is padded to the end of its bucket, not to its longest sentence: then a bucket is one shape, for which
//! buffers and compiled programs are made once.
//!
//! **Padding.** A sentence of length ℓ in a bucket that ends at b takes b cells, in any batch: the padded fraction
//! is 1 − Σ ℓ / Σ b.
//!
//! **RL\*** = ln(orders an epoch can have) / ln(N!), as of the orders without buckets. Many of the N! orders of the
//! plan below give the same batches. Bucket b has n_b sentences in m_b batches. Two things determine the batches:
//!
//! * the order of the sentences within each bucket, which is that of the plan: ∏ n_b!;
//! * which bucket each batch is of: every word with m_b letters b occurs, for the plan may bring the sentences of the
//!   first letter first, then those of the second, and so on: (Σ m_b)! / ∏ m_b!.
//!
//! No two of these combinations emit the same: a sentence determines its bucket, and the sizes then determine the
//! ends of batches. So
//!
//! ```text
//! RL* = (Σ ln n_b! + ln (Σ m_b)! − Σ ln m_b!) / ln N!
//! ```
//!
//! which is 1 for one bucket. The words are not equally likely, as sentences of all buckets come mixed;
//! the entropy of an epoch is between RL* and RL* without its second term, which is of the order of N/c · ln(buckets)
//! against N · ln N.

use super::histogram::LengthHistogram;
use super::optimal;
use super::policy::{BucketPolicy, check_rising};
use crate::error::PlanError;
use crate::randomness::ln_factorial;

/// Most buckets: their numbers are kept in two bytes a sentence.
const MAX_BUCKETS: usize = 1 << 16;

/// Sentences of neighbouring lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// The greatest length, to which sentences are padded.
    pub longest: u32,
    /// Pairs: that of their second sides; otherwise 0.
    pub second: u32,
    /// Sentences of a full batch.
    pub capacity: u64,
    /// Sentences of an epoch.
    pub sentences: u64,
    /// Whether each sentence is a batch of its own and is not padded: it is longer than the maximum tokens of
    /// a batch.
    pub alone: bool,
}

impl Bucket {
    /// Batches of an epoch.
    pub fn batches(&self) -> u64 {
        self.sentences.div_ceil(self.capacity)
    }
}

/// The buckets of some sentences, and their cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketLayout {
    /// By length, rising, those of one length by the second; none is empty.
    pub(super) buckets: Vec<Bucket>,
    pub(super) sentences: u64,
    pub(super) tokens: u128,
    pub(super) cells: u128,
    pub(super) stretched: u64,
}

impl BucketLayout {
    /// The buckets of a policy over sentences of these lengths, with global batches of `batch`
    /// sentences (`tokens` has its own). Refuses `pack`, which has rows instead of buckets.
    pub fn new(
        policy: &BucketPolicy,
        batch: u64,
        histogram: &LengthHistogram,
    ) -> Result<BucketLayout, PlanError> {
        if batch == 0 {
            return Err(PlanError::EmptyBatch);
        }
        let longest = histogram.longest();
        let mut stretched = 0;
        let mut capacity = Capacity::Sentences(batch);
        let ends = match policy {
            BucketPolicy::None => vec![longest],
            BucketPolicy::Static(boundaries) => {
                check_rising(boundaries)?;
                let last = boundaries[boundaries.len() - 1];
                stretched = longer_than(histogram, last);
                let shorter = boundaries.iter().filter(|&&end| end < last);
                shorter.copied().chain([last.max(longest)]).collect()
            }
            BucketPolicy::StaticPairs(_) => {
                return Err(PlanError::NoPairs {
                    policy: policy.to_string(),
                });
            }
            BucketPolicy::Auto => full_batches(histogram.counts(), 0, capacity),
            BucketPolicy::Optimal { buckets: 0 } | BucketPolicy::Tokens { max: 0 } => {
                return Err(PlanError::EmptyPolicy {
                    policy: policy.to_string(),
                });
            }
            BucketPolicy::Optimal { buckets } => optimal::boundaries(histogram, *buckets)?,
            BucketPolicy::Tokens { max } => {
                capacity = Capacity::Tokens(*max);
                full_batches(histogram.counts(), 0, capacity)
            }
            BucketPolicy::Pack(_) => {
                return Err(PlanError::RowsNotBuckets {
                    policy: policy.to_string(),
                });
            }
        };
        BucketLayout::over(&ends, capacity, stretched, histogram, policy)
    }

    fn over(
        ends: &[u32],
        capacity: Capacity,
        stretched: u64,
        histogram: &LengthHistogram,
        policy: &BucketPolicy,
    ) -> Result<BucketLayout, PlanError> {
        let mut layout = BucketLayout {
            buckets: Vec::new(),
            sentences: histogram.sentences(),
            tokens: histogram.tokens(),
            cells: 0,
            stretched,
        };
        let mut counts = histogram.counts();
        for &longest in ends {
            let inside = counts.partition_point(|&(length, _)| length <= longest);
            let (of_bucket, rest) = counts.split_at(inside);
            counts = rest;
            let sentences: u64 = of_bucket.iter().map(|&(_, count)| count).sum();
            if sentences == 0 {
                continue;
            }
            let alone = capacity.is_exceeded_by(longest);
            let cells_of = |&(length, count): &(u32, u64)| {
                u128::from(if alone { length } else { longest }) * u128::from(count)
            };
            layout.cells += of_bucket.iter().map(cells_of).sum::<u128>();
            layout.buckets.push(Bucket {
                longest,
                second: 0,
                capacity: capacity.at(longest),
                sentences,
                alone,
            });
        }
        layout.check(policy)
    }

    /// Refuses more than `MAX_BUCKETS` buckets.
    pub(super) fn check(self, policy: &BucketPolicy) -> Result<BucketLayout, PlanError> {
        match self.buckets.len() {
            buckets if buckets > MAX_BUCKETS => Err(PlanError::TooManyBuckets {
                policy: policy.to_string(),
                buckets: buckets as u64,
                limit: MAX_BUCKETS as u64,
            }),
            _ => Ok(self),
        }
    }

    /// The buckets that hold sentences, by length.
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// The bucket of a length. Asserts that a sentence of the histogram has it.
    pub fn bucket_of(&self, length: u32) -> usize {
        let bucket = self.bucket_of_pair([length, 0]);
        bucket.unwrap_or_else(|| panic!("no sentence has length {length}"))
    }

    /// The first bucket that holds both sides of a pair; a sentence is a pair with a second side of 0. `None` if no
    /// pair of the histogram has these lengths or greater ones.
    pub fn bucket_of_pair(&self, [first, second]: [u32; 2]) -> Option<usize> {
        let least = self
            .buckets
            .partition_point(|bucket| bucket.longest < first);
        let holds = self.buckets[least..]
            .iter()
            .position(|bucket| second <= bucket.second);
        holds.map(|above| least + above)
    }

    /// Sentences of an epoch.
    pub fn sentences(&self) -> u64 {
        self.sentences
    }

    /// Batches of an epoch, the same in every one.
    pub fn batches(&self) -> u64 {
        self.buckets.iter().map(Bucket::batches).sum()
    }

    /// Sentences longer than the last given boundary, for which its bucket is stretched.
    pub fn stretched(&self) -> u64 {
        self.stretched
    }

    /// Cells that hold padding over all cells; 0 if there are no cells.
    pub fn padded_fraction(&self) -> f64 {
        (self.cells - self.tokens) as f64 / self.cells.max(1) as f64
    }

    /// The exact randomness RL* of these buckets over `full` order; see the module's derivation.
    pub fn rl_exact(&self) -> f64 {
        if self.sentences <= 1 {
            return 1.0;
        }
        let ln = |count: u64| ln_factorial(count as f64);
        let inside: f64 = self.buckets.iter().map(|bucket| ln(bucket.sentences)).sum();
        let batches = self.buckets.iter().map(Bucket::batches);
        let words = ln(self.batches()) - batches.map(ln).sum::<f64>();
        (inside + words) / ln(self.sentences)
    }
}

/// How many sentences a batch holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Capacity {
    Sentences(u64),
    Tokens(u64),
}

impl Capacity {
    /// Sentences of a batch that is padded to `longest`.
    pub(super) fn at(self, longest: impl Into<u64>) -> u64 {
        match self {
            Capacity::Sentences(sentences) => sentences,
            Capacity::Tokens(tokens) => (tokens / longest.into().max(1)).max(1),
        }
    }

    /// Whether one sentence of this length is more than a batch may have.
    pub(super) fn is_exceeded_by(self, length: impl Into<u64>) -> bool {
        matches!(self, Capacity::Tokens(tokens) if length.into() > tokens)
    }
}

/// Sentences longer than `length`.
fn longer_than(histogram: &LengthHistogram, length: u32) -> u64 {
    let longer = histogram.counts().iter().filter(|count| count.0 > length);
    longer.map(|&(_, count)| count).sum()
}

/// Ends a bucket at the first length at which it holds a full batch of sentences with `adjacent` more tokens each;
/// the rest joins the last bucket. Sentences that exceed a whole batch have a separate bucket.
pub(super) fn full_batches(counts: &[(u32, u64)], adjacent: u32, capacity: Capacity) -> Vec<u32> {
    let cells = |length: u32| u64::from(adjacent) + u64::from(length);
    let alone = counts.partition_point(|&(length, _)| !capacity.is_exceeded_by(cells(length)));
    let mut ends = Vec::new();
    let mut sentences = 0;
    for &(length, count) in &counts[..alone] {
        sentences += count;
        if sentences >= capacity.at(cells(length)) {
            ends.push(length);
            sentences = 0;
        }
    }
    if sentences > 0 {
        ends.pop();
        ends.push(counts[alone - 1].0);
    }
    if alone < counts.len() {
        ends.extend(counts.last().map(|&(longest, _)| longest));
    }
    ends
}

#[cfg(test)]
mod tests;
