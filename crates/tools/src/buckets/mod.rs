//! The job `buckets`: the cost of each batching policy, on the lengths of a file.
//!
//! Padding, number of buckets and RL* follow from the histogram of lengths and are exact; for packed rows, which depend
//! slightly on the order, they are of the first epoch of seed 0. Cost: one pass over the file; only the packing policy
//! uses sentences rather than counts.

mod column;
mod lengths;
mod npy_lengths;
mod picture;

use std::path::{Path, PathBuf};

use pelton_plan::{
    BucketLayout, BucketPolicy, Catalog, LengthHistogram, Order, Packing, PairHistogram, Plan,
    PlanError, PlanSpec, PublishedAuto,
};
use serde::Serialize;

pub use column::Column;
pub(crate) use lengths::lengths_of;
pub use lengths::{LengthSource, Unit, read_lengths};
pub use picture::{histogram, in_terminal};

use pelton_data::DataError;
use pelton_run::RunContext;

/// The lengths, batch size and policies to compare.
#[derive(Clone, Debug)]
pub struct BucketsConfig {
    /// The file.
    pub path: PathBuf,
    /// Second file; its sentence N is paired with sentence N of the first.
    pub pair: Option<PathBuf>,
    /// The lengths in it.
    pub source: LengthSource,
    /// Sentences in a global batch (rows, if sentences are packed).
    pub batch: u64,
    /// Policies to compare; all if empty.
    pub policies: Vec<BucketPolicy>,
}

/// The cost of a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BucketRow {
    /// The policy as text.
    pub policy: String,
    /// Buckets that hold sentences; 1 for packed rows.
    pub buckets: u64,
    /// Batches of an epoch.
    pub batches: u64,
    /// Cells that hold padding over all cells.
    pub padded_fraction: f64,
    /// Sentences left out of an epoch.
    pub dropped: u64,
    /// Sentences longer than the last given boundary; its bucket is stretched.
    pub stretched: u64,
    /// ln of the number of orders an epoch can have over ln N!.
    pub rl_exact: f64,
    /// Ends of the buckets; for packed rows their length.
    pub boundaries: Vec<u32>,
    /// Pairs: ends of the buckets for the second sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub second_boundaries: Vec<u32>,
}

/// The policies on the lengths of a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BucketsTable {
    /// The file.
    pub file: String,
    /// Sentences of a global batch.
    pub batch: u64,
    /// The file of the second sentences of pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair: Option<String>,
    /// Sentences of the file, or pairs.
    pub sentences: u64,
    /// Tokens of the file, or of both.
    pub tokens: f64,
    /// Tokens of the longest sentence.
    pub longest: u32,
    /// Pairs: tokens of the longest second sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second_longest: Option<u32>,
    /// A row a policy.
    pub rows: Vec<BucketRow>,
    /// Lengths that occur and how many sentences have each.
    pub histogram: Vec<(u32, u64)>,
}

/// The published scheme; no plan offers it, since it drops sentences.
pub const PUBLISHED_AUTO: &str = "published-auto";

/// Compares policies on the lengths of a file.
///
/// Errors: a file that cannot be read or has no lengths; an invalid policy; an interruption.
pub fn buckets(config: &BucketsConfig, context: RunContext<'_>) -> Result<BucketsTable, DataError> {
    if config.batch == 0 {
        return Err(PlanError::EmptyBatch.into());
    }
    let lengths = read_lengths(&config.path, &config.source, context.interrupt)?;
    let histogram = LengthHistogram::new(lengths.iter().copied());
    if let Some(pair) = &config.pair {
        let second = read_lengths(pair, &config.source, context.interrupt)?;
        return of_pairs(config, pair, &lengths, &histogram, &second);
    }
    let policies = match config.policies.as_slice() {
        [] => default_policies(&histogram, config.batch),
        policies => policies.to_vec(),
    };
    let mut rows = policies
        .iter()
        .map(|policy| row(policy, config.batch, &lengths, &histogram))
        .collect::<Result<Vec<_>, _>>()?;
    if config.policies.is_empty() || config.policies.contains(&BucketPolicy::Auto) {
        rows.push(published(config.batch, &lengths));
    }
    Ok(BucketsTable {
        file: config.path.display().to_string(),
        batch: config.batch,
        pair: None,
        sentences: histogram.sentences(),
        tokens: histogram.tokens() as f64,
        longest: histogram.longest(),
        second_longest: None,
        rows,
        histogram: histogram.counts().to_vec(),
    })
}

/// Compares policies on pairs.
fn of_pairs(
    config: &BucketsConfig,
    pair: &Path,
    first: &[u32],
    histogram: &LengthHistogram,
    second: &[u32],
) -> Result<BucketsTable, DataError> {
    if first.len() != second.len() {
        return Err(DataError::Config(format!(
            "{} has {} sentences and {} has {}; give two files in which sentence N of one belongs to sentence N of the other",
            config.path.display(),
            first.len(),
            pair.display(),
            second.len()
        )));
    }
    let of_second = LengthHistogram::new(second.iter().copied());
    let of_pairs = PairHistogram::new(first.iter().zip(second).map(|(&a, &b)| [a, b]));
    let policies = match config.policies.as_slice() {
        [] => {
            let steps = static_boundaries(histogram).into_iter();
            let steps = steps.zip(static_boundaries(&of_second));
            let tokens = (histogram.mean() + of_second.mean()) * config.batch as f64;
            vec![
                BucketPolicy::None,
                BucketPolicy::StaticPairs(steps.map(|(a, b)| [a, b]).collect()),
                BucketPolicy::Auto,
                BucketPolicy::Tokens {
                    max: tokens.ceil().max(1.0) as u64,
                },
            ]
        }
        policies => policies.to_vec(),
    };
    let rows = policies.iter().map(|policy| {
        let layout = BucketLayout::of_pairs(policy, config.batch, &of_pairs)?;
        let second = layout.buckets().iter().map(|bucket| bucket.second);
        Ok(BucketRow {
            second_boundaries: second.collect(),
            ..row_of(policy, &layout)
        })
    });
    Ok(BucketsTable {
        file: config.path.display().to_string(),
        batch: config.batch,
        pair: Some(pair.display().to_string()),
        sentences: histogram.sentences(),
        tokens: (histogram.tokens() + of_second.tokens()) as f64,
        longest: histogram.longest(),
        second_longest: Some(of_second.longest()),
        rows: rows.collect::<Result<_, PlanError>>()?,
        histogram: histogram.counts().to_vec(),
    })
}

/// Every policy, with parameters fitted to the data if no constant suits all data.
fn default_policies(histogram: &LengthHistogram, batch: u64) -> Vec<BucketPolicy> {
    let tokens = (histogram.mean() * batch as f64).ceil().max(1.0) as u64;
    let mut policies = vec![
        BucketPolicy::None,
        BucketPolicy::Static(static_boundaries(histogram)),
        BucketPolicy::Optimal { buckets: 8 },
        BucketPolicy::Optimal { buckets: 16 },
        BucketPolicy::Auto,
        BucketPolicy::Tokens { max: tokens },
    ];
    // Rows twice as long as the longest sentence fill better than rows that just hold it: 0.13 % of
    // padding on the Penn Treebank against 0.32 %. Very long lines are cut.
    let row_length = histogram.longest().saturating_mul(2).clamp(1, 4096);
    policies.extend(
        Packing::new(row_length, Packing::DEFAULT_LOOK_AHEAD)
            .ok()
            .map(BucketPolicy::Pack),
    );
    policies
}

/// Six even steps of a multiple of 10 that reach 99 of 100 sentences: 10, 20, … 60 for English sentences
/// in words, as published.
fn static_boundaries(histogram: &LengthHistogram) -> Vec<u32> {
    let wanted = histogram.sentences() - histogram.sentences() / 100;
    let mut sentences = 0;
    let reached = histogram.counts().iter().find(|(_, count)| {
        sentences += count;
        sentences >= wanted
    });
    let reached = reached.map_or(0, |&(length, _)| length);
    let step = reached.div_ceil(6).max(1).div_ceil(10).saturating_mul(10);
    (1..=6)
        .filter_map(|place| step.checked_mul(place))
        .collect()
}

/// The figures of one policy.
pub fn row(
    policy: &BucketPolicy,
    batch: u64,
    lengths: &[u32],
    histogram: &LengthHistogram,
) -> Result<BucketRow, PlanError> {
    if let BucketPolicy::Pack(packing) = policy {
        return packed(*packing, batch, lengths);
    }
    Ok(row_of(
        policy,
        &BucketLayout::new(policy, batch, histogram)?,
    ))
}

fn row_of(policy: &BucketPolicy, layout: &BucketLayout) -> BucketRow {
    let buckets = layout.buckets();
    BucketRow {
        policy: policy.to_string(),
        buckets: buckets.len() as u64,
        batches: layout.batches(),
        padded_fraction: layout.padded_fraction(),
        dropped: 0,
        stretched: layout.stretched(),
        rl_exact: layout.rl_exact(),
        boundaries: buckets.iter().map(|bucket| bucket.longest).collect(),
        second_boundaries: Vec::new(),
    }
}

fn packed(packing: Packing, batch: u64, lengths: &[u32]) -> Result<BucketRow, PlanError> {
    let spec = PlanSpec {
        buckets: Some(BucketPolicy::Pack(packing)),
        ..PlanSpec::new(Order::Full, batch, 0)
    };
    let length_of = |id| lengths[id as usize];
    let over = Catalog::new(lengths.len() as u64).with_lengths(&length_of);
    let plan = Plan::new(&spec, over)?;
    Ok(BucketRow {
        policy: packing.to_string(),
        buckets: 1,
        batches: plan.steps(0),
        padded_fraction: plan.padded_fraction(0).expect("rows have padding"),
        dropped: 0,
        stretched: 0,
        rl_exact: plan.rl_exact(0).expect("full order has its level"),
        boundaries: vec![packing.row_length()],
        second_boundaries: Vec::new(),
    })
}

/// The published scheme, to compare with.
pub fn published(batch: u64, lengths: &[u32]) -> BucketRow {
    let figures = PublishedAuto::new(lengths, batch);
    BucketRow {
        policy: PUBLISHED_AUTO.to_string(),
        buckets: figures.buckets,
        batches: figures.batches,
        padded_fraction: figures.padded_fraction,
        dropped: figures.dropped,
        stretched: 0,
        rl_exact: 0.0,
        boundaries: Vec::new(),
        second_boundaries: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
