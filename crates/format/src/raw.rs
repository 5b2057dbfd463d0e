//! Entry points over plain bytes, for fuzzing and measurements; not part of the interface.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use pelton_storage::FileSet;

pub use crate::arrays::fvecs::load_fvecs;
pub use crate::arrays::idx::{IdxHeader, parse_idx_header};
pub use crate::arrays::npy::{NpyHeader, NpyRules, decode_npy_row, parse_npy_header};
pub use crate::arrays::npz::{ZipEntry, read_entries};
use crate::arrays::packed::reader::tables_from;
use crate::arrays::packed::{
    END_MAGIC, HEADER_BYTES, Header, MAGIC, TRAILER_BYTES, VERSION, decode_packed_dense,
    decode_packed_sparse,
};
pub use crate::arrays::raw_records::{RawLayout, parse as parse_raw_layout};
pub use crate::locate::places::elias_fano::{EliasFano, EliasFanoBuilder};
use crate::locate::places::located::text_of;
use crate::locate::places::scan_chunk::LineShape;
use crate::locate::places::sidecar::{self, RecordShape, SidecarKey};
use crate::locate::places::stamp::Stamp;
use crate::locate::tar::walk::check_group;
use crate::record::cells::label_column::LabelColumn;
use crate::record::json::{JsonClass, JsonKey, json_class};
use crate::record::labels::codes::Codes;
use crate::record::labels::table::LabelTable;
use crate::record::rows::fields::{FieldWriter, RecordFields};
use crate::record::rows::{Layout, Rows};
use crate::samples::array_record::riegeli;
use crate::samples::folder::index::{self, FolderKey};
use crate::samples::folder::listing::{Listing, Remarks};
use crate::samples::framed::example_fields::ExampleFields;
use crate::samples::framed::scan::ExampleScan;
use crate::samples::tar::scan_samples;
pub use crate::samples::tfrecord::find_tfrecords;
pub use crate::text::delimited::{DelimitedRules, decode_delimited_line};
pub use crate::text::json_lines::decode_json_line;
pub use crate::text::libsvm::several::decode_several;
pub use crate::text::libsvm::{LibsvmRules, decode_libsvm_line};

/// Opens a packed file in memory and decodes every record; returns the rows and the classes' labels if all of it is
/// valid.
pub fn decode_packed_file(bytes: &[u8]) -> Option<(Rows, Vec<f64>)> {
    let tables = tables_from(&mut Cursor::new(bytes), bytes.len() as u64).ok()?;
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
            Layout::Bytes => return None,
        }
        .ok()?;
    }
    Some((rows, tables.labels))
}

/// Corrects every checksum of a packed file that can be located, so that a fuzzer reaches the code after them.
pub fn mend_packed_file(bytes: &mut [u8]) {
    let size = bytes.len() as u64;
    if size < HEADER_BYTES + TRAILER_BYTES {
        return;
    }
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[40..48].copy_from_slice(&size.to_le_bytes());
    seal(&mut bytes[..HEADER_BYTES as usize]);
    let sum: [u8; 4] = bytes[124..128].try_into().expect("four bytes");
    let trailer = bytes.len() - TRAILER_BYTES as usize;
    bytes[trailer..trailer + 4].copy_from_slice(&sum);
    bytes[trailer + 4..].copy_from_slice(END_MAGIC);
    let Ok(header) = Header::decode(bytes, size) else {
        return;
    };
    let labels_from = (header.records_end + header.offsets_bytes) as usize;
    if header.offsets_bytes > 0 {
        seal(&mut bytes[header.records_end as usize..labels_from]);
    }
    seal(&mut bytes[labels_from..trailer]);
    let Ok(tables) = tables_from(&mut Cursor::new(&*bytes), size) else {
        return;
    };
    let starts: Vec<u64> = match (&tables.offsets, header.record_bytes()) {
        (Some(offsets), _) => offsets.walk(0).collect(),
        (None, Some(length)) => (0..header.records)
            .map(|i| HEADER_BYTES + i * length)
            .collect(),
        (None, None) => return,
    };
    let ends = starts.iter().skip(1).copied().chain([header.records_end]);
    for (start, end) in starts.iter().zip(ends) {
        let record = &mut bytes[*start as usize..end as usize];
        if record.len() >= 4 {
            let sum = crc32c::crc32c(&record[4..]).to_le_bytes();
            record[..4].copy_from_slice(&sum);
        }
    }
}

/// Writes the CRC32C of all but the last four bytes into those.
fn seal(section: &mut [u8]) {
    if let Some((body, place)) = section.split_last_chunk_mut::<4>() {
        *place = crc32c::crc32c(body).to_le_bytes();
    }
}

/// A sidecar with the fields `fields` and the key and checksum that fit them.
pub fn mend_sidecar(fields: &[u8], size: u64, sample: u64) -> Vec<u8> {
    let mut bytes = sidecar::MAGIC.to_vec();
    bytes.extend(
        key(size, sample)
            .words()
            .iter()
            .flat_map(|word| word.to_le_bytes()),
    );
    bytes.extend_from_slice(fields);
    bytes.extend_from_slice(&[0; 4]);
    seal(&mut bytes);
    bytes
}

fn key(size: u64, sample: u64) -> SidecarKey {
    SidecarKey {
        shape: RecordShape::Lines(LineShape::Libsvm),
        from: 0,
        stamp: Stamp {
            size,
            modified: Some(SystemTime::UNIX_EPOCH),
            touched_ns: 0,
            tag: 0,
        },
        sample,
    }
}

/// Loads a sidecar for a LIBSVM file of `size` bytes with the given sampled checksum; returns the starts of its records
/// if it is valid.
pub fn load_sidecar(bytes: &[u8], size: u64, sample: u64) -> Option<EliasFano> {
    sidecar::decode(bytes, &key(size, sample)).map(|contents| contents.starts)
}

/// A valid listing of a folder of images in the form of its sidecar.
pub fn folder_index() -> Vec<u8> {
    let mut set = FileSet::empty("root");
    for (name, size) in [("a/1.png", 5), ("a/2.png", 0), ("b/c/1.jpg", 70_000)] {
        set.push(Path::new(name), size, 1_700_000_000_000_000_000);
    }
    let folders = ["", "a", "b", "b/c", "d"].map(|name| (PathBuf::from(name), 1));
    let listing = Listing {
        set,
        codes: Codes::new(vec![0, 0, 1]),
        names: vec!["a".into(), "b".into()],
        folders: folders.to_vec(),
        may_be_kept: true,
        remarks: Remarks {
            others: 3,
            empty_folders: vec!["d".into()],
            ..Remarks::default()
        },
    };
    index::encode(&FolderKey::plain(), &listing)
}

/// Corrects the checksum at the end of such bytes.
pub fn mend_folder_index(bytes: &mut [u8]) {
    if let Some((body, checksum)) = bytes.split_last_chunk_mut::<4>() {
        *checksum = crc32c::crc32c(body).to_le_bytes();
    }
}

/// The files below `root` in such bytes, with the class of each; `None` if the bytes are not valid.
pub fn load_folder_index(bytes: &[u8], root: &Path) -> Option<Vec<(PathBuf, String)>> {
    let listing = index::decode(bytes, &FolderKey::plain(), root)?;
    let class = |i: usize| {
        let code = listing.codes.get(i as u64) as usize;
        listing.names.get(code).cloned().unwrap_or_default()
    };
    Some(
        (0..listing.set.len())
            .map(|i| (listing.set.path(i), class(i)))
            .collect(),
    )
}

/// Walks over a tar file in memory; returns the ranges of its samples, and the class of each.
pub fn load_tar(bytes: &[u8]) -> Option<Vec<(std::ops::Range<usize>, f64)>> {
    let located = scan_samples(&mut &*bytes, None, false, || Ok(())).ok()?;
    let ends = located.starts.walk(0).skip(1).chain([located.end]);
    let ranges = located.starts.walk(0).zip(ends);
    let samples = (0..).zip(ranges).map(|(i, (start, end))| {
        let code = located.codes.get(i) as usize;
        let label = located.labels.get(code).copied().unwrap_or(0.0);
        (start as usize..end as usize, label)
    });
    Some(samples.collect())
}

/// The class under a key of a JSON text: its number or its name.
pub fn read_json_class(json: &[u8], key: &JsonKey) -> Option<Result<i64, String>> {
    match json_class(json, key).ok()? {
        JsonClass::Number(number) => Some(Ok(number)),
        JsonClass::Name(name) => Some(Err(name)),
    }
}

/// Whether all members of the sample in a row are complete.
pub fn is_whole_group(group: &[u8]) -> bool {
    check_group(group).is_ok()
}

/// Corrects the checksums of all blocks that look like headers, so that a fuzzer reaches the code after them.
pub fn mend_tar(bytes: &mut [u8]) {
    for block in bytes.as_chunks_mut::<512>().0 {
        if &block[257..262] == b"ustar" {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
}

/// A row with its label; `None` if it could not be decoded.
type LabelledRow = Option<(Vec<u8>, f64)>;

/// The schema and the rows of Examples, and the label of each, as if they were a file; `None` for those that differ
/// from the first. The whole result is `None` if the first is not an Example.
pub fn decode_examples(examples: &[&[u8]]) -> Option<(RecordFields, Vec<LabelledRow>)> {
    let fields = ExampleFields::of_first(examples.first()?, "tfrecord")?;
    let fields = fields.with_label(&LabelColumn::Last).ok()?;
    let mut scan = ExampleScan::new(fields.clone());
    for mut example in examples.iter().copied() {
        let range = 0..example.len() as u64;
        scan.add(&mut example, range, |_| Ok(true)).ok()?;
    }
    let scanned = scan.finish();
    let fields = fields.with_words(text_of(&scanned.tallies[1..])?.1);
    let rows = (0..).zip(examples).map(|(i, example)| {
        let mut row = Vec::new();
        let decoded = fields.decode(example, &mut FieldWriter::new(&mut row, fields.fields()));
        let code = scanned.codes.get(i) as usize;
        let label = scanned.labels.get(code).copied().unwrap_or(0.0);
        decoded.ok().map(|()| (row, label))
    });
    let rows = rows.collect();
    Some((fields.fields().clone(), rows))
}

/// Corrects the checksums of a Riegeli chunk at byte 64 of its file, as far as its header exists.
pub fn mend_riegeli_chunk(bytes: &mut [u8]) {
    if let Some((header, data)) = bytes.split_first_chunk_mut::<{ riegeli::CHUNK_HEADER }>() {
        header[8..16].copy_from_slice(&(data.len() as u64).to_le_bytes());
        header[16..24].copy_from_slice(&riegeli::hash(data).to_le_bytes());
        let hash = riegeli::hash(&header[8..]);
        header[..8].copy_from_slice(&hash.to_le_bytes());
    }
}

/// The sizes and the bytes of the records of a Riegeli chunk at byte 64 of its file.
pub fn read_riegeli_chunk(bytes: &[u8]) -> Option<(Vec<u64>, Vec<u8>)> {
    let chunk = riegeli::chunk(64, bytes).ok()?;
    let records = chunk.records().ok()?;
    let values = records.values(&mut Vec::new()).ok()?.to_vec();
    Some((records.sizes().ok()?, values))
}

/// Names of images and classes of a table in memory: its first two columns.
pub fn read_label_table(bytes: &[u8]) -> Option<Vec<String>> {
    let position = LabelColumn::Position;
    LabelTable::parse(bytes, &position(1), &position(2))
        .ok()
        .map(|table| table.names)
}

/// Loads an Elias–Fano list from words: length, low bits, universe, count of low words, the low
/// words, the high words.
pub fn load_elias_fano(words: &[u64]) -> Option<EliasFano> {
    let (&[len, low_bits, universe, low_words], words) = words.split_first_chunk::<4>()?;
    let (low, high) = words.split_at_checked(usize::try_from(low_words).ok()?)?;
    let low_bits = u32::try_from(low_bits).ok()?;
    EliasFano::from_parts(len, low_bits, low.to_vec(), high.to_vec(), universe)
}

/// Reads all records of a Parquet or Arrow file in memory; returns how many, or `None` if one is bad.
#[cfg(feature = "columns")]
pub fn read_table(bytes: &[u8]) -> Option<u64> {
    crate::columns::read_all(bytes)
}
