//! Cells that are carried through to another table, as text.

use pelton_storage::AlignedBuffer;

use crate::dataset::Dataset;
use crate::dataset::bad_record::bad_record;
use crate::dataset::data_file::DataFile;
use crate::locate::span::read_span;
use crate::record::cells::encoding::as_utf8;
use crate::record::cells::heading::excerpt_of_names;
use crate::record::cells::quoted::bare;
use crate::record::error::FormatError;
use crate::record::labels::stored::Label;

/// Reads some columns of the records of tables as text.
#[derive(Debug)]
pub struct KeptCells<'a> {
    dataset: &'a Dataset,
    /// For each file, the output position of each of its columns of features.
    places: Vec<Vec<Option<usize>>>,
    /// The output position of the label.
    label: Option<usize>,
    columns: usize,
    buffer: AlignedBuffer,
}

impl<'a> KeptCells<'a> {
    /// The columns `names` of a data set, by the names of its header, or by position from 1.
    ///
    /// Errors: a file is not a table, or lacks one of them.
    pub fn new(dataset: &'a Dataset, names: &[String]) -> Result<KeptCells<'a>, FormatError> {
        let columns = dataset.columns();
        let label = columns.and_then(|columns| columns.label.as_ref());
        let label = names.iter().position(|name| Some(name) == label);
        let mut places = Vec::new();
        for file in dataset.files() {
            let cells = file.decoder.cells().ok_or_else(|| {
                let what = "has no columns to keep; give CSV, TSV, JSON Lines, or Parquet or Arrow of numbers and strings";
                FormatError::new(what).in_file(file.path())
            })?;
            let known = cells.names();
            let place = |name: &String| names.iter().position(|wanted| wanted == name);
            let missing = (names.iter().enumerate())
                .find(|(at, name)| Some(*at) != label && !known.contains(name));
            if let Some((_, missing)) = missing {
                let what = format!(
                    "has no column {missing:?} to keep; its columns are {}",
                    excerpt_of_names(known)
                );
                return Err(FormatError::new(what).in_file(file.path()));
            }
            places.push(known.iter().map(place).collect());
        }
        Ok(KeptCells {
            dataset,
            places,
            label,
            columns: names.len(),
            buffer: AlignedBuffer::with_capacity(4096, 0),
        })
    }

    /// Calls `take` with the cells of each of the records `ids`, in ascending order.
    ///
    /// Errors: a record cannot be read.
    pub fn read(
        &mut self,
        ids: &[u64],
        mut take: impl FnMut(u64, &[String]),
    ) -> Result<(), FormatError> {
        const BYTES: u64 = 1 << 20;
        let mut cells = vec![String::new(); self.columns];
        let mut rest = ids;
        while let Some(&first) = rest.first() {
            let (number, file) = self.dataset.file_of(first);
            let (from, _) = file.places.get(first - file.first_id);
            let is_near = |id: &u64| {
                let record = id.wrapping_sub(file.first_id);
                if record >= file.records {
                    return false;
                }
                let (at, length) = file.places.get(record);
                at == from || at >= from && at + length - from <= BYTES
            };
            let together = rest.iter().take_while(|id| is_near(id)).count().max(1);
            let (now, later) = rest.split_at(together);
            rest = later;
            let (last, length) = file.places.get(now[together - 1] - file.first_id);
            let span = read_span(&*file.storage, from, last + length - from, &mut self.buffer)
                .map_err(|error| FormatError::from(error).in_file(&file.path))?;
            for &id in now {
                let record = id - file.first_id;
                let (at, length) = file.places.get(record);
                let begin = span.start + (at - from) as usize;
                let bytes = &self.buffer[begin..begin + length as usize];
                record_cells(
                    file,
                    record,
                    bytes,
                    &self.places[number],
                    self.label,
                    &mut cells,
                )?;
                take(id, &cells);
            }
        }
        Ok(())
    }
}

fn record_cells(
    file: &DataFile,
    record: u64,
    bytes: &[u8],
    places: &[Option<usize>],
    label_at: Option<usize>,
    cells: &mut [String],
) -> Result<(), FormatError> {
    cells.iter_mut().for_each(String::clear);
    let table = file.decoder.cells().expect("it was checked");
    let label = table.read(record, bytes, &mut |column, cell| {
        if let Some(place) = places[column] {
            cells[place].push_str(&String::from_utf8_lossy(&cell.as_written()));
        }
        Ok(())
    });
    let label = label.map_err(|fault| bad_record(file, record, fault))?;
    if let Some(place) = label_at {
        match label {
            Label::Cell(text, ..) => {
                cells[place].push_str(&String::from_utf8_lossy(&as_utf8(bare(text))))
            }
            Label::Number(value) => cells[place].push_str(&value.to_string()),
            _ => {}
        }
    }
    Ok(())
}
