//! Parquet: row groups of compressed pages.
//!
//! The footer leads to a row: to its row group, and there to its pages, found by the offset index if there is one and
//! by their headers otherwise. Earlier pages are not decompressed.

use std::io::Read;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use arrow_array::{Array, RecordBatch};
use arrow_data::ArrayData;
use arrow_schema::DataType;
use bytes::{Buf, Bytes};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use parquet::file::reader::{ChunkReader, Length};
use pelton_storage::StorageError;

use crate::columns::column::{Column, ColumnKind, Leaf, leaves};
use crate::columns::table::{Table, TableFile, TakeValues, Wrong, group_of, guarded};
use crate::columns::values::Values;

/// First and last bytes.
pub(crate) const MAGIC: &[u8; 4] = b"PAR1";
/// Most records that are decoded together.
const MOST_TOGETHER: usize = 8192;
/// Bytes of values that are decoded together.
const BYTES_TOGETHER: u64 = 1 << 20;
/// Bytes of one read if more will be needed, but an unknown amount.
const READ_AHEAD: u64 = 16 << 10;

/// An open file.
#[derive(Debug)]
pub(crate) struct ParquetTable {
    file: TableFile,
    metadata: ArrowReaderMetadata,
    columns: Vec<Column>,
    /// First record of each group, and the number of records.
    firsts: Vec<u64>,
    /// Their indices in the file; groups without records are left out.
    numbers: Vec<usize>,
}

impl ParquetTable {
    /// Opens a file; no column is chosen yet.
    pub(crate) fn open(file: TableFile) -> Result<ParquetTable, Wrong> {
        let metadata = guarded(|| {
            let pages = PageIndexPolicy::Optional;
            let options = ArrowReaderOptions::new().with_offset_index_policy(pages);
            let source = Source::new(file.clone(), Vec::new());
            let loaded = ArrowReaderMetadata::load(&source, options);
            loaded.map_err(|error| source.wrong("its footer", &error))
        })?;
        let (firsts, numbers) = groups(metadata.metadata())?;
        Ok(ParquetTable {
            file,
            metadata,
            columns: Vec::new(),
            firsts,
            numbers,
        })
    }

    /// The columns there are.
    pub(crate) fn leaves(&self) -> Vec<Leaf> {
        leaves(self.metadata.schema().fields())
    }

    /// The table of these of them.
    pub(crate) fn choose(mut self, mut columns: Vec<Column>) -> ParquetTable {
        for column in &mut columns {
            column.nullable &= !has_all(self.metadata.metadata(), column);
        }
        self.columns = columns;
        self
    }

    /// The leaves of the schema that make up these columns.
    fn leaves_of(&self, columns: &[usize]) -> Vec<usize> {
        let descriptor = self.metadata.parquet_schema().columns().iter().enumerate();
        let wanted = descriptor.filter(|(_, leaf)| {
            let parts = leaf.path().parts();
            columns
                .iter()
                .any(|i| parts.starts_with(&self.columns[*i].path))
        });
        wanted.map(|(i, _)| i).collect()
    }

    /// The ranges to read of these leaves for some rows of a group: the pages that hold them if an index lists them.
    /// Without one, the whole column if all rows are needed, otherwise nothing.
    fn ranges(&self, group: usize, leaves: &[usize], rows: &Range<usize>) -> Vec<(u64, u64)> {
        let metadata = self.metadata.metadata();
        let whole = metadata.row_group(group);
        let is_whole = rows.len() as i64 == whole.num_rows();
        let pages = metadata.page_index();
        let range = |leaf: &usize| {
            let (start, length) = whole.column(*leaf).byte_range();
            let index = pages.and_then(|pages| pages.page_locations(group, *leaf));
            let Some(index) = index.filter(|index| !is_whole && !index.is_empty()) else {
                return is_whole.then_some(vec![(start, length)]);
            };
            let first = |row: usize| {
                let next = index.partition_point(|page| page.first_row_index <= row as i64);
                next.saturating_sub(1)
            };
            let (from, to) = (&index[first(rows.start)], &index[first(rows.end - 1)]);
            let end = to.offset.checked_add(i64::from(to.compressed_page_size))?;
            let from = u64::try_from(from.offset).ok()?;
            let length = u64::try_from(end).ok()?.checked_sub(from)?;
            // The dictionary precedes the first page.
            let dictionary = u64::try_from(index[0].offset).ok()?.checked_sub(start)?;
            Some(vec![(start, dictionary), (from, length)])
        };
        let ranges: Option<Vec<Vec<(u64, u64)>>> = leaves.iter().map(range).collect();
        let ranges = ranges.unwrap_or_default().concat();
        ranges
            .into_iter()
            .filter(|(_, length)| *length > 0)
            .collect()
    }

    fn decode(
        &self,
        columns: &[usize],
        group: usize,
        rows: Range<usize>,
        take: &mut TakeValues<'_>,
    ) -> Result<(), Wrong> {
        let number = self.numbers[group];
        let leaves = self.leaves_of(columns);
        let whole = self.metadata.metadata().row_group(number);
        let bytes: i64 = leaves
            .iter()
            .map(|leaf| whole.column(*leaf).uncompressed_size().max(0))
            .sum();
        let mean = bytes as u64 / (whole.num_rows() as u64).max(1) + 1;
        let together = (BYTES_TOGETHER / mean).clamp(1, MOST_TOGETHER as u64) as usize;

        let ranges = self.ranges(number, &leaves, &rows);
        let parts = self.file.read(&ranges)?.into_iter().zip(&ranges);
        let parts = parts.map(|(bytes, (offset, _))| (*offset, Bytes::from(bytes)));
        let source = Source::new(self.file.clone(), parts.collect());
        let what = format!("row group {number}");
        let mask = ProjectionMask::leaves(self.metadata.parquet_schema(), leaves);
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(
            source.clone(),
            self.metadata.clone(),
        )
        .with_projection(mask)
        .with_row_groups(vec![number])
        .with_batch_size(together.min(rows.len()));
        let builder = if rows.len() as i64 == whole.num_rows() {
            builder
        } else {
            builder.with_offset(rows.start).with_limit(rows.len())
        };
        let reader = builder
            .build()
            .map_err(|error| source.wrong(&what, &error))?;
        let mut decoded = 0;
        for batch in reader {
            let batch = batch.map_err(|error| source.wrong(&what, &error))?;
            let values = columns.iter().map(|i| {
                let column = &self.columns[*i];
                let values = values_at(&batch, column);
                values
                    .ok_or_else(|| format!("{what}: column {} does not hold together", column.name))
            });
            take(
                &values.collect::<Result<Vec<Values>, String>>()?,
                batch.num_rows(),
            )?;
            decoded += batch.num_rows();
        }
        if decoded == rows.len() {
            Ok(())
        } else {
            Err(Wrong::Damaged(format!(
                "{what} has {decoded} of {} records",
                rows.len()
            )))
        }
    }
}

impl Table for ParquetTable {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn groups(&self) -> &[u64] {
        &self.firsts
    }

    fn divides(&self) -> bool {
        true
    }

    fn read(
        &self,
        columns: &[usize],
        rows: Range<u64>,
        take: &mut TakeValues<'_>,
    ) -> Result<(), Wrong> {
        let group = group_of(&self.firsts, rows.start);
        let first = self.firsts[group];
        let rows = (rows.start - first) as usize..(rows.end - first) as usize;
        guarded(|| self.decode(columns, group, rows, take))
    }

    fn group_bytes(&self) -> f64 {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let leaves = self.leaves_of(&all);
        let groups = self.numbers.iter().map(|number| {
            let group = self.metadata.metadata().row_group(*number);
            let bytes = leaves
                .iter()
                .map(|leaf| group.column(*leaf).compressed_size().max(0));
            bytes.map(|bytes| bytes as f64).sum::<f64>()
        });
        groups.sum::<f64>() / self.numbers.len() as f64
    }
}

/// The first record of each non-empty row group and the number of all, and the indices of these groups.
fn groups(metadata: &ParquetMetaData) -> Result<(Vec<u64>, Vec<usize>), Wrong> {
    let (mut firsts, mut numbers) = (vec![0], Vec::new());
    let mut records = 0u64;
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let rows = u64::try_from(group.num_rows()).ok();
        let sum = rows.and_then(|rows| records.checked_add(rows));
        records = sum.filter(|sum| *sum <= i64::MAX as u64).ok_or_else(|| {
            Wrong::Damaged(format!("row group {number} has {} rows", group.num_rows()))
        })?;
        if group.num_rows() > 0 {
            firsts.push(records);
            numbers.push(number);
        }
    }
    Ok((firsts, numbers))
}

/// Whether the statistics of all row groups say that this column has no nulls.
fn has_all(metadata: &ParquetMetaData, column: &Column) -> bool {
    metadata.row_groups().iter().all(|group| {
        let chunks = group.columns().iter();
        let mut chunks =
            chunks.filter(|chunk| chunk.column_path().parts().starts_with(&column.path));
        chunks.all(|chunk| {
            let nulls = chunk.statistics().and_then(|s| s.null_count_opt());
            nulls == Some(0)
        })
    })
}

/// The values of a column, which may be within structs.
pub(crate) fn values_at(batch: &RecordBatch, column: &Column) -> Option<Values> {
    let (outer, inner) = column.path.split_first()?;
    let data = batch.column_by_name(outer)?.to_data();
    within(&data, inner, &column.kind)
}

fn within(data: &ArrayData, path: &[String], kind: &ColumnKind) -> Option<Values> {
    let Some((name, path)) = path.split_first() else {
        return Values::of_array(data, 0, data.len(), kind);
    };
    let DataType::Struct(fields) = data.data_type() else {
        return None;
    };
    let place = fields.iter().position(|field| field.name() == name)?;
    let values = within(data.child_data().get(place)?, path, kind)?;
    let nulls = arrow_buffer::NullBuffer::union(data.nulls(), values.nulls.as_ref());
    Some(Values { nulls, ..values })
}

/// The file as the library reads it: parts that were read before, and the rest on demand.
#[derive(Clone)]
struct Source {
    file: TableFile,
    parts: Arc<[(u64, Bytes)]>,
    /// Why a read failed: the library keeps only the text of an error.
    failure: Arc<Mutex<Option<StorageError>>>,
}

impl Source {
    fn new(file: TableFile, parts: Vec<(u64, Bytes)>) -> Source {
        Source {
            file,
            parts: parts.into(),
            failure: Arc::default(),
        }
    }

    /// The cause of `error`, which the library returned for a part of the file: the storage or damage.
    fn wrong(&self, what: &str, error: &dyn std::error::Error) -> Wrong {
        let failure = self
            .failure
            .lock()
            .ok()
            .and_then(|mut failure| failure.take());
        match failure {
            Some(failure) => Wrong::Storage(failure),
            None => Wrong::Damaged(format!("{what} cannot be decoded ({error})")),
        }
    }

    /// `length` bytes at most from `start` on, if they were read before.
    fn part(&self, start: u64, length: u64) -> Option<Bytes> {
        self.parts.iter().find_map(|(offset, bytes)| {
            let skip = start.checked_sub(*offset)?;
            let there = (bytes.len() as u64)
                .checked_sub(skip)
                .filter(|there| *there > 0)?;
            Some(bytes.slice(skip as usize..(skip + there.min(length)) as usize))
        })
    }

    fn read(&self, start: u64, length: u64) -> ParquetResult<Bytes> {
        match self.file.read(&[(start, length)]) {
            Ok(mut read) => Ok(Bytes::from(read.remove(0))),
            Err(Wrong::Damaged(what)) => Err(ParquetError::EOF(what)),
            Err(Wrong::Storage(error)) => {
                let text = error.to_string();
                *self.failure.lock().expect("no holder of this lock panics") = Some(error);
                Err(ParquetError::General(text))
            }
        }
    }
}

impl Length for Source {
    fn len(&self) -> u64 {
        self.file.size
    }
}

impl ChunkReader for Source {
    type T = Ahead;

    fn get_read(&self, start: u64) -> ParquetResult<Ahead> {
        Ok(Ahead {
            source: self.clone(),
            at: start,
            held: Bytes::new(),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        match self.part(start, length as u64) {
            Some(part) if part.len() == length => Ok(part),
            _ => self.read(start, length as u64),
        }
    }
}

/// Reads from an offset on.
struct Ahead {
    source: Source,
    at: u64,
    held: Bytes,
}

impl Read for Ahead {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.held.is_empty() {
            let left = self
                .source
                .file
                .size
                .saturating_sub(self.at)
                .min(READ_AHEAD);
            if left == 0 {
                return Ok(0);
            }
            self.held = match self.source.part(self.at, left) {
                Some(part) => part,
                None => self
                    .source
                    .read(self.at, left)
                    .map_err(std::io::Error::other)?,
            };
            self.at += self.held.len() as u64;
        }
        let length = out.len().min(self.held.len());
        self.held.copy_to_slice(&mut out[..length]);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use parquet::data_type::Int32Type;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use pelton_storage::MemoryStorage;

    use super::*;
    use crate::columns::values::Items;

    /// Old writers repeat a column without saying that it is a list.
    #[test]
    fn columns_that_are_repeated_are_lists() {
        let message = "message m { repeated int32 x; required int32 y; required group g { repeated int32 z; } }";
        let schema = Arc::new(parse_message_type(message).unwrap());
        let mut bytes = Vec::new();
        let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        for is_list in [true, false, true] {
            let mut column = group.next_column().unwrap().unwrap();
            let typed = column.typed::<Int32Type>();
            let written = if is_list {
                typed.write_batch(&[1, 2, 3], Some(&[1, 1, 0, 1]), Some(&[0, 1, 0, 0]))
            } else {
                typed.write_batch(&[4, 5, 6], None, None)
            };
            written.unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
        let file = TableFile::new(Arc::new(MemoryStorage::new(bytes))).unwrap();
        let table = ParquetTable::open(file).unwrap();
        let columns: Vec<Column> = table.leaves().into_iter().flatten().collect();
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["x", "y", "g.z"]);
        let table = table.choose(columns);
        for (column, from) in [(0, 0), (2, 0), (0, 1), (2, 2)] {
            let mut found = Vec::new();
            let mut take = |values: &[Values], _: usize| {
                if let Items::Variable(starts, _) = &values[0].items {
                    found.extend(starts.windows(2).map(|run| (run[1] - run[0]) / 4));
                }
                Ok(())
            };
            table.read(&[column], from..3, &mut take).unwrap();
            assert_eq!(found, [2, 0, 1][from as usize..], "{column}");
        }
    }
}
