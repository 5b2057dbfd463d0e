//! Records of several named arrays as rows of bytes.
//!
//! Names, types and the lengths that all records share are known when a file is opened ([`RecordFields`]). A row
//! contains only the parts that differ between records:
//!
//! ```text
//! row    field …
//! field  each length that varies, u32 | elements
//! ```
//!
//! Numbers are little-endian, elements as in memory. Nothing here trusts its input.

use std::collections::BTreeSet;
use std::fmt::Display;

use pelton_batch::{DType, FieldSpec, FieldSpecs};

use crate::record::cells::label_column::LabelColumn;
use crate::record::cells::label_column::no_label_column;
use crate::record::error::{Fault, FormatError};
use crate::record::mixing::mix;
use crate::record::rows::feature_type::FeatureType;

/// The field that is the label unless another is named.
pub(crate) const LABEL: &str = "label";

/// The name of the field of 64-bit features.
pub(crate) const FEATURES: &str = "features";

/// Most dimensions of a field.
pub(crate) const MOST_DIMENSIONS: usize = 16;

/// One field of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Field<'a> {
    /// Its name.
    pub name: &'a str,
    /// The type of its elements; `None` if it is a string of bytes.
    pub dtype: Option<DType>,
    /// Its dimensions.
    pub dims: Vec<usize>,
    /// Its elements.
    pub bytes: &'a [u8],
}

/// The schema of rows of named arrays. It is known when a file is opened, so a row contains only values: for each
/// field in order, the lengths that the schema does not know, as u32 each, and the elements.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordFields {
    specs: FieldSpecs,
    /// Whether each is a string of bytes rather than an array.
    strings: Vec<bool>,
}

impl RecordFields {
    /// No fields.
    pub(crate) const NONE: &RecordFields = &RecordFields {
        specs: FieldSpecs(Vec::new()),
        strings: Vec::new(),
    };

    /// Features of 64 bits form one field; other features do not form fields.
    pub(crate) fn of_features(dtype: FeatureType, width: usize) -> RecordFields {
        let mut fields = RecordFields::default();
        if dtype == FeatureType::F64 {
            fields.push_array(FieldSpec::new(FEATURES, DType::F64, &[Some(width)]));
        }
        fields
    }

    /// Appends an array.
    pub(crate) fn push_array(&mut self, spec: FieldSpec) {
        self.specs.0.push(spec);
        self.strings.push(false);
    }

    /// Appends a string of bytes.
    pub(crate) fn push_string(&mut self, name: &str) {
        self.specs.0.push(FieldSpec::new(name, DType::U8, &[None]));
        self.strings.push(true);
    }

    /// The fields at these positions, in their order.
    pub(crate) fn selected(&self, positions: &[usize]) -> RecordFields {
        let specs = positions.iter().map(|at| self.specs.0[*at].clone());
        RecordFields {
            specs: FieldSpecs(specs.collect()),
            strings: positions.iter().map(|at| self.strings[*at]).collect(),
        }
    }

    /// The type of each field.
    pub fn specs(&self) -> &FieldSpecs {
        &self.specs
    }

    /// Whether the field at a position is a string of bytes.
    pub(crate) fn is_string(&self, at: usize) -> bool {
        self.strings[at]
    }

    /// Bytes of a row, without the elements of fields of varying length.
    pub(crate) fn row_bytes(&self) -> u64 {
        let known = self.specs.0.iter().filter_map(FieldSpec::bytes);
        self.head_bytes() + known.sum::<usize>() as u64
    }

    /// Bytes of a row that are lengths.
    pub(crate) fn head_bytes(&self) -> u64 {
        let dims = self.specs.0.iter().flat_map(|spec| &spec.dims);
        4 * dims.filter(|length| length.is_none()).count() as u64
    }

    /// The fields of a row, in order.
    ///
    /// Errors: the bytes are not such a row.
    pub fn split<'a>(&'a self, row: &'a [u8]) -> Result<Vec<Field<'a>>, Fault> {
        let mut fields = Vec::with_capacity(self.strings.len());
        let mut names = self.specs.0.iter().map(|spec| &*spec.name);
        self.each(row, |dtype, dims, bytes| {
            fields.extend(names.next().map(|name| Field {
                name,
                dtype,
                dims,
                bytes,
            }));
        })?;
        Ok(fields)
    }

    /// Calls `take` with the type (`None` for a string of bytes), the dimensions and the elements of each field of a
    /// row, in order.
    ///
    /// Errors: the bytes are not such a row.
    #[inline]
    pub fn each<'r>(
        &self,
        row: &'r [u8],
        mut take: impl FnMut(Option<DType>, Vec<usize>, &'r [u8]),
    ) -> Result<(), Fault> {
        let mut rest = row;
        for (spec, is_string) in self.specs.0.iter().zip(&self.strings) {
            let (dims, bytes) = read_field(spec, &mut rest).ok_or(Fault::NO_RECORD)?;
            take((!is_string).then_some(spec.dtype), dims, bytes);
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(Fault::NO_RECORD)
        }
    }

    /// The field of this name in a row; `None` if there is none, or the bytes are not such a row.
    pub fn get<'a>(&'a self, name: &str, row: &'a [u8]) -> Option<Field<'a>> {
        let fields = self.split(row).ok()?;
        fields.into_iter().find(|field| field.name == name)
    }

    /// For fingerprints.
    pub(crate) fn hash(&self, start: u64) -> u64 {
        let text = format!("{:?}", self.specs);
        text.bytes()
            .fold(start, |hash, byte| mix(hash, u64::from(byte)))
    }
}

/// Takes the dimensions and the elements of a field from the start of `rest`.
#[inline]
fn read_field<'r>(spec: &FieldSpec, rest: &mut &'r [u8]) -> Option<(Vec<usize>, &'r [u8])> {
    let lengths = spec.dims.iter().map(|length| match length {
        Some(length) => Some(*length),
        None => {
            let length = rest.split_off(..4)?.first_chunk()?;
            Some(u32::from_le_bytes(*length) as usize)
        }
    });
    let dims: Vec<usize> = lengths.collect::<Option<_>>()?;
    let size = spec.dtype.bytes();
    let bytes = dims.iter().try_fold(size, |all, &n| all.checked_mul(n))?;
    Some((dims, rest.split_off(..bytes)?))
}

/// Writes the fields of one row, in the order of its schema.
pub(crate) struct FieldWriter<'a> {
    row: &'a mut Vec<u8>,
    specs: std::slice::Iter<'a, FieldSpec>,
}

impl FieldWriter<'_> {
    /// Appends to `row`.
    pub(crate) fn new<'a>(row: &'a mut Vec<u8>, fields: &'a RecordFields) -> FieldWriter<'a> {
        let specs = fields.specs.0.iter();
        FieldWriter { row, specs }
    }

    /// Appends the next field; its dimensions must match the schema's number of dimensions and known lengths.
    #[inline]
    pub(crate) fn put(&mut self, dims: &[usize], bytes: &[u8]) {
        let spec = self.specs.next().expect("the schema has the field");
        debug_assert_eq!(spec.dims.len(), dims.len());
        for (known, &length) in spec.dims.iter().zip(dims) {
            match known {
                Some(known) => debug_assert_eq!(*known, length),
                None => self.row.extend((length as u32).to_le_bytes()),
            }
        }
        self.row.extend_from_slice(bytes);
    }

    /// Appends the next field, of at most one dimension; `write` appends its elements and returns how many.
    #[inline]
    pub(crate) fn put_with<E>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<u64, E>,
    ) -> Result<u64, E> {
        let spec = self.specs.next().expect("the schema has the field");
        let head = self.row.len();
        let varies = spec.dims == [None];
        if varies {
            self.row.extend([0; 4]);
        }
        let count = write(self.row)?;
        if varies {
            self.row[head..head + 4].copy_from_slice(&(count as u32).to_le_bytes());
        }
        Ok(count)
    }
}

/// Checks the name of a field; the error describes its fault.
pub(crate) fn check_name(name: &str, others: &[FieldSpec]) -> Result<(), String> {
    if name.is_empty() || name.len() > 255 {
        return Err(format!("the name {name:?} has not 1 to 255 bytes"));
    }
    if others.iter().any(|other| &*other.name == name) {
        Err(format!("two fields are called {name:?}"))
    } else {
        Ok(())
    }
}

/// The names of fields in a spelling; messages call these `what`.
pub(crate) fn selection<'a>(argument: &'a str, what: &str) -> Result<Vec<&'a str>, String> {
    let names: Vec<&str> = argument.split(',').collect();
    let distinct: BTreeSet<&str> = names.iter().copied().collect();
    if distinct.contains("") || distinct.len() < names.len() {
        Err(format!(
            "does not name {what}; write their names with commas between them, each once"
        ))
    } else {
        Ok(names)
    }
}

/// The index of the label among fields of these names.
pub(crate) fn label_field(
    names: &[&str],
    wanted: &LabelColumn,
) -> Result<Option<usize>, FormatError> {
    let named = |wanted: &str| names.iter().position(|name| *name == wanted);
    let found = match wanted {
        // A record with only a label would hold nothing.
        LabelColumn::Last | LabelColumn::Json(_) => {
            return Ok(named(LABEL).filter(|_| names.len() > 1));
        }
        LabelColumn::First => Some(0),
        LabelColumn::Position(place) => place.checked_sub(1),
        LabelColumn::Name(name) => named(name),
    };
    let found = found.filter(|at| *at < names.len() && names.len() > 1);
    let none = || no_label_column(wanted.describe(), names.join(", "));
    found.map(Some).ok_or_else(none)
}

/// The error for a column of a type that records cannot hold.
pub(crate) fn column_type(column: &str, found: impl Display) -> FormatError {
    FormatError::new(format!(
        "column {column} holds {found}; name columns of numbers, strings or lists of numbers with `format`"
    ))
}

/// The error if no column is called `wanted`; there are `columns`.
pub(crate) fn no_column(wanted: &str, columns: String) -> FormatError {
    FormatError::new(format!(
        "has no column {wanted}; its columns are {columns}; name some of them with `format`"
    ))
}

/// A little-endian number of this type, from as many bytes; whole numbers beyond 2^53 are rounded.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn image_x_text() -> RecordFields {
        let mut fields = RecordFields::default();
        fields.push_array(FieldSpec::new("image", DType::U8, &[Some(2), None]));
        fields.push_array(FieldSpec::new("x", DType::F64, &[]));
        fields.push_string("text");
        fields
    }

    #[test]
    fn rows_hold_what_the_schema_does_not_know() {
        let schema = image_x_text();
        let mut row = vec![9];
        let mut writer = FieldWriter::new(&mut row, &schema);
        writer.put(&[2, 3], b"abcdef");
        writer.put(&[], &1.5f64.to_le_bytes());
        let text = writer.put_with(|row| {
            row.extend(b"hi");
            Ok::<u64, Fault>(2)
        });
        assert_eq!(text, Ok(2));
        let row = &mut row.split_off(1);
        let read = schema.split(row).unwrap();
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
        assert_eq!(schema.get("text", row).unwrap().bytes, b"hi");
        assert_eq!(schema.get("label", row), None);
        assert_eq!(row.len() as u64, schema.row_bytes() + 6 + 2);
        for cut in 0..row.len() {
            assert!(schema.split(&row[..cut]).is_err(), "{cut}");
        }
        row.push(0);
        assert!(schema.split(row).is_err());
    }

    #[test]
    fn sizes_beyond_the_row_are_refused() {
        let mut schema = RecordFields::default();
        schema.push_array(FieldSpec::new("x", DType::F64, &[None; 4]));
        let mut row = Vec::new();
        FieldWriter::new(&mut row, &schema).put(&[u32::MAX as usize; 4], &[]);
        assert!(schema.split(&row).is_err());
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
