//! The bytes of a record: the values of some columns, concatenated.
//!
//! ```text
//! record    nulls | lengths | fixed | variable
//! nulls     a bit for each column that may lack a value, rounded up to bytes; 1 where it does
//! lengths   u32 for each column whose values are of different lengths: its bytes
//! fixed     the values of the other columns
//! variable  the values of those
//! ```
//!
//! Numbers are little-endian. If all columns are fixed, records have one length.

use crate::columns::column::{Column, ColumnKind};
use crate::columns::values::{Items, Values};

/// The layout of a record.
#[derive(Clone, Debug)]
pub(crate) struct RecordLayout {
    columns: Vec<Column>,
    places: Vec<Place>,
    /// Bytes before those of variable columns.
    head: usize,
    variable: usize,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// The index of its null bit.
    null: Option<usize>,
    at: Within,
}

#[derive(Clone, Copy, Debug)]
enum Within {
    /// Its first byte and length.
    Fixed(usize, usize),
    /// First byte of its length.
    Length(usize),
}

impl RecordLayout {
    /// `None` if records would be longer than 4 GB.
    pub(crate) fn new(columns: Vec<Column>) -> Option<RecordLayout> {
        let nullable = columns.iter().filter(|column| column.nullable).count();
        let variable = columns.iter().filter(|c| c.kind.fixed_bytes().is_none());
        let variable = variable.count();
        let null_bytes = nullable.div_ceil(8);
        let (mut bit, mut length, mut at) = (0, null_bytes, null_bytes + 4 * variable);
        let mut places = Vec::with_capacity(columns.len());
        for column in &columns {
            let null = column.nullable.then_some(bit);
            bit += usize::from(column.nullable);
            let within = match column.kind.fixed_bytes() {
                Some(bytes) => {
                    at = at
                        .checked_add(bytes)
                        .filter(|at| *at <= u32::MAX as usize)?;
                    Within::Fixed(at - bytes, bytes)
                }
                None => {
                    length += 4;
                    Within::Length(length - 4)
                }
            };
            places.push(Place { null, at: within });
        }
        Some(RecordLayout {
            columns,
            places,
            head: at,
            variable,
        })
    }

    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Bytes of a record without the values of variable columns.
    pub(crate) fn head_bytes(&self) -> usize {
        self.head
    }

    /// Bytes of every record, if all have the same length.
    pub(crate) fn record_bytes(&self) -> Option<u64> {
        (self.variable == 0).then_some(self.head as u64)
    }

    /// Appends `rows` records of these values, one of each column.
    pub(crate) fn encode(
        &self,
        values: &[Values],
        rows: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let begin = out.len();
        // The start of each record after the fixed part; empty if records have one length.
        let mut starts = Vec::new();
        let mut end = self.head * rows;
        if self.variable > 0 {
            end = 0;
            for row in 0..rows {
                starts.push(end);
                end += self.head;
                for values in values {
                    if let Items::Variable(bounds, _) = &values.items {
                        end += bounds[row + 1] - bounds[row];
                    }
                }
            }
        }
        out.resize(begin + end, 0);
        let records = &mut out[begin..];
        let start = |row: usize| starts.get(row).copied().unwrap_or(row * self.head);
        // How many bytes of variable columns each record has already.
        let mut filled = vec![0; starts.len()];
        for ((column, place), values) in self.columns.iter().zip(&self.places).zip(values) {
            self.encode_nulls(column, place, values, rows, records, &start)?;
            match (place.at, &values.items) {
                (Within::Fixed(at, width), Items::Fixed(bytes)) if bytes.len() == rows * width => {
                    match width {
                        1 => spread::<1>(bytes, at, rows, records, &start),
                        4 => spread::<4>(bytes, at, rows, records, &start),
                        8 => spread::<8>(bytes, at, rows, records, &start),
                        _ => {
                            for (row, value) in bytes.chunks_exact(width).enumerate() {
                                let to = start(row) + at;
                                records[to..to + width].copy_from_slice(value);
                            }
                        }
                    }
                }
                (Within::Length(at), Items::Variable(bounds, bytes)) => {
                    for row in 0..rows {
                        let value = bytes.get(bounds[row]..bounds[row + 1]);
                        let value = value.ok_or_else(|| unfit(column))?;
                        let length = u32::try_from(value.len());
                        let length = length
                            .map_err(|_| format!("column {} has a value of 4 GB", column.name))?;
                        let to = start(row);
                        records[to + at..to + at + 4].copy_from_slice(&length.to_le_bytes());
                        let to = to + self.head + filled[row];
                        records[to..to + value.len()].copy_from_slice(value);
                        filled[row] += value.len();
                    }
                }
                _ => return Err(unfit(column)),
            }
        }
        Ok(())
    }

    fn encode_nulls(
        &self,
        column: &Column,
        place: &Place,
        values: &Values,
        rows: usize,
        records: &mut [u8],
        start: &impl Fn(usize) -> usize,
    ) -> Result<(), String> {
        let Some(nulls) = values.nulls.as_ref().filter(|nulls| nulls.null_count() > 0) else {
            return Ok(());
        };
        let Some(bit) = place.null else {
            return Err(format!(
                "column {} lacks values, and the file says that it does not",
                column.name
            ));
        };
        for row in (0..rows).filter(|row| nulls.is_null(*row)) {
            records[start(row) + bit / 8] |= 1 << (bit % 8);
        }
        Ok(())
    }

    /// Calls `take` with the index and the bytes of each column in order, `None` if the record has no value; returns
    /// `None` if `record` is not such a record.
    pub(crate) fn each<'a, E>(
        &self,
        record: &'a [u8],
        mut take: impl FnMut(usize, Option<&'a [u8]>) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        let (head, mut rest) = record.split_at_checked(self.head)?;
        for (i, place) in self.places.iter().enumerate() {
            let value = match place.at {
                Within::Fixed(at, width) => &head[at..at + width],
                Within::Length(at) => {
                    let length = head[at..at + 4].try_into().expect("four bytes");
                    let length = u32::from_le_bytes(length) as usize;
                    rest.split_off(..length)?
                }
            };
            let is_null = place
                .null
                .is_some_and(|bit| head[bit / 8] >> (bit % 8) & 1 == 1);
            if let Err(error) = take(i, (!is_null).then_some(value)) {
                return Some(Err(error));
            }
        }
        rest.is_empty().then_some(Ok(()))
    }
}

fn unfit(column: &Column) -> String {
    format!(
        "the values of column {} are not as many as its records",
        column.name
    )
}

/// Puts the values of a column of `N` bytes into the records.
#[inline]
fn spread<const N: usize>(
    values: &[u8],
    at: usize,
    rows: usize,
    records: &mut [u8],
    start: &impl Fn(usize) -> usize,
) {
    let (values, _) = values.as_chunks::<N>();
    for (row, value) in (0..rows).zip(values) {
        let to = start(row) + at;
        records[to..to + N].copy_from_slice(value);
    }
}

/// Whether a column of this kind can be a label: one number a record, or a string.
pub(crate) fn can_be_label(kind: &ColumnKind) -> bool {
    match kind {
        ColumnKind::Numbers { dims, .. } => dims.is_empty(),
        ColumnKind::Bytes => true,
        ColumnKind::List { .. } | ColumnKind::Json => false,
    }
}

#[cfg(test)]
mod tests {
    use arrow_buffer::{Buffer, NullBuffer};

    use super::*;
    use crate::columns::column::Element;

    fn column(name: &str, kind: ColumnKind, nullable: bool) -> Column {
        Column {
            name: name.into(),
            path: vec![name.into()],
            kind,
            nullable,
            units_a_day: None,
            aside: false,
        }
    }

    fn numbers(element: Element, dims: &[usize]) -> ColumnKind {
        ColumnKind::Numbers {
            element,
            dims: dims.to_vec(),
        }
    }

    /// The value of each column, if it has one.
    fn parts(layout: &RecordLayout, record: &[u8]) -> Option<Vec<Option<Vec<u8>>>> {
        let mut found = Vec::new();
        let ended = layout.each(record, |i, value| {
            assert_eq!(i, found.len());
            found.push(value.map(<[u8]>::to_vec));
            Ok::<(), ()>(())
        });
        ended.map(|_| found)
    }

    #[test]
    fn records_say_what_was_put_in() {
        let columns = vec![
            column("a", numbers(Element::I32, &[]), true),
            column("b", ColumnKind::Bytes, false),
            column("c", numbers(Element::U8, &[3]), true),
            column(
                "d",
                ColumnKind::List {
                    element: Element::F64,
                    nested: false,
                },
                false,
            ),
        ];
        let layout = RecordLayout::new(columns).unwrap();
        assert_eq!(
            (layout.record_bytes(), layout.head_bytes()),
            (None, 1 + 8 + 7)
        );
        let plain = |items| Values { nulls: None, items };
        let nulls = |valid: &[bool]| Some(NullBuffer::from(valid.to_vec()));
        let b = Buffer::from_vec(b"xyzzy".to_vec());
        let values = [
            Values {
                nulls: nulls(&[true, false]),
                items: Items::Fixed(Buffer::from_vec(vec![7i32, 0])),
            },
            plain(Items::Variable(vec![1, 1, 4], b)),
            Values {
                nulls: nulls(&[false, true]),
                items: Items::Fixed(Buffer::from_vec(vec![1u8, 2, 3, 4, 5, 6])),
            },
            plain(Items::Variable(
                vec![0, 8, 8],
                Buffer::from_vec(vec![0.5f64]),
            )),
        ];
        let mut records = b"before".to_vec();
        layout.encode(&values, 2, &mut records).unwrap();
        let records = &records[6..];
        let (first, second) = records.split_at(16 + 8);
        let some = |bytes: &[u8]| Some(bytes.to_vec());
        let half = 0.5f64.to_le_bytes();
        assert_eq!(
            parts(&layout, first).unwrap(),
            [some(&[7, 0, 0, 0]), some(b""), None, some(&half)]
        );
        assert_eq!(
            parts(&layout, second).unwrap(),
            [None, some(b"yzz"), some(&[4, 5, 6]), some(b"")]
        );
        for cut in 0..first.len() {
            assert_eq!(parts(&layout, &first[..cut]), None, "{cut}");
        }
        assert_eq!(parts(&layout, records), None);

        let mut stated = layout.columns().to_vec();
        stated[0].nullable = false;
        let stated = RecordLayout::new(stated).unwrap();
        let error = stated.encode(&values, 2, &mut Vec::new()).unwrap_err();
        assert!(error.contains("column a lacks values"), "{error}");
        let error = layout.encode(&values, 1, &mut Vec::new()).unwrap_err();
        assert!(error.contains("column a are not as many"), "{error}");
    }

    #[test]
    fn records_of_one_length() {
        let widths = [
            numbers(Element::Bool, &[]),
            numbers(Element::I64, &[]),
            numbers(Element::F16, &[]),
        ];
        let columns = widths.map(|kind| column("x", kind, false)).to_vec();
        let layout = RecordLayout::new(columns).unwrap();
        assert_eq!(layout.record_bytes(), Some(11));
        let fixed = |bytes: Vec<u8>| Values {
            nulls: None,
            items: Items::Fixed(Buffer::from_vec(bytes)),
        };
        let values = [
            fixed(vec![1, 0, 1]),
            fixed((0..24).collect()),
            fixed((100..106).collect()),
        ];
        let mut records = Vec::new();
        layout.encode(&values, 3, &mut records).unwrap();
        assert_eq!(records[11..22], [0, 8, 9, 10, 11, 12, 13, 14, 15, 102, 103]);
        let long = numbers(Element::U8, &[1 << 31]);
        let two = vec![column("x", long.clone(), false), column("y", long, false)];
        assert!(RecordLayout::new(two).is_none());
    }
}
