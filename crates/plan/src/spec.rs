//! The description of a plan, and the data that it is made for.

use std::ops::Range;

use crate::batching::{Batching, Last};
use crate::buckets::BucketPolicy;
use crate::echo::Echo;
use crate::orders::Order;
use crate::sampler::Sampler;
use crate::selection::Selection;
use crate::units::Units;

/// The description of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanSpec {
    /// The order of the examples of an epoch.
    pub order: Order,
    /// How an epoch is cut into batches; packing: batches of rows. `block` orders take a block a step and do not
    /// look at it.
    pub batching: Batching,
    /// How examples that do not fill a batch at the end of an epoch or a bucket are used.
    pub last: Last,
    /// The seed.
    pub seed: u64,
    /// How often each example appears.
    pub echo: Echo,
    /// How often each batch appears; its window is counted in batches.
    pub batch_echo: Echo,
    /// How examples are batched by length.
    pub buckets: Option<BucketPolicy>,
    /// The parts that examples are drawn from; `None` draws every record once an epoch.
    pub mixture: Option<Vec<Part>>,
    /// Which records an epoch uses, if neither each once nor a mixture.
    pub sampler: Option<Sampler>,
    /// Examples of an epoch of a mixture or of draws by weight or class; by default the records of its parts, or all.
    pub epoch_examples: Option<u64>,
}

/// A part of a mixture.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Its records, before any selection.
    pub ids: Range<u64>,
    /// Its share of the examples, relative to the other parts.
    pub weight: f64,
}

/// The data that a plan is made for.
#[derive(Clone)]
pub struct Catalog<'a> {
    /// Records of the data set.
    pub records: u64,
    /// Which of them are kept.
    pub selection: Option<Selection>,
    /// The units of a `page` or `opportunistic` order over all records; each record is a unit by default.
    pub units: Option<Units>,
    /// The length of a record, for buckets. It is called only for kept records, at most three times for each.
    pub length_of: Option<&'a dyn Fn(u64) -> u32>,
    /// The length of a record's second side, if records are pairs.
    pub second_length_of: Option<&'a dyn Fn(u64) -> u32>,
}

impl PlanSpec {
    /// Batches in an order, every example once an epoch.
    pub fn new(order: Order, batching: impl Into<Batching>, seed: u64) -> PlanSpec {
        PlanSpec {
            order,
            batching: batching.into(),
            last: Last::default(),
            seed,
            echo: Echo::NONE,
            batch_echo: Echo::NONE,
            buckets: None,
            mixture: None,
            sampler: None,
            epoch_examples: None,
        }
    }
}

impl<'a> Catalog<'a> {
    /// The records `0..records`, without further information.
    pub fn new(records: u64) -> Catalog<'a> {
        Catalog {
            records,
            selection: None,
            units: None,
            length_of: None,
            second_length_of: None,
        }
    }

    /// The records that some units are made of.
    pub fn of_units(units: Units) -> Catalog<'a> {
        Catalog {
            records: units.records(),
            units: Some(units),
            selection: None,
            length_of: None,
            second_length_of: None,
        }
    }

    /// With the records that are kept.
    #[must_use]
    pub fn with_selection(self, selection: Option<Selection>) -> Catalog<'a> {
        Catalog { selection, ..self }
    }

    /// With the lengths of records.
    #[must_use]
    pub fn with_lengths(self, length_of: &'a dyn Fn(u64) -> u32) -> Catalog<'a> {
        Catalog {
            length_of: Some(length_of),
            ..self
        }
    }
}
