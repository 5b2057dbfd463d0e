//! Reads all records of a table in memory, to find bytes that the readers cannot handle.

use std::sync::Arc;

use pelton_storage::MemoryStorage;

use crate::columns::arrow::ArrowSchema;
use crate::columns::column::ColumnKind;
use crate::columns::parquet::{self, ParquetTable};
use crate::columns::record::RecordLayout;
use crate::columns::table::{Table, TableFile};
use crate::columns::values::Values;

/// Opens a file in memory and reads all records of its columns; returns how many, or `None` if one is bad. Groups of
/// very many records are skipped.
pub(crate) fn read_all(bytes: &[u8]) -> Option<u64> {
    const MOST: u64 = 1 << 16;
    let is_parquet = bytes.starts_with(parquet::MAGIC);
    let file = TableFile::new(Arc::new(MemoryStorage::new(bytes.to_vec()))).ok()?;
    let table: Box<dyn Table> = if is_parquet {
        let table = ParquetTable::open(file).ok()?;
        let columns = table.leaves().into_iter().flatten().collect();
        Box::new(table.choose(columns))
    } else {
        let schema = ArrowSchema::open(file).ok()?;
        let columns = schema.leaves().into_iter().flatten().collect();
        Box::new(schema.read(columns, &|| false).ok()?)
    };
    let layout = RecordLayout::new(table.columns().to_vec())?;
    let all: Vec<usize> = (0..table.columns().len()).collect();
    let (mut records, mut bytes) = (0, Vec::new());
    for group in table
        .groups()
        .windows(2)
        .filter(|group| group[1] - group[0] <= MOST)
    {
        let mut add = |values: &[Values], count: usize| {
            records += count as u64;
            bytes.clear();
            layout.encode(values, count, &mut bytes)
        };
        table.read(&all, group[0]..group[1], &mut add).ok()?;
        for column in all
            .iter()
            .filter(|i| table.columns()[**i].kind == ColumnKind::Bytes)
        {
            let mut lengths = 0;
            table
                .lengths(*column, group[0]..group[1], &mut |_| lengths += 1)
                .ok()?;
            assert_eq!(lengths, group[1] - group[0]);
        }
    }
    Some(records)
}
