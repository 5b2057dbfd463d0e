//! JSON Lines: each line is an object, and its values are the fields of a record.
//!
//! Whole numbers become i64, other numbers f64, true and false 1 and 0, lists of them (also nested, of equal lengths)
//! arrays, strings bytes, and objects and other lists the bytes of their JSON text. All keys of all records are fields,
//! or with `jsonl:KEY,…` the named ones. A null is a missing value: its record is bad unless missing values are filled.
//! A key that some record lacks is left out with a note that names the line, unless missing values are filled; so is a
//! key with different kinds of values, with nothing but null, or with whole numbers that neither type holds exactly.
//! The label is a number, a truth value or a string under the key `label`, or under the named key.
//!
//! Cost: one pass that reads every line, kept in a sidecar; four bytes a record for its class in addition to the list
//! of offsets.

pub(crate) mod kinds;

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Read};

use crate::locate::decoder::FIELDS;
use pelton_batch::{DType, FieldSpec};
use serde_json::{Map, Value};

use crate::locate::decoder::{Decoded, Decoder};
use crate::locate::format::{Format, Match, Shard, Source};
use crate::locate::places::LINE_ENDS;
use crate::locate::places::elias_fano::EliasFanoBuilder;
use crate::locate::places::located::Located;
use crate::locate::places::sidecar::RecordShape;
use crate::locate::table::{Cell, Cells, TakeCell};
use crate::record::cells::label_column::LabelColumn;
use crate::record::error::{Fault, FormatError, excerpt};
use crate::record::kind::Head;
use crate::record::labels::classes_so_far::ClassesSoFar;
use crate::record::labels::stored::Label;
use crate::record::labels::{MOST_LABELS, checked_label, too_many_labels};
use crate::record::mixing::mix;
use crate::record::options::{MEAN_OF_FIELDS, Missing};
use crate::record::rows::fields::{RecordFields, column_type, no_column, selection};
use crate::record::rows::{Layout, NewRow, Rows};
use crate::text::json_lines::kinds::{Keys, Kind, Known, NULLS, Schema, array, described};

/// The key of the label unless another is named.
const LABEL: &str = "label";
/// Longest line.
const MOST_LINE_BYTES: u64 = 1 << 30;
/// Distinguishes these sidecars from others; 11 meant keys without null, truth values and objects.
const SHAPE: u64 = 13;

/// JSON Lines; with `selects`, some keys of them.
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

    fn has_cells(&self) -> bool {
        true
    }

    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Shard, FormatError> {
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
        let schema = Schema::from_words(&located.tallies).ok_or_else(|| {
            FormatError::new("its index does not list its keys; remove the index (.pelton-index) next to the file")
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
        let mut decoder = JsonDecoder::new(kinds, label, source.options.missing.is_some());
        if source.options.features_only {
            // Every cell of these is missing.
            let nulls = schema.left_out.iter().filter(|(_, why)| why == NULLS);
            decoder.names.extend(nulls.map(|(key, _)| key.clone()));
        }
        if let Some((unlabelled, line)) = schema.unlabelled {
            notes.push(format!(
                "{}: {unlabelled} of {records} records, the first in line {line}, have no {:?} and count as labelled 0",
                source.path.display(),
                decoder.label.key
            ));
        }
        if decoder.kinds.is_empty() && decoder.names.is_empty() && records > 0 {
            let what =
                "no key has values of one kind in every record; write the same keys in every line";
            return Err(FormatError::malformed(first, what));
        }
        let nonzeros = records * decoder.fields.head_bytes() + row_bytes;
        Ok(Shard {
            nonzeros,
            ..Shard::fields(records, decoder).at(located, index, LINE_ENDS)
        })
    }
}

/// The keys that become fields: the named ones, or all that can. Other keys are noted.
fn chosen<'a>(
    source: &Source<'_>,
    schema: &'a Schema,
    notes: &mut Vec<String>,
) -> Result<Vec<&'a Known>, FormatError> {
    let has_cells = source.options.features_only;
    if source.options.missing.is_some_and(Missing::has_means) && !has_cells {
        return Err(FormatError::new(MEAN_OF_FIELDS));
    }
    let fills = source.options.missing.is_some() || has_cells;
    let alike = "write values of one kind under it in every line";
    let left_out = schema.left_out.iter();
    let mut left_out: Vec<(String, String, &str)> = left_out
        .filter(|(_, why)| !(has_cells && why == NULLS))
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
            Some((_, why, _)) => {
                column_type(name, format!("nothing that a record can hold: {why}"))
            }
            None => {
                let keys: Vec<&str> = kinds.iter().map(|known| known.key.as_str()).collect();
                no_column(name, keys.join(", "))
            }
        });
    }
    kinds.retain(|known| wanted.contains(&known.key.as_str()));
    Ok(kinds)
}

/// The object of a line, or its fault.
fn object(line: &[u8]) -> Result<Map<String, Value>, Fault> {
    let line = line.trim_ascii_end();
    match serde_json::from_slice(line) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(Fault::new(format!(
            "{} is not a JSON object; write one object a line, with the fields of a record",
            excerpt(other.to_string().as_bytes())
        ))),
        Err(error) => Err(no_json(line, &error)),
    }
}

/// The fault of a line that is not JSON, with the byte in the line.
fn no_json(line: &[u8], error: &serde_json::Error) -> Fault {
    let column = error.column().clamp(1, line.len().max(1));
    // Its text ends in a line and a column; the line is always 1.
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text);
    let what = if error.is_eof() {
        "the line ends before its JSON does".to_owned()
    } else {
        let rest = line.get(column - 1..).unwrap_or_default();
        let is_number = |word: &[u8]| {
            line.get(column.saturating_sub(2)..).is_some_and(|rest| {
                rest.starts_with(word) || rest.get(1..).is_some_and(|rest| rest.starts_with(word))
            })
        };
        if [&b"NaN"[..], b"Infinity"]
            .iter()
            .any(|word| is_number(word))
        {
            let what = format!(
                "column {column}: JSON has no NaN or infinity; write null in its place, which `missing` zero fills in"
            );
            return Fault::new(what);
        } else {
            format!("{what} at {:?}", excerpt(rest))
        }
    };
    Fault::new(format!(
        "column {column}: {what}; write one whole JSON object on each line"
    ))
}

/// The key of labels, and their kind.
#[derive(Debug)]
struct LabelKey {
    key: String,
    /// Whether every record must have it.
    must: bool,
    are_names: bool,
    are_numbers: bool,
}

/// The label of a record.
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
                Err(Fault::new(what))
            }
        }
    }
}

/// Reads every line.
fn scan(source: &Source<'_>, label: &str, must: bool) -> Result<Located, FormatError> {
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
    // The number of records without a label, and the line of the first.
    let (mut unlabelled, mut first_unlabelled) = (0, 0);
    let mut line = Vec::new();
    loop {
        source.options.check_interrupt()?;
        line.clear();
        let bytes = (&mut reader)
            .take(MOST_LINE_BYTES)
            .read_until(b'\n', &mut line)?;
        if bytes == 0 {
            break;
        }
        number += 1;
        let start = at;
        at += bytes as u64;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let wrong = |fault| FormatError::of_record(fault).at_line(number);
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
            return Err(too_many_labels(MOST_LABELS));
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
    /// Whether missing values become 0, or empty lists and strings.
    fills: bool,
    fields: RecordFields,
    /// The keys of numbers and strings.
    names: Vec<String>,
}

impl JsonDecoder {
    fn new(kinds: Vec<(String, Kind)>, label: LabelKey, fills: bool) -> JsonDecoder {
        let mut fields = RecordFields::default();
        for (key, kind) in &kinds {
            match *kind {
                Kind::Numbers { whole, depth, .. } => {
                    let dtype = if whole { DType::I64 } else { DType::F64 };
                    fields.push_array(FieldSpec::new(key, dtype, &vec![None; depth]));
                }
                _ => fields.push_string(key),
            }
        }
        let is_cell = |kind: Kind| matches!(kind, Kind::Text | Kind::Numbers { depth: 0, .. });
        let cells = kinds.iter().filter(|(_, kind)| is_cell(*kind));
        JsonDecoder {
            names: cells.map(|(key, _)| key.clone()).collect(),
            fields,
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
    let what = if value.is_null() || list_of_nulls {
        format!(
            "{key:?} is {}, a missing value; `missing` zero fills such values in, `on_bad_record` skip leaves such records out, and `format` jsonl:KEY,KEY reads other keys",
            excerpt(value.to_string().as_bytes())
        )
    } else {
        format!("{key:?} is {}, unlike in other records", described(value))
    };
    Fault::new(what)
}

impl Decoder for JsonDecoder {
    fn decode<'b>(&self, _: u64, bytes: &'b [u8], row: &mut NewRow<'_>) -> Decoded<'b> {
        let mut row = row.fields(&self.fields);
        let object = object(bytes)?;
        self.label.class_of(&object)?;
        let (mut dims, mut elements) = (Vec::new(), Vec::new());
        for (key, kind) in &self.kinds {
            let value = match object.get(key) {
                None | Some(Value::Null) if self.fills && *kind != Kind::Json => None,
                Some(value) => Some(value),
                None if self.fills => None,
                None => return Err(Fault::NO_RECORD),
            };
            let unlike = || no_field(key, value.unwrap_or(&Value::Null));
            match (*kind, value) {
                (Kind::Text, None | Some(Value::String(_))) => {
                    let text = value.and_then(Value::as_str).unwrap_or_default();
                    row.put(&[text.len()], text.as_bytes());
                }
                (Kind::Json, value) => {
                    let text = value.unwrap_or(&Value::Null).to_string();
                    row.put(&[text.len()], text.as_bytes());
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
                    // Lists within an empty list have no length.
                    dims.resize(depth.max(dims.len()), 0);
                    if dims.len() != depth {
                        return Err(unlike());
                    }
                    row.put(&dims, &elements);
                }
                _ => return Err(unlike()),
            }
        }
        Ok(Label::Listed)
    }

    fn fingerprint(&self) -> [u64; 3] {
        let hash = self.fields.hash(0);
        let fills = if self.fills {
            mix(hash, u64::from(b'+'))
        } else {
            hash
        };
        [FIELDS, fills, 0]
    }

    fn fields(&self) -> &RecordFields {
        &self.fields
    }

    fn cells(&self) -> Option<&dyn Cells> {
        Some(self)
    }
}

impl Cells for JsonDecoder {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn has_text(&self) -> bool {
        true
    }

    fn read<'b>(&self, _: u64, bytes: &'b [u8], take: &mut TakeCell<'_>) -> Decoded<'b> {
        let object = object(bytes)?;
        self.label.class_of(&object)?;
        for (at, name) in self.names.iter().enumerate() {
            let cell = match object.get(name) {
                None | Some(Value::Null) => Cell::Missing,
                Some(Value::Bool(value)) => Cell::Number(f64::from(*value)),
                Some(Value::Number(value)) => Cell::Number(value.as_f64().unwrap_or(f64::NAN)),
                Some(Value::String(text)) => Cell::Text(Cow::Borrowed(text.as_bytes())),
                Some(value) => return Err(no_field(name, value)),
            };
            take(at, cell)?;
        }
        Ok(Label::Listed)
    }
}

/// Decodes a line as the first line of a file: the schema and the row; `None` if it is not a valid one.
pub fn decode_json_line(line: &[u8]) -> Option<(RecordFields, Rows)> {
    let object = object(line).ok()?;
    let mut keys = Keys::default();
    keys.add(&object, LABEL, 1).ok()?;
    let known = keys.finish().known.into_iter();
    let kinds = known.map(|known| (known.key, known.kind)).collect();
    let label = LabelKey {
        key: LABEL.to_owned(),
        must: false,
        are_names: false,
        are_numbers: false,
    };
    let decoder = JsonDecoder::new(kinds, label, false);
    let mut rows = Rows::new(Layout::Bytes);
    let decoded = rows.push_with(|row| decoder.decode(0, line, row).map(|_| 0));
    decoded.ok().map(|()| (decoder.fields, rows))
}
