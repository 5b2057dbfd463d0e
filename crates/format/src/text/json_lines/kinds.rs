//! The kinds of the values of JSON keys over all records.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use crate::locate::places::located::{text_of, words_of};
use crate::record::error::{Fault, excerpt};

/// The reason for leaving out a key that has only null values.
pub(crate) const NULLS: &str = "every line has null";
/// Most keys of all records together.
const MOST_KEYS: usize = 4096;
/// Longest name of a field; each row stores it after one byte for its length.
const MOST_NAME_BYTES: usize = 255;
/// Up to here every whole number is an exact f64.
const MOST_EXACT: u64 = 1 << 53;
/// Deepest list.
const MOST_DEPTH: usize = 6;

/// The kind of a key's values, over all records so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Cannot be a field.
    Other,
    /// No value.
    Null,
    Text,
    /// An object, or a list of other things than numbers: its JSON text.
    Json,
    /// Numbers in lists nested this deep; 0 is a number by itself.
    Numbers {
        whole: bool,
        /// Whether one of them is a whole number that double precision may round.
        large: bool,
        depth: usize,
        /// Whether the lists had nothing in them, so that they may be deeper.
        empty: bool,
    },
}

/// A key that can be a field.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Known {
    pub(crate) key: String,
    pub(crate) kind: Kind,
    /// The line of the first record without it.
    pub(crate) lacking: Option<u64>,
    /// Bytes that it takes in all rows.
    pub(crate) bytes: u64,
}

/// The keys of a file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Schema {
    /// Those that can be fields, in ascending order.
    pub(crate) known: Vec<Known>,
    /// Those that are not, and why.
    pub(crate) left_out: Vec<(String, String)>,
    /// If only some records have a label: how many lack it, and the line of the first that does.
    pub(crate) unlabelled: Option<(u64, u64)>,
}

impl Schema {
    pub(crate) fn from_words(words: &[u64]) -> Option<Schema> {
        serde_json::from_str(&text_of(words)?.0).ok()
    }

    pub(crate) fn words(&self) -> Vec<u64> {
        words_of(&serde_json::to_string(self).expect("keys are text"))
    }
}

/// A key of the records so far.
struct Key {
    kind: Kind,
    /// The number of records that have it.
    records: u64,
    /// Bytes of its elements.
    payload: u64,
    /// Why it is not a field, from the first record that shows it.
    why: Option<String>,
    /// The line of the first record without it.
    lacking: Option<u64>,
}

/// The keys of the records so far.
#[derive(Default)]
pub(crate) struct Keys {
    known: BTreeMap<String, Key>,
    /// The line of the first record.
    first: u64,
    records: u64,
    scratch: (Vec<usize>, Vec<u8>),
}

impl Keys {
    /// Scans the next record, the object of a line; an error if there are too many keys.
    pub(crate) fn add(
        &mut self,
        object: &Map<String, Value>,
        label: &str,
        line: u64,
    ) -> Result<(), Fault> {
        if self.records == 0 {
            self.first = line;
        }
        for (name, value) in object.iter().filter(|(name, _)| *name != label) {
            if !self.known.contains_key(name) {
                self.meet(name, value)?;
            }
            let Some(key) = self.known.get_mut(name) else {
                continue;
            };
            key.records += 1;
            if key.why.is_none() {
                key.add(value, line, &mut self.scratch);
            }
        }
        self.records += 1;
        for key in self.known.values_mut() {
            if key.records < self.records {
                key.lacking.get_or_insert(line);
            }
        }
        Ok(())
    }

    /// Adds a key that no earlier record had.
    fn meet(&mut self, name: &str, value: &Value) -> Result<(), Fault> {
        if self.known.len() >= MOST_KEYS {
            let what = format!(
                "with {:?} the records have more than {MOST_KEYS} different keys; put what varies into a string or a list under one key",
                excerpt(name.as_bytes())
            );
            return Err(Fault::new(what));
        }
        let why = match name.len() {
            1..=MOST_NAME_BYTES => None,
            bytes => Some(format!(
                "its name has {bytes} bytes, and a field 1 to {MOST_NAME_BYTES}"
            )),
        };
        let key = Key {
            kind: Kind::of_value(value),
            records: 0,
            payload: 0,
            why,
            lacking: (self.records > 0).then_some(self.first),
        };
        self.known.insert(name.to_owned(), key);
        Ok(())
    }

    /// The schema.
    pub(crate) fn finish(self) -> Schema {
        let mut schema = Schema::default();
        for (name, key) in self.known {
            match (key.why, key.kind) {
                (Some(why), _) => schema.left_out.push((name, why)),
                (None, Kind::Null) => schema.left_out.push((name, NULLS.into())),
                (None, _) => {
                    schema.known.push(Known {
                        bytes: key.payload,
                        key: name,
                        kind: key.kind,
                        lacking: key.lacking,
                    });
                }
            }
        }
        schema
    }
}

impl Key {
    /// Scans its next value.
    fn add(&mut self, value: &Value, line: u64, scratch: &mut (Vec<usize>, Vec<u8>)) {
        let found = Kind::of_value(value);
        let before = self.kind;
        self.kind = before.with(found);
        match (self.kind, value) {
            (Kind::Other, _) if found == Kind::Other || self.records == 1 => {
                self.why = Some(format!("line {line} has {}", described(value)));
            }
            (Kind::Other, _) => {
                let others = before.described();
                let found = described(value);
                self.why = Some(format!(
                    "line {line} has {found}, but lines before it have {others}"
                ));
            }
            (_, Value::Null) => {}
            (Kind::Text, Value::String(text)) => self.payload += text.len() as u64,
            (Kind::Text | Kind::Null, _) => {}
            (Kind::Json, value) => self.payload += value.to_string().len() as u64,
            (Kind::Numbers { whole, large, .. }, value) => {
                let (dims, elements) = scratch;
                dims.clear();
                elements.clear();
                let lists = array(value, false, true, dims, elements);
                self.payload += elements.len() as u64;
                if lists.is_none() {
                    self.why = Some(format!(
                        "line {line} has lists of unequal lengths in a list"
                    ));
                } else if large && !whole {
                    self.why = Some(format!(
                        "line {line} mixes fractions with whole numbers beyond 2^53, or has one beyond 2^63, which 64 bits do not hold exactly"
                    ));
                }
            }
        }
    }
}

/// The kind of a value, for messages.
pub(crate) fn described(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "a truth value".into(),
        Value::Object(_) => "an object".into(),
        Value::String(_) => "a string".into(),
        Value::Number(_) => "a number".into(),
        Value::Array(_) => format!("the list {}", excerpt(value.to_string().as_bytes())),
    }
}

impl Kind {
    fn of_value(value: &Value) -> Kind {
        match value {
            Value::String(_) => Kind::Text,
            Value::Null => Kind::Null,
            Value::Object(_) => Kind::Json,
            Value::Bool(_) => Kind::Numbers {
                whole: true,
                large: false,
                depth: 0,
                empty: false,
            },
            Value::Number(number) => Kind::Numbers {
                whole: number.is_i64(),
                large: number.as_u64().is_some_and(|number| number > MOST_EXACT)
                    || number
                        .as_i64()
                        .is_some_and(|number| number.unsigned_abs() > MOST_EXACT),
                depth: 0,
                empty: false,
            },
            Value::Array(values) => {
                let kinds = values
                    .iter()
                    .map(Kind::of_value)
                    .fold(Kind::Null, Kind::with);
                // An empty list has no kind.
                let nothing = Kind::Numbers {
                    whole: true,
                    large: false,
                    depth: 0,
                    empty: values.is_empty(),
                };
                match if kinds == Kind::Null { nothing } else { kinds } {
                    Kind::Numbers {
                        whole,
                        large,
                        depth,
                        empty,
                    } if depth < MOST_DEPTH => Kind::Numbers {
                        whole,
                        large,
                        depth: depth + 1,
                        empty,
                    },
                    _ => Kind::Json,
                }
            }
        }
    }

    /// The kind that covers both.
    fn with(self, other: Kind) -> Kind {
        match (self, other) {
            (
                Kind::Numbers {
                    whole,
                    large,
                    depth,
                    empty,
                },
                Kind::Numbers {
                    whole: also,
                    large: or,
                    depth: other,
                    empty: too,
                },
            ) if depth == other || (empty && depth < other) || (too && other < depth) => {
                Kind::Numbers {
                    whole: whole && also,
                    large: large || or,
                    depth: depth.max(other),
                    empty: empty && too,
                }
            }
            (Kind::Null, kind) | (kind, Kind::Null) => kind,
            (Kind::Text, Kind::Text) => Kind::Text,
            (Kind::Json | Kind::Numbers { depth: 1.., .. }, Kind::Json)
            | (Kind::Json, Kind::Numbers { depth: 1.., .. }) => Kind::Json,
            _ => Kind::Other,
        }
    }

    /// For messages.
    fn described(self) -> &'static str {
        match self {
            Kind::Other | Kind::Null => "something else",
            Kind::Json => "an object or a list",
            Kind::Text => "a string",
            Kind::Numbers { depth: 0, .. } => "a number",
            Kind::Numbers { .. } => "a list of numbers of other depth",
        }
    }
}

/// Lengths of the nested lists of a value, outermost first, and its numbers; `None` if neighbouring lists differ in
/// length, or if a null is among the numbers and `fills` is false.
pub(crate) fn array(
    value: &Value,
    whole: bool,
    fills: bool,
    dims: &mut Vec<usize>,
    bytes: &mut Vec<u8>,
) -> Option<()> {
    fn walk(
        value: &Value,
        at: usize,
        (whole, fills): (bool, bool),
        dims: &mut Vec<usize>,
        bytes: &mut Vec<u8>,
    ) -> Option<()> {
        let mut put = |number: &Number| {
            if whole {
                bytes.extend(number.as_i64()?.to_le_bytes())
            } else {
                bytes.extend(number.as_f64()?.to_le_bytes())
            }
            Some(())
        };
        match value {
            Value::Array(values) => {
                match dims.get(at) {
                    Some(length) if *length != values.len() => return None,
                    Some(_) => {}
                    None => dims.push(values.len()),
                }
                values
                    .iter()
                    .try_for_each(|value| walk(value, at + 1, (whole, fills), dims, bytes))
            }
            Value::Number(number) => put(number),
            Value::Bool(value) => put(&u8::from(*value).into()),
            Value::Null if fills => put(&0.into()),
            _ => None,
        }
    }
    walk(value, 0, (whole, fills), dims, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_values() {
        let kind = |json: &str| Kind::of_value(&serde_json::from_str(json).unwrap());
        let numbers = |whole, depth| Kind::Numbers {
            whole,
            large: false,
            depth,
            empty: false,
        };
        let empty = |depth| Kind::Numbers {
            whole: true,
            large: false,
            depth,
            empty: true,
        };
        for (json, expected) in [
            ("1", numbers(true, 0)),
            ("1.5", numbers(false, 0)),
            ("[1, 2.5]", numbers(false, 1)),
            ("[[1], [2]]", numbers(true, 2)),
            ("[]", empty(1)),
            ("[[], []]", empty(2)),
            ("[[], [1]]", numbers(true, 2)),
            ("[[], 1]", Kind::Json),
            ("[null]", numbers(true, 1)),
            ("[1, \"a\"]", Kind::Json),
            ("[1, [2]]", Kind::Json),
            ("\"a\"", Kind::Text),
            ("[\"a\"]", Kind::Json),
            ("null", Kind::Null),
            ("true", numbers(true, 0)),
            ("[null, 1.5]", numbers(false, 1)),
            ("{}", Kind::Json),
            ("[[[[[[1]]]]]]", numbers(true, 6)),
            ("[[[[[[[1]]]]]]]", Kind::Json),
        ] {
            assert_eq!(kind(json), expected, "{json}");
        }
        assert_eq!(kind("1").with(kind("2.5")), numbers(false, 0));
        assert_eq!(kind("1").with(kind("[1]")), Kind::Other);
        assert_eq!(kind("[]").with(kind("[[1.5]]")), numbers(false, 2));
        assert_eq!(kind("[[1.5]]").with(kind("[]")), numbers(false, 2));
        assert_eq!(kind("[1]").with(kind("[[1]]")), Kind::Other);
        assert_eq!(kind("[]").with(kind("1")), Kind::Other);
    }
}
