//! Decoded rows: [`Rows`] is a segment that one decoder fills; a batch is a [`RowTable`], an ordered list of rows
//! over shared segments.
//!
//! Decoding appends rows to segments in the order of arrival (usually file order); the table then lists them in the
//! order of the plan. So a row is copied once, from the read buffer to its segment, in any order. A contiguous batch
//! was rejected for sparse rows: their length is known only after decoding, so it needs a second copy.

pub(crate) mod feature_type;
pub(crate) mod fields;
pub(crate) mod scale;

use std::cell::RefCell;
use std::sync::Arc;

use pelton_batch::{DType, FieldSpec, FieldSpecs};

use crate::record::error::Fault;
use crate::record::rows::fields::{FieldWriter, RecordFields};
use crate::record::rows::scale::Scale;

/// Whether rows hold every feature, only the non-zero ones, or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `width` values a row.
    Dense {
        /// Features a row.
        width: usize,
    },
    /// Ascending feature indices (from 0) with their values.
    Sparse,
    /// A string of bytes a row: an image, a line of text, a group of members.
    /// [`Dataset::contents`](crate::Dataset::contents) says which.
    Bytes,
}

/// One row, borrowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Row<'a> {
    /// Every feature in order.
    Dense(&'a [f32]),
    /// Non-zero features: strictly ascending `indices` from 0, and a value each.
    Sparse {
        /// Feature indices, strictly ascending from 0.
        indices: &'a [u32],
        /// Values, one an index.
        values: &'a [f32],
    },
    /// A string of bytes.
    Bytes(&'a [u8]),
}

/// The field of a record's labels, if it may have several.
pub const LABELS_FIELD: &str = "labels";

impl Row<'_> {
    /// The fields of a sparse row in a batch: feature indices and their values.
    pub const SPARSE_FIELDS: [&'static str; 2] = ["indices", "values"];

    /// Their types.
    pub(crate) fn sparse_fields() -> FieldSpecs {
        let [indices, values] = Row::SPARSE_FIELDS;
        let of = |name, dtype| FieldSpec::new(name, dtype, &[None]);
        FieldSpecs(vec![of(indices, DType::I64), of(values, DType::F32)])
    }
}

/// A segment of decoded rows of one layout. A label is an index into the data set's label list.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    layout: Layout,
    labels: Vec<u32>,
    values: Vec<f32>,
    indices: Vec<u32>,
    ends: Vec<u32>,
    bytes: Vec<u8>,
    /// End of each row of bytes: a segment of images may pass 4 GiB.
    byte_ends: Vec<u64>,
}

impl Rows {
    /// An empty segment.
    pub fn new(layout: Layout) -> Rows {
        Rows {
            layout,
            labels: Vec::new(),
            values: Vec::new(),
            indices: Vec::new(),
            ends: Vec::new(),
            bytes: Vec::new(),
            byte_ends: Vec::new(),
        }
    }

    /// Reserves room for exactly `rows` rows with `values` values (or bytes) together, in addition to those present:
    /// without it a segment may take twice the memory of its rows.
    pub fn reserve(&mut self, rows: usize, values: usize) {
        self.labels.reserve_exact(rows);
        match self.layout {
            Layout::Dense { .. } => self.values.reserve_exact(values),
            Layout::Sparse => {
                self.values.reserve_exact(values);
                self.indices.reserve_exact(values);
                self.ends.reserve_exact(rows);
            }
            Layout::Bytes => {
                self.bytes.reserve_exact(values);
                self.byte_ends.reserve_exact(rows);
            }
        }
    }

    /// Bytes that `rows` rows with `values` values (or bytes) together take.
    pub fn bytes_for(&self, rows: usize, values: usize) -> usize {
        match self.layout {
            Layout::Dense { .. } => 4 * (rows + values),
            Layout::Sparse => 8 * (rows + values),
            Layout::Bytes => 12 * rows + values,
        }
    }

    /// The layout of every row.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The stored values of every row, row after row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The feature indices next to [`Rows::values`]; empty for dense rows.
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// The range of the values of row `i` in [`Rows::values`], or of its bytes in [`Rows::bytes`]; panics when `i` is
    /// not below [`Rows::len`].
    #[inline]
    pub fn span(&self, i: usize) -> std::ops::Range<usize> {
        match self.layout {
            Layout::Dense { width } => {
                assert!(i < self.len());
                i * width..(i + 1) * width
            }
            Layout::Sparse => {
                let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
                start..self.ends[i] as usize
            }
            Layout::Bytes => {
                let start = if i == 0 { 0 } else { self.byte_ends[i - 1] };
                start as usize..self.byte_ends[i] as usize
            }
        }
    }

    /// The bytes of every row, row after row; empty for rows of features.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of stored values over all rows; of rows of bytes the number of bytes.
    pub fn stored_values(&self) -> usize {
        self.values.len() + self.bytes.len()
    }

    /// Bytes reserved on the heap.
    pub fn heap_bytes(&self) -> usize {
        let words = self.labels.capacity()
            + self.values.capacity()
            + self.indices.capacity()
            + self.ends.capacity();
        4 * words + self.bytes.capacity() + 8 * self.byte_ends.capacity()
    }

    /// Removes every row and keeps the memory.
    pub fn clear(&mut self) {
        self.labels.clear();
        self.values.clear();
        self.indices.clear();
        self.ends.clear();
        self.bytes.clear();
        self.byte_ends.clear();
    }

    /// Row `i`; panics when `i` is not below [`Rows::len`].
    #[inline]
    pub fn row(&self, i: usize) -> Row<'_> {
        match self.layout {
            Layout::Dense { width } => Row::Dense(&self.values[i * width..(i + 1) * width]),
            Layout::Sparse => {
                let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
                let end = self.ends[i] as usize;
                Row::Sparse {
                    indices: &self.indices[start..end],
                    values: &self.values[start..end],
                }
            }
            Layout::Bytes => Row::Bytes(&self.bytes[self.span(i)]),
        }
    }

    /// Label of row `i`, an index into the data set's label list.
    #[inline]
    pub fn label(&self, i: usize) -> u32 {
        self.labels[i]
    }

    /// Appends a dense row; panics unless the layout is dense and the width matches.
    pub fn push_dense(&mut self, label: u32, row: &[f32]) {
        assert_eq!(self.layout, Layout::Dense { width: row.len() });
        self.values.extend_from_slice(row);
        self.labels.push(label);
    }

    /// Appends a sparse row; panics unless the layout is sparse and both slices have the same length.
    pub fn push_sparse(&mut self, label: u32, indices: &[u32], values: &[f32]) {
        assert_eq!(self.layout, Layout::Sparse);
        assert_eq!(indices.len(), values.len());
        self.indices.extend_from_slice(indices);
        self.values.extend_from_slice(values);
        self.finish_sparse(label);
    }

    /// Appends a row of bytes; panics unless the layout is bytes.
    pub fn push_bytes(&mut self, label: u32, bytes: &[u8]) {
        assert_eq!(self.layout, Layout::Bytes);
        self.bytes.extend_from_slice(bytes);
        self.byte_ends.push(self.bytes.len() as u64);
        self.labels.push(label);
    }

    /// Appends a copy of a row of the same layout.
    pub fn push(&mut self, label: u32, row: Row<'_>) {
        match row {
            Row::Dense(values) => self.push_dense(label, values),
            Row::Sparse { indices, values } => self.push_sparse(label, indices, values),
            Row::Bytes(bytes) => self.push_bytes(label, bytes),
        }
    }

    /// Appends a row; `write` fills it within the value array (dense layout): `write` gets `width` zeros to fill. On an
    /// error the segment is as before.
    pub fn push_dense_with<E>(
        &mut self,
        write: impl FnOnce(&mut [f32]) -> Result<u32, E>,
    ) -> Result<(), E> {
        self.push_with(|row| write(row.dense()))
    }

    /// Appends a row: `write` pushes its entries onto the index and value arrays (sparse layout). It must push as many
    /// indices as values and leave earlier entries alone. On an error the segment is as before.
    pub fn push_sparse_with<E>(
        &mut self,
        write: impl FnOnce(&mut Vec<u32>, &mut Vec<f32>) -> Result<u32, E>,
    ) -> Result<(), E> {
        assert_eq!(self.layout, Layout::Sparse);
        self.push_with(|row| write(&mut row.rows.indices, &mut row.rows.values))
    }

    /// Appends the row that `write` writes, with the returned label. On an error the segment is as before.
    #[inline]
    pub(crate) fn push_with<E>(
        &mut self,
        write: impl FnOnce(&mut NewRow<'_>) -> Result<u32, E>,
    ) -> Result<(), E> {
        let (values, bytes) = (self.values.len(), self.bytes.len());
        let label = match write(&mut NewRow { rows: self }) {
            Ok(label) => label,
            Err(error) => {
                self.values.truncate(values);
                if self.layout == Layout::Sparse {
                    self.indices.truncate(values);
                }
                self.bytes.truncate(bytes);
                return Err(error);
            }
        };
        match self.layout {
            Layout::Dense { width } => {
                assert_eq!(self.values.len(), values + width);
                self.labels.push(label);
            }
            Layout::Sparse => {
                assert_eq!(self.indices.len(), self.values.len());
                self.finish_sparse(label);
            }
            Layout::Bytes => {
                self.byte_ends.push(self.bytes.len() as u64);
                self.labels.push(label);
            }
        }
        Ok(())
    }

    /// Lets `edit` change the indices and values of each row; the indices must stay ascending (sparse layout; nothing
    /// otherwise).
    pub fn edit_sparse(&mut self, mut edit: impl FnMut(&mut [u32], &mut [f32])) {
        let mut start = 0;
        for &end in &self.ends {
            let span = start..end as usize;
            start = span.end;
            edit(&mut self.indices[span.clone()], &mut self.values[span]);
        }
    }

    /// The same for the last row alone.
    pub(crate) fn edit_last(&mut self, edit: impl FnOnce(&mut [u32], &mut [f32])) {
        if let Some(&end) = self.ends.last() {
            let span = self.span(self.ends.len() - 1).start..end as usize;
            edit(&mut self.indices[span.clone()], &mut self.values[span]);
        }
    }

    /// Lets `edit` change the values of the last row; sparse ones come with their indices.
    pub(crate) fn edit_last_values(&mut self, edit: impl FnOnce(Option<&[u32]>, &mut [f32])) {
        let Some(last) = self.len().checked_sub(1) else {
            return;
        };
        let span = self.span(last);
        match self.layout {
            Layout::Dense { .. } => edit(None, &mut self.values[span]),
            Layout::Sparse => edit(Some(&self.indices[span.clone()]), &mut self.values[span]),
            Layout::Bytes => {}
        }
    }

    /// Scales the features of every row in place (nothing for rows of bytes).
    pub fn scale(&mut self, scale: &Scale) {
        for i in 0..self.len() {
            let span = self.span(i);
            match self.layout {
                Layout::Dense { .. } => scale.apply(None, &mut self.values[span]),
                Layout::Sparse => {
                    scale.apply(Some(&self.indices[span.clone()]), &mut self.values[span]);
                }
                Layout::Bytes => {}
            }
        }
    }

    fn finish_sparse(&mut self, label: u32) {
        let end = u32::try_from(self.values.len()).expect("a segment holds under 2^32 values");
        self.ends.push(end);
        self.labels.push(label);
    }
}

/// A row that is being written, in the layout of its segment.
pub(crate) struct NewRow<'a> {
    rows: &'a mut Rows,
}

thread_local! {
    static WIDE: RefCell<Vec<f64>> = RefCell::default();
    static ENTRIES: RefCell<(Vec<u32>, Vec<f32>)> = RefCell::default();
}

impl NewRow<'_> {
    /// The features, all zeros. Panics if rows are not dense.
    #[inline]
    pub(crate) fn dense(&mut self) -> &mut [f32] {
        let Layout::Dense { width } = self.rows.layout else {
            panic!("features of rows that are not dense");
        };
        let start = self.rows.values.len();
        self.rows.values.resize(start + width, 0.0);
        &mut self.rows.values[start..]
    }

    /// The entries that `write` pushes, with ascending indices: sparse, or with zeros between them if rows are dense.
    #[inline]
    pub(crate) fn entries<T>(
        &mut self,
        write: impl FnOnce(&mut Vec<u32>, &mut Vec<f32>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        if self.rows.layout == Layout::Sparse {
            return write(&mut self.rows.indices, &mut self.rows.values);
        }
        ENTRIES.with_borrow_mut(|(indices, values)| {
            indices.clear();
            values.clear();
            let written = write(indices, values)?;
            let row = self.dense();
            let features = row.len() as u64;
            for (&index, &value) in indices.iter().zip(values.iter()) {
                match row.get_mut(index as usize) {
                    Some(cell) => *cell = value,
                    None => return Err(Fault::new(format!("feature {index} (from 0) is beyond the {features} that the file had when it was opened; leave files alone while they are read"))),
                }
            }
            Ok(written)
        })
    }

    /// Features of 64 bits as the bytes of a field.
    pub(crate) fn wide<T>(
        &mut self,
        width: usize,
        write: impl FnOnce(&mut [f64]) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        WIDE.with_borrow_mut(|wide| {
            wide.clear();
            wide.resize(width, 0.0);
            let written = write(wide)?;
            let bytes = wide.iter().flat_map(|value| value.to_le_bytes());
            self.rows.bytes.extend(bytes);
            Ok(written)
        })
    }

    /// A string of bytes.
    #[inline]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.rows.bytes.extend_from_slice(bytes);
    }

    /// The fields of a schema.
    #[inline]
    pub(crate) fn fields<'f>(&'f mut self, fields: &'f RecordFields) -> FieldWriter<'f> {
        FieldWriter::new(&mut self.rows.bytes, fields)
    }
}

/// The position of a listed row: row `row` of segment `segment`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Index of the segment in the table.
    pub segment: u32,
    /// Row within the segment.
    pub row: u32,
}

/// An ordered list of rows over shared segments, each with its record id.
///
/// Cost: 16 bytes a row in addition to the segments. Cloning shares the segments.
#[derive(Clone, Debug, Default)]
pub struct RowTable {
    segments: Arc<Vec<Rows>>,
    slots: Vec<Slot>,
    ids: Vec<u64>,
}

impl RowTable {
    /// An empty table.
    pub fn new() -> RowTable {
        RowTable::default()
    }

    /// A table that lists `slots` of `segments` in order under the record ids `ids`; panics when
    /// the two lists differ in length.
    pub fn from_parts(segments: Vec<Rows>, slots: Vec<Slot>, ids: Vec<u64>) -> RowTable {
        assert_eq!(slots.len(), ids.len());
        debug_assert!(
            slots
                .iter()
                .all(|slot| (slot.row as usize) < segments[slot.segment as usize].len())
        );
        RowTable {
            segments: Arc::new(segments),
            slots,
            ids,
        }
    }

    /// A table that lists every row of one segment in order under the given ids.
    pub fn from_rows(rows: Rows, ids: Vec<u64>) -> RowTable {
        let slots = (0..rows.len() as u32)
            .map(|row| Slot { segment: 0, row })
            .collect();
        RowTable::from_parts(vec![rows], slots, ids)
    }

    /// The segments, if this table is their only owner, for reusing their memory.
    pub fn into_segments(self) -> Option<Vec<Rows>> {
        Arc::try_unwrap(self.segments).ok()
    }

    /// The segments to be changed, if this table is their only owner.
    pub fn segments_mut(&mut self) -> Option<&mut [Rows]> {
        Arc::get_mut(&mut self.segments).map(Vec::as_mut_slice)
    }

    /// Rows `range` of this table as a table over the same segments.
    pub fn slice(&self, range: std::ops::Range<usize>) -> RowTable {
        RowTable {
            segments: Arc::clone(&self.segments),
            slots: self.slots[range.clone()].to_vec(),
            ids: self.ids[range].to_vec(),
        }
    }

    /// The rows `rows` of this table, in that order, as a table over the same segments.
    pub fn select(&self, rows: &[u64]) -> RowTable {
        RowTable {
            segments: Arc::clone(&self.segments),
            slots: rows.iter().map(|&i| self.slots[i as usize]).collect(),
            ids: rows.iter().map(|&i| self.ids[i as usize]).collect(),
        }
    }

    /// Number of rows listed.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether no row is listed.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Row `i` in listed order.
    #[inline]
    pub fn row(&self, i: usize) -> Row<'_> {
        let slot = self.slots[i];
        self.segments[slot.segment as usize].row(slot.row as usize)
    }

    /// Label of row `i`, an index into the data set's label list.
    #[inline]
    pub fn label(&self, i: usize) -> u32 {
        let slot = self.slots[i];
        self.segments[slot.segment as usize].label(slot.row as usize)
    }

    /// Record id of row `i`.
    #[inline]
    pub fn id(&self, i: usize) -> u64 {
        self.ids[i]
    }

    /// Record ids in listed order.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// The position of each listed row.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The segments that contain the rows.
    pub fn segments(&self) -> &[Rows] {
        &self.segments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_bytes_take_what_was_reserved() {
        let mut rows = Rows::new(Layout::Bytes);
        rows.reserve(3, 10);
        let reserved = rows.heap_bytes();
        assert_eq!(reserved, rows.bytes_for(3, 10));
        rows.push_bytes(7, b"abc");
        rows.push(1, Row::Bytes(b""));
        rows.push_bytes(2, b"defghij");
        assert_eq!(rows.heap_bytes(), reserved);
        assert_eq!((rows.len(), rows.stored_values()), (3, 10));
        assert_eq!(rows.row(0), Row::Bytes(b"abc"));
        assert_eq!((rows.row(1), rows.label(1)), (Row::Bytes(b""), 1));
        assert_eq!(&rows.bytes()[rows.span(2)], b"defghij");
        let table = RowTable::from_rows(rows.clone(), vec![5, 6, 7]);
        assert_eq!(table.select(&[2]).row(0), Row::Bytes(b"defghij"));
        rows.clear();
        assert!(rows.is_empty() && rows.heap_bytes() == reserved);
    }
}
