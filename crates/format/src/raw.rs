//! Entry points over plain bytes, for fuzzing and measurements; no part of the interface.

use std::io::Cursor;
use std::path::Path;
use std::time::SystemTime;

use crate::data_file::Stamp;
pub use crate::delimited::{DelimitedRules, decode_delimited_line};
pub use crate::elias_fano::{EliasFano, EliasFanoBuilder};
pub use crate::libsvm::{LibsvmRules, decode_libsvm_line};
use crate::line_scan::LineShape;
pub use crate::npy::{NpyHeader, NpyNumber, NpyRules, decode_npy_row, parse_npy_header};
use crate::packed::{HEADER_BYTES, decode_packed_dense, decode_packed_sparse};
use crate::packed_reader::tables_from;
use crate::rows::{Layout, Rows};
use crate::sidecar::{self, SidecarKey};

/// Opens a packed file that lies in memory and decodes every record; the rows and the classes'
/// labels where all is sound.
pub fn decode_packed_file(bytes: &[u8]) -> Option<(Rows, Vec<f64>)> {
    let path = Path::new("memory");
    let tables = tables_from(&mut Cursor::new(bytes), bytes.len() as u64, path).ok()?;
    let header = tables.header;
    let mut rows = Rows::new(header.shape.layout);
    let starts: Vec<u64> = match (&tables.offsets, header.record_bytes()) {
        (Some(offsets), _) => offsets.walk(0).collect(),
        (None, Some(length)) => (0..header.records)
            .map(|i| HEADER_BYTES + i * length)
            .collect(),
        (None, None) => return None,
    };
    let ends = starts.iter().skip(1).copied().chain([header.records_end]);
    for (start, end) in starts.iter().zip(ends) {
        let record = &bytes[*start as usize..end as usize];
        let within = |class: u32| {
            ((class as usize) < tables.labels.len())
                .then_some(class)
                .ok_or(())
        };
        match header.shape.layout {
            Layout::Dense { .. } => rows.push_dense_with(|row| {
                decode_packed_dense(record, row)
                    .map_err(|_| ())
                    .and_then(within)
            }),
            Layout::Sparse => rows.push_sparse_with(|indices, values| {
                let (coding, features) = (header.shape.index_coding, header.shape.features);
                decode_packed_sparse(record, coding, features, indices, values)
                    .map_err(|_| ())
                    .and_then(within)
            }),
        }
        .ok()?;
    }
    Some((rows, tables.labels))
}

/// Loads a sidecar for a LIBSVM file of `size` bytes with the given sampled checksum; the starts of
/// its records where it is sound.
pub fn load_sidecar(bytes: &[u8], size: u64, sample: u64) -> Option<EliasFano> {
    let key = SidecarKey {
        shape: LineShape::Libsvm,
        from: 0,
        stamp: Stamp {
            size,
            modified: Some(SystemTime::UNIX_EPOCH),
        },
        sample,
    };
    sidecar::decode(bytes, &key).map(|contents| contents.starts)
}

/// Loads an Elias–Fano list from words: length, low bits, universe, count of low words, the low
/// words, the high words.
pub fn load_elias_fano(words: &[u64]) -> Option<EliasFano> {
    let (&[len, low_bits, universe, low_words], words) = words.split_first_chunk::<4>()?;
    let (low, high) = words.split_at_checked(usize::try_from(low_words).ok()?)?;
    let low_bits = u32::try_from(low_bits).ok()?;
    EliasFano::from_parts(len, low_bits, low.to_vec(), high.to_vec(), universe)
}
