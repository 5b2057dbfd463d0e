//! The orders an epoch can be read in, and how they are written on a command line.

use std::fmt;
use std::str::FromStr;

use crate::batching::count;
use crate::error::PlanError;

/// In what order an epoch visits the records.
///
/// Written as text: `sequential`, `full`, `page`, `page:4096`, `queue:10000`,
/// `queue:10000:shuffled`, `block:40`, `block:40:permute`, `opportunistic:8`,
/// `opportunistic:8:65536`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// File order, every epoch.
    Sequential,
    /// A new uniformly random order of all records every epoch (the LIRS shuffle).
    #[default]
    Full,
    /// Runs of whole records of at least `unit_bytes` in a new random order every epoch; records of
    /// a run stay together and in file order (LIRS, page-aware).
    Page {
        /// Least size of a unit.
        unit_bytes: u64,
    },
    /// A shuffle buffer of `examples` records filled from the file in order, as TensorFlow's input
    /// pipeline does it (TFIP).
    Queue {
        /// Records the buffer holds.
        examples: u64,
        /// Whether the file was put in a random order once, before the first epoch.
        initial_shuffle: bool,
    },
    /// One random assignment of records to blocks for all epochs (block minimization, BMF); a step
    /// is a block.
    Block {
        /// Number of blocks.
        blocks: u64,
        /// Whether each epoch takes the blocks in a new random order.
        permute: bool,
    },
    /// Runs of whole records of at least `unit_bytes` in a new random order every epoch, taken in
    /// `loads` groups; the records of a group are shuffled among themselves (DeepIO's entropy-aware
    /// opportunistic ordering, with loads that no rank or timing decides).
    Opportunistic {
        /// Groups an epoch is read in.
        loads: u64,
        /// Least size of a unit.
        unit_bytes: u64,
    },
}

/// Unit size of `page` without a number: the page of the usual file system and device.
const DEFAULT_UNIT_BYTES: u64 = 4096;

/// Unit size of `opportunistic` without a number: a read of 1 MiB gives nearly the sequential
/// bandwidth of every device and file system.
const DEFAULT_LOAD_UNIT_BYTES: u64 = 1 << 20;

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Sequential => f.write_str("sequential"),
            Order::Full => f.write_str("full"),
            Order::Page { unit_bytes } => write!(f, "page:{unit_bytes}"),
            Order::Queue {
                examples,
                initial_shuffle,
            } => {
                write!(
                    f,
                    "queue:{examples}{}",
                    if *initial_shuffle { ":shuffled" } else { "" }
                )
            }
            Order::Opportunistic { loads, unit_bytes } => {
                write!(f, "opportunistic:{loads}:{unit_bytes}")
            }
            Order::Block { blocks, permute } => {
                write!(
                    f,
                    "block:{blocks}{}",
                    if *permute { ":permute" } else { "" }
                )
            }
        }
    }
}

impl FromStr for Order {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Order, PlanError> {
        let parts: Vec<&str> = text.split(':').collect();
        match parts.as_slice() {
            ["sequential"] => Ok(Order::Sequential),
            ["full"] => Ok(Order::Full),
            ["page"] => Ok(Order::Page {
                unit_bytes: DEFAULT_UNIT_BYTES,
            }),
            ["page", bytes] => Ok(Order::Page {
                unit_bytes: count(text, bytes, "page:4096")?,
            }),
            ["queue", examples, rest @ ..] if matches!(rest, [] | ["shuffled"]) => {
                Ok(Order::Queue {
                    examples: count(text, examples, "queue:10000")?,
                    initial_shuffle: !rest.is_empty(),
                })
            }
            ["block", blocks, rest @ ..] if matches!(rest, [] | ["permute"]) => Ok(Order::Block {
                blocks: count(text, blocks, "block:40")?,
                permute: !rest.is_empty(),
            }),
            ["opportunistic", loads, rest @ ..] if rest.len() <= 1 => {
                const EXAMPLE: &str = "opportunistic:8:1048576";
                let unit_bytes = rest.first().map(|bytes| count(text, bytes, EXAMPLE));
                Ok(Order::Opportunistic {
                    loads: count(text, loads, EXAMPLE)?,
                    unit_bytes: unit_bytes.unwrap_or(Ok(DEFAULT_LOAD_UNIT_BYTES))?,
                })
            }
            _ => Err(PlanError::UnknownOrder {
                text: text.to_owned(),
            }),
        }
    }
}
