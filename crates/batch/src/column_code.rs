//! How the cells of a table's columns become features.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How the cells of one column become features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ColumnCode {
    /// One feature, the number. A missing one is `missing`, or a fault where that is `None`; `flag` adds a feature
    /// that is 1 where it is missing.
    Number {
        /// What a missing number becomes.
        missing: Option<f32>,
        /// Whether there is a feature for missing numbers.
        flag: bool,
        /// Whether it is ln(1 + x), of x below 0 −ln(1 − x).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        log: bool,
    },
    /// The last feature, after those that hashed columns share, whose weight is 1: the number, or with `log` its logarithm.
    Offset {
        /// Whether cells are exposures, whose logarithm counts.
        log: bool,
    },
    /// A feature for each value, which is 1 where the cell holds it. The empty value is a missing cell. Other values
    /// have no feature.
    Category {
        /// The values in order.
        values: Vec<String>,
    },
    /// One of 2^`bits` features, by the hash of column and value, which is 1 or −1.
    Hash {
        /// Binary logarithm of the number of features.
        bits: u32,
    },
    /// Words, and with `pairs` pairs of neighbouring words, each one of 2^`bits` features by its hash; counts with
    /// signs, over the length of their vector.
    Text {
        /// Whether pairs of words count too.
        pairs: bool,
        /// Binary logarithm of the number of features.
        bits: u32,
    },
    /// Years after `centre`, and a feature for each day of the week, and with `hours` for each hour of the day. A
    /// missing date is at the centre without a day, or a fault unless `missing`.
    Date {
        /// About the mean, in years since 1970: so that seconds survive in 32 bits.
        centre: f64,
        /// Whether a date may be missing.
        missing: bool,
        /// Whether there are features for hours.
        hours: bool,
        /// How dates such as 06/22/2020 begin.
        slashes: Slashes,
    },
}

/// How dates with slashes before the year are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slashes {
    /// They are not dates: they may be read either way.
    Refused,
    /// 22/06/2020.
    DayFirst,
    /// 06/22/2020.
    MonthFirst,
}

/// Most features of columns that are hashed, as a binary logarithm.
pub const MOST_HASH_BITS: u32 = 30;

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

impl ColumnCode {
    /// Features of its own; hashed columns share theirs.
    pub fn width(&self) -> usize {
        match self {
            ColumnCode::Number { flag, .. } => 1 + usize::from(*flag),
            ColumnCode::Category { values } => values.len(),
            ColumnCode::Hash { .. } | ColumnCode::Text { .. } | ColumnCode::Offset { .. } => 0,
            ColumnCode::Date { hours, .. } => 1 + DAYS.len() + if *hours { 24 } else { 0 },
        }
    }

    /// Features that it shares with other hashed columns.
    pub fn hashed(&self) -> usize {
        match self {
            ColumnCode::Hash { bits } | ColumnCode::Text { bits, .. } => {
                1 << (*bits).min(MOST_HASH_BITS)
            }
            _ => 0,
        }
    }

    /// Names of the features of its own, in a column of this name.
    pub(crate) fn feature_names(&self, column: &str) -> Vec<String> {
        match self {
            ColumnCode::Number { flag, .. } => {
                let mut names = vec![column.to_string()];
                names.extend(flag.then(|| format!("{column} missing")));
                names
            }
            ColumnCode::Category { values } => {
                let name = |value: &String| match value.as_str() {
                    "" => format!("{column} missing"),
                    value => format!("{column}={value}"),
                };
                values.iter().map(name).collect()
            }
            ColumnCode::Hash { .. } | ColumnCode::Text { .. } | ColumnCode::Offset { .. } => {
                Vec::new()
            }
            ColumnCode::Date { hours, .. } => {
                let mut names = vec![format!("{column} years")];
                names.extend(DAYS.iter().map(|day| format!("{column} {day}")));
                let hours = if *hours { 24 } else { 0 };
                names.extend((0..hours).map(|hour| format!("{column} {hour} h")));
                names
            }
        }
    }
}

/// As the rest of a line about a column.
impl fmt::Display for ColumnCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ColumnCode::Offset { log: false } => f.write_str("offset, of weight 1"),
            ColumnCode::Offset { log: true } => {
                f.write_str("exposure, whose logarithm has weight 1")
            }
            ColumnCode::Number { missing, flag, log } => {
                f.write_str(if *log {
                    "number, as ln(1 + x)"
                } else {
                    "number"
                })?;
                missing_number(f, *missing)?;
                f.write_str(if *flag {
                    ", and a feature for missing"
                } else {
                    ""
                })
            }
            ColumnCode::Category { values } => write!(f, "category of {}", values.len()),
            ColumnCode::Hash { bits } => write!(f, "category, hashed to {bits} bits"),
            ColumnCode::Text { pairs, bits } => {
                let pairs = if *pairs { " and pairs of words" } else { "" };
                write!(f, "text: words{pairs}, hashed to {bits} bits")
            }
            ColumnCode::Date {
                missing,
                hours,
                slashes,
                ..
            } => {
                f.write_str(match slashes {
                    Slashes::Refused => "date",
                    Slashes::DayFirst => "date, day first",
                    Slashes::MonthFirst => "date, month first",
                })?;
                let hours = if *hours { ", hour" } else { "" };
                let missing = if *missing {
                    ", the mean where missing"
                } else {
                    ""
                };
                write!(f, ": years, day of the week{hours}{missing}")
            }
        }
    }
}

fn missing_number(f: &mut fmt::Formatter<'_>, missing: Option<f32>) -> fmt::Result {
    match missing {
        Some(value) => write!(f, ", {value} where missing"),
        None => Ok(()),
    }
}
