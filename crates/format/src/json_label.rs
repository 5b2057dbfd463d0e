//! The class of a sample that its member `json` states: an integer or a string under a key.
//!
//! A key is a path: parts with dots between them, each a key of the object that the part before leads to. The text
//! is parsed in one pass that keeps nothing of what lies beside the path; a tree of all values was rejected,
//! which takes ten times the text. Where a key comes twice in an object, the last one counts, as most readers of
//! JSON have it.

use std::fmt;
use std::str::FromStr;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::error::excerpt;

/// Where in a JSON object a class stands: keys from the outermost object inwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonKey {
    parts: Vec<String>,
}

impl FromStr for JsonKey {
    type Err = String;

    /// `KEY` or `KEY.KEY…`.
    fn from_str(text: &str) -> Result<JsonKey, String> {
        let parts: Vec<String> = text.split('.').map(str::to_owned).collect();
        match parts.iter().any(String::is_empty) {
            true => Err(format!(
                "`json:{text}` names no key; give json:KEY, with dots between the keys of nested objects"
            )),
            false => Ok(JsonKey { parts }),
        }
    }
}

impl fmt::Display for JsonKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts.join("."))
    }
}

/// A class as a member states it.
#[derive(Clone, Debug, PartialEq)]
pub enum JsonClass {
    /// By number.
    Number(i64),
    /// By name.
    Name(String),
}

impl JsonClass {
    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            JsonClass::Number(_) => "an integer",
            JsonClass::Name(_) => "a string",
        }
    }
}

/// Why a sample has no class under a key of its member `json`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonFault {
    /// There is no such member.
    #[error(
        "has no member .json, where `label` json:{key} looks for its class; add one, or leave `label` out"
    )]
    NoMember {
        /// The key.
        key: String,
    },
    /// The member is longer than is read.
    #[error(
        "its member .json has {found} bytes, and up to {limit} are read for a class; keep the class in a member .cls"
    )]
    TooLong {
        /// Its bytes.
        found: u64,
        /// The most.
        limit: u64,
    },
    /// The member is not JSON.
    #[error("its member .json is no JSON ({what}); mend it and make the archive anew")]
    NotJson {
        /// What does not hold, and where.
        what: String,
    },
    /// The key is not there.
    #[error("its member .json has no {key}, only {there}; name another key as `label` json:KEY")]
    NoKey {
        /// The key.
        key: String,
        /// What is there in its place.
        there: String,
    },
    /// What stands there is no class.
    #[error(
        "{key} of its member .json is {found}, and a class is an integer or a string; name another key as `label` json:KEY"
    )]
    NoClass {
        /// The key.
        key: String,
        /// What is there.
        found: &'static str,
    },
    /// Classes of other samples are of the other kind.
    #[error(
        "{key} of its member .json is {found} where samples before it have {expected}; write all classes alike"
    )]
    Mixed {
        /// The key.
        key: String,
        /// What is there.
        found: &'static str,
        /// What the others have.
        expected: &'static str,
    },
}

/// The class under `key` of a JSON text.
pub fn json_class(json: &[u8], key: &JsonKey) -> Result<JsonClass, JsonFault> {
    let not_json = |error: serde_json::Error| JsonFault::NotJson {
        what: error.to_string(),
    };
    let mut text = serde_json::Deserializer::from_slice(json);
    let found = Seek { path: &key.parts }.deserialize(&mut text);
    let found = found.map_err(not_json)?;
    text.end().map_err(not_json)?;
    match found {
        Found::Class(class) => Ok(class),
        Found::Other(found) => Err(JsonFault::NoClass {
            key: key.to_string(),
            found,
        }),
        Found::Absent { there } => Err(JsonFault::NoKey {
            key: key.to_string(),
            there,
        }),
    }
}

/// What a path leads to.
enum Found {
    Class(JsonClass),
    Other(&'static str),
    /// It leads nowhere; `there` says what is where it ends.
    Absent {
        there: String,
    },
}

/// Follows what is left of a path.
struct Seek<'a> {
    path: &'a [String],
}

impl Seek<'_> {
    /// A value that is no object.
    fn leaf(&self, value: Found, kind: &str) -> Found {
        match self.path.is_empty() {
            true => value,
            false => Found::Absent {
                there: format!("{kind} on the way there"),
            },
        }
    }

    fn number(&self, number: Option<i64>, otherwise: &'static str) -> Found {
        let value = match number {
            Some(number) => Found::Class(JsonClass::Number(number)),
            None => Found::Other(otherwise),
        };
        self.leaf(value, "a number")
    }
}

/// Integers up to here, and down to minus this, are labels exactly.
const MOST_EXACT: i64 = 1 << 53;
const TOO_LARGE: &str = "an integer beyond 2^53";
/// Keys that a message lists.
const LISTED: usize = 8;

fn exact(number: i64) -> Option<i64> {
    (-MOST_EXACT..=MOST_EXACT)
        .contains(&number)
        .then_some(number)
}

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Found, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_i64<E>(self, number: i64) -> Result<Found, E> {
        Ok(self.number(exact(number), TOO_LARGE))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Found, E> {
        let number = i64::try_from(number).ok().and_then(exact);
        Ok(self.number(number, TOO_LARGE))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Found, E> {
        // Tables written from floating point have 3.0 for 3.
        let is_whole = number.fract() == 0.0 && number.abs() <= MOST_EXACT as f64;
        let whole = is_whole.then_some(number as i64);
        Ok(self.number(whole, "a number with a fraction or beyond 2^53"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Found, E> {
        let class = match text.is_empty() {
            true => Found::Other("an empty string"),
            false => Found::Class(JsonClass::Name(text.to_owned())),
        };
        Ok(self.leaf(class, "a string"))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Found, E> {
        Ok(self.leaf(Found::Other("true or false"), "true or false"))
    }

    fn visit_unit<E>(self) -> Result<Found, E> {
        Ok(self.leaf(Found::Other("null"), "null"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Found, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self.leaf(Found::Other("a list"), "a list"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Found, A::Error> {
        let Some((first, rest)) = self.path.split_first() else {
            while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Found::Other("an object"));
        };
        let mut found = None;
        let mut names = Vec::new();
        let mut others = 0_u64;
        while let Some(name) = object.next_key::<String>()? {
            if name == *first {
                found = Some(object.next_value_seed(Seek { path: rest })?);
                continue;
            }
            object.next_value::<IgnoredAny>()?;
            match names.len() {
                LISTED => others += 1,
                _ => names.push(name),
            }
        }
        Ok(found.unwrap_or_else(|| Found::Absent {
            there: listed(&names, others),
        }))
    }
}

/// Keys that are there in place of one that is not.
fn listed(names: &[String], others: u64) -> String {
    if names.is_empty() {
        return "an empty object".to_owned();
    }
    let names = names.iter().map(|name| excerpt(name.as_bytes()));
    let mut text = names.collect::<Vec<_>>().join(", ");
    if others > 0 {
        text += &format!(" and {others} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(json: &str, key: &str) -> Result<JsonClass, JsonFault> {
        json_class(json.as_bytes(), &key.parse().unwrap())
    }

    #[test]
    fn integers_and_strings_are_classes() {
        let number = |n| Ok(JsonClass::Number(n));
        let name = |text: &str| Ok(JsonClass::Name(text.to_owned()));
        for (json, expected) in [
            (r#"{"a": 3}"#, number(3)),
            (
                r#"{"z": [{"a": 1}, "}"], "a": -3, "b": {"a": 9}}"#,
                number(-3),
            ),
            (r#"{"a": 3.0}"#, number(3)),
            (r#"{"a": 9007199254740992}"#, number(1 << 53)),
            (r#" {"a" : "c\u00e4t" } "#, name("cät")),
            (r#"{"a": 1, "a": "two"}"#, name("two")),
        ] {
            assert_eq!(class(json, "a"), expected, "{json}");
        }
        assert_eq!(class(r#"{"a": {"b": {"c": "x"}}}"#, "a.b.c"), name("x"));
    }

    #[test]
    fn what_is_no_class_is_told() {
        for (json, key, what) in [
            (r#"{"a": 3.5}"#, "a", "a number with a fraction"),
            (r#"{"a": 1e300}"#, "a", "beyond 2^53"),
            (r#"{"a": 18446744073709551615}"#, "a", "beyond 2^53"),
            (r#"{"a": -9007199254740993}"#, "a", "beyond 2^53"),
            (r#"{"a": [3]}"#, "a", "a list"),
            (r#"{"a": {"b": 3}}"#, "a", "an object"),
            (r#"{"a": null}"#, "a", "null"),
            (r#"{"a": false}"#, "a", "true or false"),
            (r#"{"a": ""}"#, "a", "an empty string"),
        ] {
            let fault = class(json, key).unwrap_err();
            assert!(
                matches!(fault, JsonFault::NoClass { .. }),
                "{json}: {fault}"
            );
            assert!(fault.to_string().contains(what), "{fault}");
        }
        for (json, key, there) in [
            ("{}", "a", "an empty object"),
            (r#"{"b": 1, "c": 2}"#, "a", "only b, c;"),
            (r#"{"a": {"x": 1}}"#, "a.b", "only x;"),
            (r#"{"a": 1}"#, "a.b", "a number on the way"),
            (r#"{"a": "b"}"#, "a.b", "a string on the way"),
            (r#"[{"a": 1}]"#, "a", "a list on the way"),
            ("null", "a", "null on the way"),
        ] {
            let fault = class(json, key).unwrap_err();
            assert!(matches!(fault, JsonFault::NoKey { .. }), "{json}: {fault}");
            assert!(fault.to_string().contains(there), "{fault}");
        }
        let many: Vec<String> = (0..20).map(|i| format!("\"k{i}\": 0")).collect();
        let fault = class(&format!("{{{}}}", many.join(",")), "a").unwrap_err();
        assert!(fault.to_string().contains("k7 and 12 more"), "{fault}");
        for json in [
            "",
            "{",
            r#"{"a": 1} x"#,
            r#"{"a": 01}"#,
            r#"{"a": "\ud800"}"#,
            &"[".repeat(5000),
        ] {
            let fault = class(json, "a").unwrap_err();
            assert!(
                matches!(fault, JsonFault::NotJson { .. }),
                "{json}: {fault}"
            );
            assert!(fault.to_string().contains("line 1 column"), "{fault}");
        }
        assert!(json_class(b"{\"a\": \"\xff\"}", &"a".parse().unwrap()).is_err());
    }

    #[test]
    fn keys_as_text() {
        for text in ["a", "a.b", "annotations.class id"] {
            assert_eq!(text.parse::<JsonKey>().unwrap().to_string(), text);
        }
        for text in ["", ".", "a.", ".a", "a..b"] {
            let error = text.parse::<JsonKey>().unwrap_err();
            assert!(error.contains("names no key; give json:KEY"), "{error}");
        }
    }
}
