//! Nested values as JSON text: lists of strings or structs, and maps with strings as keys.
//!
//! Numbers are as records have them, so dates and times are whole numbers; a number that is not finite is null, as is a
//! missing value.

use std::io::Write;

use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, cast::AsArray, make_array};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Fields};

/// Deepest nesting.
const MOST_DEPTH: usize = 16;

/// Whether values of this type have a JSON text.
pub(crate) fn has_json(data_type: &DataType) -> bool {
    is_list_or_map(data_type) && is_json(data_type, MOST_DEPTH)
}

fn is_list_or_map(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::List(_)
            | DataType::LargeList(_)
            | DataType::FixedSizeList(..)
            | DataType::Map(..)
    )
}

fn is_json(data_type: &DataType, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else {
        return false;
    };
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            is_json(item.data_type(), depth)
        }
        DataType::Struct(fields) => {
            !fields.is_empty() && fields.iter().all(|field| is_json(field.data_type(), depth))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => is_map(fields) && is_json(fields[1].data_type(), depth),
            _ => false,
        },
        DataType::Null
        | DataType::Boolean
        | DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::Float16
        | DataType::Float32
        | DataType::Float64
        | DataType::Date32
        | DataType::Date64
        | DataType::Timestamp(..) => true,
        other => other.is_integer(),
    }
}

fn is_map(fields: &Fields) -> bool {
    let is_text = |data_type: &DataType| matches!(data_type, DataType::Utf8 | DataType::LargeUtf8);
    fields.len() == 2 && is_text(fields[0].data_type())
}

/// The texts of `rows` values from `from` on, with the start of each and the end of the last; `None` if its parts do not fit.
pub(crate) fn texts(data: &ArrayData, from: usize, rows: usize) -> Option<(Vec<usize>, Vec<u8>)> {
    let array = make_array(data.clone());
    let (mut starts, mut text) = (vec![0], Vec::new());
    for row in from..from.checked_add(rows)? {
        write(&array, row, &mut text)?;
        starts.push(text.len());
    }
    Some((starts, text))
}

/// A list of the values `from..to` of `items`.
fn write_list(items: &ArrayRef, from: usize, to: usize, text: &mut Vec<u8>) -> Option<()> {
    text.push(b'[');
    for i in from..to {
        if i > from {
            text.push(b',');
        }
        write(items, i, text)?;
    }
    text.push(b']');
    Some(())
}

fn string(value: &str, text: &mut Vec<u8>) -> Option<()> {
    serde_json::to_writer(text, value).ok()
}

fn write(array: &ArrayRef, i: usize, text: &mut Vec<u8>) -> Option<()> {
    if i >= array.len() {
        return None;
    }
    if array.is_null(i) {
        text.extend_from_slice(b"null");
        return Some(());
    }
    macro_rules! whole {
        ($of:ty) => {
            write!(text, "{}", array.as_primitive_opt::<$of>()?.value(i)).ok()
        };
    }
    // In the shortest digits of its own width.
    macro_rules! float {
        ($value:expr) => {
            serde_json::to_writer(text, &$value).ok()
        };
    }
    match array.data_type() {
        DataType::Boolean => write!(text, "{}", array.as_boolean().value(i)).ok(),
        DataType::Utf8 => string(array.as_string::<i32>().value(i), text),
        DataType::LargeUtf8 => string(array.as_string::<i64>().value(i), text),
        DataType::Utf8View => string(array.as_string_view().value(i), text),
        DataType::Int8 => whole!(Int8Type),
        DataType::Int16 => whole!(Int16Type),
        DataType::Int32 => whole!(Int32Type),
        DataType::Int64 => whole!(Int64Type),
        DataType::UInt8 => whole!(UInt8Type),
        DataType::UInt16 => whole!(UInt16Type),
        DataType::UInt32 => whole!(UInt32Type),
        DataType::UInt64 => whole!(UInt64Type),
        DataType::Date32 => whole!(Date32Type),
        DataType::Date64 => whole!(Date64Type),
        DataType::Timestamp(unit, _) => match unit {
            arrow_schema::TimeUnit::Second => whole!(TimestampSecondType),
            arrow_schema::TimeUnit::Millisecond => whole!(TimestampMillisecondType),
            arrow_schema::TimeUnit::Microsecond => whole!(TimestampMicrosecondType),
            arrow_schema::TimeUnit::Nanosecond => whole!(TimestampNanosecondType),
        },
        DataType::Float16 => float!(array.as_primitive::<Float16Type>().value(i).to_f32()),
        DataType::Float32 => float!(array.as_primitive::<Float32Type>().value(i)),
        DataType::Float64 => float!(array.as_primitive::<Float64Type>().value(i)),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let ends = list.value_offsets().get(i..i + 2)?;
            write_list(list.values(), ends[0] as usize, ends[1] as usize, text)
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let ends = list.value_offsets().get(i..i + 2)?;
            write_list(list.values(), ends[0] as usize, ends[1] as usize, text)
        }
        DataType::FixedSizeList(..) => {
            let list = array.as_fixed_size_list();
            let from = list.value_offset_at(i);
            let length = usize::try_from(list.value_length()).ok()?;
            write_list(list.values(), from, from + length, text)
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            text.push(b'{');
            for (k, (field, column)) in fields.iter().zip(columns).enumerate() {
                if k > 0 {
                    text.push(b',');
                }
                string(field.name(), text)?;
                text.push(b':');
                write(column, i, text)?;
            }
            text.push(b'}');
            Some(())
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let ends = map.value_offsets().get(i..i + 2)?;
            text.push(b'{');
            for k in ends[0] as usize..ends[1] as usize {
                if k > ends[0] as usize {
                    text.push(b',');
                }
                write(map.keys(), k, text)?;
                text.push(b':');
                write(map.values(), k, text)?;
            }
            text.push(b'}');
            Some(())
        }
        _ => text.write_all(b"null").ok(),
    }
}
