//! JSON Lines: an object a line, whose values are the fields of a record.
//!
//! Whole numbers become i64, other numbers f64, lists of them (also nested, of equal lengths) arrays, strings bytes. A
//! field that some record lacks, or has in another kind, is left out with a note, and so is one of objects,
//! of truth values or of null. The label is an integer or a string under the key `label`, or the one that is named.
//!
//! Cost: one pass that reads every line, kept in a sidecar; four bytes a record for its class beside the list of
//! places.

use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::Ordering;

use pelton_batch::{DType, FieldSpec, FieldSpecs};
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
use crate::located::Located;
use crate::sidecar::RecordShape;

/// The key of the label unless another is named.
const LABEL: &str = "label";
/// Most fields of a record: their kinds are kept as 4 bits each in 16 words.
const MOST_FIELDS: usize = 256;
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
        head.ends_in(&["jsonl", "ndjson", "json"])
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
        let keys = first_keys(source, first, label)?;
        let decoder = JsonDecoder::new(keys, &located.tallies);
        let left_out: Vec<&str> = decoder.left_out.iter().map(String::as_str).collect();
        if !left_out.is_empty() {
            notes.push(format!(
                "{}: not every record has a number, a list of numbers or a string under {}, so that is left out",
                source.path.display(),
                left_out.join(", ")
            ));
        }
        let records = located.starts.len();
        let unlabelled = located.tallies.last().copied().unwrap_or(0);
        if unlabelled > 0 && unlabelled < records {
            notes.push(format!(
                "{}: {unlabelled} of {records} records have no {label:?} and count as labelled 0",
                source.path.display()
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Nothing that is a field.
    Other,
    Text,
    /// Numbers in lists so deep, 0 being a number by itself.
    Numbers {
        whole: bool,
        depth: usize,
    },
}

impl Kind {
    fn of(value: &Value) -> Kind {
        match value {
            Value::String(_) => Kind::Text,
            Value::Number(number) => Kind::Numbers {
                whole: number.is_i64(),
                depth: 0,
            },
            Value::Array(values) => {
                let kinds = values.iter().map(Kind::of).reduce(Kind::with);
                // Of an empty list nobody knows what it would hold.
                match kinds.unwrap_or(Kind::Numbers {
                    whole: true,
                    depth: 0,
                }) {
                    Kind::Numbers { whole, depth } if depth < MOST_DEPTH => Kind::Numbers {
                        whole,
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
                Kind::Numbers { whole, depth },
                Kind::Numbers {
                    whole: also,
                    depth: same,
                },
            ) if depth == same => Kind::Numbers {
                whole: whole && also,
                depth,
            },
            (Kind::Text, Kind::Text) => Kind::Text,
            _ => Kind::Other,
        }
    }

    fn code(self) -> u64 {
        match self {
            Kind::Other => 0,
            Kind::Text => 1,
            Kind::Numbers { whole, depth } => 2 + 2 * depth as u64 + u64::from(whole),
        }
    }

    fn from_code(code: u64) -> Kind {
        match code {
            0 => Kind::Other,
            1 => Kind::Text,
            code => Kind::Numbers {
                whole: code % 2 == 1,
                depth: (code as usize - 2) / 2,
            },
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

/// Keys of the first record's object that may be fields, in ascending order.
fn first_keys(source: &Source<'_>, start: u64, label: &str) -> Result<Vec<String>, FormatError> {
    let failed = |e| FormatError::io(source.path, "read it", e);
    let file = source.input()?;
    let mut line = Vec::new();
    let mut lines = BufReader::new(file.from(start).take(MOST_LINE_BYTES));
    lines.read_until(b'\n', &mut line).map_err(failed)?;
    let object = object(&line).unwrap_or_default();
    Ok(keys_of(&object, label))
}

fn keys_of(object: &Map<String, Value>, label: &str) -> Vec<String> {
    let mut keys: Vec<String> = object.keys().filter(|key| *key != label).cloned().collect();
    keys.sort_unstable();
    keys.truncate(MOST_FIELDS);
    keys
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
    let mut kinds: Vec<(String, Kind, u64)> = Vec::new();
    let (mut at, mut number, mut unlabelled) = (from, 0, 0);
    let mut line = Vec::new();
    let mut scratch = (Vec::new(), Vec::new());
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
        unlabelled += u64::from(!object.contains_key(label));
        add_class(&mut classes, object.get(label), label, must).map_err(wrong)?;
        if classes.len() > MOST_LABELS {
            let limit = MOST_LABELS;
            return Err(FormatError::TooManyLabels {
                path: path(),
                limit,
            });
        }
        if starts.is_empty() {
            let keys = keys_of(&object, label).into_iter();
            let kind = |key: &str| object.get(key).map_or(Kind::Other, Kind::of);
            kinds = keys
                .map(|key| (kind(&key), key))
                .map(|(kind, key)| (key, kind, 0))
                .collect();
        }
        for (key, kind, payload) in &mut kinds {
            let found = object.get(key).map_or(Kind::Other, Kind::of);
            *kind = kind.with(found);
            if let (Kind::Numbers { .. }, Some(value)) = (*kind, object.get(key)) {
                scratch.0.clear();
                scratch.1.clear();
                if array(value, false, &mut scratch.0, &mut scratch.1).is_none() {
                    *kind = Kind::Other;
                }
                *payload += scratch.1.len() as u64;
            }
            if let (Kind::Text, Some(Value::String(text))) = (*kind, object.get(key)) {
                *payload += text.len() as u64;
            }
        }
        starts.push(start);
    }
    // Kinds, sixteen a number, and how many records have no label.
    let mut tallies = vec![0; kinds.len().div_ceil(16)];
    for (i, (_, kind, _)) in kinds.iter().enumerate() {
        tallies[i / 16] |= kind.code() << (4 * (i % 16));
    }
    tallies.push(unlabelled);
    // What the rows take, for whoever makes room for them.
    let row = |kind: &(String, Kind, u64)| match kind.1 {
        Kind::Other => 0,
        Kind::Text => kind.2 + overhead(&kind.0, 1) * starts.len() as u64,
        Kind::Numbers { depth, .. } => kind.2 + overhead(&kind.0, depth) * starts.len() as u64,
    };
    let payload: u64 = kinds.iter().map(row).sum();
    let longest = starts.iter().skip(1).chain([&end]).zip(&starts);
    let longest = longest.map(|(next, start)| next - start).max();
    let mean = (end - from) / (starts.len() as u64).max(1);
    let mut builder = EliasFanoBuilder::new(mean);
    for start in &starts {
        builder.push(*start);
    }
    let (labels, names, codes) = classes.finish();
    Ok(Located {
        starts: builder.finish(end),
        end,
        labels,
        names,
        codes,
        index_end: 0,
        nonzeros: payload + 2 * starts.len() as u64,
        longest: longest.unwrap_or(0),
        tallies,
    })
}

/// Values of objects as fields.
#[derive(Debug)]
struct JsonDecoder {
    kinds: Vec<(String, Kind)>,
    left_out: Vec<String>,
    specs: FieldSpecs,
}

impl JsonDecoder {
    fn new(keys: Vec<String>, tallies: &[u64]) -> JsonDecoder {
        let kind = |i: usize| {
            let word = tallies.get(i / 16).copied().unwrap_or(0);
            Kind::from_code(word >> (4 * (i % 16)) & 15)
        };
        let all = keys.into_iter().enumerate();
        let all: Vec<(String, Kind)> = all.map(|(i, key)| (key, kind(i))).collect();
        // A name is kept with each row, behind one byte for its length.
        let fits =
            |(key, kind): &(String, Kind)| *kind != Kind::Other && (1..=255).contains(&key.len());
        let (kinds, others): (Vec<_>, Vec<_>) = all.into_iter().partition(fits);
        let specs = kinds.iter().map(|(key, kind)| match *kind {
            Kind::Numbers { whole, depth } => {
                let dtype = if whole { DType::I64 } else { DType::F64 };
                FieldSpec::new(key, dtype, &vec![None; depth])
            }
            _ => FieldSpec::new(key, DType::U8, &[None]),
        });
        JsonDecoder {
            specs: FieldSpecs(specs.collect()),
            left_out: others.into_iter().map(|(key, _)| key).collect(),
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
                (Kind::Numbers { whole, depth }, Some(value)) => {
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
    let keys = keys_of(&object, LABEL);
    let mut tallies = vec![0; keys.len().div_ceil(16)];
    for (i, key) in keys.iter().enumerate() {
        tallies[i / 16] |= Kind::of(&object[key]).code() << (4 * (i % 16));
    }
    let decoder = JsonDecoder::new(keys, &tallies);
    decoder.decode(0, line, &mut RowWriter::new(row)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_back() {
        let kind = |json: &str| Kind::of(&serde_json::from_str(json).unwrap());
        let numbers = |whole, depth| Kind::Numbers { whole, depth };
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
            assert_eq!(Kind::from_code(expected.code()), expected);
            assert!(expected.code() < 16);
        }
        assert_eq!(kind("1").with(kind("2.5")), numbers(false, 0));
        assert_eq!(kind("1").with(kind("[1]")), Kind::Other);
    }
}
