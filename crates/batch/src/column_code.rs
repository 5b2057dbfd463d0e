//! How the cells of a table's columns become features.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How the cells of one column become features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ColumnCode {
    /// One feature, the number, or its logarithm with `log1p`. A missing number becomes `missing`, or a fault if that
    /// is `None`; `flag` adds a feature that is 1 if the number is missing.
    Number {
        /// The value of a missing number.
        missing: Option<f32>,
        /// Whether there is a feature for missing numbers.
        flag: bool,
        /// Whether it is sign(x) ln(1 + |x|) of the number x.
        log1p: bool,
    },
    /// A feature for each interval of numbers, which is 1 if the number is in it.
    Bins {
        /// Lower bounds of the intervals but the first, ascending.
        edges: Vec<f64>,
        /// Whether there is a feature for missing numbers.
        missing: bool,
    },
    /// A feature for each value, which is 1 if the cell holds it. The empty value is a missing cell. Other values
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
        /// Reading of dates such as 06/22/2020.
        slashes: Slashes,
    },
    /// One feature, the number or the natural logarithm of an `exposure`, which models add with weight 1.
    Offset {
        /// Whether it is the logarithm.
        exposure: bool,
    },
    /// No features of its own: only crosses use the column.
    Crossed,
}

/// One of 2^`bits` features, by the hash of the values of several columns together, which is 1 or −1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cross {
    /// The columns, by their index among the fields.
    pub columns: Vec<usize>,
    /// Binary logarithm of the number of features.
    pub bits: u32,
}

/// As the rest of a line about a cross.
impl fmt::Display for Cross {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cross, hashed to {} bits", self.bits)
    }
}

/// How dates with slashes before the year are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slashes {
    /// They are refused as dates: the order is ambiguous.
    Refused,
    /// 22/06/2020.
    DayFirst,
    /// 06/22/2020.
    MonthFirst,
}

/// Most features of columns that are hashed, as a binary logarithm.
pub const MOST_HASH_BITS: u32 = 30;

pub(crate) fn are_bits(bits: u32) -> bool {
    (1..=MOST_HASH_BITS).contains(&bits)
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

impl ColumnCode {
    /// Features of its own; hashed columns share theirs.
    pub fn width(&self) -> usize {
        match self {
            ColumnCode::Number { flag, .. } => 1 + usize::from(*flag),
            ColumnCode::Bins { edges, missing } => edges.len() + 1 + usize::from(*missing),
            ColumnCode::Offset { .. } => 1,
            ColumnCode::Category { values } => values.len(),
            ColumnCode::Hash { .. } | ColumnCode::Text { .. } | ColumnCode::Crossed => 0,
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

    /// Whether its bits and edges are within their limits.
    pub(crate) fn is_sound(&self) -> bool {
        match self {
            ColumnCode::Hash { bits } | ColumnCode::Text { bits, .. } => are_bits(*bits),
            ColumnCode::Bins { edges, .. } => edges.is_sorted_by(|a, b| a < b),
            _ => true,
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
            ColumnCode::Bins { edges, missing } => {
                let mut names: Vec<String> = match (edges.first(), edges.last()) {
                    (Some(first), Some(last)) => {
                        let between = edges.windows(2);
                        let between =
                            between.map(|ends| format!("{column} {} to {}", ends[0], ends[1]));
                        let first = std::iter::once(format!("{column} < {first}"));
                        let last = std::iter::once(format!("{column} >= {last}"));
                        first.chain(between).chain(last).collect()
                    }
                    _ => vec![format!("{column} present")],
                };
                names.extend(missing.then(|| format!("{column} missing")));
                names
            }
            ColumnCode::Offset { exposure } => {
                let name = if *exposure {
                    format!("ln {column}")
                } else {
                    column.to_string()
                };
                vec![name]
            }
            ColumnCode::Hash { .. } | ColumnCode::Text { .. } | ColumnCode::Crossed => Vec::new(),
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
            ColumnCode::Number {
                missing,
                flag,
                log1p,
            } => {
                f.write_str(if *log1p {
                    "number, as ln(1+x)"
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
            ColumnCode::Bins { edges, missing } => {
                write!(f, "number in {} bins", edges.len() + 1)?;
                f.write_str(if *missing {
                    ", and a feature for missing"
                } else {
                    ""
                })
            }
            ColumnCode::Offset { exposure: false } => f.write_str("offset"),
            ColumnCode::Offset { exposure: true } => {
                f.write_str("exposure: the offset is its logarithm")
            }
            ColumnCode::Crossed => f.write_str("used by crosses alone"),
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
