//! The orders an epoch can be read in, and how they are written.

mod block;
mod full;
mod opportunistic;
mod page;
mod queue;
mod sequential;

use std::fmt;
use std::str::FromStr;

use crate::error::PlanError;
use crate::ordering::Kind;
use crate::randomness::Randomness;

/// Generates [`Order`] from a list of orders: an example of the text, and for each parameter its name in help
/// texts and its default. Each order has a struct of its name, which implements [`Kind`].
macro_rules! orders {
    ($(
        $(#[$doc:meta])*
        $name:ident $example:literal $({$(
            $(#[$field_doc:meta])*
            $field:ident: $type:ty = $word:literal $(or $default:literal)?,
        )*})?;
    )*) => {
        /// In what order an epoch visits the records.
        ///
        /// Written as text: `sequential`, `full`, `page`, `page:4096`, `queue:10000`,
        /// `queue:10000:shuffled`, `block:40`, `block:40:permute`, `opportunistic:8`,
        /// `opportunistic:8:65536`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub enum Order {
            $($(#[$doc])* $name $({ $($(#[$field_doc])* $field: $type,)* })?,)*
        }

        $(#[derive(Debug)]
        struct $name {
            $($($field: $type,)*)?
        })*

        impl Order {
            pub(crate) fn kind(self) -> Box<dyn Kind> {
                match self {
                    $(Order::$name $({ $($field),* })? => Box::new($name { $($($field),*)? }),)*
                }
            }

            /// How each order is written.
            fn each_form() -> Vec<String> {
                vec![$([
                    name_of($example).to_string(),
                    $($(<$type>::form($word, [$($default)?].first().copied()),)*)?
                ].concat(),)*]
            }

            /// `None` if the text has the form of no order.
            fn parse(text: &str) -> Option<Result<Order, PlanError>> {
                let parts: Vec<&str> = text.split(':').collect();
                let (first, rest) = parts.split_first()?;
                let rest = &mut &*rest;
                $(if *first == name_of($example) {
                    $($(
                        let default = [$($default)?].first().copied();
                        let $field = <$type>::take(rest, $word, default, (text, $example))?;
                    )*)?
                    let order = || Ok(Order::$name $({ $($field: $field?,)* })?);
                    return rest.is_empty().then(order);
                })*
                None
            }
        }

        impl fmt::Display for Order {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Order::$name $({ $($field),* })? => {
                        f.write_str(name_of($example))?;
                        $($($field.write($word, f)?;)*)?
                    })*
                }
                Ok(())
            }
        }
    };
}

orders! {
    /// A new uniformly random order of all records every epoch (the LIRS shuffle).
    #[default]
    Full "full";

    /// Runs of whole records of at least `unit_bytes` in a new random order every epoch; records of
    /// a run stay together and in file order (LIRS, page-aware). Left out, a run is a page of the usual file system and
    /// device.
    Page "page:4096" {
        /// Least size of a unit.
        unit_bytes: u64 = "BYTES" or 4096,
    };

    /// A shuffle buffer of `examples` records filled from the file in order, as TensorFlow's input
    /// pipeline does it (TFIP).
    Queue "queue:10000" {
        /// Records the buffer holds.
        examples: u64 = "EXAMPLES",
        /// Whether the file was put in a random order once, before the first epoch.
        initial_shuffle: bool = "shuffled",
    };

    /// One random assignment of records to blocks for all epochs (block minimization, BMF); a step
    /// is a block.
    Block "block:40" {
        /// Number of blocks.
        blocks: u64 = "BLOCKS",
        /// Whether each epoch takes the blocks in a new random order.
        permute: bool = "permute",
    };

    /// Runs of whole records of at least `unit_bytes` in a new random order every epoch, taken in `loads` groups;
    /// the records of a group are shuffled among themselves (DeepIO's entropy-aware opportunistic ordering, with
    /// loads that are independent of ranks and timing). Left out, a unit is 1 MiB: reads of that size give nearly the
    /// sequential bandwidth of every device and file system.
    Opportunistic "opportunistic:8:1048576" {
        /// Groups an epoch is read in.
        loads: u64 = "LOADS",
        /// Least size of a unit.
        unit_bytes: u64 = "UNIT_BYTES" or 1_048_576,
    };

    /// File order, every epoch.
    Sequential "sequential";
}

/// Parses `number`, a part of `text`, as a whole number from 1 to 2^63.
fn count(text: &str, number: &str, example: &'static str) -> Result<u64, PlanError> {
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    match number.parse::<u64>() {
        Ok(count) if digits && (1..=1 << 63).contains(&count) => Ok(count),
        _ => Err(PlanError::BadCount {
            text: text.to_owned(),
            number: number.to_owned(),
            example,
        }),
    }
}

/// The name in front of an example of an order's text.
fn name_of(example: &str) -> &str {
    example.split(':').next().unwrap_or(example)
}

/// A parameter of an order in its text: a number, or a word that is there or not.
trait Parameter: Copy {
    /// Its written form, with the value used if it is left out.
    fn form(word: &str, default: Option<u64>) -> String;

    /// Appends it to the text before it.
    fn write(self, word: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Takes it from the remaining parts of a text; `None` if it is required and missing.
    fn take(
        rest: &mut &[&str],
        word: &str,
        default: Option<u64>,
        of: (&str, &'static str),
    ) -> Option<Result<Self, PlanError>>;
}

impl Parameter for u64 {
    fn form(word: &str, default: Option<u64>) -> String {
        match default {
            Some(default) => format!("[:{word}] ({default})"),
            None => format!(":{word}"),
        }
    }

    fn write(self, _: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ":{self}")
    }

    fn take(
        rest: &mut &[&str],
        _: &str,
        default: Option<u64>,
        (text, example): (&str, &'static str),
    ) -> Option<Result<u64, PlanError>> {
        let Some((number, others)) = rest.split_first() else {
            return default.map(Ok);
        };
        *rest = others;
        Some(count(text, number, example))
    }
}

impl Parameter for bool {
    fn form(word: &str, _: Option<u64>) -> String {
        format!("[:{word}]")
    }

    fn write(self, word: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self { write!(f, ":{word}") } else { Ok(()) }
    }

    fn take(
        rest: &mut &[&str],
        word: &str,
        _: Option<u64>,
        _: (&str, &'static str),
    ) -> Option<Result<bool, PlanError>> {
        let is_there = rest.first() == Some(&word);
        *rest = &rest[usize::from(is_there)..];
        Some(Ok(is_there))
    }
}

impl Order {
    /// The spelling of orders, for a help text: optional parts are in square brackets, followed by the default.
    pub fn forms() -> String {
        let mut forms = Order::each_form();
        let last = forms.pop().unwrap_or_default();
        format!("{} or {last}", forms.join(", "))
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

impl FromStr for Order {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Order, PlanError> {
        Order::parse(text).unwrap_or_else(|| {
            Err(PlanError::UnknownOrder {
                text: text.to_owned(),
                forms: Order::forms(),
            })
        })
    }
}
