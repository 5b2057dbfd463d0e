//! Packed rows (`.prow`): Pelton's binary format, little-endian throughout.
//!
//! ```text
//! header   128 bytes: magic, version, flags, features, records, nonzeros, file length, end of
//!          records, length of the offsets, number of labels, longest record, zeros, CRC32C
//! records  CRC32C u32 | label u32 | values f32 × features                         dense
//!          CRC32C u32 | label u32 | n u32 | indices u32 × n | values f32 × n      sparse
//!          CRC32C u32 | label u32 | n u32 | gaps varint × n | values f32 × n      sparse, varint
//! offsets  (sparse) Elias–Fano list of record starts, CRC32C
//! labels   value f64 × labels, CRC32C
//! trailer  the header's CRC32C again, "prow-end"
//! ```
//!
//! A label is an index into the list of labels. A dense row of 28 features takes 120 bytes and needs
//! no table. Every byte of the file is covered by a checksum, and the header states the length, so
//! any flipped or missing byte is found: in header and tables when the file is opened, in a record
//! when it is read. A checksum over blocks of records would cost less space, but random reads would
//! have to read whole blocks to check it.
//!
//! Varints are LEB128 of the gap to the index before, less 1; they save space if features are dense or few, and cost
//! decoding time.

pub(crate) mod reader;
pub(crate) mod rows;

use crate::record::error::{Fault, FormatError};
use crate::record::rows::Layout;

/// First bytes of a packed file; like PNG's they show text-mode transfers.
pub(crate) const MAGIC: &[u8; 8] = b"\x89prow\r\n\x1a";
/// Last bytes of a packed file.
pub(crate) const END_MAGIC: &[u8; 8] = b"prow-end";
pub(crate) const VERSION: u32 = 1;
pub(crate) const HEADER_BYTES: u64 = 128;
pub(crate) const TRAILER_BYTES: u64 = 12;
/// Bytes of the offsets section before its arrays.
pub(crate) const OFFSETS_HEAD_BYTES: u64 = 24;
/// Bytes of a dense record before its values.
const DENSE_HEAD_BYTES: usize = 8;
/// Bytes of a sparse record before its entries.
pub(crate) const SPARSE_HEAD_BYTES: usize = 12;

const SPARSE: u32 = 1;
const VARINT: u32 = 2;

/// How the indices of sparse rows are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexCoding {
    /// 4 bytes an index; the fastest to read.
    #[default]
    Plain,
    /// Gaps between indices as variable-length integers; 1 to 5 bytes an index.
    VarintDelta,
}

/// The kind of rows in a packed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedShape {
    /// Dense or sparse rows.
    pub layout: Layout,
    /// Number of features; the width for dense rows.
    pub features: u64,
    /// How sparse indices are stored.
    pub index_coding: IndexCoding,
}

/// The fields of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) shape: PackedShape,
    pub(crate) records: u64,
    pub(crate) nonzeros: u64,
    pub(crate) file_bytes: u64,
    pub(crate) records_end: u64,
    pub(crate) offsets_bytes: u64,
    pub(crate) labels: u64,
    pub(crate) longest: u64,
}

/// The error for a packed file with inconsistent parts.
#[cold]
pub(crate) fn damaged(offset: u64, what: &str) -> FormatError {
    FormatError::malformed(
        offset,
        format!("the file is damaged: {what}; pack it again from its source"),
    )
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES as usize] {
        let flags = match (self.shape.layout, self.shape.index_coding) {
            (Layout::Dense { .. }, _) => 0,
            (Layout::Sparse, IndexCoding::Plain) => SPARSE,
            (Layout::Sparse, IndexCoding::VarintDelta) => SPARSE | VARINT,
            (Layout::Bytes, _) => unreachable!("rows of bytes are refused before"),
        };
        let mut bytes = [0; HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&flags.to_le_bytes());
        let fields = [
            self.shape.features,
            self.records,
            self.nonzeros,
            self.file_bytes,
            self.records_end,
            self.offsets_bytes,
            self.labels,
            self.longest,
        ];
        for (place, field) in bytes[16..80].as_chunks_mut::<8>().0.iter_mut().zip(fields) {
            *place = field.to_le_bytes();
        }
        let checksum = crc32c::crc32c(&bytes[..124]);
        bytes[124..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The header of a file of `file_bytes` bytes, with every field checked against the others.
    pub(crate) fn decode(bytes: &[u8], file_bytes: u64) -> Result<Header, FormatError> {
        let damaged = |offset, what| Err(damaged(offset, what));
        let Some(bytes) = bytes.first_chunk::<{ HEADER_BYTES as usize }>() else {
            return damaged(bytes.len() as u64, "the file ends inside its header");
        };
        if !bytes.starts_with(MAGIC) {
            return damaged(0, "its first bytes are not those of a packed file");
        }
        if u32_at(bytes, 124) != crc32c::crc32c(&bytes[..124]) {
            return damaged(124, "the header's checksum does not fit");
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(FormatError::new(format!(
                "is packed in version {version}, and this program reads version {VERSION}; update it or pack again"
            )));
        }
        let features = u64_at(bytes, 16);
        if features > 1 << 32 {
            return damaged(16, "it states more than 2^32 features");
        }
        let (layout, index_coding) = match u32_at(bytes, 12) {
            0 => (
                Layout::Dense {
                    width: features as usize,
                },
                IndexCoding::Plain,
            ),
            SPARSE => (Layout::Sparse, IndexCoding::Plain),
            flags if flags == SPARSE | VARINT => (Layout::Sparse, IndexCoding::VarintDelta),
            _ => return damaged(12, "its flags are unknown"),
        };
        let header = Header {
            shape: PackedShape {
                layout,
                features,
                index_coding,
            },
            records: u64_at(bytes, 24),
            nonzeros: u64_at(bytes, 32),
            file_bytes: u64_at(bytes, 40),
            records_end: u64_at(bytes, 48),
            offsets_bytes: u64_at(bytes, 56),
            labels: u64_at(bytes, 64),
            longest: u64_at(bytes, 72),
        };
        if header.file_bytes != file_bytes {
            return damaged(
                file_bytes.min(header.file_bytes),
                "the file is shorter or longer than its header states",
            );
        }
        match header.inconsistency() {
            Some(what) => damaged(16, what),
            None => Ok(header),
        }
    }

    fn inconsistency(&self) -> Option<&'static str> {
        let sections = self
            .labels
            .checked_mul(8)
            .and_then(|labels| labels.checked_add(4 + TRAILER_BYTES))
            .and_then(|rest| rest.checked_add(self.offsets_bytes))
            .and_then(|rest| rest.checked_add(self.records_end));
        if sections != Some(self.file_bytes) || self.records_end < HEADER_BYTES {
            return Some("its sections do not add up to its length");
        }
        let record_bytes = self.records_end - HEADER_BYTES;
        match self.shape.layout {
            Layout::Dense { .. } => {
                let expected = self
                    .record_bytes()
                    .and_then(|one| one.checked_mul(self.records));
                if expected != Some(record_bytes) || self.offsets_bytes != 0 {
                    return Some("its records do not fill their section");
                }
            }
            Layout::Sparse | Layout::Bytes => {
                let least = self.records.checked_mul(SPARSE_HEAD_BYTES as u64);
                let entries = self.nonzeros.checked_mul(4);
                if least
                    .zip(entries)
                    .is_none_or(|(a, b)| a.saturating_add(b) > record_bytes)
                {
                    return Some("it states more records or entries than fit");
                }
                if self.offsets_bytes < OFFSETS_HEAD_BYTES + 4 {
                    return Some("it has no offsets");
                }
            }
        }
        (self.longest > record_bytes).then_some("its longest record is longer than all together")
    }

    /// Bytes of each dense record.
    pub(crate) fn record_bytes(&self) -> Option<u64> {
        dense_record_bytes(self.shape.features)
    }
}

/// Bytes of a dense record of `features` features.
pub(crate) fn dense_record_bytes(features: u64) -> Option<u64> {
    features
        .checked_mul(4)?
        .checked_add(DENSE_HEAD_BYTES as u64)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The body of a record once its checksum fits.
#[inline]
fn checked(record: &[u8], least: usize) -> Result<&[u8], Fault> {
    if record.len() < least {
        return Err(Fault::new(
            "the record is shorter than its head; the file is damaged: pack it again",
        ));
    }
    let found = u32_at(record, 0);
    let expected = crc32c::crc32c(&record[4..]);
    if found != expected {
        return Err(Fault::new(format!(
            "its checksum is {found:#010x}, but its bytes give {expected:#010x}; the file is damaged: pack it again"
        )));
    }
    Ok(&record[4..])
}

#[inline]
fn all_finite(values: &[f32]) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    !values.iter().fold(false, |bad, value| {
        bad | (value.to_bits() & EXPONENT == EXPONENT)
    })
}

const NOT_FINITE: Fault = Fault::fixed("a value is not finite; the file is damaged: pack it again");

/// Writes the values of a dense record to `row`, one a feature, and returns the class.
#[inline]
pub fn decode_packed_dense(record: &[u8], row: &mut [f32]) -> Result<u32, Fault> {
    let body = checked(record, DENSE_HEAD_BYTES)?;
    let (values, rest) = body[4..].as_chunks::<4>();
    if values.len() != row.len() || !rest.is_empty() {
        return Err(Fault::new(
            "the record is not as long as a row; the file is damaged: pack it again",
        ));
    }
    for (place, value) in row.iter_mut().zip(values) {
        *place = f32::from_le_bytes(*value);
    }
    if !all_finite(row) {
        return Err(NOT_FINITE);
    }
    Ok(u32_at(body, 0))
}

/// Appends the entries of a sparse record of a file of `features` features and returns the class. After a fault,
/// entries may have been appended.
pub fn decode_packed_sparse(
    record: &[u8],
    coding: IndexCoding,
    features: u64,
    indices: &mut Vec<u32>,
    values: &mut Vec<f32>,
) -> Result<u32, Fault> {
    let body = checked(record, SPARSE_HEAD_BYTES)?;
    let count = u32_at(body, 4) as usize;
    let entries = &body[8..];
    const TOO_SHORT: Fault = Fault::fixed(
        "the record is not as long as its entries; the file is damaged: pack it again",
    );
    let Some(index_bytes) = entries.len().checked_sub(4 * count) else {
        return Err(TOO_SHORT);
    };
    let (coded, stored_values) = entries.split_at(index_bytes);
    let first = indices.len();
    match coding {
        IndexCoding::Plain if index_bytes != 4 * count => return Err(TOO_SHORT),
        IndexCoding::Plain => {
            indices.extend(
                coded
                    .as_chunks::<4>()
                    .0
                    .iter()
                    .map(|index| u32::from_le_bytes(*index)),
            );
        }
        IndexCoding::VarintDelta => decode_varints(coded, count, indices)?,
    }
    let added = &indices[first..];
    let ascend = added
        .iter()
        .zip(added.iter().skip(1))
        .fold(true, |all, (a, b)| all & (a < b));
    if !ascend
        || added
            .last()
            .is_some_and(|last| u64::from(*last) >= features)
    {
        return Err(Fault::new(
            "feature indices do not ascend within the features; the file is damaged: pack it again",
        ));
    }
    let first = values.len();
    values.extend(
        stored_values
            .as_chunks::<4>()
            .0
            .iter()
            .map(|value| f32::from_le_bytes(*value)),
    );
    if !all_finite(&values[first..]) {
        return Err(NOT_FINITE);
    }
    Ok(u32_at(body, 0))
}

fn decode_varints(mut coded: &[u8], count: usize, indices: &mut Vec<u32>) -> Result<(), Fault> {
    const BAD: Fault =
        Fault::fixed("a feature index is not coded rightly; the file is damaged: pack it again");
    let mut next = 0u64;
    for _ in 0..count {
        let mut gap = 0u64;
        let mut shift = 0;
        loop {
            let (&byte, rest) = coded.split_first().ok_or(BAD)?;
            coded = rest;
            gap |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
            if shift > 28 {
                return Err(BAD);
            }
        }
        let index = next + gap;
        indices.push(u32::try_from(index).map_err(|_| BAD)?);
        next = index + 1;
    }
    if coded.is_empty() { Ok(()) } else { Err(BAD) }
}

/// Appends a dense record.
pub(crate) fn encode_dense(class: u32, row: &[f32], record: &mut Vec<u8>) {
    record.extend_from_slice(&[0; 4]);
    record.extend_from_slice(&class.to_le_bytes());
    record.extend(row.iter().flat_map(|value| value.to_le_bytes()));
    seal(record);
}

/// Appends a sparse record.
pub(crate) fn encode_sparse(
    class: u32,
    indices: &[u32],
    values: &[f32],
    coding: IndexCoding,
    record: &mut Vec<u8>,
) {
    record.extend_from_slice(&[0; 4]);
    record.extend_from_slice(&class.to_le_bytes());
    record.extend_from_slice(&(indices.len() as u32).to_le_bytes());
    match coding {
        IndexCoding::Plain => record.extend(indices.iter().flat_map(|index| index.to_le_bytes())),
        IndexCoding::VarintDelta => {
            let mut next = 0u64;
            for &index in indices {
                let mut gap = u64::from(index) - next;
                while gap >= 0x80 {
                    record.push(gap as u8 | 0x80);
                    gap >>= 7;
                }
                record.push(gap as u8);
                next = u64::from(index) + 1;
            }
        }
    }
    record.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    seal(record);
}

/// Puts the checksum of the rest into the first four bytes.
fn seal(record: &mut [u8]) {
    let checksum = crc32c::crc32c(&record[4..]);
    record[..4].copy_from_slice(&checksum.to_le_bytes());
}
