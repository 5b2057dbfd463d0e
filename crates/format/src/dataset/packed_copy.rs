//! The rows of a data set as packed records in a scratch file, for rows that are read often and decode slowly.
//!
//! The copy is the same data set: ids, labels and fingerprint are unchanged, and it has the same bad records. It
//! needs no header and no tables, since it is never opened by name: the file is unnamed and deleted with the process.

use std::path::Path;
use std::sync::Arc;

use pelton_storage::{AlignedBuffer, ScratchFile, StorageError};

use crate::arrays::packed::rows::PackedDecoder;
use crate::arrays::packed::{
    IndexCoding, SPARSE_HEAD_BYTES, dense_record_bytes, encode_dense, encode_sparse,
};
use crate::dataset::Dataset;
use crate::dataset::data_file::DataFile;
use crate::locate::places::elias_fano::EliasFanoBuilder;
use crate::locate::places::{IN_FILE, Places};
use crate::locate::reach::Reach;
use crate::record::kind::FormatKind;
use crate::record::rows::{Layout, Row};

/// Bytes of a write: a multiple of every device's unit.
const WRITE_BYTES: usize = 1 << 20;

/// A copy being written.
#[derive(Debug)]
pub struct PackedCopy {
    dataset: Dataset,
    file: ScratchFile,
    written: u64,
    unwritten: AlignedBuffer,
    /// Id of the next record.
    next: u64,
    longest: u64,
    /// Offsets of the records of complete files, and of the file of `next`.
    places: Vec<Places>,
    starts: EliasFanoBuilder,
    record: Vec<u8>,
}

impl PackedCopy {
    /// Bytes that a copy takes; `None` if rows hold no features.
    pub fn bytes_for(dataset: &Dataset) -> Option<u64> {
        match dataset.layout() {
            Layout::Dense { width } => {
                dense_record_bytes(width as u64)?.checked_mul(dataset.records())
            }
            Layout::Sparse => {
                let heads = dataset.records().checked_mul(SPARSE_HEAD_BYTES as u64)?;
                dataset.nonzeros().checked_mul(8)?.checked_add(heads)
            }
            Layout::Bytes => None,
        }
    }

    /// Starts a copy of `dataset`, with unscaled rows, in the folder `folder`. Panics if rows have no features.
    ///
    /// Errors: too little space, or a device error.
    pub fn create(dataset: &Dataset, folder: &Path) -> Result<PackedCopy, StorageError> {
        let bytes = PackedCopy::bytes_for(dataset).expect("rows of features");
        Ok(PackedCopy {
            file: ScratchFile::create(folder, bytes)?,
            written: 0,
            unwritten: AlignedBuffer::with_capacity(4096, WRITE_BYTES),
            next: 0,
            longest: 0,
            places: Vec::new(),
            starts: EliasFanoBuilder::new(bytes / dataset.records().max(1)),
            record: Vec::new(),
            dataset: dataset.as_stored(),
        })
    }

    /// Appends the row of record `id`; ids ascend, and omitted ones are bad records. Panics unless `id` is above the
    /// last and within the data, and the row has the data's layout.
    pub fn push(&mut self, id: u64, class: u32, row: Row<'_>) -> Result<(), StorageError> {
        assert!(self.next <= id && id < self.dataset.records());
        self.leave_out(id)?;
        self.record.clear();
        match row {
            Row::Dense(values) => encode_dense(class, values, &mut self.record),
            Row::Sparse { indices, values } => {
                let coding = IndexCoding::Plain;
                encode_sparse(class, indices, values, coding, &mut self.record);
            }
            Row::Bytes(_) => panic!("rows of features alone are packed"),
        }
        self.append()
    }

    /// Writes zeros, with a wrong checksum, for the records before `id`.
    fn leave_out(&mut self, id: u64) -> Result<(), StorageError> {
        while self.next < id {
            let length = match self.dataset.layout() {
                Layout::Dense { width } => dense_record_bytes(width as u64).unwrap_or(0) as usize,
                _ => SPARSE_HEAD_BYTES,
            };
            self.record.clear();
            self.record.resize(length, 0);
            self.append()?;
        }
        Ok(())
    }

    fn append(&mut self) -> Result<(), StorageError> {
        let start = self.written + self.unwritten.len() as u64;
        let length = self.record.len() as u64;
        if self.dataset.layout() == Layout::Sparse {
            self.starts.push(start);
        }
        self.longest = self.longest.max(length);
        let record = std::mem::take(&mut self.record);
        let mut rest = record.as_slice();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(WRITE_BYTES - self.unwritten.len()));
            self.unwritten.extend_from_slice(now);
            rest = later;
            if self.unwritten.len() == WRITE_BYTES {
                self.write()?;
            }
        }
        self.record = record;
        self.next += 1;
        let file = &self.dataset.files()[self.places.len()];
        if self.next == file.first_id() + file.records() {
            let end = start + length;
            let mean = EliasFanoBuilder::new(end / self.next);
            let starts = std::mem::replace(&mut self.starts, mean);
            self.places.push(match self.dataset.layout() {
                Layout::Dense { .. } => Places::Fixed {
                    from: file.first_id() * length,
                    bytes: length,
                },
                _ => Places::listed(starts.finish(end), end, IN_FILE),
            });
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), StorageError> {
        self.file.write_at(self.written, &self.unwritten)?;
        self.written += self.unwritten.len() as u64;
        self.unwritten.clear();
        Ok(())
    }

    /// The data set, read from the copy.
    pub fn finish(mut self) -> Result<Dataset, StorageError> {
        self.leave_out(self.dataset.records())?;
        self.write()?;
        let layout = self.dataset.layout();
        let features = self.dataset.features();
        let storage: Arc<dyn pelton_storage::Storage> = Arc::new(self.file);
        let classes = self.dataset.labels().len();
        let files = self.dataset.files().iter().zip(self.places);
        let files = files.map(|(file, places)| DataFile {
            kind: FormatKind::new("prow", None),
            reach: Reach::InPlace,
            storage: Arc::clone(&storage),
            places,
            decoder: Arc::new(match layout {
                Layout::Dense { .. } => PackedDecoder::Dense,
                _ => PackedDecoder::Sparse {
                    coding: IndexCoding::Plain,
                    features,
                    keep: features,
                },
            }),
            // Records hold the data set's classes.
            labels: file.labels.of_copy(classes),
            ..file.clone()
        });
        let files = files.collect();
        Ok(self.dataset.copied(files, self.written, self.longest))
    }
}
