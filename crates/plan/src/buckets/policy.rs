//! Bucket policies and their spelling on a command line.

use std::fmt;
use std::str::FromStr;

use super::packing::Packing;
use crate::error::PlanError;

/// How sentences are batched.
///
/// Written as text: `none`, `static:10,20,30`, `static:10x12,20x25` (of pairs), `auto`, `optimal:8`,
/// `tokens:4096`, `pack:64`, `pack:64:8192`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BucketPolicy {
    /// One bucket: every sentence is padded to the longest.
    None,
    /// Buckets that end at these lengths, rising; the last one stretches to the longest sentence.
    Static(Vec<u32>),
    /// The same for pairs of sentences: both sides of a pair are within those of its bucket.
    StaticPairs(Vec<[u32; 2]>),
    /// A bucket ends at the first length at which it holds a full batch; sentences left over at the
    /// long end join the last bucket. Pairs are bucketed this way by their first lengths, then within each such
    /// bucket by their second ones.
    Auto,
    /// The boundaries with the least padding.
    Optimal {
        /// Buckets; fewer if there are fewer lengths.
        buckets: u32,
    },
    /// Batches of as many sentences as fit in a number of padded tokens.
    Tokens {
        /// Most padded tokens of a batch that holds more than one sentence.
        max: u64,
    },
    /// Sentences side by side in rows of one length.
    Pack(Packing),
}

impl fmt::Display for BucketPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BucketPolicy::None => f.write_str("none"),
            BucketPolicy::Static(boundaries) => {
                let boundaries: Vec<String> = boundaries.iter().map(u32::to_string).collect();
                write!(f, "static:{}", boundaries.join(","))
            }
            BucketPolicy::StaticPairs(boundaries) => {
                let pair = |[first, second]: &[u32; 2]| format!("{first}x{second}");
                let boundaries: Vec<String> = boundaries.iter().map(pair).collect();
                write!(f, "static:{}", boundaries.join(","))
            }
            BucketPolicy::Auto => f.write_str("auto"),
            BucketPolicy::Optimal { buckets } => write!(f, "optimal:{buckets}"),
            BucketPolicy::Tokens { max } => write!(f, "tokens:{max}"),
            BucketPolicy::Pack(packing) => write!(f, "{packing}"),
        }
    }
}

impl FromStr for BucketPolicy {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<BucketPolicy, PlanError> {
        let parts: Vec<&str> = text.split(':').collect();
        match parts.as_slice() {
            ["none"] => Ok(BucketPolicy::None),
            ["static", list] if list.contains('x') => {
                pair_boundaries(text, list).map(BucketPolicy::StaticPairs)
            }
            ["static", list] => boundaries(text, list).map(BucketPolicy::Static),
            ["auto"] => Ok(BucketPolicy::Auto),
            ["optimal", buckets] => Ok(BucketPolicy::Optimal {
                buckets: length(text, buckets)?,
            }),
            ["tokens", max] => Ok(BucketPolicy::Tokens {
                max: length(text, max)?.into(),
            }),
            ["pack", row_length] => {
                Packing::new(length(text, row_length)?, Packing::DEFAULT_LOOK_AHEAD)
                    .map(BucketPolicy::Pack)
            }
            ["pack", row_length, look_ahead] => {
                Packing::new(length(text, row_length)?, length(text, look_ahead)?)
                    .map(BucketPolicy::Pack)
            }
            _ => Err(PlanError::UnknownBucketPolicy {
                text: text.to_owned(),
            }),
        }
    }
}

/// The rising lengths of a list.
fn boundaries(text: &str, list: &str) -> Result<Vec<u32>, PlanError> {
    let boundaries: Vec<u32> = list
        .split(',')
        .map(|number| length(text, number))
        .collect::<Result<_, _>>()?;
    check_rising(&boundaries)?;
    Ok(boundaries)
}

/// The rising pairs of a list; a length alone is that of both sides.
fn pair_boundaries(text: &str, list: &str) -> Result<Vec<[u32; 2]>, PlanError> {
    let pair = |pair: &str| {
        let (first, second) = pair.split_once('x').unwrap_or((pair, pair));
        Ok([length(text, first)?, length(text, second)?])
    };
    let boundaries: Vec<[u32; 2]> = list.split(',').map(pair).collect::<Result<_, _>>()?;
    check_rising_pairs(&boundaries)?;
    Ok(boundaries)
}

/// Refuses neighbouring pairs if a side decreases, or if neither increases.
pub(super) fn check_rising_pairs(boundaries: &[[u32; 2]]) -> Result<(), PlanError> {
    if boundaries.is_empty() {
        return Err(PlanError::NoBoundaries);
    }
    let rises = |of: &[[u32; 2]]| of[0][0] <= of[1][0] && of[0][1] <= of[1][1] && of[0] != of[1];
    match boundaries.windows(2).find(|of| !rises(of)) {
        Some(of) => Err(PlanError::FallingPairs {
            first: of[0],
            second: of[1],
        }),
        None => Ok(()),
    }
}

/// Refuses no boundaries and boundaries that do not rise.
pub(super) fn check_rising(boundaries: &[u32]) -> Result<(), PlanError> {
    if boundaries.is_empty() {
        return Err(PlanError::NoBoundaries);
    }
    match boundaries.windows(2).find(|pair| pair[0] >= pair[1]) {
        Some(pair) => Err(PlanError::FallingBoundaries {
            first: pair[0],
            second: pair[1],
        }),
        None => Ok(()),
    }
}

/// Parses `number`, a part of `text`, as a whole number from 1 to 2^32 − 1.
fn length(text: &str, number: &str) -> Result<u32, PlanError> {
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    match number.parse::<u32>() {
        Ok(length) if digits && length > 0 => Ok(length),
        _ => Err(PlanError::BadLength {
            text: text.to_owned(),
            number: number.to_owned(),
        }),
    }
}
