//! Records of several named arrays as rows of bytes, which say themselves what they hold.
//!
//! ```text
//! row    fields u16 | field …
//! field  bytes of the name u8 | name | type u8 | dimensions u8 | a length u32 each | elements
//! ```
//!
//! Numbers are little-endian, elements as they are in memory. Nothing here trusts what it reads: rows come from the
//! peers' memory and from disk as well as from the decoders of this crate.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{BufReader, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pelton_batch::{DType, FieldSpec, FieldSpecs};

use crate::error::{Fault, FormatError};
use crate::formats::delimited::LabelColumn;
use crate::labels::{LABEL_LIMIT, LabelCollector};
use crate::places::fingerprint::mix;
use crate::places::input::Input;

/// The field that is the label unless another is named.
pub(crate) const LABEL: &str = "label";

/// Most dimensions of a field.
pub(crate) const MOST_DIMENSIONS: usize = 16;

/// The type of a string of bytes.
const STRING: u8 = 255;

const DTYPES: [DType; 11] = [
    DType::U8,
    DType::I32,
    DType::I64,
    DType::U32,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
    DType::I8,
    DType::I16,
    DType::U16,
];

/// One field of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Field<'a> {
    /// Its name.
    pub name: &'a str,
    /// What its elements are; `None` where it is a string of bytes.
    pub dtype: Option<DType>,
    /// Its dimensions.
    pub dims: Vec<usize>,
    /// Its elements.
    pub bytes: &'a [u8],
}

/// The fields of a row, in order.
///
/// Errors: bytes that are no such row.
pub fn fields(row: &[u8]) -> Result<Vec<Field<'_>>, Fault> {
    let mut rest = row;
    let mut read = || {
        let count = u16::from_le_bytes(take(&mut rest)?);
        let fields = (0..count).map(|_| read_field(&mut rest));
        let fields: Option<Vec<Field<'_>>> = fields.collect();
        fields.filter(|_| rest.is_empty())
    };
    read().ok_or(Fault::NoRecord)
}

fn read_field<'a>(rest: &mut &'a [u8]) -> Option<Field<'a>> {
    let [name_bytes] = take(rest)?;
    let name = rest.split_off(..usize::from(name_bytes))?;
    let [dtype, dimensions] = take(rest)?;
    let dtype = match dtype {
        STRING => None,
        code => Some(*DTYPES.get(usize::from(code))?),
    };
    if usize::from(dimensions) > MOST_DIMENSIONS {
        return None;
    }
    let dims = (0..dimensions).map(|_| Some(u32::from_le_bytes(take(rest)?) as usize));
    let dims: Vec<usize> = dims.collect::<Option<_>>()?;
    let size = dtype.map_or(1, DType::bytes);
    let bytes = dims.iter().try_fold(size, |all, &n| all.checked_mul(n))?;
    Some(Field {
        name: std::str::from_utf8(name).ok()?,
        dtype,
        dims,
        bytes: rest.split_off(..bytes)?,
    })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    rest.split_off(..N)?.try_into().ok()
}

/// Writes the row of one record.
pub(crate) struct RowWriter<'a> {
    row: &'a mut Vec<u8>,
    fields: u16,
}

impl RowWriter<'_> {
    /// Replaces `row` by one without fields.
    pub(crate) fn new(row: &mut Vec<u8>) -> RowWriter<'_> {
        row.clear();
        row.extend([0, 0]);
        RowWriter { row, fields: 0 }
    }

    /// Appends a field, whose name and dimensions were checked when the file was opened.
    pub(crate) fn put(&mut self, name: &str, dtype: Option<DType>, dims: &[usize], bytes: &[u8]) {
        let code = dtype.map_or(STRING, |dtype| {
            let at = DTYPES.iter().position(|known| *known == dtype);
            at.expect("all types are listed") as u8
        });
        self.row.push(name.len() as u8);
        self.row.extend(name.as_bytes());
        self.row.extend([code, dims.len() as u8]);
        for &length in dims {
            self.row.extend((length as u32).to_le_bytes());
        }
        self.row.extend(bytes);
        self.fields += 1;
        self.row[..2].copy_from_slice(&self.fields.to_le_bytes());
    }
}

impl RowWriter<'_> {
    /// Appends a field of one dimension, or of none, whose elements `write` appends and counts.
    pub(crate) fn put_with<E>(
        &mut self,
        name: &str,
        dtype: Option<DType>,
        is_array: bool,
        write: impl FnOnce(&mut Vec<u8>) -> Result<u64, E>,
    ) -> Result<u64, E> {
        let dims: &[usize] = if is_array { &[0] } else { &[] };
        self.put(name, dtype, dims, &[]);
        let end = self.row.len();
        let count = write(self.row)?;
        if is_array {
            self.row[end - 4..end].copy_from_slice(&(count as u32).to_le_bytes());
        }
        Ok(count)
    }
}

/// Bytes that a field takes in a row besides its elements.
pub(crate) fn overhead(name: &str, dimensions: usize) -> u64 {
    3 + name.len() as u64 + 4 * dimensions as u64
}

/// How the records of a file become rows of fields.
pub(crate) trait FieldDecoder: fmt::Debug + Send + Sync {
    /// What every record has, without its label.
    fn specs(&self) -> &FieldSpecs;

    /// Writes the fields of record `record` of the file; its label, where the record itself states one.
    fn decode(
        &self,
        record: u64,
        bytes: &[u8],
        row: &mut RowWriter<'_>,
    ) -> Result<Option<f64>, Fault>;

    /// The bytes of a record that are its only field, where it has one and states no label.
    fn only_field(&self) -> Option<Range<usize>> {
        None
    }

    /// The same with fields like those of other files, as far as only lengths differ that may vary.
    fn widened(&self, _others: &[FieldSpecs]) -> Option<Arc<dyn FieldDecoder>> {
        None
    }

    /// What tells two ways to read the same bytes apart.
    fn fingerprint(&self) -> u64 {
        let text = format!("{:?}", self.specs());
        text.bytes()
            .fold(0, |hash, byte| mix(hash, u64::from(byte)))
    }
}

/// What is wrong with a name of a field.
pub(crate) fn check_name(name: &str, others: &[FieldSpec]) -> Result<(), String> {
    if name.is_empty() || name.len() > 255 {
        return Err(format!("the name {name:?} has not 1 to 255 bytes"));
    }
    match others.iter().any(|other| &*other.name == name) {
        true => Err(format!("two fields are called {name:?}")),
        false => Ok(()),
    }
}

/// The names of fields that a spelling lists; messages call these `what`.
pub(crate) fn selection<'a>(argument: &'a str, what: &str) -> Result<Vec<&'a str>, String> {
    let names: Vec<&str> = argument.split(',').collect();
    let distinct: BTreeSet<&str> = names.iter().copied().collect();
    match distinct.contains("") || distinct.len() < names.len() {
        true => Err(format!(
            "does not name {what}; write their names with commas between them, each once"
        )),
        false => Ok(names),
    }
}

/// Which of the fields of these names is the label.
pub(crate) fn label_field(
    path: &Path,
    names: &[&str],
    wanted: &LabelColumn,
) -> Result<Option<usize>, FormatError> {
    let named = |wanted: &str| names.iter().position(|name| *name == wanted);
    let found = match wanted {
        // A record of a label alone would hold nothing.
        LabelColumn::Last | LabelColumn::Json(_) => {
            return Ok(named(LABEL).filter(|_| names.len() > 1));
        }
        LabelColumn::First => Some(0),
        LabelColumn::Position(place) => place.checked_sub(1),
        LabelColumn::Name(name) => named(name),
    };
    let found = found.filter(|at| *at < names.len() && names.len() > 1);
    found.map(Some).ok_or_else(|| FormatError::NoLabelColumn {
        path: path.to_path_buf(),
        wanted: wanted.describe(),
        columns: names.join(", "),
    })
}

/// A little-endian number of this type, of which there are as many bytes; whole ones beyond 2^53 are rounded.
pub fn element_value(dtype: DType, bytes: &[u8]) -> f64 {
    fn of<const N: usize>(bytes: &[u8]) -> [u8; N] {
        *bytes.first_chunk().expect("as many bytes as the type has")
    }
    match dtype {
        DType::U8 => f64::from(bytes[0]),
        DType::I8 => f64::from(i8::from_le_bytes(of(bytes))),
        DType::I16 => f64::from(i16::from_le_bytes(of(bytes))),
        DType::U16 => f64::from(u16::from_le_bytes(of(bytes))),
        DType::I32 => f64::from(i32::from_le_bytes(of(bytes))),
        DType::U32 => f64::from(u32::from_le_bytes(of(bytes))),
        DType::I64 => i64::from_le_bytes(of(bytes)) as f64,
        DType::F32 => f64::from(f32::from_le_bytes(of(bytes))),
        DType::F64 => f64::from_le_bytes(of(bytes)),
        // The upper half of single precision.
        DType::BF16 => {
            let [low, high] = of(bytes);
            f64::from(f32::from_le_bytes([0, 0, low, high]))
        }
        DType::F16 => {
            let bits = u16::from_le_bytes(of(bytes));
            let (exponent, part) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
            let magnitude = match exponent {
                0 => part * 2f64.powi(-24),
                31 if part == 0.0 => f64::INFINITY,
                31 => f64::NAN,
                _ => (1024.0 + part) * 2f64.powi(exponent - 25),
            };
            if bits >> 15 == 1 {
                -magnitude
            } else {
                magnitude
            }
        }
    }
}

/// Numbers that lie at equal distances in a file.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    pub(crate) from: u64,
    pub(crate) stride: u64,
    pub(crate) count: u64,
    pub(crate) dtype: DType,
}

/// Distinct labels of a column in order of first appearance, without those that are no labels: one pass over the file.
pub(crate) fn scan_labels(
    file: &Input,
    path: &Path,
    column: Column,
    interrupt: &AtomicBool,
) -> Result<Vec<f64>, FormatError> {
    let read_error = |e| FormatError::io(path, "read it", e);
    let mut reader = BufReader::with_capacity(1 << 20, file.from(column.from));
    let size = column.dtype.bytes();
    let mut labels = LabelCollector::default();
    let mut cell = [0; 8];
    for row in 0..column.count {
        if interrupt.load(Ordering::Relaxed) {
            let path = path.to_path_buf();
            return Err(FormatError::Interrupted { path });
        }
        reader.read_exact(&mut cell[..size]).map_err(read_error)?;
        let value = element_value(column.dtype, &cell);
        if value.abs() < LABEL_LIMIT && !labels.add(value) {
            let path = path.to_path_buf();
            return Err(FormatError::TooManyLabels {
                path,
                limit: labels.limit(),
            });
        }
        if row + 1 < column.count {
            reader
                .seek_relative((column.stride - size as u64) as i64)
                .map_err(read_error)?;
        }
    }
    Ok(labels.into_values())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_say_what_they_hold() {
        let mut row = vec![9; 9];
        let mut writer = RowWriter::new(&mut row);
        writer.put("image", Some(DType::U8), &[2, 3], b"abcdef");
        writer.put("x", Some(DType::F64), &[], &1.5f64.to_le_bytes());
        writer.put("text", None, &[2], b"hi");
        let read = fields(&row).unwrap();
        let shown: Vec<_> = read
            .iter()
            .map(|field| (field.name, field.dtype, &field.dims[..], field.bytes))
            .collect();
        assert_eq!(
            shown,
            [
                ("image", Some(DType::U8), &[2, 3][..], &b"abcdef"[..]),
                ("x", Some(DType::F64), &[], &1.5f64.to_le_bytes()),
                ("text", None, &[2], b"hi"),
            ]
        );
        let elements = 6 + 8 + 2;
        let others = 2 + overhead("image", 2) + overhead("x", 0) + overhead("text", 1);
        assert_eq!(row.len() as u64, elements + others);
        for cut in 0..row.len() {
            assert!(fields(&row[..cut]).is_err(), "{cut}");
        }
        row.push(0);
        assert!(fields(&row).is_err());
    }

    #[test]
    fn sizes_beyond_the_row_are_refused() {
        let mut row = Vec::new();
        let huge = [u32::MAX as usize; 4];
        RowWriter::new(&mut row).put("x", Some(DType::F64), &huge, &[]);
        assert!(fields(&row).is_err());
        let no_type = [1, 0, 1, b'x', 8, 0];
        assert!(fields(&no_type).is_err());
        assert!(fields(&[1, 0, 1, 0xff, 255, 1, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn numbers_of_all_types() {
        let check = |dtype, bytes: &[u8], expected: f64| {
            assert_eq!(element_value(dtype, bytes), expected, "{dtype}");
        };
        check(DType::U8, &[200], 200.0);
        check(DType::I32, &(-5i32).to_le_bytes(), -5.0);
        check(DType::U32, &u32::MAX.to_le_bytes(), f64::from(u32::MAX));
        check(DType::I64, &(-5i64).to_le_bytes(), -5.0);
        check(DType::F32, &0.5f32.to_le_bytes(), 0.5);
        check(DType::F64, &0.1f64.to_le_bytes(), 0.1);
        check(DType::BF16, &0xbfc0u16.to_le_bytes(), -1.5);
        check(DType::F16, &0x3c00u16.to_le_bytes(), 1.0);
        check(DType::F16, &0xc200u16.to_le_bytes(), -3.0);
        check(DType::F16, &0x0001u16.to_le_bytes(), 2f64.powi(-24));
        check(DType::F16, &0x7c00u16.to_le_bytes(), f64::INFINITY);
        assert!(element_value(DType::F16, &0x7e00u16.to_le_bytes()).is_nan());
    }
}
