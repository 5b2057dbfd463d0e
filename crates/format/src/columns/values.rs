//! Values of one column for a run of records, taken from memory in Arrow's layout.
//!
//! Parquet files are decoded into such memory, Arrow files consist of it. Offsets and lengths are not trusted: a value
//! that reaches beyond its buffer gives `None`.

use arrow_buffer::{Buffer, NullBuffer, i256};
use arrow_data::ArrayData;
use arrow_schema::DataType;

use crate::columns::column::{ColumnKind, Element};
use crate::columns::nested::texts;

/// Stands for the length of inner lists if they differ.
pub(crate) const UNEVEN: u64 = u64::MAX;

/// Values of one column for a run of records.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    /// Marks the records without a value. Records beyond its end have one; with `None`, all have one.
    pub(crate) nulls: Option<NullBuffer>,
    pub(crate) items: Items,
}

#[derive(Clone, Debug)]
pub(crate) enum Items {
    /// The same number of bytes a record, as records hold them.
    Fixed(Buffer),
    /// The offset of the bytes of each record, and the end of the last.
    Variable(Vec<usize>, Buffer),
}

impl Values {
    /// Whether record `i` of them has a value.
    pub(crate) fn has(&self, i: usize) -> bool {
        self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(i))
    }

    /// Bytes of record `i`; `width` for numbers.
    pub(crate) fn get(&self, i: usize, width: usize) -> Option<&[u8]> {
        match &self.items {
            Items::Fixed(bytes) => {
                let from = i.checked_mul(width)?;
                bytes.get(from..from.checked_add(width)?)
            }
            Items::Variable(starts, bytes) => {
                let from = *starts.get(i)?;
                // There is one more start than there are records.
                bytes.get(from..*starts.get(i + 1)?)
            }
        }
    }

    /// How many there are.
    fn len(&self, width: Option<usize>) -> usize {
        match &self.items {
            Items::Fixed(bytes) => bytes.len() / width.unwrap_or(1).max(1),
            Items::Variable(starts, _) => starts.len().saturating_sub(1),
        }
    }

    /// The bytes of all values, with the offset of each and the end of the last.
    fn made(width: Option<usize>, valid: Vec<bool>, starts: Vec<usize>, bytes: Vec<u8>) -> Values {
        let bytes = Buffer::from_vec(bytes);
        Values {
            nulls: valid.contains(&false).then(|| NullBuffer::from(valid)),
            items: match width {
                Some(_) => Items::Fixed(bytes),
                None => Items::Variable(starts, bytes),
            },
        }
    }

    /// These and `more` behind them.
    pub(crate) fn followed_by(&self, more: &Values, kind: &ColumnKind) -> Option<Values> {
        let width = kind.fixed_bytes();
        let (mut valid, mut starts, mut bytes) = (Vec::new(), vec![0], Vec::new());
        for part in [self, more] {
            for i in 0..part.len(width) {
                bytes.extend_from_slice(part.get(i, width.unwrap_or(0))?);
                valid.push(part.has(i));
                starts.push(bytes.len());
            }
        }
        Some(Values::made(width, valid, starts, bytes))
    }

    /// Values given by their `keys` in `dictionary`; a record without a key has no value.
    pub(crate) fn of_keys(
        dictionary: &Values,
        keys: &[Option<usize>],
        kind: &ColumnKind,
    ) -> Option<Values> {
        let width = kind.fixed_bytes();
        let mut valid = Vec::with_capacity(keys.len());
        let (mut starts, mut bytes) = (vec![0], Vec::new());
        for key in keys {
            let value = match key {
                Some(key) => {
                    let value = dictionary.get(*key, width.unwrap_or(0))?;
                    dictionary.has(*key).then_some(value)
                }
                None => None,
            };
            valid.push(value.is_some());
            match (value, width) {
                (Some(value), _) => bytes.extend_from_slice(value),
                (None, Some(width)) => bytes.resize(bytes.len() + width, 0),
                (None, None) => {}
            }
            starts.push(bytes.len());
        }
        Some(Values::made(width, valid, starts, bytes))
    }

    /// `rows` values from `from` on of an array of this kind; `None` if its parts do not fit.
    pub(crate) fn of_array(
        data: &ArrayData,
        from: usize,
        rows: usize,
        kind: &ColumnKind,
    ) -> Option<Values> {
        let nulls = slice(data.nulls(), from, rows);
        let first = data.offset() + from;
        let buffer = |i: usize| data.buffers().get(i);
        if let DataType::Dictionary(key, _) = data.data_type() {
            let keys = numbers(Element::of_keys(key)?, buffer(0)?, first, rows)?;
            let keys = keys_of(&keys, Element::of_keys(key)?, rows, nulls.as_ref());
            let dictionary = data.child_data().first()?;
            let all = Values::of_array(dictionary, 0, dictionary.len(), kind)?;
            return Values::of_keys(&all, &keys, kind);
        }
        let items = match kind {
            ColumnKind::Json => {
                let (starts, text) = texts(data, from, rows)?;
                return Some(Values {
                    nulls: None,
                    items: Items::Variable(starts, Buffer::from_vec(text)),
                });
            }
            ColumnKind::Bytes => match data.data_type() {
                DataType::Utf8View | DataType::BinaryView => {
                    let views = buffer(0)?.get(16 * first..16 * (first + rows))?;
                    let all: Vec<(&[u8], usize)> = data.buffers()[1..]
                        .iter()
                        .map(|buffer| (buffer.as_slice(), 0))
                        .collect();
                    viewed(views, &all)?
                }
                other => {
                    let wide = matches!(other, DataType::LargeUtf8 | DataType::LargeBinary);
                    Items::Variable(starts(buffer(0)?, wide, first, rows)?, buffer(1)?.clone())
                }
            },
            ColumnKind::List {
                element,
                nested: true,
            } => return Values::of_lists(data, first, rows, *element, nulls),
            ColumnKind::List { element, .. } => {
                let wide = matches!(data.data_type(), DataType::LargeList(_));
                let starts = starts(buffer(0)?, wide, first, rows)?;
                let (begin, end) = (starts[0], starts[rows]);
                let list = data.child_data().first()?;
                let inner = list.buffers().first()?;
                let bytes = numbers(*element, inner, list.offset() + begin, end - begin)?;
                let inner = slice(list.nulls(), begin, end - begin);
                return Values::of_list(starts, bytes, inner, nulls, *element);
            }
            ColumnKind::Numbers { element, dims } => {
                let (mut data, mut first, mut count) = (data, first, rows);
                let mut nulls = nulls;
                // Nested lists of one length.
                let mut lengths = dims.iter();
                while let DataType::FixedSizeList(..) = data.data_type() {
                    let length = *lengths.next()?;
                    data = data.child_data().first()?;
                    (first, count) = (first.checked_mul(length)?, count.checked_mul(length)?);
                    let inner = slice(data.nulls(), first, count);
                    nulls = with_inner(nulls, inner, count / rows.max(1), rows);
                    first += data.offset();
                }
                // The rest is a string of one length.
                let more: usize = lengths.product();
                let (first, count) = (first.checked_mul(more)?, count.checked_mul(more)?);
                let bytes = numbers(*element, data.buffers().first()?, first, count)?;
                return Some(Values {
                    nulls,
                    items: Items::Fixed(bytes),
                });
            }
        };
        Some(Values { nulls, items })
    }

    /// Lists of lists of numbers, each with the length of its inner lists in front: [`UNEVEN`] if they differ.
    fn of_lists(
        data: &ArrayData,
        first: usize,
        rows: usize,
        element: Element,
        nulls: Option<NullBuffer>,
    ) -> Option<Values> {
        let is_wide = |data: &ArrayData| matches!(data.data_type(), DataType::LargeList(_));
        let outer = starts(data.buffers().first()?, is_wide(data), first, rows)?;
        let (begin, count) = (outer[0], outer[rows] - outer[0]);
        let lists = data.child_data().first()?;
        let begin_of = lists.offset() + begin;
        let inner = match lists.data_type() {
            DataType::FixedSizeList(_, length) => {
                let length = usize::try_from(*length).ok()?;
                let ends = begin_of..=begin_of + count;
                ends.map(|list| list.checked_mul(length))
                    .collect::<Option<Vec<usize>>>()?
            }
            _ => starts(lists.buffers().first()?, is_wide(lists), begin_of, count)?,
        };
        let numbers_of = lists.child_data().first()?;
        let (from, all) = (inner[0], inner[count] - inner[0]);
        let buffer = numbers_of.buffers().first()?;
        let bytes = numbers(element, buffer, numbers_of.offset() + from, all)?;
        let (no_list, no_number) = (
            slice(lists.nulls(), begin, count),
            slice(numbers_of.nulls(), from, all),
        );
        let has_all = |nulls: &Option<NullBuffer>, from: usize, to: usize| {
            { nulls.as_ref() }.is_none_or(|nulls| nulls.slice(from, to - from).null_count() == 0)
        };
        let width = element.dtype().bytes();
        let (mut valid, mut ends, mut made) = (Vec::new(), vec![0], Vec::new());
        for row in 0..rows {
            let (a, b) = (outer[row] - begin, outer[row + 1] - begin);
            let mut lengths = inner[a..=b].windows(2).map(|ends| ends[1] - ends[0]);
            let length = lengths.next().unwrap_or(0);
            let is_even = lengths.all(|other| other == length);
            made.extend(if is_even { length as u64 } else { UNEVEN }.to_le_bytes());
            let (a_number, b_number) = (inner[a] - from, inner[b] - from);
            made.extend_from_slice(bytes.get(a_number * width..b_number * width)?);
            ends.push(made.len());
            let is_there = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
            valid.push(
                is_there && has_all(&no_list, a, b) && has_all(&no_number, a_number, b_number),
            );
        }
        Some(Values::made(None, valid, ends, made))
    }

    /// Lists of numbers; `starts` has the start of each, the first being byte `bytes`.
    pub(crate) fn of_list(
        mut starts: Vec<usize>,
        bytes: Buffer,
        inner: Option<NullBuffer>,
        nulls: Option<NullBuffer>,
        element: Element,
    ) -> Option<Values> {
        let begin = *starts.first()?;
        let mut nulls = nulls;
        if let Some(inner) = inner.filter(|inner| inner.null_count() > 0) {
            let whole = starts.windows(2).map(|run| {
                let (from, length) = (run[0] - begin, run[1] - run[0]);
                inner.slice(from, length).null_count() == 0
            });
            let whole = NullBuffer::from(whole.collect::<Vec<bool>>());
            nulls = NullBuffer::union(nulls.as_ref(), Some(&whole));
        }
        let width = element.dtype().bytes();
        for start in &mut starts {
            *start = (*start - begin) * width;
        }
        Some(Values {
            nulls,
            items: Items::Variable(starts, bytes),
        })
    }
}

fn slice(nulls: Option<&NullBuffer>, from: usize, rows: usize) -> Option<NullBuffer> {
    let nulls = nulls.filter(|nulls| from + rows <= nulls.len());
    nulls.map(|nulls| nulls.slice(from, rows))
}

/// The keys of records, if they have one; a negative key becomes `usize::MAX`, which is never valid.
pub(crate) fn keys_of(
    keys: &[u8],
    element: Element,
    rows: usize,
    nulls: Option<&NullBuffer>,
) -> Vec<Option<usize>> {
    let width = element.dtype().bytes();
    let key = |i: usize| {
        let bytes = keys.get(i * width..(i + 1) * width)?;
        let mut wide = [0; 8];
        wide[..width].copy_from_slice(bytes);
        let key = match element {
            Element::I8 | Element::I16 | Element::I32 => {
                let unused = 64 - 8 * width;
                (i64::from_le_bytes(wide) << unused) >> unused
            }
            _ => i64::from_le_bytes(wide),
        };
        let has_key = nulls.is_none_or(|nulls| nulls.is_valid(i));
        has_key.then(|| usize::try_from(key).unwrap_or(usize::MAX))
    };
    (0..rows).map(key).collect()
}

/// Records of `each` inner values have a value if all of these have one.
pub(crate) fn with_inner(
    nulls: Option<NullBuffer>,
    inner: Option<NullBuffer>,
    each: usize,
    rows: usize,
) -> Option<NullBuffer> {
    let Some(inner) = inner.filter(|inner| inner.null_count() > 0) else {
        return nulls;
    };
    let whole = (0..rows).map(|i| inner.slice(i * each, each).null_count() == 0);
    let whole = NullBuffer::from(whole.collect::<Vec<bool>>());
    NullBuffer::union(nulls.as_ref(), Some(&whole))
}

/// `count` numbers of `raw` from index `first` on, as records hold them.
pub(crate) fn numbers(
    element: Element,
    raw: &Buffer,
    first: usize,
    count: usize,
) -> Option<Buffer> {
    let end = first.checked_add(count)?.checked_mul(element.bits())?;
    if end.div_ceil(8) > raw.len() {
        return None;
    }
    let size = element.bits() / 8;
    let stored = |raw: &Buffer| raw.slice_with_length(first * size, count * size);
    Some(match element {
        Element::Bool => {
            let bit = |i: usize| raw[i / 8] >> (i % 8) & 1;
            Buffer::from_vec((first..first + count).map(bit).collect::<Vec<u8>>())
        }
        Element::Decimal { scale, .. } => {
            let raw = stored(raw);
            let all = raw.chunks_exact(size).map(|value| decimal(value, scale));
            Buffer::from_vec(all.collect::<Vec<f64>>())
        }
        _ => stored(raw),
    })
}

/// The f64 nearest to a whole number over 10^`scale`.
fn decimal(value: &[u8], scale: i8) -> f64 {
    const EXACT: i128 = 1 << 53;
    const POWERS: [f64; 16] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
    ];
    let is_negative = value.last().is_some_and(|last| *last > 127);
    let mut wide = [if is_negative { 0xff } else { 0 }; 32];
    wide[..value.len()].copy_from_slice(value);
    let whole = i256::from_le_bytes(wide);
    let power = usize::try_from(scale)
        .ok()
        .and_then(|scale| POWERS.get(scale));
    match (whole.to_i128(), power) {
        // Both are exact, so the quotient is rounded once.
        (Some(small), Some(power)) if (-EXACT..=EXACT).contains(&small) => small as f64 / power,
        _ => {
            let text = format!("{whole}e{}", -i32::from(scale));
            text.parse().unwrap_or(f64::NAN)
        }
    }
}

/// The starts of `rows` values from value `first` on, and the end of the last, from a list of offsets.
pub(crate) fn starts(raw: &[u8], wide: bool, first: usize, rows: usize) -> Option<Vec<usize>> {
    if rows == 0 {
        return Some(vec![0]);
    }
    let size = if wide { 8 } else { 4 };
    let end = first.checked_add(rows)?.checked_add(1)?.checked_mul(size)?;
    let raw = raw.get(first * size..end)?;
    let starts: Option<Vec<usize>> = if wide {
        let all = raw.as_chunks::<8>().0.iter();
        all.map(|word| usize::try_from(i64::from_le_bytes(*word)).ok())
            .collect()
    } else {
        let all = raw.as_chunks::<4>().0.iter();
        all.map(|word| usize::try_from(i32::from_le_bytes(*word)).ok())
            .collect()
    };
    starts.filter(|starts| starts.is_sorted())
}

/// A view of a string: its bytes, or their length and location.
#[derive(Clone, Copy)]
pub(crate) enum View<'a> {
    Inline(&'a [u8]),
    Elsewhere {
        buffer: usize,
        at: usize,
        length: usize,
    },
}

/// The views of a buffer.
pub(crate) fn views(views: &[u8]) -> impl Iterator<Item = Option<View<'_>>> {
    views.as_chunks::<16>().0.iter().map(|view| {
        let word = |at: usize| {
            let word = view[at..at + 4].try_into().expect("four bytes");
            usize::try_from(i32::from_le_bytes(word)).ok()
        };
        match word(0)? {
            length @ 0..=12 => Some(View::Inline(&view[4..4 + length])),
            length => Some(View::Elsewhere {
                buffer: word(8)?,
                at: word(12)?,
                length,
            }),
        }
    })
}

/// The strings of views, concatenated. Each buffer has the bytes from some offset on.
pub(crate) fn viewed(raw: &[u8], buffers: &[(&[u8], usize)]) -> Option<Items> {
    let (mut starts, mut bytes) = (vec![0], Vec::new());
    for view in views(raw) {
        match view? {
            View::Inline(text) => bytes.extend_from_slice(text),
            View::Elsewhere { buffer, at, length } => {
                let (there, from) = buffers.get(buffer)?;
                let at = at.checked_sub(*from)?;
                bytes.extend_from_slice(there.get(at..at.checked_add(length)?)?);
            }
        }
        starts.push(bytes.len());
    }
    Some(Items::Variable(starts, Buffer::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_the_nearest_numbers() {
        assert_eq!(decimal(&125i32.to_le_bytes(), 2), 1.25);
        assert_eq!(decimal(&(-250i64).to_le_bytes(), 2), -2.5);
        assert_eq!(decimal(&1i128.to_le_bytes(), 1), 0.1);
        assert_eq!(decimal(&3i32.to_le_bytes(), -2), 300.0);
        let large = 123_456_789_012_345_678_901_234_567_890_i128;
        assert_eq!(
            decimal(&large.to_le_bytes(), 10),
            12_345_678_901_234_567_890.123_456_789_0
        );
        assert_eq!(decimal(&i256::MIN.to_le_bytes(), 0), -5.78960446186581e76);
    }
}
