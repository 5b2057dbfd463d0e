//! The columns of a file, and the kinds of their values.
//!
//! Columns of structs are separate columns, called `outer.inner`. Lists of strings or structs, and maps, become their JSON
//! text. Columns that records cannot hold (unions, lists of bytes, unsigned 64-bit numbers) are listed with their type,
//! for messages.

use arrow_schema::{DataType, FieldRef, Fields, TimeUnit};
use pelton_batch::{DType, FieldSpec};

use crate::columns::nested::has_json;

/// A number as files store it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// One bit.
    Bool,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    F16,
    F32,
    F64,
    /// A whole number of `bytes` bytes over a power of ten; becomes the nearest f64.
    Decimal {
        bytes: u8,
        scale: i8,
    },
}

impl Element {
    /// Numbers of this type, and dates, times and durations as the whole numbers that store them.
    pub(crate) fn from_name(data_type: &DataType) -> Option<Element> {
        Some(match data_type {
            DataType::Boolean => Element::Bool,
            DataType::Int8 => Element::I8,
            DataType::UInt8 => Element::U8,
            DataType::Int16 => Element::I16,
            DataType::UInt16 => Element::U16,
            DataType::Int32 | DataType::Date32 | DataType::Time32(_) => Element::I32,
            DataType::UInt32 => Element::U32,
            DataType::Int64
            | DataType::Date64
            | DataType::Time64(_)
            | DataType::Timestamp(..)
            | DataType::Duration(_) => Element::I64,
            DataType::Float16 => Element::F16,
            DataType::Float32 => Element::F32,
            DataType::Float64 => Element::F64,
            DataType::Decimal32(_, scale) => Element::Decimal {
                bytes: 4,
                scale: *scale,
            },
            DataType::Decimal64(_, scale) => Element::Decimal {
                bytes: 8,
                scale: *scale,
            },
            DataType::Decimal128(_, scale) => Element::Decimal {
                bytes: 16,
                scale: *scale,
            },
            DataType::Decimal256(_, scale) => Element::Decimal {
                bytes: 32,
                scale: *scale,
            },
            _ => return None,
        })
    }

    /// The keys of a dictionary. Unsigned keys are read as signed ones of their length, because keys stay below the
    /// sign bit.
    pub(crate) fn of_keys(data_type: &DataType) -> Option<Element> {
        match data_type {
            DataType::UInt64 => Some(Element::I64),
            other if other.is_integer() => Element::from_name(other),
            _ => None,
        }
    }

    /// Bits as files store it.
    pub(crate) fn bits(self) -> usize {
        match self {
            Element::Bool => 1,
            Element::I8 | Element::U8 => 8,
            Element::I16 | Element::U16 | Element::F16 => 16,
            Element::I32 | Element::U32 | Element::F32 => 32,
            Element::I64 | Element::F64 => 64,
            Element::Decimal { bytes, .. } => 8 * usize::from(bytes),
        }
    }

    /// Its type in a record.
    pub(crate) fn dtype(self) -> DType {
        match self {
            Element::Bool | Element::U8 => DType::U8,
            Element::I8 => DType::I8,
            Element::I16 => DType::I16,
            Element::U16 => DType::U16,
            Element::I32 => DType::I32,
            Element::U32 => DType::U32,
            Element::I64 => DType::I64,
            Element::F16 => DType::F16,
            Element::F32 => DType::F32,
            Element::F64 | Element::Decimal { .. } => DType::F64,
        }
    }
}

/// The kind of a column's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    /// A number, or an array of them of one shape.
    Numbers { element: Element, dims: Vec<usize> },
    /// Numbers, of varying count. If they are in lists within a list, a value begins with the length of the inner
    /// lists, in eight bytes.
    List { element: Element, nested: bool },
    /// A string of bytes.
    Bytes,
    /// Nested values, which become their JSON text.
    Json,
}

impl ColumnKind {
    fn of_field(data_type: &DataType) -> Option<ColumnKind> {
        ColumnKind::from_type(data_type).or_else(|| has_json(data_type).then_some(ColumnKind::Json))
    }

    fn from_type(data_type: &DataType) -> Option<ColumnKind> {
        match data_type {
            DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView => Some(ColumnKind::Bytes),
            DataType::FixedSizeBinary(bytes) => Some(ColumnKind::Numbers {
                element: Element::U8,
                dims: vec![usize::try_from(*bytes).ok().filter(|n| *n > 0)?],
            }),
            DataType::List(item) | DataType::LargeList(item) => {
                let inner = match item.data_type() {
                    DataType::List(item)
                    | DataType::LargeList(item)
                    | DataType::FixedSizeList(item, _) => Some(item.data_type()),
                    _ => None,
                };
                Some(ColumnKind::List {
                    element: Element::from_name(inner.unwrap_or(item.data_type()))?,
                    nested: inner.is_some(),
                })
            }
            DataType::FixedSizeList(item, length) => {
                let ColumnKind::Numbers { element, dims } =
                    ColumnKind::from_type(item.data_type())?
                else {
                    return None;
                };
                let length = usize::try_from(*length).ok().filter(|n| *n > 0)?;
                Some(ColumnKind::Numbers {
                    element,
                    dims: [vec![length], dims].concat(),
                })
            }
            DataType::Dictionary(key, value) => {
                Element::of_keys(key)?;
                match value.as_ref() {
                    DataType::Dictionary(..) => None,
                    value => ColumnKind::from_type(value),
                }
            }
            other => Some(ColumnKind::Numbers {
                element: Element::from_name(other)?,
                dims: Vec::new(),
            }),
        }
    }

    /// Whether it holds lists in lists.
    pub(crate) fn is_nested(&self) -> bool {
        matches!(self, ColumnKind::List { nested: true, .. })
    }

    /// Whether values are made from arrays of Arrow's library, not from buffers of the file.
    pub(crate) fn is_made(&self) -> bool {
        self.is_nested() || *self == ColumnKind::Json
    }

    /// Bytes in a record, if equal in all records.
    pub(crate) fn fixed_bytes(&self) -> Option<usize> {
        match self {
            ColumnKind::Numbers { element, dims } => dims
                .iter()
                .try_fold(element.dtype().bytes(), |all, n| all.checked_mul(*n)),
            ColumnKind::List { .. } | ColumnKind::Bytes | ColumnKind::Json => None,
        }
    }

    /// Bytes of an element; 1 for strings.
    pub(crate) fn element_bytes(&self) -> usize {
        match self {
            ColumnKind::Numbers { element, .. } | ColumnKind::List { element, .. } => {
                element.dtype().bytes()
            }
            ColumnKind::Bytes | ColumnKind::Json => 1,
        }
    }
}

/// A column of a file that records can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Its name, for people.
    pub(crate) name: String,
    /// Its name within the structs that contain it, outermost first.
    pub(crate) path: Vec<String>,
    pub(crate) kind: ColumnKind,
    /// Whether some record may have no value.
    pub(crate) nullable: bool,
    /// Units of a day, if its numbers are dates or points in time since 1970.
    pub(crate) units_a_day: Option<i64>,
    /// Whether it is read only where it is named.
    pub(crate) aside: bool,
}

/// Units of a day of a type of dates or points in time; those with a time zone are in UTC.
fn units_a_day(data_type: &DataType) -> Option<i64> {
    const SECONDS: i64 = 86_400;
    match data_type {
        DataType::Date32 => Some(1),
        DataType::Date64 => Some(SECONDS * 1_000),
        DataType::Timestamp(unit, _) => Some(match unit {
            TimeUnit::Second => SECONDS,
            TimeUnit::Millisecond => SECONDS * 1_000,
            TimeUnit::Microsecond => SECONDS * 1_000_000,
            TimeUnit::Nanosecond => SECONDS * 1_000_000_000,
        }),
        DataType::Dictionary(_, value) => units_a_day(value),
        _ => None,
    }
}

impl Column {
    /// Its type as a field of a record.
    pub(crate) fn spec(&self) -> FieldSpec {
        match &self.kind {
            ColumnKind::Numbers { element, dims } => {
                let known: Vec<Option<usize>> = dims.iter().copied().map(Some).collect();
                FieldSpec::new(&self.name, element.dtype(), &known)
            }
            ColumnKind::List { element, nested } => {
                let dims = &[None, None][..1 + usize::from(*nested)];
                FieldSpec::new(&self.name, element.dtype(), dims)
            }
            ColumnKind::Bytes | ColumnKind::Json => FieldSpec::new(&self.name, DType::U8, &[None]),
        }
    }
}

/// A column of a file; or its name and type, if records cannot hold it.
pub(crate) type Leaf = Result<Column, (String, String)>;

/// All columns of a schema in their order.
pub(crate) fn leaves(fields: &Fields) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    fields
        .iter()
        .for_each(|field| add(field, &[], false, &mut leaves));
    leaves
}

fn add(field: &FieldRef, outer: &[String], nullable: bool, leaves: &mut Vec<Leaf>) {
    let path = [outer, &[field.name().clone()]].concat();
    let mut nullable = nullable || field.is_nullable();
    if let DataType::Struct(fields) = field.data_type() {
        let begin = leaves.len();
        fields
            .iter()
            .for_each(|field| add(field, &path, nullable, leaves));
        // A picture or sound as Hugging Face stores it: the contents of a file, and its name.
        if let [one, other] = &mut leaves[begin..]
            && let Some([Ok(contents), Ok(name)]) = of_file(fields).map(|first| match first {
                true => [one, other],
                false => [other, one],
            })
        {
            contents.name = path.join(".");
            name.aside = true;
        }
        return;
    }
    let mut inner = field.data_type();
    while let DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) =
        inner
    {
        nullable |= item.is_nullable();
        inner = item.data_type();
    }
    let name = path.join(".");
    let leaf = match ColumnKind::of_field(field.data_type()) {
        Some(kind) if kind.fixed_bytes().is_none_or(|bytes| bytes <= MOST_BYTES) => Ok(Column {
            name,
            path,
            kind,
            nullable,
            units_a_day: units_a_day(field.data_type()),
            aside: false,
        }),
        _ => Err((
            name,
            crate::record::error::excerpt(field.data_type().to_string().as_bytes()),
        )),
    };
    leaves.push(leaf);
}

/// Whether the first of these two is the contents of a file and the other its name, or the other way around; `None` for
/// other fields.
fn of_file(fields: &Fields) -> Option<bool> {
    let is_contents = |field: &FieldRef| {
        field.name() == "bytes"
            && matches!(field.data_type(), DataType::Binary | DataType::LargeBinary)
    };
    let is_name = |field: &FieldRef| {
        field.name() == "path" && matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8)
    };
    match fields[..].as_ref() {
        [a, b] if is_contents(a) && is_name(b) => Some(true),
        [a, b] if is_name(a) && is_contents(b) => Some(false),
        _ => None,
    }
}

/// Most bytes of an array of one shape.
const MOST_BYTES: usize = 1 << 31;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::Field;

    use super::*;

    #[test]
    fn a_file_in_a_struct_has_the_name_of_the_struct() {
        let field = |name: &str, data_type| Field::new(name, data_type, true);
        let names = |fields: Vec<Field>| -> Vec<(String, bool)> {
            let outer = field("image", DataType::Struct(Fields::from(fields)));
            let found = leaves(&Fields::from(vec![outer]))
                .into_iter()
                .map(Result::unwrap);
            found.map(|column| (column.name, column.aside)).collect()
        };
        let (bytes, path) = (
            field("bytes", DataType::Binary),
            field("path", DataType::Utf8),
        );
        let image = ("image".to_owned(), false);
        let aside = ("image.path".to_owned(), true);
        assert_eq!(
            names(vec![bytes.clone(), path.clone()]),
            [image.clone(), aside.clone()]
        );
        assert_eq!(names(vec![path.clone(), bytes.clone()]), [aside, image]);
        for (others, name) in [
            (
                vec![bytes.clone(), field("name", DataType::Utf8)],
                "image.bytes",
            ),
            (vec![bytes.clone()], "image.bytes"),
            (
                vec![bytes, path.clone(), field("x", DataType::Int8)],
                "image.bytes",
            ),
            (vec![field("bytes", DataType::Utf8), path], "image.bytes"),
        ] {
            assert_eq!(names(others)[0], (name.to_owned(), false));
        }
    }

    fn check(data_type: DataType, expected: Result<ColumnKind, &str>) {
        let fields = Fields::from(vec![Field::new("x", data_type, true)]);
        let found = leaves(&fields).remove(0);
        let expected = expected.map_err(|what| ("x".to_owned(), what.to_owned()));
        assert_eq!(found.map(|column| column.kind), expected);
    }

    #[test]
    fn kinds() {
        let numbers = |element, dims: &[usize]| {
            Ok(ColumnKind::Numbers {
                element,
                dims: dims.to_vec(),
            })
        };
        let list = |item: DataType| Arc::new(Field::new("item", item, true));
        check(DataType::Int16, numbers(Element::I16, &[]));
        check(DataType::Boolean, numbers(Element::Bool, &[]));
        check(
            DataType::Timestamp(TimeUnit::Microsecond, None),
            numbers(Element::I64, &[]),
        );
        check(DataType::FixedSizeBinary(16), numbers(Element::U8, &[16]));
        let row = DataType::FixedSizeList(list(DataType::UInt8), 28);
        let picture = DataType::FixedSizeList(list(row), 3);
        check(picture, numbers(Element::U8, &[3, 28]));
        check(
            DataType::List(list(DataType::Float32)),
            Ok(ColumnKind::List {
                element: Element::F32,
                nested: false,
            }),
        );
        let corners = DataType::FixedSizeList(list(DataType::Float32), 4);
        for inner in [corners, DataType::LargeList(list(DataType::Float32))] {
            check(
                DataType::List(list(inner)),
                Ok(ColumnKind::List {
                    element: Element::F32,
                    nested: true,
                }),
            );
        }
        check(DataType::Utf8View, Ok(ColumnKind::Bytes));
        let dictionary = |value| DataType::Dictionary(DataType::UInt64.into(), Box::new(value));
        check(dictionary(DataType::Utf8), Ok(ColumnKind::Bytes));
        check(DataType::UInt64, Err("UInt64"));
        let decimal = Element::Decimal {
            bytes: 16,
            scale: 2,
        };
        check(DataType::Decimal128(9, 2), numbers(decimal, &[]));
        for item in [DataType::Utf8, DataType::UInt64, DataType::Null] {
            check(DataType::List(list(item)), Ok(ColumnKind::Json));
        }
        check(
            DataType::FixedSizeList(list(DataType::Utf8), 2),
            Ok(ColumnKind::Json),
        );
        check(DataType::List(list(DataType::Binary)), Err("List(Binary)"));
        let endless = DataType::FixedSizeList(list(DataType::FixedSizeBinary(i32::MAX)), i32::MAX);
        let fields = Fields::from(vec![Field::new("x", endless, true)]);
        assert!(leaves(&fields)[0].is_err());
    }

    #[test]
    fn structs_are_columns_of_their_own() {
        let image = Fields::from(vec![
            Field::new("bytes", DataType::Binary, true),
            Field::new("side", DataType::Int32, false),
        ]);
        let fields = Fields::from(vec![
            Field::new("image", DataType::Struct(image), false),
            Field::new("label", DataType::Int64, false),
        ]);
        let found = leaves(&fields).into_iter();
        let found: Vec<(String, bool)> = found
            .map(|leaf| leaf.map(|column| (column.name, column.nullable)).unwrap())
            .collect();
        let expected = [
            ("image.bytes", true),
            ("image.side", false),
            ("label", false),
        ];
        assert_eq!(
            found,
            expected.map(|(name, nullable)| (name.to_owned(), nullable))
        );
    }
}
