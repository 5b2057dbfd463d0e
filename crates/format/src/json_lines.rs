//! JSON Lines: an object a line, whose values are the fields of a record.
//!
//! Whole numbers become i64, other numbers f64, lists of them (also nested, of equal lengths) arrays, strings bytes. The
//! keys of all records count. One that some record lacks, or has in another kind, is left out with a note that names the
//! line, and so is one of objects, of truth values, of null, or of whole numbers that no such type holds exactly. The
//! label is an integer or a string under the key `label`, or the one that is named.
//!
//! Cost: one pass that reads every line, kept in a sidecar; four bytes a record for its class beside the list of
//! places.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::Ordering;

use pelton_batch::{DType, FieldSpec, FieldSpecs};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::classes_so_far::ClassesSoFar;
use crate::data_file::{LINE_ENDS, Places};
use crate::delimited::LabelColumn;
use crate::elias_fano::EliasFanoBuilder;
use crate::error::{Fault, FormatError, excerpt};
use crate::fields::{FieldDecoder, RowWriter, overhead};
use crate::fingerprint::mix;
use crate::format::{Format, Found, Match, Source};
use crate::kind::Head;
use crate::labels::{MOST_LABELS, checked_label};
use crate::located::{Located, text_of, words_of};
use crate::sidecar::RecordShape;

/// The key of the label unless another is named.
const LABEL: &str = "label";
/// Most keys of all records together.
const MOST_KEYS: usize = 4096;
/// Longest name of a field, which is kept with each row behind one byte for its length.
const MOST_NAME_BYTES: usize = 255;
/// Up to here every whole number is an f64.
const MOST_EXACT: u64 = 1 << 53;
/// Deepest list.
const MOST_DEPTH: usize = 6;
/// Longest line.
const MOST_LINE_BYTES: u64 = 1 << 30;
/// Tells these sidecars from others.
const SHAPE: u64 = 11;

/// JSON Lines.
pub(crate) struct JsonLines;

impl Format for JsonLines {
    fn name(&self) -> &'static str {
        "jsonl"
    }

    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        head.ends_in(&["jsonl", "jsonlines", "ndjson", "json"])
            .then_some(Match::Name)
    }

    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Found, FormatError> {
        let (label, must) = match &source.options.label {
            LabelColumn::Name(name) => (name.as_str(), true),
            _ => (LABEL, false),
        };
        let hash = label
            .bytes()
            .fold(1 + u64::from(must), |hash, byte| mix(hash, u64::from(byte)));
        let shape = RecordShape::Classed {
            format: SHAPE,
            label: hash,
        };
        let (located, index) =
            source.located(shape, source.start(), notes, || scan(source, label, must))?;
        let first = located.starts.walk(0).next().unwrap_or(0);
        let schema =
            Schema::from_words(&located.tallies).ok_or_else(|| FormatError::Malformed {
                path: source.path.to_path_buf(),
                offset: first,
                what: "its index says nothing of its keys".into(),
                remedy: "remove the index (.pelton-index) next to the file",
            })?;
        let path = source.path.display();
        for (key, why) in &schema.left_out {
            notes.push(format!(
                "{path}: the key {key:?} is left out: {why}; write a number, a list of numbers or a string under it in every line"
            ));
        }
        let decoder = JsonDecoder::new(schema.kinds);
        let records = located.starts.len();
        if let Some((unlabelled, line)) = schema.unlabelled {
            notes.push(format!(
                "{path}: {unlabelled} of {records} records, the first in line {line}, have no {label:?} and count as labelled 0"
            ));
        }
        if decoder.kinds.is_empty() && records > 0 {
            return Err(FormatError::Malformed {
                path: source.path.to_path_buf(),
                offset: first,
                what: "no key has a number, a list of numbers or a string in every record".into(),
                remedy: "write the same keys in every line",
            });
        }
        Ok(Found {
            records,
            bytes: located.end - first,
            longest: located.longest,
            nonzeros: located.nonzeros,
            index,
            places: Places::listed(located.starts, located.end, LINE_ENDS),
            names: located.names,
            ..Found::fields(located.labels, records, located.codes, decoder)
        })
    }
}

/// What a value is, in every record so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    /// Nothing that is a field.
    Other,
    Text,
    /// Numbers in lists so deep, 0 being a number by itself.
    Numbers {
        whole: bool,
        /// Whether one of them is a whole number that double precision may round.
        large: bool,
        depth: usize,
    },
}

/// What is known of the keys of a file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Schema {
    /// Those that are fields, in ascending order.
    kinds: Vec<(String, Kind)>,
    /// Those that are not, and why.
    left_out: Vec<(String, String)>,
    /// How many records have no label where others have one, and the line of the first.
    unlabelled: Option<(u64, u64)>,
}

impl Schema {
    fn from_words(words: &[u64]) -> Option<Schema> {
        serde_json::from_str(&text_of(words)?.0).ok()
    }

    fn words(&self) -> Vec<u64> {
        words_of(&serde_json::to_string(self).expect("keys are text"))
    }
}

/// A key of the records so far.
struct Key {
    kind: Kind,
    /// In how many records it is.
    records: u64,
    /// Bytes of its elements.
    payload: u64,
    /// Why it is no field, from the first record that says so.
    why: Option<String>,
}

/// The keys of the records so far.
#[derive(Default)]
struct Keys {
    known: BTreeMap<String, Key>,
    /// The line of the first record.
    first: u64,
    records: u64,
    scratch: (Vec<usize>, Vec<u8>),
}

impl Keys {
    /// Looks at the next record, which is the object of a line; what is wrong where there are too many keys.
    fn add(&mut self, object: &Map<String, Value>, label: &str, line: u64) -> Result<(), Fault> {
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
            if key.records < self.records && key.why.is_none() {
                key.why = Some(format!("line {line} does not have it"));
            }
        }
        Ok(())
    }

    /// Notes a key that no record had before.
    fn meet(&mut self, name: &str, value: &Value) -> Result<(), Fault> {
        if self.known.len() >= MOST_KEYS {
            let what = format!(
                "with {:?} the records have more than {MOST_KEYS} different keys; put what varies into a string or a list under one key",
                excerpt(name.as_bytes())
            );
            return Err(Fault::Json { what });
        }
        let why = match (name.len(), self.records) {
            (1..=MOST_NAME_BYTES, 0) => None,
            (1..=MOST_NAME_BYTES, _) => Some(format!("line {} does not have it", self.first)),
            (bytes, _) => Some(format!(
                "its name has {bytes} bytes, and a field 1 to {MOST_NAME_BYTES}"
            )),
        };
        let key = Key {
            kind: Kind::of(value),
            records: 0,
            payload: 0,
            why,
        };
        self.known.insert(name.to_owned(), key);
        Ok(())
    }

    /// What is known of them, and the bytes that rows take.
    fn finish(self) -> (Schema, u64) {
        let mut schema = Schema::default();
        let mut bytes = 0;
        for (name, key) in self.known {
            match key.why {
                Some(why) => schema.left_out.push((excerpt(name.as_bytes()), why)),
                None => {
                    let dimensions = match key.kind {
                        Kind::Numbers { depth, .. } => depth,
                        _ => 1,
                    };
                    bytes += key.payload + overhead(&name, dimensions) * self.records;
                    schema.kinds.push((name, key.kind));
                }
            }
        }
        (schema, bytes + 2 * self.records)
    }
}

impl Key {
    /// Looks at its next value.
    fn add(&mut self, value: &Value, line: u64, scratch: &mut (Vec<usize>, Vec<u8>)) {
        let found = Kind::of(value);
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
                    "line {line} has {found} where lines before it have {others}"
                ));
            }
            (Kind::Text, Value::String(text)) => self.payload += text.len() as u64,
            (Kind::Text, _) => {}
            (Kind::Numbers { whole, large, .. }, value) => {
                let (dims, elements) = scratch;
                dims.clear();
                elements.clear();
                let lists = array(value, false, dims, elements);
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

/// What a value is, for messages.
fn described(value: &Value) -> String {
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
    fn of(value: &Value) -> Kind {
        match value {
            Value::String(_) => Kind::Text,
            Value::Number(number) => Kind::Numbers {
                whole: number.is_i64(),
                large: number.as_u64().is_some_and(|number| number > MOST_EXACT)
                    || number
                        .as_i64()
                        .is_some_and(|number| number.unsigned_abs() > MOST_EXACT),
                depth: 0,
            },
            Value::Array(values) => {
                let kinds = values.iter().map(Kind::of).reduce(Kind::with);
                // Of an empty list nobody knows what it would hold.
                match kinds.unwrap_or(Kind::Numbers {
                    whole: true,
                    large: false,
                    depth: 0,
                }) {
                    Kind::Numbers {
                        whole,
                        large,
                        depth,
                    } if depth < MOST_DEPTH => Kind::Numbers {
                        whole,
                        large,
                        depth: depth + 1,
                    },
                    _ => Kind::Other,
                }
            }
            _ => Kind::Other,
        }
    }

    /// What both are.
    fn with(self, other: Kind) -> Kind {
        match (self, other) {
            (
                Kind::Numbers {
                    whole,
                    large,
                    depth,
                },
                Kind::Numbers {
                    whole: also,
                    large: or,
                    depth: same,
                },
            ) if depth == same => Kind::Numbers {
                whole: whole && also,
                large: large || or,
                depth,
            },
            (Kind::Text, Kind::Text) => Kind::Text,
            _ => Kind::Other,
        }
    }

    /// For messages.
    fn described(self) -> &'static str {
        match self {
            Kind::Other => "something else",
            Kind::Text => "a string",
            Kind::Numbers { depth: 0, .. } => "a number",
            Kind::Numbers { .. } => "a list of numbers of other depth",
        }
    }
}

/// Lengths of the lists of a value, outermost first, and its numbers; `None` where lists beside one another differ.
fn array(value: &Value, whole: bool, dims: &mut Vec<usize>, bytes: &mut Vec<u8>) -> Option<()> {
    fn walk(
        value: &Value,
        at: usize,
        whole: bool,
        dims: &mut Vec<usize>,
        bytes: &mut Vec<u8>,
    ) -> Option<()> {
        match value {
            Value::Array(values) => {
                match dims.get(at) {
                    Some(length) if *length != values.len() => return None,
                    Some(_) => {}
                    None => dims.push(values.len()),
                }
                values
                    .iter()
                    .try_for_each(|value| walk(value, at + 1, whole, dims, bytes))
            }
            Value::Number(number) if whole => {
                bytes.extend(number.as_i64()?.to_le_bytes());
                Some(())
            }
            Value::Number(number) => {
                bytes.extend(number.as_f64()?.to_le_bytes());
                Some(())
            }
            _ => None,
        }
    }
    walk(value, 0, whole, dims, bytes)
}

/// The object of a line, or what is wrong with it.
fn object(line: &[u8]) -> Result<Map<String, Value>, Fault> {
    let line = line.trim_ascii_end();
    match serde_json::from_slice(line) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(Fault::Json {
            what: format!(
                "{} is no JSON object; write one object a line, with the fields of a record",
                excerpt(other.to_string().as_bytes())
            ),
        }),
        Err(error) => Err(no_json(line, &error)),
    }
}

/// What is wrong, and at which byte of the line.
fn no_json(line: &[u8], error: &serde_json::Error) -> Fault {
    let column = error.column().clamp(1, line.len().max(1));
    // Its text ends in a line and a column, where every line is the first of its text.
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text);
    let what = match error.is_eof() {
        true => "the line ends before its JSON does".to_owned(),
        false => {
            let rest = line.get(column - 1..).unwrap_or_default();
            format!("{what} at {:?}", excerpt(rest))
        }
    };
    Fault::Json {
        what: format!("column {column}: {what}; write one whole JSON object on each line"),
    }
}

/// Notes the class of the next record.
fn add_class(
    classes: &mut ClassesSoFar,
    value: Option<&Value>,
    label: &str,
    must: bool,
) -> Result<(), Fault> {
    match value {
        Some(Value::String(name)) if !name.is_empty() && !classes.are_numbers() => {
            classes.push_name(name);
        }
        Some(Value::Number(number)) if !classes.are_names() => {
            let value = number.as_f64().unwrap_or(f64::NAN);
            classes.push_number(checked_label(value, || number.to_string())?);
        }
        None if !must && !classes.are_names() => classes.push_number(0.0),
        found => {
            let found = found.map_or("nothing".to_owned(), |value| {
                excerpt(value.to_string().as_bytes())
            });
            let what = format!(
                "its label, {label:?}, is {found}; give all records integers or all of them strings there, or name another key with `label`"
            );
            return Err(Fault::Json { what });
        }
    }
    Ok(())
}

/// Reads every line.
fn scan(source: &Source<'_>, label: &str, must: bool) -> Result<Located, FormatError> {
    let path = || source.path.to_path_buf();
    let failed = |e| FormatError::io(source.path, "read it", e);
    let file = source.input()?;
    let (from, end) = (source.start(), source.stamp.size);
    let mut reader = BufReader::with_capacity(1 << 20, file.from(from));
    let mut starts = Vec::new();
    let mut classes = ClassesSoFar::default();
    let mut keys = Keys::default();
    let (mut at, mut number) = (from, 0);
    // How many records have no label, and the line of the first.
    let (mut unlabelled, mut first_unlabelled) = (0, 0);
    let mut line = Vec::new();
    loop {
        if source.options.interrupt.load(Ordering::Relaxed) {
            return Err(FormatError::Interrupted { path: path() });
        }
        line.clear();
        let bytes = (&mut reader)
            .take(MOST_LINE_BYTES)
            .read_until(b'\n', &mut line)
            .map_err(failed)?;
        if bytes == 0 {
            break;
        }
        number += 1;
        let start = at;
        at += bytes as u64;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let wrong = |fault| FormatError::Line {
            path: path(),
            line: number,
            offset: start,
            fault,
        };
        let object = object(&line).map_err(wrong)?;
        if !object.contains_key(label) {
            unlabelled += 1;
            if unlabelled == 1 {
                first_unlabelled = number;
            }
        }
        add_class(&mut classes, object.get(label), label, must).map_err(wrong)?;
        if classes.len() > MOST_LABELS {
            let limit = MOST_LABELS;
            return Err(FormatError::TooManyLabels {
                path: path(),
                limit,
            });
        }
        keys.add(&object, label, number).map_err(wrong)?;
        starts.push(start);
    }
    let records = starts.len() as u64;
    let (mut schema, row_bytes) = keys.finish();
    if unlabelled > 0 && unlabelled < records {
        schema.unlabelled = Some((unlabelled, first_unlabelled));
    }
    let longest = starts.iter().skip(1).chain([&end]).zip(&starts);
    let longest = longest.map(|(next, start)| next - start).max();
    let mean = (end - from) / (starts.len() as u64).max(1);
    let mut builder = EliasFanoBuilder::new(mean);
    for start in &starts {
        builder.push(*start);
    }
    let (mut labels, names, codes) = classes.finish();
    if unlabelled == records {
        labels.clear();
    }
    Ok(Located {
        starts: builder.finish(end),
        end,
        labels,
        names,
        codes,
        index_end: 0,
        nonzeros: row_bytes,
        longest: longest.unwrap_or(0),
        tallies: schema.words(),
    })
}

/// Values of objects as fields.
#[derive(Debug)]
struct JsonDecoder {
    kinds: Vec<(String, Kind)>,
    specs: FieldSpecs,
}

impl JsonDecoder {
    fn new(kinds: Vec<(String, Kind)>) -> JsonDecoder {
        let specs = kinds.iter().map(|(key, kind)| match *kind {
            Kind::Numbers { whole, depth, .. } => {
                let dtype = if whole { DType::I64 } else { DType::F64 };
                FieldSpec::new(key, dtype, &vec![None; depth])
            }
            _ => FieldSpec::new(key, DType::U8, &[None]),
        });
        JsonDecoder {
            specs: FieldSpecs(specs.collect()),
            kinds,
        }
    }
}

impl FieldDecoder for JsonDecoder {
    fn specs(&self) -> &FieldSpecs {
        &self.specs
    }

    fn decode(&self, _: u64, bytes: &[u8], row: &mut RowWriter<'_>) -> Result<Option<f64>, Fault> {
        let object = object(bytes)?;
        let (mut dims, mut elements) = (Vec::new(), Vec::new());
        for (key, kind) in &self.kinds {
            match (*kind, object.get(key)) {
                (Kind::Text, Some(Value::String(text))) => {
                    row.put(key, None, &[text.len()], text.as_bytes());
                }
                (Kind::Numbers { whole, depth, .. }, Some(value)) => {
                    dims.clear();
                    elements.clear();
                    array(value, whole, &mut dims, &mut elements).ok_or(Fault::NoRecord)?;
                    // Lists within an empty one have no length of their own.
                    dims.resize(depth.max(dims.len()), 0);
                    if dims.len() != depth {
                        return Err(Fault::NoRecord);
                    }
                    let dtype = if whole { DType::I64 } else { DType::F64 };
                    row.put(key, Some(dtype), &dims, &elements);
                }
                _ => return Err(Fault::NoRecord),
            }
        }
        Ok(None)
    }
}

/// Writes the row of a line as the first line of a file; whether it is one.
pub fn decode_json_line(line: &[u8], row: &mut Vec<u8>) -> bool {
    let Ok(object) = object(line) else {
        return false;
    };
    let mut keys = Keys::default();
    if keys.add(&object, LABEL, 1).is_err() {
        return false;
    }
    let decoder = JsonDecoder::new(keys.finish().0.kinds);
    decoder.decode(0, line, &mut RowWriter::new(row)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_values() {
        let kind = |json: &str| Kind::of(&serde_json::from_str(json).unwrap());
        let numbers = |whole, depth| Kind::Numbers {
            whole,
            large: false,
            depth,
        };
        for (json, expected) in [
            ("1", numbers(true, 0)),
            ("1.5", numbers(false, 0)),
            ("[1, 2.5]", numbers(false, 1)),
            ("[[1], [2]]", numbers(true, 2)),
            ("[]", numbers(true, 1)),
            ("[1, \"a\"]", Kind::Other),
            ("[1, [2]]", Kind::Other),
            ("\"a\"", Kind::Text),
            ("[\"a\"]", Kind::Other),
            ("null", Kind::Other),
            ("{}", Kind::Other),
            ("[[[[[[1]]]]]]", numbers(true, 6)),
            ("[[[[[[[1]]]]]]]", Kind::Other),
        ] {
            assert_eq!(kind(json), expected, "{json}");
        }
        assert_eq!(kind("1").with(kind("2.5")), numbers(false, 0));
        assert_eq!(kind("1").with(kind("[1]")), Kind::Other);
    }
}
