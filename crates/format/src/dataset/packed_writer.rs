//! Writes packed files: rows are streamed out in order, offsets and labels follow at the end.
//!
//! The file is written under a temporary name in the same folder and renamed when it is complete, so a packed file is
//! complete or absent. Memory: the Elias–Fano offsets, 2.5 bytes a record, and a buffer.

use std::collections::HashMap;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use pelton_storage::WholeFile;

use crate::arrays::packed::{
    END_MAGIC, HEADER_BYTES, Header, PackedShape, SPARSE_HEAD_BYTES, encode_dense, encode_sparse,
};
use crate::locate::places::elias_fano::EliasFanoBuilder;
use crate::record::error::FormatError;
use crate::record::labels::{ClassMap, MOST_LABELS, bits, too_many_labels};
use crate::record::rows::{Layout, Row};

/// Offsets that are buffered until their mean distance determines the packing of the rest.
const SAMPLED_OFFSETS: usize = 4096;

/// Summary of a written packed file.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedSummary {
    /// Number of records.
    pub records: u64,
    /// Entries of all records.
    pub nonzeros: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// Bytes of the records alone.
    pub record_bytes: u64,
    /// The labels in order of first appearance.
    pub labels: ClassMap,
}

/// Writes one packed file.
#[derive(Debug)]
pub struct PackedWriter {
    path: PathBuf,
    shape: PackedShape,
    out: BufWriter<WholeFile>,
    at: u64,
    records: u64,
    nonzeros: u64,
    longest: u64,
    labels: Vec<f64>,
    classes: HashMap<u64, u32>,
    first_offsets: Vec<u64>,
    offsets: Option<EliasFanoBuilder>,
    record: Vec<u8>,
}

impl PackedWriter {
    /// Starts a file at `path`, which replaces an existing file once it is complete.
    pub fn create(path: impl AsRef<Path>, shape: PackedShape) -> Result<PackedWriter, FormatError> {
        PackedWriter::new(path.as_ref(), shape, |path| WholeFile::create(path))
    }

    /// The same in a file that was started before.
    pub fn in_file(file: WholeFile, shape: PackedShape) -> Result<PackedWriter, FormatError> {
        let path = file.path().to_path_buf();
        PackedWriter::new(&path, shape, |_| Ok(file))
    }

    /// The same, for a file that other processes may be making too; the first one stays.
    pub fn create_shared(
        path: impl AsRef<Path>,
        shape: PackedShape,
    ) -> Result<PackedWriter, FormatError> {
        PackedWriter::new(path.as_ref(), shape, |path| WholeFile::create_shared(path))
    }

    fn new(
        path: &Path,
        shape: PackedShape,
        create: impl FnOnce(&Path) -> io::Result<WholeFile>,
    ) -> Result<PackedWriter, FormatError> {
        let path = path.to_path_buf();
        if let Layout::Dense { width } = shape.layout {
            assert_eq!(
                width as u64, shape.features,
                "dense rows have a value for every feature"
            );
        }
        assert!(shape.features <= 1 << 32, "indices are 32 bits");
        if shape.layout == Layout::Bytes {
            return Err(unpackable(
                &path,
                0,
                "it contains bytes, and packed rows contain features",
            ));
        }
        let file = create(&path).map_err(|e| FormatError::io(&path, "create it", e))?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        out.write_all(&[0; HEADER_BYTES as usize])
            .map_err(|e| FormatError::io(&path, "write it", e))?;
        Ok(PackedWriter {
            path,
            shape,
            out,
            at: HEADER_BYTES,
            records: 0,
            nonzeros: 0,
            longest: 0,
            labels: Vec::new(),
            classes: HashMap::new(),
            first_offsets: Vec::new(),
            offsets: None,
            record: Vec::new(),
        })
    }

    /// Appends a row under the label `label`.
    pub fn push(&mut self, label: f64, row: Row<'_>) -> Result<(), FormatError> {
        let unpackable = |what| unpackable(&self.path, self.records, what);
        self.record.clear();
        let (entries, values) = match (row, self.shape.layout) {
            (Row::Dense(values), Layout::Dense { width }) if values.len() == width => {
                (values.len(), values)
            }
            (Row::Sparse { indices, values }, Layout::Sparse) => {
                let ascend = indices.is_sorted_by(|a, b| a < b);
                let inside = indices
                    .last()
                    .is_none_or(|last| u64::from(*last) < self.shape.features);
                if !ascend || !inside || indices.len() != values.len() {
                    return Err(unpackable("its indices do not ascend within the features"));
                }
                (values.len(), values)
            }
            _ => return Err(unpackable("it is not of the file's layout and width")),
        };
        if !label.is_finite() || !values.iter().all(|value| value.is_finite()) {
            return Err(unpackable("it holds a value that is not finite"));
        }
        let class = self.class_of(label)?;
        match row {
            Row::Dense(values) => encode_dense(class, values, &mut self.record),
            Row::Bytes(_) => unreachable!("bytes have no layout here"),
            Row::Sparse { indices, values } => {
                self.note_offset();
                encode_sparse(
                    class,
                    indices,
                    values,
                    self.shape.index_coding,
                    &mut self.record,
                );
            }
        }
        self.out
            .write_all(&self.record)
            .map_err(|e| FormatError::io(&self.path, "write it", e))?;
        let length = self.record.len() as u64;
        self.at += length;
        self.longest = self.longest.max(length);
        self.records += 1;
        self.nonzeros += entries as u64;
        Ok(())
    }

    fn class_of(&mut self, label: f64) -> Result<u32, FormatError> {
        let next = self.labels.len() as u32;
        let class = *self.classes.entry(bits(label)).or_insert(next);
        if class == next {
            self.labels.push(label + 0.0);
            if self.labels.len() > MOST_LABELS {
                return Err(too_many_labels(MOST_LABELS).in_file(&self.path));
            }
        }
        Ok(class)
    }

    fn note_offset(&mut self) {
        match &mut self.offsets {
            Some(offsets) => offsets.push(self.at),
            None => {
                self.first_offsets.push(self.at);
                if self.first_offsets.len() == SAMPLED_OFFSETS {
                    self.offsets = Some(self.start_offsets());
                }
            }
        }
    }

    fn start_offsets(&mut self) -> EliasFanoBuilder {
        let bytes = self.at - HEADER_BYTES + SPARSE_HEAD_BYTES as u64;
        let mut builder = EliasFanoBuilder::new(bytes / (self.first_offsets.len() as u64).max(1));
        self.first_offsets
            .drain(..)
            .for_each(|offset| builder.push(offset));
        builder
    }

    /// Writes the tables and gives the file its name.
    pub fn finish(mut self) -> Result<PackedSummary, FormatError> {
        if self.records == 0 {
            return Err(FormatError::empty().in_file(&self.path));
        }
        let records_end = self.at;
        let mut tables = Vec::new();
        if self.shape.layout == Layout::Sparse {
            let builder = self.offsets.take().unwrap_or_else(|| self.start_offsets());
            let offsets = builder.finish(records_end);
            let parts = offsets.parts();
            tables.extend_from_slice(&u64::from(parts.low_bits).to_le_bytes());
            tables.extend_from_slice(&(parts.low.len() as u64).to_le_bytes());
            tables.extend_from_slice(&(parts.high.len() as u64).to_le_bytes());
            let words = parts.low.iter().chain(parts.high);
            tables.extend(words.flat_map(|word| word.to_le_bytes()));
            let checksum = crc32c::crc32c(&tables);
            tables.extend_from_slice(&checksum.to_le_bytes());
        }
        let offsets_bytes = tables.len() as u64;
        tables.extend(self.labels.iter().flat_map(|label| label.to_le_bytes()));
        let checksum = crc32c::crc32c(&tables[offsets_bytes as usize..]);
        tables.extend_from_slice(&checksum.to_le_bytes());
        let header = Header {
            shape: self.shape,
            records: self.records,
            nonzeros: self.nonzeros,
            file_bytes: records_end + tables.len() as u64 + crate::arrays::packed::TRAILER_BYTES,
            records_end,
            offsets_bytes,
            labels: self.labels.len() as u64,
            longest: self.longest,
        };
        let encoded = header.encode();
        tables.extend_from_slice(&encoded[124..]);
        tables.extend_from_slice(END_MAGIC);
        let path = self.path;
        complete(self.out, &tables, &encoded).map_err(|e| FormatError::io(&path, "write it", e))?;
        Ok(PackedSummary {
            records: header.records,
            nonzeros: header.nonzeros,
            file_bytes: header.file_bytes,
            record_bytes: records_end - HEADER_BYTES,
            labels: ClassMap::new(self.labels),
        })
    }
}

/// The error for a row that a packed file cannot hold.
#[cold]
fn unpackable(path: &Path, row: u64, what: &str) -> FormatError {
    FormatError::new(format!("row {row} cannot be packed: {what}")).in_file(path)
}

fn complete(mut out: BufWriter<WholeFile>, tables: &[u8], header: &[u8]) -> io::Result<()> {
    out.write_all(tables)?;
    let mut file = out.into_inner().map_err(|error| error.into_error())?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(header)?;
    file.publish()
}
