//! The kinds that users give to columns.

use std::fmt;
use std::str::FromStr;

use pelton_batch::MOST_HASH_BITS;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The kind of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Numbers.
    Number,
    /// One of a set of values.
    Category,
    /// The same with 2^bits features by hash.
    Hash(u32),
    /// Words, and pairs of words, with 2^bits features by hash.
    Text {
        /// Whether pairs of neighbouring words count too.
        pairs: bool,
        /// Binary logarithm of the number of features.
        bits: u32,
    },
    /// Numbers, as sign(x) ln(1 + |x|).
    Log1p,
    /// Numbers, with a feature for each of this many intervals with about equally many cells.
    Bins(u32),
    /// Dates.
    Date,
    /// Several columns together, with 2^bits features by the hash of their values.
    Cross(u32),
    /// A number that the model adds with weight 1.
    Offset,
    /// A number above 0; the model adds its natural logarithm with weight 1.
    Exposure,
    /// Nothing of use.
    Ignore,
    /// The class or target of the record.
    Label,
    /// How often the record counts.
    Weight,
}

/// Binary logarithm of the number of features of hashed columns, unless another is given.
pub(crate) const HASH_BITS: u32 = 18;

/// Most intervals of a column of numbers, and how many unless a number is given.
const MOST_BINS: u32 = 1000;
const BINS: u32 = 10;

impl fmt::Display for ColumnKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ColumnKind::Number => f.write_str("number"),
            ColumnKind::Category => f.write_str("category"),
            ColumnKind::Hash(bits) => write!(f, "hash:{bits}"),
            ColumnKind::Text { pairs, bits } => {
                write!(f, "text:words,{},{bits}", 1 + u8::from(*pairs))
            }
            ColumnKind::Log1p => f.write_str("log1p"),
            ColumnKind::Bins(bins) => write!(f, "bins:{bins}"),
            ColumnKind::Date => f.write_str("date"),
            ColumnKind::Cross(bits) => write!(f, "cross:{bits}"),
            ColumnKind::Offset => f.write_str("offset"),
            ColumnKind::Exposure => f.write_str("exposure"),
            ColumnKind::Ignore => f.write_str("ignore"),
            ColumnKind::Label => f.write_str("label"),
            ColumnKind::Weight => f.write_str("weight"),
        }
    }
}

fn bits_of(text: &str) -> Option<u32> {
    let bits = text.parse().ok()?;
    (1..=MOST_HASH_BITS).contains(&bits).then_some(bits)
}

fn bins_of(text: &str) -> Option<u32> {
    let bins = text.parse().ok()?;
    (2..=MOST_BINS).contains(&bins).then_some(bins)
}

fn text_of(argument: &str) -> Option<ColumnKind> {
    let mut parts = argument.split(',');
    if parts.next() != Some("words") {
        return None;
    }
    let pairs = match parts.next() {
        Some("1") => false,
        None | Some("2") => true,
        Some(_) => return None,
    };
    let bits = parts.next().map_or(Some(HASH_BITS), bits_of)?;
    parts
        .next()
        .is_none()
        .then_some(ColumnKind::Text { pairs, bits })
}

impl FromStr for ColumnKind {
    type Err = String;

    fn from_str(text: &str) -> Result<ColumnKind, String> {
        let found = match text.split_once(':') {
            None => match text {
                "number" => Some(ColumnKind::Number),
                "category" => Some(ColumnKind::Category),
                "hash" => Some(ColumnKind::Hash(HASH_BITS)),
                "text" => text_of("words,2"),
                "log1p" => Some(ColumnKind::Log1p),
                "bins" => Some(ColumnKind::Bins(BINS)),
                "cross" => Some(ColumnKind::Cross(HASH_BITS)),
                "offset" => Some(ColumnKind::Offset),
                "exposure" => Some(ColumnKind::Exposure),
                "date" => Some(ColumnKind::Date),
                "ignore" => Some(ColumnKind::Ignore),
                "label" => Some(ColumnKind::Label),
                "weight" => Some(ColumnKind::Weight),
                _ => None,
            },
            Some(("hash", bits)) => bits_of(bits).map(ColumnKind::Hash),
            Some(("bins", bins)) => bins_of(bins).map(ColumnKind::Bins),
            Some(("cross", bits)) => bits_of(bits).map(ColumnKind::Cross),
            Some(("text", argument)) => text_of(argument),
            Some(_) => None,
        };
        found.ok_or_else(|| {
            format!(
                "`{text}` is not a kind of column: use number, log1p, bins:N (2 to {MOST_BINS}), category, hash:BITS (1 to {MOST_HASH_BITS}), text, text:words,1 (without pairs of words), text:words,2,BITS, date, offset, exposure, ignore, label or weight, or cross:BITS for several columns as in a:b=cross"
            )
        })
    }
}

/// A column and its kind, as in `--column NAME=KIND`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedKind {
    /// Its name, or its position from 1 if columns have no names; with `*` at the end, all columns with this prefix.
    /// Several, separated by `:`, for a cross.
    pub column: String,
    /// Its kind.
    pub kind: ColumnKind,
}

impl NamedKind {
    /// Whether it applies to the column of this name.
    pub(crate) fn is_of(&self, name: &str) -> bool {
        match self.column.strip_suffix('*') {
            _ if self.column == name => true,
            Some(start) => name.starts_with(start),
            None => false,
        }
    }
}

impl fmt::Display for NamedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.column, self.kind)
    }
}

impl FromStr for NamedKind {
    type Err = String;

    fn from_str(text: &str) -> Result<NamedKind, String> {
        // Names may contain the sign, kinds do not.
        let Some((column, kind)) = text.rsplit_once('=').filter(|(name, _)| !name.is_empty())
        else {
            return Err(format!("`{text}` is not NAME=KIND, such as age=number"));
        };
        Ok(NamedKind {
            column: column.to_string(),
            kind: kind.parse()?,
        })
    }
}

impl Serialize for NamedKind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for NamedKind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<NamedKind, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_back() {
        for text in [
            "a=number",
            "a=category",
            "a=hash:20",
            "a=text:words,1,18",
            "a=text:words,2,10",
            "x=y=date",
            "a=log1p",
            "a=bins:1000",
            "a:b=cross:20",
            "a=offset",
            "a=exposure",
            "a=ignore",
            "14*=label",
            "a=weight",
        ] {
            let kind: NamedKind = text.parse().unwrap();
            assert_eq!(kind.to_string(), text);
        }
        let short = |text: &str| text.parse::<ColumnKind>().unwrap().to_string();
        assert_eq!(short("hash"), "hash:18");
        assert_eq!(short("bins"), "bins:10");
        assert_eq!(short("cross"), "cross:18");
        assert_eq!(short("text"), "text:words,2,18");
        assert_eq!(short("text:words"), "text:words,2,18");
        for text in [
            "",
            "a",
            "=number",
            "a=",
            "a=hash:0",
            "a=hash:31",
            "a=text:2",
            "a=text:words,3",
            "a=bins:1",
            "a=bins:1001",
            "a:b=cross:31",
        ] {
            assert!(text.parse::<NamedKind>().is_err(), "{text}");
        }
    }
}
