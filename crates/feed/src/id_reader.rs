//! Records that are read by their ids on the thread that makes samples of them.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use pelton_fetch::{FetchError, RecordReader};
use pelton_format::{Dataset, RowTable, Rows};

use crate::building::Building;
use crate::in_place_reads::InPlaceReads;
use crate::options::BadExamples;
use crate::shared::Shared;

/// Reads records, call after call in the same memory.
pub(crate) struct IdReader {
    reader: RecordReader,
    rows: Rows,
}

/// The rows read, and for each requested id, in ascending order, its row or its error.
pub(crate) struct RowsById {
    pub rows: RowTable,
    ids: Vec<u64>,
    of_ids: Vec<Result<u32, String>>,
}

impl IdReader {
    pub fn new(dataset: &Dataset, reader: RecordReader) -> IdReader {
        IdReader {
            reader,
            rows: Rows::new(dataset.layout()),
        }
    }

    /// Reads the records `ids`, each once. A bad record is an error of the call, or, with `goes_on`, of that
    /// record only.
    pub fn find(
        &mut self,
        dataset: &Dataset,
        mut ids: Vec<u64>,
        goes_on: bool,
    ) -> Result<RowsById, FetchError> {
        ids.sort_unstable();
        ids.dedup();
        let mut rows = std::mem::replace(&mut self.rows, Rows::new(dataset.layout()));
        let mut of_ids = vec![Ok(0); ids.len()];
        let mut of_rows = Vec::with_capacity(ids.len());
        self.reader.read(dataset, &ids, goes_on, |i, bytes| {
            let decoded = bytes.and_then(|bytes| Ok(dataset.decode(ids[i], bytes, &mut rows)?));
            of_ids[i] = match decoded {
                Ok(()) => {
                    of_rows.push(ids[i]);
                    Ok(rows.len() as u32 - 1)
                }
                Err(error) if goes_on => Err(error.to_string()),
                Err(error) => return Err(error),
            };
            Ok(())
        })?;
        Ok(RowsById {
            rows: RowTable::from_rows(rows, of_rows),
            ids,
            of_ids,
        })
    }

    /// Reads the records of a part of a batch; `None` if the batch fails for one.
    pub fn of_part(
        &mut self,
        shared: &Shared,
        reads: &InPlaceReads,
        building: &Building,
        examples: &Range<usize>,
    ) -> Option<RowsById> {
        let _loading = reads.counters.loading();
        reads.records.fetch_add(examples.len() as u64, Relaxed);
        let goes_on = shared.options.bad_examples != BadExamples::Fail;
        let id_of = |example: usize| building.examples[example].id;
        let all = examples.clone().map(id_of).collect();
        let error = match self.find(&reads.dataset, all, goes_on) {
            Ok(found) => return Some(found),
            Err(error) => error,
        };
        // The first in the order of the batch is the one to name.
        let first = examples.clone().find_map(|example| {
            let alone = self.find(&reads.dataset, vec![id_of(example)], false);
            alone.err().map(|error| (example, error))
        });
        let (example, error) = first.unwrap_or((examples.start, error));
        building.fail(example, error.into());
        None
    }

    /// Takes rows back to reuse their memory in the next call.
    pub fn give_back(&mut self, rows: RowTable) {
        if let Some(mut rows) = rows.into_segments().and_then(|mut rows| rows.pop()) {
            rows.clear();
            self.rows = rows;
        }
    }
}

impl RowsById {
    /// The row of a requested record, or its error: file, position and reason in one sentence.
    pub fn row_of(&self, id: u64) -> &Result<u32, String> {
        let at = self.ids.binary_search(&id).expect("it was asked for");
        &self.of_ids[at]
    }
}
