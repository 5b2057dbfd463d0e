//! The features of Examples as fields of rows.
//!
//! The first record determines the features and their kinds, and a scan (`scan.rs`) how many values each has in all
//! records. A feature of one number is a number, one of a fixed count of numbers an array, one of a varying count an
//! array of unknown length. A string is a string of bytes; several in a feature are concatenated, and the field
//! `NAME/lengths` has their lengths. The label is not a field: its class is known from the scan.
//!
//! Cost: one walk over a record, and one copy of its values.

use std::ops::Range;

use pelton_batch::{DType, FieldSpec, FieldSpecs};

use crate::record::cells::label_column::LabelColumn;
use crate::record::cells::label_column::no_label_column;
use crate::record::error::{Fault, FormatError};
use crate::record::rows::fields::{FieldWriter, RecordFields, check_name};
use crate::samples::framed::example::{
    Broken, Features, Kind, class_of, measure, push_numbers, strings,
};

/// Most features of a record.
pub(crate) const MOST_FEATURES: usize = 4096;
/// Features that are the label unless another is named.
const LABELS: [&str; 2] = ["label", "image/class/label"];

/// How many values a feature has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Always(u64),
    Varies,
}

impl Count {
    /// Of all records so far and one more.
    pub(crate) fn and(self, other: u64) -> Count {
        match self {
            Count::Always(count) if count == other => self,
            _ => Count::Varies,
        }
    }

    /// The length of an array of them. If all were empty so far, others may not be.
    fn length(self) -> Option<usize> {
        match self {
            Count::Always(count) if count > 0 => usize::try_from(count).ok(),
            _ => None,
        }
    }
}

/// A feature of every record.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) name: String,
    /// `None` while only empty lists were seen, which may have no kind.
    pub(crate) kind: Option<Kind>,
    pub(crate) count: Count,
    form: Form,
}

impl Known {
    /// Writes the one or two fields of the feature; returns the number of values.
    #[inline]
    fn put(
        &self,
        kind: Kind,
        example: &[u8],
        list: &Range<u64>,
        row: &mut FieldWriter<'_>,
    ) -> Result<u64, Broken> {
        let push = |row: &mut Vec<u8>| push_numbers(example, kind, list, row);
        match &self.form {
            Form::Out | Form::Label => Ok(0),
            Form::Number(_) | Form::Array(_) => row.put_with(push),
            Form::Text | Form::Texts { .. } => {
                let mut count = 0;
                row.put_with(|row| {
                    let before = row.len();
                    strings(example, list, |text| {
                        count += 1;
                        row.extend_from_slice(text);
                    })?;
                    Ok::<u64, Broken>((row.len() - before) as u64)
                })?;
                if let Form::Texts { .. } = &self.form {
                    row.put_with(|row| {
                        strings(example, list, |text| {
                            row.extend_from_slice(&(text.len() as u64).to_le_bytes());
                        })?;
                        Ok::<u64, Broken>(count)
                    })?;
                }
                Ok(count)
            }
        }
    }
}

/// The form of a feature in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// Left out: it has no values, or a name that rows cannot have.
    Out,
    Label,
    Number(DType),
    Array(DType),
    Text,
    Texts {
        lengths: String,
    },
}

/// The features of the records of a file.
#[derive(Clone, Debug)]
pub(crate) struct ExampleFields {
    /// In ascending order of their names.
    pub(crate) known: Vec<Known>,
    /// The index of the feature at each position of the first record; other records mostly have the same order.
    order: Vec<usize>,
    label: Option<usize>,
    /// The name of the format, for messages.
    format: &'static str,
    fields: RecordFields,
}

impl ExampleFields {
    /// The features of the first record; `None` if it is not an Example, or has no features or too many.
    pub(crate) fn of_first(example: &[u8], format: &'static str) -> Option<ExampleFields> {
        let mut walk = Features::new(0..example.len() as u64);
        let mut known: Vec<(Known, usize)> = Vec::new();
        while let Some(feature) = walk.next(&mut &*example).ok()? {
            let name = &example[feature.name.start as usize..feature.name.end as usize];
            let count = match feature.kind {
                Some(kind) => measure(&mut &*example, kind, &feature.list).ok()?.0,
                None => 0,
            };
            let one = Known {
                name: str::from_utf8(name).ok()?.to_owned(),
                // An empty list has no kind.
                kind: feature.kind.filter(|_| count > 0),
                count: Count::Always(count),
                form: Form::Out,
            };
            known.push((one, known.len()));
            if known.len() > MOST_FEATURES {
                return None;
            }
        }
        known.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        let twice = known.windows(2).any(|two| two[0].0.name == two[1].0.name);
        if known.is_empty() || twice {
            return None;
        }
        let mut order = vec![0; known.len()];
        for (i, (_, place)) in known.iter().enumerate() {
            order[*place] = i;
        }
        let fields = ExampleFields {
            known: known.into_iter().map(|(known, _)| known).collect(),
            order,
            label: None,
            format,
            fields: RecordFields::default(),
        };
        Some(fields.described())
    }

    /// Sets the feature that is the label: the named one, or one with a usual name.
    pub(crate) fn with_label(self, wanted: &LabelColumn) -> Result<ExampleFields, FormatError> {
        // A record of a label alone would hold nothing.
        let is_one = |known: &Known| {
            known.kind.is_some() && known.count == Count::Always(1) && self.known.len() > 1
        };
        let named = |wanted: &str| {
            let mut known = self.known.iter();
            known.position(|known| known.name == wanted && is_one(known))
        };
        let label = match wanted {
            LabelColumn::Name(name) => Some(named(name).ok_or_else(|| {
                let one = self.known.iter().filter(|known| is_one(known));
                let one: Vec<&str> = one.map(|known| known.name.as_str()).collect();
                let columns = format!("{}, of one value each", one.join(", "));
                no_label_column(wanted.describe(), columns)
            })?),
            _ => LABELS.iter().find_map(|label| named(label)),
        };
        Ok(ExampleFields { label, ..self }.described())
    }

    /// The name of the label, if there is one.
    pub(crate) fn label(&self) -> Option<&str> {
        self.label.map(|label| self.known[label].name.as_str())
    }

    pub(crate) fn is_label(&self, feature: usize) -> bool {
        self.label == Some(feature)
    }

    /// The known kinds and counts, a word a feature.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        self.known.iter().map(|known| {
            let kind = match known.kind {
                None => 0,
                Some(Kind::Bytes) => 1,
                Some(Kind::Floats) => 2,
                Some(Kind::Integers) => 3,
            };
            match known.count {
                Count::Always(count) => kind | count << 3,
                Count::Varies => kind | 4,
            }
        })
    }

    /// The fields with these kinds and counts.
    pub(crate) fn with_words(mut self, words: &[u64]) -> ExampleFields {
        for (known, word) in self.known.iter_mut().zip(words) {
            known.kind = match word & 3 {
                0 => None,
                1 => Some(Kind::Bytes),
                2 => Some(Kind::Floats),
                _ => Some(Kind::Integers),
            };
            known.count = match word & 4 {
                0 => Count::Always(word >> 3),
                _ => Count::Varies,
            };
        }
        self.described()
    }

    /// The fields that these files have in common; lengths that differ become variable.
    pub(crate) fn widened(&self, others: &[FieldSpecs]) -> ExampleFields {
        let mut wider = self.clone();
        for known in &mut wider.known {
            let differs = |name: &str| {
                let dims = |specs: &FieldSpecs| specs.get(name).map(|spec| spec.dims.clone());
                let mine = dims(self.fields.specs());
                others.iter().any(|other| dims(other) != mine)
            };
            if differs(&known.name) || differs(&lengths_of(&known.name)) {
                known.count = Count::Varies;
            }
        }
        wider.described()
    }

    /// The schema of rows.
    pub(crate) fn fields(&self) -> &RecordFields {
        &self.fields
    }

    /// Features that become nothing.
    pub(crate) fn left_out(&self) -> Vec<&str> {
        let out = self.known.iter().filter(|known| known.form == Form::Out);
        out.map(|known| known.name.as_str()).collect()
    }

    /// Bytes of `records` rows; `totals` are the values and bytes of each feature.
    pub(crate) fn row_bytes(&self, records: u64, totals: &[(u64, u64)]) -> u64 {
        let heads = self.fields.head_bytes();
        let of = |(known, (values, bytes)): (&Known, &(u64, u64))| match &known.form {
            Form::Out | Form::Label => 0,
            Form::Number(_) | Form::Array(_) | Form::Text => *bytes,
            Form::Texts { .. } => bytes + 8 * values,
        };
        records * heads + self.known.iter().zip(totals).map(of).sum::<u64>()
    }

    /// Determines the form of each feature.
    pub(crate) fn described(mut self) -> ExampleFields {
        let names: Vec<String> = self.known.iter().map(|known| known.name.clone()).collect();
        let mut fields = RecordFields::default();
        for (i, known) in self.known.iter_mut().enumerate() {
            let (name, length) = (&known.name, known.count.length());
            let one = known.count == Count::Always(1);
            let dtype = match known.kind {
                Some(Kind::Floats) => DType::F32,
                Some(Kind::Integers) => DType::I64,
                _ => DType::U8,
            };
            let lengths = lengths_of(name);
            known.form = match known.kind {
                _ if Some(i) == self.label => Form::Label,
                None => Form::Out,
                _ if check_name(name, &[]).is_err() => Form::Out,
                Some(Kind::Bytes) if one => Form::Text,
                Some(Kind::Bytes) if names.contains(&lengths) => Form::Out,
                Some(Kind::Bytes) if check_name(&lengths, &[]).is_err() => Form::Out,
                Some(Kind::Bytes) => Form::Texts { lengths },
                Some(_) if one => Form::Number(dtype),
                Some(_) => Form::Array(dtype),
            };
            match &known.form {
                Form::Out | Form::Label => {}
                Form::Number(_) => fields.push_array(FieldSpec::new(name, dtype, &[])),
                Form::Array(_) => fields.push_array(FieldSpec::new(name, dtype, &[length])),
                Form::Text => fields.push_string(name),
                Form::Texts { lengths } => {
                    fields.push_string(name);
                    fields.push_array(FieldSpec::new(lengths, DType::I64, &[length]));
                }
            }
        }
        self.fields = fields;
        self
    }

    /// The feature of this name, at `place` of its record.
    #[inline]
    pub(crate) fn find(&self, place: usize, name: &[u8]) -> Option<usize> {
        let is_it = |at: &&usize| self.known[**at].name.as_bytes() == name;
        if let Some(at) = self.order.get(place).filter(is_it) {
            return Some(*at);
        }
        let of = |known: &Known| known.name.as_bytes().cmp(name);
        self.known.binary_search_by(of).ok()
    }

    /// Writes the fields of an Example.
    pub(crate) fn decode(&self, example: &[u8], row: &mut FieldWriter<'_>) -> Result<(), Fault> {
        if u32::try_from(example.len()).is_err() {
            return Err(Fault::new("it has 4 GiB or more; write smaller records"));
        }
        let broken = |why| self.broken(&why);
        let mut found: Vec<Option<(Kind, Range<u64>)>> = vec![None; self.known.len()];
        let mut walk = Features::new(0..example.len() as u64);
        let mut place = 0;
        while let Some(feature) = walk.next(&mut &*example).map_err(broken)? {
            let name = &example[feature.name.start as usize..feature.name.end as usize];
            if let Some(i) = self.find(place, name) {
                let list = feature.kind.map(|kind| (kind, feature.list));
                if std::mem::replace(&mut found[i], list).is_some() {
                    return Err(self.wrong(i, "stands in it twice"));
                }
            }
            place += 1;
        }
        for (i, (known, found)) in self.known.iter().zip(found).enumerate() {
            let Some(kind) = known.kind else { continue };
            let list = match found {
                Some((of, list)) if of == kind => list,
                Some((of, list)) if measure(&mut &*example, of, &list).map_err(broken)?.0 > 0 => {
                    return Err(self.wrong(i, "is of another kind than in the first record"));
                }
                // A writer of lists of any length may omit an empty one.
                _ if known.count == Count::Varies => 0..0,
                _ => return Err(self.wrong(i, "is missing, which the first record has")),
            };
            if known.form == Form::Label {
                let mut source = example;
                let class = class_of(&mut source, kind, &list).map_err(broken)?;
                class.ok_or_else(|| {
                    self.wrong(i, "is not a label: one number below 2^53, or one name")
                })?;
                continue;
            }
            let count = known.put(kind, example, &list, row).map_err(broken)?;
            if known.form != Form::Out && known.count != known.count.and(count) {
                return Err(self.wrong(i, "has more or fewer values than in other records"));
            }
        }
        Ok(())
    }

    #[cold]
    fn wrong(&self, feature: usize, what: &str) -> Fault {
        let Known { name, .. } = &self.known[feature];
        let format = self.format;
        Fault::new(format!(
            "its feature {name:?} {what}; write all records alike, or read them as they are with `format` {format}:bytes"
        ))
    }

    #[cold]
    fn broken(&self, why: &Broken) -> Fault {
        let (at, what) = match why {
            Broken::Damaged { at, what } => (*at, *what),
            Broken::Failed(_) => (0, "it cannot be read"),
        };
        let format = self.format;
        Fault::new(format!(
            "it is not a tf.train.Example like the first record: {what} at byte {at} of it; write all records alike, or read them as they are with `format` {format}:bytes"
        ))
    }
}

/// The name of the field with the lengths of a feature's strings.
fn lengths_of(name: &str) -> String {
    format!("{name}/lengths")
}
