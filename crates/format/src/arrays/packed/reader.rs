//! Opens packed files: header, offsets and labels are read and verified before any record.

use crate::locate::checksum::without_checksum;
use std::io::{self, Read, Seek, SeekFrom};

use crate::arrays::packed::{
    END_MAGIC, HEADER_BYTES, Header, OFFSETS_HEAD_BYTES, TRAILER_BYTES, damaged, u64_at,
};
use crate::locate::places::elias_fano::EliasFano;
use crate::locate::places::input::Input;
use crate::record::error::FormatError;
use crate::record::rows::Layout;

/// The tables of a packed file.
#[derive(Debug)]
pub(crate) struct PackedTables {
    pub(crate) header: Header,
    /// Starts of the records, if they differ in length.
    pub(crate) offsets: Option<EliasFano>,
    pub(crate) labels: Vec<f64>,
}

/// Reads and checks the tables of a packed file.
pub(crate) fn read_tables(file: Input, size: u64) -> Result<PackedTables, FormatError> {
    tables_from(&mut file.into_reader(), size)
}

/// The same from any reader that can seek.
pub(crate) fn tables_from(
    source: &mut (impl Read + Seek),
    size: u64,
) -> Result<PackedTables, FormatError> {
    let mut section = |from: u64, length: u64| read_section(source, from, length);
    let head = section(0, HEADER_BYTES.min(size))?;
    let header = Header::decode(&head, size)?;
    // The header's sums bound every section by the file's length.
    let trailer = section(size - TRAILER_BYTES, TRAILER_BYTES)?;
    if trailer[..4] != head[124..128] || trailer[4..] != END_MAGIC[..] {
        return Err(damaged(
            size - TRAILER_BYTES,
            "its end does not belong to its header",
        ));
    }
    let offsets = match header.shape.layout {
        Layout::Dense { .. } | Layout::Bytes => None,
        Layout::Sparse => {
            let bytes = section(header.records_end, header.offsets_bytes)?;
            let body = without_checksum(&bytes)
                .ok_or_else(|| damaged(header.records_end, "the offsets' checksum does not fit"))?;
            let offsets = offsets_from(body, &header)
                .ok_or_else(|| damaged(header.records_end, "the offsets do not fit the records"))?;
            Some(offsets)
        }
    };
    let labels_from = header.records_end + header.offsets_bytes;
    let bytes = section(labels_from, header.labels * 8 + 4)?;
    let body = without_checksum(&bytes)
        .ok_or_else(|| damaged(labels_from, "the labels' checksum does not fit"))?;
    let labels: Vec<f64> = body
        .as_chunks::<8>()
        .0
        .iter()
        .map(|label| f64::from_le_bytes(*label))
        .collect();
    if labels.iter().any(|label| !label.is_finite()) {
        return Err(damaged(labels_from, "a label is not finite"));
    }
    Ok(PackedTables {
        header,
        offsets,
        labels,
    })
}

fn read_section(source: &mut (impl Read + Seek), from: u64, length: u64) -> io::Result<Vec<u8>> {
    source.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    source.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

fn offsets_from(body: &[u8], header: &Header) -> Option<EliasFano> {
    let low_bits = u32::try_from(u64_at(body, 0)).ok()?;
    let low_words = u64_at(body, 8);
    let high_words = u64_at(body, 16);
    let words = body[OFFSETS_HEAD_BYTES as usize..].as_chunks::<8>();
    let expected = low_words.checked_add(high_words)?;
    if words.0.len() as u64 != expected || !words.1.is_empty() {
        return None;
    }
    let (low, high) = words.0.split_at(low_words as usize);
    let numbers = |words: &[[u8; 8]]| words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let offsets = EliasFano::from_parts(
        header.records,
        low_bits,
        numbers(low),
        numbers(high),
        header.records_end,
    )?;
    let starts_at_header = offsets
        .walk(0)
        .next()
        .is_none_or(|first| first == HEADER_BYTES);
    starts_at_header.then_some(offsets)
}
