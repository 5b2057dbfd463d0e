//! What a stream is asked to be.

use std::ops::Range;

use crate::buckets::BucketPolicy;
use crate::echo::Echo;
use crate::order::Order;

/// What a stream is asked to be.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamSpec {
    /// The order of the examples of an epoch.
    pub order: Order,
    /// Examples of a global batch; packing: rows.
    pub batch: u64,
    /// Whether a last batch that is not full is left out of the epoch.
    pub drop_last: bool,
    /// The seed.
    pub seed: u64,
    /// How often each example appears.
    pub echo: Echo,
    /// How often each batch appears; its window is counted in batches.
    pub batch_echo: Echo,
    /// How examples are put together by their lengths.
    pub buckets: Option<BucketPolicy>,
    /// The parts that examples are drawn from; `None` draws every record once an epoch.
    pub mixture: Option<Vec<Part>>,
    /// Examples of an epoch of a mixture; the records of its parts where nothing is said.
    pub epoch_examples: Option<u64>,
}

/// A part of a mixture.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Its records, of which the stream's selection may keep a few.
    pub ids: Range<u64>,
    /// Its share of the examples, relative to the other parts.
    pub weight: f64,
}

impl StreamSpec {
    /// Batches of `batch` examples in an order, every example once an epoch.
    pub fn new(order: Order, batch: u64, seed: u64) -> StreamSpec {
        StreamSpec {
            order,
            batch,
            drop_last: false,
            seed,
            echo: Echo::NONE,
            batch_echo: Echo::NONE,
            buckets: None,
            mixture: None,
            epoch_examples: None,
        }
    }
}
