//! The orders an epoch can be read in, and how they are written.

mod block;
mod full;
mod opportunistic;
mod page;
mod queue;
mod sequential;

use std::fmt;
use std::str::FromStr;

use self::block::Block;
use self::full::Full;
use self::opportunistic::Opportunistic;
use self::page::Page;
use self::queue::Queue;
use self::sequential::Sequential;
use crate::error::PlanError;
use crate::ordering::{Kind, Written};
use crate::randomness::Randomness;

/// Makes [`Order`] of a list of orders, each with the parameters of the struct of that name in its file.
macro_rules! orders {
    ($($(#[$doc:meta])* $name:ident $({ $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })?;)*) => {
        /// In what order an epoch visits the records.
        ///
        /// Written as text: `sequential`, `full`, `page`, `page:4096`, `queue:10000`,
        /// `queue:10000:shuffled`, `block:40`, `block:40:permute`, `opportunistic:8`,
        /// `opportunistic:8:65536`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub enum Order {
            $($(#[$doc])* $name $({ $($(#[$field_doc])* $field: $type,)* })?,)*
        }

        /// How each order is written.
        const FORMS: &[&str] = &[$($name::FORMS,)*];

        impl Order {
            pub(crate) fn kind(self) -> Box<dyn Kind> {
                match self {
                    $(Order::$name $({ $($field),* })? => Box::new($name $({ $($field),* })?),)*
                }
            }

            fn parse(text: &str, parts: &[&str]) -> Option<Result<Order, PlanError>> {
                None
                    $(.or_else(|| {
                        let order = $name::parse(text, parts)?;
                        Some(order.map(|$name $({ $($field),* })?| Order::$name $({ $($field),* })?))
                    }))*
            }
        }
    };
}

orders! {
    /// A new uniformly random order of all records every epoch (the LIRS shuffle).
    #[default]
    Full;

    /// Runs of whole records of at least `unit_bytes` in a new random order every epoch; records of
    /// a run stay together and in file order (LIRS, page-aware).
    Page {
        /// Least size of a unit.
        unit_bytes: u64,
    };

    /// A shuffle buffer of `examples` records filled from the file in order, as TensorFlow's input
    /// pipeline does it (TFIP).
    Queue {
        /// Records the buffer holds.
        examples: u64,
        /// Whether the file was put in a random order once, before the first epoch.
        initial_shuffle: bool,
    };

    /// One random assignment of records to blocks for all epochs (block minimization, BMF); a step
    /// is a block.
    Block {
        /// Number of blocks.
        blocks: u64,
        /// Whether each epoch takes the blocks in a new random order.
        permute: bool,
    };

    /// Runs of whole records of at least `unit_bytes` in a new random order every epoch, taken in
    /// `loads` groups; the records of a group are shuffled among themselves (DeepIO's entropy-aware
    /// opportunistic ordering, with loads that no rank or timing decides).
    Opportunistic {
        /// Groups an epoch is read in.
        loads: u64,
        /// Least size of a unit.
        unit_bytes: u64,
    };

    /// File order, every epoch.
    Sequential;
}

impl Order {
    /// How orders are written, for a help text: what may be left out is in square brackets, followed by the default.
    pub fn forms() -> String {
        match FORMS {
            [others @ .., last] => format!("{} or {last}", others.join(", ")),
            [] => String::new(),
        }
    }

    /// The least size of the runs of neighbours that it keeps together.
    pub fn unit_bytes(self) -> Option<u64> {
        self.kind().unit_bytes()
    }

    /// How well it shuffles some records and their units.
    pub(crate) fn randomness(self, records: u64, units: u64) -> Randomness {
        if records <= 1 {
            return Randomness::PERFECT;
        }
        self.kind().randomness(records, units)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind().fmt(f)
    }
}

impl FromStr for Order {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Order, PlanError> {
        let parts: Vec<&str> = text.split(':').collect();
        Order::parse(text, &parts).unwrap_or_else(|| {
            Err(PlanError::UnknownOrder {
                text: text.to_owned(),
                forms: Order::forms(),
            })
        })
    }
}
