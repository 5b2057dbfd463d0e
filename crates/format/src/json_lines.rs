//! JSON Lines: an object a line, whose values are the fields of a record.
//!
//! Whole numbers become i64, other numbers f64, true and false 1 and 0, lists of them (also nested, of equal lengths) arrays,
//! strings bytes, and objects and other lists the bytes of their JSON text. The keys of all records count, or with
//! `jsonl:KEY,…` those that are named. A null is a missing value: its record is a bad one unless something stands for
//! missing values. A key that some record lacks is left out with a note that names the line, unless something stands for
//! it; so is one of different kinds of values, of null alone, or of whole numbers that no such type holds exactly. The label
//! is a number, a truth value or a string under the key `label`, or the one that is named.
//!
//! Cost: one pass that reads every line, kept in a sidecar; four bytes a record for its class beside the list of
//! places.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::Ordering;

use pelton_batch::{DType, FieldSpec, FieldSpecs};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use crate::classes_so_far::ClassesSoFar;
use crate::data_file::{LINE_ENDS, Places};
use crate::delimited::LabelColumn;
use crate::elias_fano::EliasFanoBuilder;
use crate::error::{Fault, FormatError, excerpt};
use crate::fields::selection;
use crate::fields::{FieldDecoder, RowWriter, overhead};
use crate::fingerprint::mix;
use crate::format::{Format, Found, Match, Source};
use crate::kind::Head;
use crate::labels::{MOST_LABELS, checked_label};
use crate::located::{Located, text_of, words_of};
use crate::options::{MEAN_OF_FIELDS, Missing};
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
/// Tells these sidecars from others; 11 stood for keys without null, truth values and objects.
const SHAPE: u64 = 13;

/// JSON Lines; with `selects` some keys of them.
pub(crate) struct JsonLines {
    pub(crate) selects: bool,
}

impl Format for JsonLines {
    fn name(&self) -> &'static str {
        "jsonl"
    }

    fn argument(&self) -> Option<&'static str> {
        self.selects.then_some("KEY,…")
    }

    fn check(&self, argument: &str) -> Result<(), String> {
        selection(argument, "keys").map(drop)
    }

    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        let is_one = head.ends_in(&["jsonl", "jsonlines", "ndjson", "json"]);
        (is_one && !self.selects).then_some(Match::Name)
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
        let records = located.starts.len();
        let known = chosen(source, &schema, notes)?;
        let row_bytes: u64 = known.iter().map(|known| known.bytes).sum();
        let kinds = known.iter().map(|known| (known.key.clone(), known.kind));
        let kinds = kinds.collect();
        let names = &located.names;
        let label = LabelKey {
            key: label.to_owned(),
            must,
            are_names: !names.is_empty(),
            are_numbers: names.is_empty() && !located.labels.is_empty(),
        };
        let decoder = JsonDecoder::new(kinds, label, source.options.missing.is_some());
        if let Some((unlabelled, line)) = schema.unlabelled {
            notes.push(format!(
                "{}: {unlabelled} of {records} records, the first in line {line}, have no {:?} and count as labelled 0",
                source.path.display(),
                decoder.label.key
            ));
        }
        if decoder.kinds.is_empty() && records > 0 {
            return Err(FormatError::Malformed {
                path: source.path.to_path_buf(),
                offset: first,
                what: "no key has values of one kind in every record".into(),
                remedy: "write the same keys in every line",
            });
        }
        Ok(Found {
            records,
            bytes: located.end - first,
            longest: located.longest,
            nonzeros: row_bytes + 2 * records,
            index,
            places: Places::listed(located.starts, located.end, LINE_ENDS),
            names: located.names,
            first_bad: located.first_bad,
            ..Found::fields(located.labels, records, located.codes, decoder)
        })
    }
}

/// The keys that become fields: those that are named, or all that can. Which of all cannot is added to `notes`.
fn chosen<'a>(
    source: &Source<'_>,
    schema: &'a Schema,
    notes: &mut Vec<String>,
) -> Result<Vec<&'a Known>, FormatError> {
    let path = || source.path.to_path_buf();
    if source.options.missing == Some(Missing::Mean) {
        return Err(FormatError::SettingElsewhere {
            path: path(),
            kind: "jsonl",
            setting: MEAN_OF_FIELDS,
        });
    }
    let fills = source.options.missing.is_some();
    let alike = "write values of one kind under it in every line";
    let mut left_out: Vec<(String, String, &str)> = (schema.left_out.iter())
        .map(|(key, why)| (key.clone(), why.clone(), alike))
        .collect();
    let mut kinds = Vec::new();
    for known in &schema.known {
        match known.lacking {
            Some(line) if !fills => left_out.push((
                known.key.clone(),
                format!("line {line} does not have it"),
                "write it in every line, or let `missing` zero stand for it",
            )),
            _ => kinds.push(known),
        }
    }
    if source.argument().is_empty() {
        for (key, why, remedy) in left_out {
            notes.push(format!(
                "{}: the key {:?} is left out: {why}; {remedy}",
                source.path.display(),
                excerpt(key.as_bytes())
            ));
        }
        return Ok(kinds);
    }
    let wanted = selection(source.argument(), "keys").expect("it was checked");
    for name in &wanted {
        if kinds.iter().any(|known| known.key == *name) {
            continue;
        }
        return Err(match left_out.iter().find(|(key, ..)| key == name) {
            Some((_, why, _)) => FormatError::ColumnType {
                path: path(),
                column: (*name).to_owned(),
                found: format!("nothing that a record can hold: {why}"),
            },
            None => FormatError::NoColumn {
                path: path(),
                wanted: (*name).to_owned(),
                columns: kinds
                    .iter()
                    .map(|known| known.key.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
            },
        });
    }
    kinds.retain(|known| wanted.contains(&known.key.as_str()));
    Ok(kinds)
}

/// What a value is, in every record so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    /// Nothing that is a field.
    Other,
    /// No value.
    Null,
    Text,
    /// An object, or a list of other things than numbers: its JSON text.
    Json,
    /// Numbers in lists so deep, 0 being a number by itself.
    Numbers {
        whole: bool,
        /// Whether one of them is a whole number that double precision may round.
        large: bool,
        depth: usize,
    },
}

/// A key that can be a field.
#[derive(Debug, Serialize, Deserialize)]
struct Known {
    key: String,
    kind: Kind,
    /// The line of the first record without it.
    lacking: Option<u64>,
    /// Bytes that it takes in all rows.
    bytes: u64,
}

/// What is known of the keys of a file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Schema {
    /// Those that can be fields, in ascending order.
    known: Vec<Known>,
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
    /// The line of the first record without it.
    lacking: Option<u64>,
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
            if key.records < self.records {
                key.lacking.get_or_insert(line);
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
        let why = match name.len() {
            1..=MOST_NAME_BYTES => None,
            bytes => Some(format!(
                "its name has {bytes} bytes, and a field 1 to {MOST_NAME_BYTES}"
            )),
        };
        let key = Key {
            kind: Kind::of(value),
            records: 0,
            payload: 0,
            why,
            lacking: (self.records > 0).then_some(self.first),
        };
        self.known.insert(name.to_owned(), key);
        Ok(())
    }

    /// What is known of them.
    fn finish(self) -> Schema {
        let mut schema = Schema::default();
        for (name, key) in self.known {
            match (key.why, key.kind) {
                (Some(why), _) => schema.left_out.push((name, why)),
                (None, Kind::Null) => schema.left_out.push((name, "every line has null".into())),
                (None, _) => {
                    let dimensions = match key.kind {
                        Kind::Numbers { depth, .. } => depth,
                        _ => 1,
                    };
                    schema.known.push(Known {
                        bytes: key.payload + overhead(&name, dimensions) * self.records,
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
            Value::Null => Kind::Null,
            Value::Object(_) => Kind::Json,
            Value::Bool(_) => Kind::Numbers {
                whole: true,
                large: false,
                depth: 0,
            },
            Value::Number(number) => Kind::Numbers {
                whole: number.is_i64(),
                large: number.as_u64().is_some_and(|number| number > MOST_EXACT)
                    || number
                        .as_i64()
                        .is_some_and(|number| number.unsigned_abs() > MOST_EXACT),
                depth: 0,
            },
            Value::Array(values) => {
                let kinds = values.iter().map(Kind::of).fold(Kind::Null, Kind::with);
                // Of an empty list nobody knows what it would hold.
                let empty = Kind::Numbers {
                    whole: true,
                    large: false,
                    depth: 0,
                };
                match if kinds == Kind::Null { empty } else { kinds } {
                    Kind::Numbers {
                        whole,
                        large,
                        depth,
                    } if depth < MOST_DEPTH => Kind::Numbers {
                        whole,
                        large,
                        depth: depth + 1,
                    },
                    _ => Kind::Json,
                }
            }
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

/// Lengths of the lists of a value, outermost first, and its numbers; `None` where lists next to each other differ, or a
/// null is among the numbers that nothing `fills`.
fn array(
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
            match whole {
                true => bytes.extend(number.as_i64()?.to_le_bytes()),
                false => bytes.extend(number.as_f64()?.to_le_bytes()),
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
            let is_number = |word: &[u8]| {
                line.get(column.saturating_sub(2)..).is_some_and(|rest| {
                    rest.starts_with(word)
                        || rest.get(1..).is_some_and(|rest| rest.starts_with(word))
                })
            };
            match [&b"NaN"[..], b"Infinity"]
                .iter()
                .any(|word| is_number(word))
            {
                true => {
                    let what = format!(
                        "column {column}: JSON has no NaN or infinity; write null in its place, which `missing` zero fills in"
                    );
                    return Fault::Json { what };
                }
                false => format!("{what} at {:?}", excerpt(rest)),
            }
        }
    };
    Fault::Json {
        what: format!("column {column}: {what}; write one whole JSON object on each line"),
    }
}

/// Under which key labels are, and what they are.
#[derive(Debug)]
struct LabelKey {
    key: String,
    /// Whether every record must have it.
    must: bool,
    are_names: bool,
    are_numbers: bool,
}

/// What a record says of its label.
enum Class<'a> {
    Name(&'a str),
    Number(f64),
    None,
}

impl LabelKey {
    fn class_of<'a>(&self, object: &'a Map<String, Value>) -> Result<Class<'a>, Fault> {
        match object.get(&self.key) {
            Some(Value::String(name)) if !name.is_empty() && !self.are_numbers => {
                Ok(Class::Name(name))
            }
            Some(Value::Number(number)) if !self.are_names => {
                let value = number.as_f64().unwrap_or(f64::NAN);
                checked_label(value, || number.to_string()).map(Class::Number)
            }
            Some(Value::Bool(value)) if !self.are_names => Ok(Class::Number(f64::from(*value))),
            None if !self.must && !self.are_names => Ok(Class::None),
            found => {
                let found = found.map_or("nothing".to_owned(), |value| {
                    excerpt(value.to_string().as_bytes())
                });
                let what = format!(
                    "its label, {:?}, is {found}; give all records numbers or all of them strings there, leave such records out with `on_bad_record` skip, or name another key with `label`",
                    self.key
                );
                Err(Fault::Json { what })
            }
        }
    }
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
    let mut labels = LabelKey {
        key: label.to_owned(),
        must,
        are_names: false,
        are_numbers: false,
    };
    let (mut first_bad, mut bad) = (None, 0);
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
        let object = object(&line);
        let class = object.as_ref().map_err(Fault::clone);
        let (object, class) = match class.and_then(|object| Ok((object, labels.class_of(object)?)))
        {
            Ok(sound) => sound,
            Err(_) if source.options.tolerant => {
                first_bad.get_or_insert(starts.len() as u64);
                bad += 1;
                classes.push_unknown();
                starts.push(start);
                continue;
            }
            Err(fault) => return Err(wrong(fault)),
        };
        match class {
            Class::Name(name) => classes.push_name(name),
            Class::Number(value) => classes.push_number(value),
            Class::None => {
                unlabelled += 1;
                if unlabelled == 1 {
                    first_unlabelled = number;
                }
                classes.push_number(0.0);
            }
        }
        (labels.are_names, labels.are_numbers) = (classes.are_names(), classes.are_numbers());
        if classes.len() > MOST_LABELS {
            let limit = MOST_LABELS;
            return Err(FormatError::TooManyLabels {
                path: path(),
                limit,
            });
        }
        keys.add(object, label, number).map_err(wrong)?;
        starts.push(start);
    }
    let records = starts.len() as u64;
    let mut schema = keys.finish();
    if unlabelled > 0 && unlabelled + bad < records {
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
    if unlabelled + bad == records {
        labels.clear();
    }
    Ok(Located {
        first_bad,
        starts: builder.finish(end),
        end,
        labels,
        names,
        codes,
        index_end: 0,
        nonzeros: 0,
        longest: longest.unwrap_or(0),
        tallies: schema.words(),
    })
}

/// Values of objects as fields.
#[derive(Debug)]
struct JsonDecoder {
    kinds: Vec<(String, Kind)>,
    label: LabelKey,
    /// Whether 0, or nothing in a list or string, stands for what is missing.
    fills: bool,
    specs: FieldSpecs,
}

impl JsonDecoder {
    fn new(kinds: Vec<(String, Kind)>, label: LabelKey, fills: bool) -> JsonDecoder {
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
            label,
            fills,
        }
    }
}

/// Why the value of a key cannot be a field, though it could be in the other records.
#[cold]
fn no_field(key: &str, value: &Value) -> Fault {
    let list_of_nulls = value
        .as_array()
        .is_some_and(|values| values.contains(&Value::Null));
    let what = match value.is_null() || list_of_nulls {
        true => format!(
            "{key:?} is {}, a missing value; `missing` zero fills such values in, `on_bad_record` skip leaves such records out, and `format` jsonl:KEY,KEY reads other keys",
            excerpt(value.to_string().as_bytes())
        ),
        false => format!("{key:?} is {}, unlike in other records", described(value)),
    };
    Fault::Json { what }
}

impl FieldDecoder for JsonDecoder {
    fn specs(&self) -> &FieldSpecs {
        &self.specs
    }

    fn decode(&self, _: u64, bytes: &[u8], row: &mut RowWriter<'_>) -> Result<Option<f64>, Fault> {
        let object = object(bytes)?;
        self.label.class_of(&object)?;
        let (mut dims, mut elements) = (Vec::new(), Vec::new());
        for (key, kind) in &self.kinds {
            let value = match object.get(key) {
                None | Some(Value::Null) if self.fills && *kind != Kind::Json => None,
                Some(value) => Some(value),
                None if self.fills => None,
                None => return Err(Fault::NoRecord),
            };
            let unlike = || no_field(key, value.unwrap_or(&Value::Null));
            match (*kind, value) {
                (Kind::Text, None | Some(Value::String(_))) => {
                    let text = value.and_then(Value::as_str).unwrap_or_default();
                    row.put(key, None, &[text.len()], text.as_bytes());
                }
                (Kind::Json, value) => {
                    let text = value.unwrap_or(&Value::Null).to_string();
                    row.put(key, None, &[text.len()], text.as_bytes());
                }
                (Kind::Numbers { whole, depth, .. }, value) => {
                    dims.clear();
                    elements.clear();
                    match value {
                        Some(value) => {
                            array(value, whole, self.fills, &mut dims, &mut elements)
                                .ok_or_else(unlike)?;
                        }
                        None if depth == 0 => elements.extend([0; 8]),
                        None => {}
                    }
                    // Lists within an empty one have no length of their own.
                    dims.resize(depth.max(dims.len()), 0);
                    if dims.len() != depth {
                        return Err(unlike());
                    }
                    let dtype = if whole { DType::I64 } else { DType::F64 };
                    row.put(key, Some(dtype), &dims, &elements);
                }
                _ => return Err(unlike()),
            }
        }
        Ok(None)
    }

    fn fingerprint(&self) -> u64 {
        let specs = format!("{:?}", self.specs).into_bytes();
        let fills = self.fills.then_some(b'+');
        let all = specs.into_iter().chain(fills);
        all.fold(0, |hash, byte| mix(hash, u64::from(byte)))
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
    let known = keys.finish().known.into_iter();
    let kinds = known.map(|known| (known.key, known.kind)).collect();
    let label = LabelKey {
        key: LABEL.to_owned(),
        must: false,
        are_names: false,
        are_numbers: false,
    };
    let decoder = JsonDecoder::new(kinds, label, false);
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
    }
}
