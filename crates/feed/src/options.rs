//! How a loader runs.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use pelton_fetch::{Access, Device, DeviceSpeed, Holder};
use pelton_format::{ContentSum, Dataset};
use pelton_plan::{Hint, Place};

use crate::error::FeedError;

/// The policy for examples that cannot be read, decoded or augmented. The number of steps and the slots of examples
/// are the same for all policies, so ranks stay in step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BadExamples {
    /// The loader ends with the example's error.
    #[default]
    Fail,
    /// It is left out of its batch, which becomes shorter.
    Skip {
        /// Most such records over the loader's life; `None` for no limit.
        limit: Option<u64>,
    },
    /// The next good example of the same batch replaces it; if there is none it is left out.
    Replace {
        /// Most such records over the loader's life; `None` for no limit.
        limit: Option<u64>,
    },
}

impl BadExamples {
    /// Most records that may be bad; `None` for no limit.
    pub fn limit(self) -> Option<u64> {
        match self {
            BadExamples::Fail => Some(0),
            BadExamples::Skip { limit } | BadExamples::Replace { limit } => limit,
        }
    }
}

impl fmt::Display for BadExamples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, limit) = match self {
            BadExamples::Fail => return f.write_str("fail"),
            BadExamples::Skip { limit } => ("skip", limit),
            BadExamples::Replace { limit } => ("replace", limit),
        };
        match limit {
            Some(limit) => write!(f, "{name}:{limit}"),
            None => f.write_str(name),
        }
    }
}

impl FromStr for BadExamples {
    type Err = String;

    fn from_str(text: &str) -> Result<BadExamples, String> {
        let bad = || {
            format!(
                "`{text}` is not a policy: use fail, skip, skip:LIMIT, replace or replace:LIMIT"
            )
        };
        let (name, limit) = match text.split_once(':') {
            Some((name, limit)) => (name, Some(limit.parse().map_err(|_| bad())?)),
            None => (text, None),
        };
        match (name, limit) {
            ("fail", None) => Ok(BadExamples::Fail),
            ("skip", limit) => Ok(BadExamples::Skip { limit }),
            ("replace", limit) => Ok(BadExamples::Replace { limit }),
            _ => Err(bad()),
        }
    }
}

pelton_key::names! {
    /// The stage at which examples are repeated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub enum EchoPoint: "a stage to repeat examples at" {
        /// Records are repeated as read, and each copy is decoded and augmented again: this saves only reading,
        /// and holds only encoded bytes.
        Read = "read",
        /// Decoded samples are repeated, and each copy is augmented again.
        #[default]
        BeforeAugment = "before",
        /// Augmented samples are repeated.
        AfterAugment = "after",
    }
}

/// Repeats only when the consumer would otherwise wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AutoEcho {
    /// Most appearances of an example, on average.
    pub most: f64,
    /// Number of latest fresh examples from which repeats are drawn.
    pub window: u32,
}

impl Default for AutoEcho {
    fn default() -> AutoEcho {
        AutoEcho {
            most: 1000.0,
            window: 2048,
        }
    }
}

/// Which rank holds a record in an epoch; must be the same on all ranks.
#[derive(Clone)]
pub struct Near(pub Holder);

impl fmt::Debug for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Near")
    }
}

/// Checksums of the records that loaders used, to detect a change of the data.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// In the first whole epoch, of all ranks; known to every loader of a pipeline.
    pub first: Arc<Mutex<Option<ContentSum>>>,
    /// On this rank in the epoch of the start, before the start; `None` if unknown.
    pub so_far: Option<ContentSum>,
}

impl Seen {
    /// The checksum of the first whole epoch.
    pub fn first(&self) -> Option<ContentSum> {
        *self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares the checksum of another whole epoch, of all ranks, with the first.
    ///
    /// Errors: the checksums differ.
    pub fn check(&self, whole: ContentSum, dataset: &Dataset) -> Result<(), FeedError> {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        match *first.get_or_insert(whole) {
            first if first.contradicts(whole) => Err(dataset.other_content().into()),
            _ => Ok(()),
        }
    }
}

/// How a [`crate::Loader`] runs.
#[derive(Clone, Debug)]
pub struct LoaderOptions {
    /// Memory budget in bytes: look-ahead, samples held for repeats, batches in progress, ready and lent.
    pub memory_bytes: u64,
    /// Threads that decode and augment.
    pub threads: usize,
    /// Threads that read.
    pub read_threads: usize,
    /// How records are read.
    pub access: Access,
    /// Records that are read ahead at most, at least two batches; `None` for as many as the budget holds. Records
    /// arrive in groups of about half as many; with a slow source the first batch waits for one.
    pub look_ahead: Option<u64>,
    /// What to do with bad examples.
    pub bad_examples: BadExamples,
    /// Whether the label of an example is the index of its class.
    pub by_class: bool,
    /// The stage at which the plan's echo repeats examples.
    pub echo_point: EchoPoint,
    /// Repeats by waiting, in addition to those of the plan.
    pub auto_echo: Option<AutoEcho>,
    /// Epoch and step of the first batch.
    pub start: Place,
    /// A hint of the plan from there or before, to get there sooner.
    pub hint: Option<Hint>,
    /// Batches that were repeated by waiting before that.
    pub auto_batches: u64,
    /// First epoch that is not produced; `None` never ends.
    pub end_epoch: Option<u64>,
    /// Number of this rank.
    pub rank: u32,
    /// Number of ranks.
    pub world_size: u32,
    /// Position among loaders that divide the steps of this rank, as (index, loaders): it makes the steps
    /// equal to its index modulo the loaders. For workers of another library's loader, which takes
    /// batches from one worker after another.
    pub part: (u32, u32),
    /// Which rank holds a record: a rank then prefers the records of each batch that it holds, within equal
    /// shares, if nothing is echoed or packed.
    pub near: Option<Near>,
    /// Checksums of the records used before.
    pub seen: Seen,
    /// Setting it ends the loader early, with [`FetchError::Interrupted`](pelton_fetch::FetchError::Interrupted).
    pub interrupt: Arc<AtomicBool>,
    /// The device that holds the data.
    pub device: Device,
}

impl LoaderOptions {
    /// Options with the given budget and every other choice at its default.
    pub fn with_memory(memory_bytes: u64) -> LoaderOptions {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        LoaderOptions {
            memory_bytes,
            threads: processors,
            read_threads: 2,
            access: Access::Auto,
            look_ahead: None,
            bad_examples: BadExamples::Fail,
            by_class: false,
            echo_point: EchoPoint::BeforeAugment,
            auto_echo: None,
            start: Place::default(),
            hint: None,
            auto_batches: 0,
            end_epoch: None,
            rank: 0,
            world_size: 1,
            part: (0, 1),
            near: None,
            seen: Seen::default(),
            interrupt: Arc::default(),
            device: DeviceSpeed::default().into(),
        }
    }
}
