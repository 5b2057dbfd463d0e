//! Shards: files of samples with contiguous cells, as MosaicML Streaming and LitData write them.
//!
//! ```text
//! shard   samples u32 | start of each sample, and the end of the last, u32 each | … | samples
//! sample  bytes of each cell whose column has no fixed length, u32 each | cells
//! ```
//!
//! Numbers are little-endian. The table lists the offsets of samples, so only labels need a scan: the label of every
//! sample is read once, and kept in a sidecar. If the type or the number of dimensions of an array is in its cell, the
//! first sample's holds for all.

pub(crate) mod cells;
pub(crate) mod checksum;
pub(crate) mod folder;
pub(crate) mod litdata;
pub(crate) mod litdata_json;
pub(crate) mod mds;

use std::fmt::Display;
use std::ops::Range;

use crate::locate::decoder::FIELDS;
use pelton_batch::{DType, FieldSpec};

use crate::locate::decoder::{Decoded, Decoder};
use crate::locate::format::{Shard, Source};
use crate::locate::places::byte_source::{ByteSource, FileWindow};
use crate::locate::places::elias_fano::EliasFanoBuilder;
use crate::locate::places::sidecar::RecordShape;
use crate::locate::places::{IN_FILE, IndexSource};
use crate::locate::scanned::Scanned;
use crate::record::cells::label_column::LabelColumn;
use crate::record::cells::label_column::no_label_column;
use crate::record::error::{Fault, FormatError};
use crate::record::labels::classes_so_far::ClassesSoFar;
use crate::record::labels::stored::Label;
use crate::record::labels::{LABEL_LIMIT, MOST_LABELS, too_many_labels};
use crate::record::mixing::mix;
use crate::record::rows::NewRow;
use crate::record::rows::fields::{self, FieldWriter, RecordFields, check_name};
use crate::samples::shard::cells::{Cell, Shape};
use crate::samples::shard::checksum::pieces;
use crate::samples::shard::litdata_json::json_text;

/// Tells these sidecars from others.
const SIDECAR: u64 = 12;
/// Most columns.
const MOST_COLUMNS: usize = 4096;
/// Longest name of a class.
const MOST_CLASS_BYTES: u64 = 1024;
const FETCH: &str = "the file is damaged or of another kind: fetch it again";

/// A column of a shard.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) cell: Cell,
    /// The name of its encoding in the file.
    pub(crate) encoding: String,
    /// Bytes of every cell, if samples do not state them.
    pub(crate) fixed: Option<u32>,
}

/// The offsets of the samples of a shard: their starts, and the end of the last.
pub(crate) fn read_starts(window: &mut FileWindow) -> Result<Vec<u64>, FormatError> {
    let size = window.size();
    let count = match size {
        0..4 => 0,
        _ => {
            let count = window.bytes(0, 4)?;
            u64::from(u32::from_le_bytes(
                *count.first_chunk().expect("four bytes"),
            ))
        }
    };
    let table = 4 * (count + 1);
    if count == 0 || 4 + table > size {
        return Err(malformed(0, "it has no table of samples, or not all of it"));
    }
    let starts = window.bytes(4, table as usize)?;
    let starts = starts.as_chunks::<4>().0.iter();
    let starts: Vec<u64> = starts
        .map(|start| u64::from(u32::from_le_bytes(*start)))
        .collect();
    let ascend = starts.windows(2).all(|two| two[0] < two[1]);
    if !ascend || starts[0] < 4 + table {
        return Err(malformed(4, "its samples do not lie one after another"));
    }
    if starts.last() != Some(&size) {
        return Err(malformed(size, "its size does not match its samples"));
    }
    Ok(starts)
}

pub(crate) fn malformed(offset: u64, what: impl Display) -> FormatError {
    FormatError::malformed(offset, format!("{what}; {FETCH}"))
}

/// Opens a shard of these columns.
pub(crate) fn open(
    source: &Source<'_>,
    columns: Vec<Column>,
    notes: &mut Vec<String>,
) -> Result<Shard, FormatError> {
    let expected = source.options.expected.get(source.path);
    if let Some(expected) = expected {
        expected.check_size(source.path, source.stamp.size, notes)?;
    }
    let mut window = source.window()?;
    let starts = read_starts(&mut window)?;
    let first = window.bytes(starts[0], (starts[1] - starts[0]) as usize);
    let decoder = ShardDecoder::new(source, columns, first?)?;
    let left_out = decoder.left_out();
    if !left_out.is_empty() {
        notes.push(format!(
            "{}: columns that hold no numbers, arrays or strings are left out: {}",
            source.path.display(),
            left_out.join(", ")
        ));
    }
    let (records, end) = (starts.len() as u64 - 1, window.size());
    let row_bytes = decoder.row_bytes(records, end - starts[0]);
    let locate = |scanned: Scanned| {
        let mut places = EliasFanoBuilder::new((end - starts[0]) / records);
        starts[..starts.len() - 1]
            .iter()
            .for_each(|start| places.push(*start));
        let longest = starts.windows(2).map(|two| two[1] - two[0]).max();
        scanned.located(places.finish(end), end, longest.unwrap_or(0))
    };
    let sum = expected.and_then(|expected| Some((expected, expected.key()?)));
    let (located, index) = if decoder.label.is_none() && sum.is_none() {
        (
            locate(Scanned::of_bytes(row_bytes)),
            IndexSource::Arithmetic,
        )
    } else {
        let name = decoder
            .label
            .map_or("", |label| &decoder.columns[label].name);
        let first = sum.map_or(1, |(_, key)| key);
        let shape = RecordShape::Classed {
            format: SIDECAR,
            label: name
                .bytes()
                .fold(first, |hash, byte| mix(hash, u64::from(byte))),
        };
        source.located(shape, 0, notes, || {
            if let Some((expected, _)) = sum {
                let mut window = source.window()?;
                expected.check_sum(|each| {
                    pieces(&mut window, &|| source.options.check_interrupt(), each)
                })?;
            }
            let scanned = match decoder.label {
                Some(label) => scan_labels(source, &mut window, &decoder, label, &starts)?,
                None => Scanned::of_bytes(row_bytes),
            };
            Ok(locate(Scanned {
                row_bytes,
                ..scanned
            }))
        })?
    };
    Ok(Shard::fields(records, decoder).at(located, index, IN_FILE))
}

/// Reads the label of every sample. A cell that is not a label makes a bad record when it is read.
fn scan_labels(
    source: &Source<'_>,
    window: &mut FileWindow,
    decoder: &ShardDecoder,
    label: usize,
    starts: &[u64],
) -> Result<Scanned, FormatError> {
    let mut classes = ClassesSoFar::default();
    let sizes_bytes = decoder.sizes_bytes as u64;
    for two in starts.windows(2) {
        source.options.check_interrupt()?;
        let length = two[1] - two[0];
        let sizes = window.bytes(two[0], length.min(sizes_bytes) as usize);
        let at = decoder.cell(sizes?, length, label);
        let at = at.filter(|at| at.end - at.start <= MOST_CLASS_BYTES);
        let Some(at) = at else {
            classes.push_none();
            continue;
        };
        let cell = window.bytes(two[0] + at.start, (at.end - at.start) as usize);
        match decoder.class(label, cell?) {
            Some(Class::Number(value)) => classes.push_number(value),
            Some(Class::Name(name)) => classes.push_name(name),
            None => classes.push_none(),
        }
        if classes.len() > MOST_LABELS {
            return Err(too_many_labels(MOST_LABELS));
        }
    }
    let (labels, names, codes) = classes.finish();
    Ok(Scanned {
        labels,
        names,
        codes,
        row_bytes: 0,
        tallies: Vec::new(),
    })
}

enum Class<'a> {
    Number(f64),
    Name(&'a str),
}

/// Samples as rows of fields.
#[derive(Debug)]
struct ShardDecoder {
    columns: Vec<Column>,
    /// The form of each column in rows.
    forms: Vec<Form>,
    /// Bytes of a sample that state the lengths of its cells.
    sizes_bytes: usize,
    label: Option<usize>,
    fields: RecordFields,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Out,
    Label,
    Text,
    /// Numbers of this type in this many dimensions.
    Array(DType, usize),
}

impl ShardDecoder {
    /// Takes properties that the columns do not state from the first sample.
    fn new(
        source: &Source<'_>,
        columns: Vec<Column>,
        first: &[u8],
    ) -> Result<ShardDecoder, FormatError> {
        if columns.is_empty() || columns.len() > MOST_COLUMNS {
            return Err(malformed(0, format!("it has {} columns", columns.len())));
        }
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let label = fields::label_field(&names, &source.options.label)?;
        let is_label = |at: &usize| matches!(columns[*at].cell, Cell::Number(_) | Cell::Text);
        let suited = label.filter(is_label);
        if let (Some(at), None, LabelColumn::Name(_)) = (label, suited, &source.options.label) {
            let columns = "numbers or strings if they are labels";
            return Err(no_label_column(names[at], columns));
        }
        let mut decoder = ShardDecoder {
            forms: vec![Form::Out; columns.len()],
            sizes_bytes: 4 * columns.iter().filter(|c| c.fixed.is_none()).count(),
            columns,
            label: suited,
            fields: RecordFields::default(),
        };
        decoder.describe(first);
        if decoder.fields.specs().0.is_empty() {
            let what = "it has no columns of numbers, arrays or strings";
            Err(malformed(0, what))
        } else {
            Ok(decoder)
        }
    }

    fn describe(&mut self, first: &[u8]) {
        for i in 0..self.columns.len() {
            let Column { name, cell, .. } = &self.columns[i];
            if Some(i) == self.label {
                self.forms[i] = Form::Label;
                continue;
            }
            if check_name(name, &self.fields.specs().0).is_err() || *cell == Cell::Out {
                continue;
            }
            if matches!(cell, Cell::Text | Cell::Nested) {
                self.forms[i] = Form::Text;
                self.fields.push_string(name);
                continue;
            }
            let (dtype, dims) = match cell {
                Cell::Number(element) => (element.dtype(), Vec::new()),
                Cell::Array(Some(element), Shape::Flat) => (element.dtype(), vec![None]),
                Cell::Array(Some(element), Shape::Known(dims)) => {
                    (element.dtype(), dims.iter().copied().map(Some).collect())
                }
                _ => {
                    let at = self.cell(first, first.len() as u64, i);
                    let bytes = at.map(|at| &first[at.start as usize..at.end as usize]);
                    let Some(found) = bytes.and_then(|bytes| cell.array(bytes)) else {
                        continue;
                    };
                    (found.element.dtype(), vec![None; found.dims.len()])
                }
            };
            let spec = FieldSpec::new(name, dtype, &dims);
            self.forms[i] = Form::Array(dtype, dims.len());
            self.fields.push_array(spec);
        }
    }

    /// Each with its encoding.
    fn left_out(&self) -> Vec<String> {
        let all = self.columns.iter().zip(&self.forms);
        let out = all.filter(|(_, form)| **form == Form::Out);
        out.map(|(column, _)| format!("{} ({})", column.name, column.encoding))
            .collect()
    }

    /// Bytes of all rows, or slightly more if cells have headers that rows lack.
    fn row_bytes(&self, records: u64, sample_bytes: u64) -> u64 {
        let others = self.columns.iter().zip(&self.forms);
        let others = others.filter(|(_, form)| matches!(form, Form::Out | Form::Label));
        let others = others.filter_map(|(column, _)| column.fixed.map(u64::from));
        let others = others.sum::<u64>() + self.sizes_bytes as u64;
        let rows = sample_bytes.saturating_sub(records.saturating_mul(others));
        // As text, a number takes at most this many times its bytes.
        const TEXT: u64 = 3;
        let nested = self
            .columns
            .iter()
            .any(|column| column.cell == Cell::Nested);
        let rows = rows.saturating_mul(if nested { TEXT } else { 1 });
        rows + records * self.fields.head_bytes()
    }

    /// The range of a column's cell in a sample of `length` bytes that begins with `sizes`.
    fn cell(&self, sizes: &[u8], length: u64, column: usize) -> Option<Range<u64>> {
        let mut at = self.sizes_bytes as u64;
        let mut sizes = sizes.as_chunks::<4>().0.iter();
        for (i, other) in self.columns.iter().enumerate() {
            let bytes = match other.fixed {
                Some(bytes) => u64::from(bytes),
                None => u64::from(u32::from_le_bytes(*sizes.next()?)),
            };
            let end = at.checked_add(bytes).filter(|end| *end <= length)?;
            if i == column {
                return Some(at..end);
            }
            at = end;
        }
        None
    }

    /// The label in a cell.
    fn class<'c>(&self, label: usize, cell: &'c [u8]) -> Option<Class<'c>> {
        if let Cell::Text = self.columns[label].cell {
            let name = str::from_utf8(cell).ok();
            return name.filter(|name| !name.is_empty()).map(Class::Name);
        }
        let found = self.columns[label].cell.array(cell)?;
        let number = found.element.checked(found.numbers)?;
        let number = fields::element_value(found.element.dtype(), number);
        // Not for a value that is not a number.
        (number.abs() < LABEL_LIMIT).then_some(Class::Number(number))
    }

    /// Writes the field of a column; an error if its cell is not of the column's type.
    fn put(
        &self,
        column: usize,
        cell: &[u8],
        row: &mut FieldWriter<'_>,
    ) -> Result<(), &'static str> {
        let kind = &self.columns[column].cell;
        match self.forms[column] {
            Form::Out => Ok(()),
            Form::Label => match self.class(column, cell) {
                Some(_) => Ok(()),
                None => Err("is not a label: one number below 2^53, or one name"),
            },
            Form::Text if *kind == Cell::Nested => {
                let text = json_text(cell).ok_or("is not a list or dictionary of LitData")?;
                row.put(&[text.len()], &text);
                Ok(())
            }
            Form::Text => {
                row.put(&[cell.len()], cell);
                Ok(())
            }
            Form::Array(dtype, rank) => {
                let found = kind.array(cell).ok_or("is not such an array or number")?;
                if (found.element.dtype(), found.dims.len()) != (dtype, rank) {
                    return Err(
                        "is of another type or another number of dimensions than in the first sample",
                    );
                }
                let numbers = found.element.checked(found.numbers);
                let numbers = numbers.ok_or("is too large for 64 bits with a sign")?;
                row.put(&found.dims, numbers);
                Ok(())
            }
        }
    }
}

impl Decoder for ShardDecoder {
    fn decode<'b>(&self, _: u64, sample: &'b [u8], row: &mut NewRow<'_>) -> Decoded<'b> {
        let mut row = row.fields(&self.fields);
        let wrong = |what: String| Fault::new(format!("{what}; {FETCH}"));
        let (mut sizes, mut rest) = sample
            .split_at_checked(self.sizes_bytes)
            .ok_or_else(|| wrong("it is shorter than the lengths of its cells".into()))?;
        for (i, column) in self.columns.iter().enumerate() {
            let bytes = match column.fixed {
                Some(bytes) => bytes as usize,
                None => {
                    let size = sizes.split_off(..4).and_then(|size| size.first_chunk());
                    u32::from_le_bytes(*size.expect("they were counted")) as usize
                }
            };
            let name = &column.name;
            let cell = rest.split_off(..bytes);
            let cell = cell.ok_or_else(|| wrong(format!("its cell {name:?} is longer than it")))?;
            self.put(i, cell, &mut row)
                .map_err(|what| wrong(format!("its cell {name:?} {what}")))?;
        }
        if rest.is_empty() {
            Ok(Label::Listed)
        } else {
            Err(wrong("its cells do not fill it".into()))
        }
    }

    fn fingerprint(&self) -> [u64; 3] {
        [FIELDS, self.fields.hash(0), 0]
    }

    fn fields(&self) -> &RecordFields {
        &self.fields
    }
}
