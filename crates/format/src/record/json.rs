//! The value of a key in a sample's member `json`: a class (an integer or a string), or numbers.
//!
//! A key is a path: parts with dots between them, each a key of the object under the part before. If a key occurs twice
//! in an object, the last one counts, as in most readers of JSON. Values off the path are not parsed.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde_json::value::RawValue;
use serde_json::{Number, Value};

use crate::record::error::{Fault, excerpt};

/// The path of a class in a JSON object: keys from the outermost object inwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonKey {
    parts: Vec<String>,
}

impl FromStr for JsonKey {
    type Err = String;

    /// `KEY` or `KEY.KEY…`.
    fn from_str(text: &str) -> Result<JsonKey, String> {
        let parts: Vec<String> = text.split('.').map(str::to_owned).collect();
        if parts.iter().any(String::is_empty) {
            Err(format!(
                "`json:{text}` names no key; give json:KEY, with dots between the keys of nested objects"
            ))
        } else {
            Ok(JsonKey { parts })
        }
    }
}

impl fmt::Display for JsonKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts.join("."))
    }
}

/// A class in a member.
#[derive(Clone, Debug, PartialEq)]
pub enum JsonClass {
    /// By number.
    Number(i64),
    /// By name.
    Name(String),
}

impl JsonClass {
    /// Its kind, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            JsonClass::Number(_) => "an integer",
            JsonClass::Name(_) => "a string",
        }
    }
}

/// Integers up to here, positive or negative, are exact labels.
const MOST_EXACT: f64 = 9_007_199_254_740_992.0;
/// Keys that a message lists.
const LISTED: usize = 8;

/// The class under `key` of a JSON text.
pub fn json_class(json: &[u8], key: &JsonKey) -> Result<JsonClass, Fault> {
    let value = value_under(json, key)?;
    let value = if is_object(value) || value.get().starts_with('[') {
        Err(kind(value))
    } else {
        class_of(serde_json::from_str(value.get()).map_err(not_json)?)
    };
    value.map_err(|found| {
        Fault::new(format!(
            "{key} of its member .json is {found}, and a class is an integer or a string; name another key as `label` json:KEY"
        ))
    })
}

/// The number under `key` of a JSON text, or the numbers of a list or of lists in lists, and the lengths of the lists,
/// outermost first. Truth values are 0 and 1.
pub fn json_numbers(json: &[u8], key: &JsonKey) -> Result<(Vec<Number>, Vec<usize>), Fault> {
    let value = value_under(json, key)?;
    let (mut numbers, mut dims) = (Vec::new(), Vec::new());
    let parsed: Option<Value> = serde_json::from_str(value.get()).ok();
    let walked = parsed.and_then(|parsed| walk(&parsed, 0, &mut dims, &mut numbers));
    let is_whole = dims.iter().product::<usize>() == numbers.len();
    match walked {
        Some(()) if is_whole => Ok((numbers, dims)),
        _ => {
            let found = if value.get().starts_with('[') {
                "a list of other things, or of lists that differ in length"
            } else {
                kind(value)
            };
            Err(Fault::new(format!(
                "{key} of its member .json is {found}, and a number or a list of numbers is needed; name another key as json:KEY"
            )))
        }
    }
}

/// Adds the numbers of a value in `depth` lists; `None` if it is something else, or lists differ in length.
fn walk(
    value: &Value,
    depth: usize,
    dims: &mut Vec<usize>,
    numbers: &mut Vec<Number>,
) -> Option<()> {
    match value {
        Value::Array(values) => {
            if depth == dims.len() && numbers.is_empty() {
                dims.push(values.len());
            }
            if dims.get(depth) != Some(&values.len()) {
                return None;
            }
            values
                .iter()
                .try_for_each(|value| walk(value, depth + 1, dims, numbers))
        }
        _ if depth != dims.len() => None,
        Value::Number(number) => {
            numbers.push(number.clone());
            Some(())
        }
        Value::Bool(value) => {
            numbers.push(u8::from(*value).into());
            Some(())
        }
        _ => None,
    }
}

fn not_json(error: serde_json::Error) -> Fault {
    Fault::new(format!(
        "its member .json is not JSON ({error}); correct it and make the archive again"
    ))
}

fn value_under<'a>(json: &'a [u8], key: &JsonKey) -> Result<&'a RawValue, Fault> {
    let mut value: &RawValue = serde_json::from_slice(json).map_err(not_json)?;
    for part in &key.parts {
        let there = if is_object(value) {
            let mut object: Object<'_> = serde_json::from_str(value.get()).map_err(not_json)?;
            match object.remove(part) {
                Some(inner) => {
                    value = inner;
                    continue;
                }
                None => listed(&object),
            }
        } else {
            format!("{} on the way there", kind(value))
        };
        return Err(Fault::new(format!(
            "its member .json has no {key}, only {there}; name another key as json:KEY"
        )));
    }
    Ok(value)
}

/// The class of a value; the error names the kind of any other value.
fn class_of(value: Value) -> Result<JsonClass, &'static str> {
    match value {
        Value::Number(number) => {
            let whole = match number.as_i64() {
                Some(whole) => Some(whole).filter(|whole| whole.unsigned_abs() <= 1 << 53),
                // Tables written from floating point have 3.0 for 3.
                None => (number.as_f64())
                    .filter(|real| real.fract() == 0.0 && real.abs() <= MOST_EXACT)
                    .map(|real| real as i64),
            };
            let otherwise = if number.is_f64() {
                "a number with a fraction or beyond 2^53"
            } else {
                "an integer beyond 2^53"
            };
            whole.map(JsonClass::Number).ok_or(otherwise)
        }
        Value::String(name) if name.is_empty() => Err("an empty string"),
        Value::String(name) => Ok(JsonClass::Name(name)),
        Value::Bool(_) => Err("true or false"),
        _ => Err("null"),
    }
}

/// An object with unparsed values.
type Object<'a> = BTreeMap<String, &'a RawValue>;

fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

fn kind(value: &RawValue) -> &'static str {
    match value.get().as_bytes()[0] {
        b'n' => "null",
        b't' | b'f' => "true or false",
        b'"' => "a string",
        b'[' => "a list",
        b'{' => "an object",
        _ => "a number",
    }
}

/// The existing keys, for the message that one is missing.
fn listed(object: &Object<'_>) -> String {
    if object.is_empty() {
        return "an empty object".to_owned();
    }
    let names = object.keys().take(LISTED);
    let names: Vec<String> = names.map(|name| excerpt(name.as_bytes())).collect();
    let others = object.len() - names.len();
    match others {
        0 => names.join(", "),
        _ => format!("{} and {others} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(json: &str, key: &str) -> Result<JsonClass, Fault> {
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
    fn unknown_classes_are_reported() {
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
            let what = format!("{key} of its member .json is {what}");
            assert!(
                fault.to_string().contains(&what) || what.contains("beyond 2^53"),
                "{fault}"
            );
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
            let fault = fault.to_string();
            assert!(
                fault.contains("has no a") && fault.contains(there),
                "{json}: {fault}"
            );
        }
        let many: Vec<String> = (0..20).map(|i| format!("\"k{i}\": 0")).collect();
        let fault = class(&format!("{{{}}}", many.join(",")), "a").unwrap_err();
        assert!(fault.to_string().contains(" and 12 more"), "{fault}");
        for json in [
            "",
            "{",
            r#"{"a": 1} x"#,
            r#"{"a": 01}"#,
            r#"{"a": "\ud800"}"#,
            &"[".repeat(5000),
        ] {
            let fault = class(json, "a").unwrap_err();
            let fault = fault.to_string();
            assert!(
                fault.contains("not JSON") && fault.contains("line 1 column"),
                "{fault}"
            );
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

    #[test]
    fn numbers_stand_alone_or_in_a_list() {
        let numbers = |json: &str, key: &str| json_numbers(json.as_bytes(), &key.parse().unwrap());
        let found = |json: &str, key: &str| {
            let (numbers, dims) = numbers(json, key).unwrap();
            let numbers: Vec<String> = numbers.iter().map(Number::to_string).collect();
            (numbers.join(" "), dims)
        };
        let json = r#"{"score": 0.5, "id": 9007199254740993, "box": {"at": [1, -2.5, 3e4], "none": []}, "name": "x"}"#;
        assert_eq!(found(json, "score"), ("0.5".into(), vec![]));
        assert_eq!(found(json, "id"), ("9007199254740993".into(), vec![]));
        assert_eq!(found(json, "box.at"), ("1 -2.5 30000.0".into(), vec![3]));
        assert_eq!(found(json, "box.none"), (String::new(), vec![0]));
        let nested = r#"{"a": [[1, 2], [3, 4], [5, 6]], "b": [[], []], "c": true}"#;
        assert_eq!(found(nested, "a"), ("1 2 3 4 5 6".into(), vec![3, 2]));
        assert_eq!(found(nested, "b"), (String::new(), vec![2, 0]));
        assert_eq!(found(nested, "c"), ("1".into(), vec![]));
        let refuses = |json: &str, key: &str, says: &str| {
            let error = numbers(json, key).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        };
        refuses(json, "name", "name of its member .json is a string");
        refuses(json, "box", "is an object");
        refuses(json, "boxes", "has no boxes, only box, id, name, score");
        for list in [
            "[1, [2]]",
            "[[2], 1]",
            "[[], [1]]",
            "[[1], [1, 2]]",
            "[\"x\"]",
            "[null]",
        ] {
            let json = format!(r#"{{"a": {list}}}"#);
            refuses(&json, "a", "a list of other things");
        }
        refuses(r#"{"a": null}"#, "a", "is null");
        refuses(r#"{"a": 1e999}"#, "a", "is a number");
        refuses("{", "a", "is not JSON");
    }
}
