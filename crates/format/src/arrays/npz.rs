//! NumPy's `.npz`: a zip file of `.npy` entries. Each entry is a field; a record is one row of each.
//!
//! The rows of a record are at different offsets of the file: [`Gathered`] reads them as if they were contiguous. If
//! some arrays are compressed (`np.savez_compressed`), the arrays are read from a copy in the cache folder, one `.npy`
//! after another. The checksum of every array is verified: while it is copied, or else by one pass that a sidecar
//! remembers.

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

use pelton_batch::DType;
use pelton_storage::{CachedCopy, LocalFile, Storage};

use crate::arrays::npy::{MOST_HEADER_BYTES, NpyHeader, REORDER, parse_npy_header};
use crate::arrays::raw_records::RawDecoder;
use crate::locate::field_labels::{Column, scan_labels};
use crate::locate::format::{Format, Match, Shard, Source};
use crate::locate::places::compressed::{cache_dir, hashed_name, not_decompressed, state_hash};
use crate::locate::places::elias_fano::EliasFano;
use crate::locate::places::gathered::Gathered;
use crate::locate::places::input::Input;
use crate::locate::places::sidecar::RecordShape;
use crate::locate::places::{IndexSource, Places};
use crate::locate::reach::Reach;
use crate::locate::scanned::Scanned;
use crate::record::cells::label_column::no_label_column;
use crate::record::error::FormatError;
use crate::record::kind::Head;
use crate::record::mixing::mix;
use crate::record::rows::fields::{self, check_name, selection};

/// Most entries.
const MOST_ENTRIES: usize = 4096;
/// Longest table of entries.
const MOST_DIRECTORY_BYTES: u64 = 16 << 20;
/// Tells these sidecars from others.
const SIDECAR: u64 = 13;
const SAVE: &str = "save arrays of numbers of equal first length with np.savez, or choose such with `format` npz:NAME,NAME";
const FETCH: &str = "fetch or save the file again";

/// NumPy arrays in a zip file; with `selects`, some of them.
pub(crate) struct Npz {
    pub(crate) selects: bool,
}

impl Format for Npz {
    fn name(&self) -> &'static str {
        "npz"
    }

    fn argument(&self) -> Option<&'static str> {
        self.selects.then_some("ARRAY,…")
    }

    fn check(&self, argument: &str) -> Result<(), String> {
        selection(argument, "arrays").map(drop)
    }

    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        (!self.selects && head.ends_in(&["npz"])).then_some(Match::Name)
    }

    fn in_place_only(&self) -> bool {
        true
    }

    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Shard, FormatError> {
        let input = source.input()?;
        let entries = entries_of(&mut input.from(0), source.stamp.size);
        let entries = entries.map_err(|error| error.with_remedy(SAVE))?;
        let entries = chosen(source, entries)?;
        let all_stored = entries.iter().all(|entry| entry.method == Method::Stored);
        let (input, storage, arrays, index) = if all_stored {
            let arrays = arrays_in_place(source, &input, &entries)?;
            let index = checked_once(source, &input, &entries, &arrays, notes)?;
            (input, source.storage()?, arrays, index)
        } else {
            let copy = unpacked(source, &input, &entries, notes)?;
            let input = Input::open(&copy, source.path)?;
            let arrays = arrays_of_copy(&input, &entries)?;
            let storage: Arc<dyn Storage> =
                Arc::new(LocalFile::open(&copy, source.options.storage)?);
            (input, storage, arrays, IndexSource::Arithmetic)
        };
        let records = arrays.first().map_or(0, |array| array.header.shape[0]);
        if arrays.iter().any(|array| array.header.shape[0] != records) {
            let lengths = arrays
                .iter()
                .map(|array| format!("{} {}", array.name, array.header.shape[0]));
            let lengths: Vec<String> = lengths.collect();
            let lengths = lengths.join(", ");
            let what = format!("its arrays have different first lengths: {lengths}; {SAVE}");
            return Err(FormatError::malformed(0, what));
        }
        let names: Vec<&str> = arrays.iter().map(|array| array.name.as_str()).collect();
        let label = fields::label_field(&names, &source.options.label)?;
        let mut labels = Vec::new();
        if let Some(at) = label {
            let array = &arrays[at];
            if array.header.shape.len() != 1 {
                let columns = "of one number a row if they are labels";
                return Err(no_label_column(&array.name, columns));
            }
            let column = Column {
                from: array.from,
                stride: array.row_bytes,
                count: records,
                dtype: array.header.number,
            };
            let interrupt = &source.options.interrupt;
            labels = scan_labels(&input, column, interrupt)?;
            // In ascending order, as in the data set, so that no table translates between the two.
            labels.sort_by(f64::total_cmp);
        }
        let specs: Vec<(String, DType, Vec<usize>)> = arrays
            .iter()
            .map(|array| (array.name.clone(), array.header.number, array.header.row()))
            .collect();
        let mut parts = Vec::new();
        for array in &arrays {
            let of_array = array.header.parts(array.from).map_err(|what| {
                let what = format!("its array {}: {what}; {REORDER}", array.name);
                FormatError::malformed(array.from, what)
            });
            parts.extend(of_array?);
        }
        let gathered = Gathered {
            storage,
            record_bytes: arrays.iter().map(|array| array.row_bytes).sum(),
            records,
            parts,
        };
        let bytes = gathered.record_bytes;
        let places = gathered.parts.len() as u32;
        Ok(Shard {
            records,
            bytes: records * bytes,
            longest: bytes,
            places: Places::Fixed { from: 0, bytes },
            storage: Some(Arc::new(gathered)),
            reach: Reach::Gathered { places },
            index,
            labels: labels.into(),
            ..Shard::fields(records, RawDecoder::packed(&specs, label))
        })
    }
}

/// The entries to read: those that the format names, in that order, or all.
fn chosen(source: &Source<'_>, entries: Vec<ZipEntry>) -> Result<Vec<ZipEntry>, FormatError> {
    let entries = match source.kind.argument() {
        None => entries,
        Some(argument) => {
            let array = |wanted: &&str| {
                let found = entries.iter().find(|entry| entry.array() == Some(*wanted));
                found.cloned().ok_or_else(|| {
                    let names: Vec<&str> = entries.iter().filter_map(ZipEntry::array).collect();
                    FormatError::new(format!(
                        "has no array {wanted}; its arrays are {}; name some of them, as in `format` npz:NAME,NAME",
                        names.join(", ")
                    ))
                })
            };
            let names = selection(argument, "arrays").expect("it was checked");
            names.iter().map(array).collect::<Result<_, _>>()?
        }
    };
    if entries.iter().any(|entry| entry.array() == Some("indptr")) {
        let what = "is a sparse matrix of SciPy; give `scipy.sparse.load_npz` of it to an estimator, or its rows to `from_sequence`";
        return Err(FormatError::new(what));
    }
    for entry in &entries {
        let what = match (entry.array(), &entry.method) {
            (None, _) => "is not an array (.npy)",
            (_, Method::Encrypted) => "is encrypted",
            (_, Method::Other) => "is compressed by another method than DEFLATE",
            (_, Method::Stored) if entry.packed != entry.bytes => "has two sizes",
            (_, Method::Stored | Method::Deflated) => continue,
        };
        let what = format!("its entry {} {what}; {SAVE}", entry.name);
        return Err(FormatError::malformed(entry.at, what));
    }
    Ok(entries)
}

/// The arrays at their offsets in the zip file, uncompressed.
fn arrays_in_place(
    source: &Source<'_>,
    input: &Input,
    entries: &[ZipEntry],
) -> Result<Vec<Array>, FormatError> {
    let size = source.stamp.size;
    let array = |entry| array_in_place(&mut input.from(0), size, entry);
    let arrays = entries.iter().map(array).collect::<Result<_, _>>();
    arrays.map_err(|error: FormatError| error.with_remedy(SAVE))
}

/// Reads all arrays and verifies their checksums, unless a sidecar says that this was done.
fn checked_once(
    source: &Source<'_>,
    input: &Input,
    entries: &[ZipEntry],
    arrays: &[Array],
    notes: &mut Vec<String>,
) -> Result<IndexSource, FormatError> {
    let shape = RecordShape::Classed {
        format: SIDECAR,
        label: names_hash(0, entries),
    };
    let (_, index) = source.located(shape, 0, notes, || {
        for (entry, array) in entries.iter().zip(arrays) {
            let from = array.from - array.header.data_offset;
            let mut bytes = input.from(from).take(entry.bytes);
            checked(source, entry, &mut bytes, |_| Ok(()))?;
        }
        Ok(Scanned::of_bytes(0).located(EliasFano::default(), 0, 0))
    })?;
    Ok(index)
}

fn names_hash(hash: u64, entries: &[ZipEntry]) -> u64 {
    let bytes = entries
        .iter()
        .flat_map(|entry| entry.name.bytes().chain([0]));
    bytes.fold(hash, |hash, byte| mix(hash, u64::from(byte)))
}

/// Hands the bytes of an entry to `take` and compares their length and checksum with the table's.
fn checked(
    source: &Source<'_>,
    entry: &ZipEntry,
    bytes: &mut dyn Read,
    mut take: impl FnMut(&[u8]) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let (mut crc, mut length) = (crc32fast::Hasher::new(), 0);
    let mut buffer = vec![0; 256 << 10];
    loop {
        source.options.check_interrupt()?;
        let filled = match bytes.read(&mut buffer) {
            Ok(filled) => filled,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // The storage's own error, which names its file.
            Err(error) if entry.method == Method::Stored => return Err(error.into()),
            Err(error) => return Err(not_decompressed(&error)),
        };
        length += filled as u64;
        if filled == 0 || length > entry.bytes {
            break;
        }
        crc.update(&buffer[..filled]);
        take(&buffer[..filled])?;
    }
    if length == entry.bytes && crc.finalize() == entry.crc {
        return Ok(());
    }
    let what = format!(
        "its array {} does not agree with its checksum; {FETCH}",
        entry.name
    );
    Err(FormatError::malformed(entry.at, what))
}

/// A copy of the arrays in the cache folder, one after another, written unless it exists.
fn unpacked(
    source: &Source<'_>,
    input: &Input,
    entries: &[ZipEntry],
    notes: &mut Vec<String>,
) -> Result<PathBuf, FormatError> {
    let folder = cache_dir(source.options);
    let hash = names_hash(state_hash(source.path, &source.stamp), entries);
    let stem = hashed_name(source.path, hash, "");
    let copy = CachedCopy {
        folder: &folder,
        stem: &stem,
        suffix: ".arrays",
        interrupt: &source.options.interrupt,
    };
    let found = copy.find()?;
    let done = match found {
        Some(_) => "read from its decompressed copy",
        None => "decompressed to",
    };
    let path = if let Some(found) = found {
        found
    } else {
        let failed = |e| FormatError::io(&folder, "write a file in it", e);
        let mut out = copy.create()?;
        for entry in entries {
            let from = entry_from(&mut input.from(0), entry);
            let from = from.map_err(|error| error.with_remedy(FETCH))?;
            let packed = BufReader::with_capacity(256 << 10, input.from(from).take(entry.packed));
            let mut bytes: Box<dyn Read + '_> = match entry.method {
                Method::Deflated => Box::new(flate2::bufread::DeflateDecoder::new(packed)),
                _ => Box::new(packed),
            };
            checked(source, entry, &mut bytes, |bytes| {
                io::Write::write_all(&mut out, bytes).map_err(failed)
            })?;
        }
        copy.publish(out)?
    };
    notes.push(format!(
        "{}: {done} {}",
        source.path.display(),
        path.display()
    ));
    Ok(path)
}

/// The arrays of such a copy.
fn arrays_of_copy(copy: &Input, entries: &[ZipEntry]) -> Result<Vec<Array>, FormatError> {
    let mut from = 0;
    entries
        .iter()
        .map(|entry| {
            let array = array_at(&mut copy.from(0), from, entry);
            from += entry.bytes;
            array.map_err(|error| error.with_remedy(SAVE))
        })
        .collect()
}

/// How the bytes of an entry are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Stored,
    Deflated,
    Encrypted,
    Other,
}

/// An entry of the zip file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZipEntry {
    name: String,
    /// Offset of its own header.
    at: u64,
    method: Method,
    /// Bytes in the file.
    packed: u64,
    /// Bytes of the entry itself.
    bytes: u64,
    crc: u32,
}

impl ZipEntry {
    /// NumPy's name of the array; `None` if the entry is not an array.
    fn array(&self) -> Option<&str> {
        self.name.strip_suffix(".npy")
    }
}

/// An array of the file.
struct Array {
    name: String,
    header: NpyHeader,
    /// Offset of its first row.
    from: u64,
    row_bytes: u64,
}

fn entries_of(file: &mut (impl Read + Seek), size: u64) -> Result<Vec<ZipEntry>, FormatError> {
    let tail_bytes = size.min((64 << 10) + 22 + 20);
    let tail = read_at(file, size - tail_bytes, tail_bytes)?;
    let (at, bytes) = match find_directory(&tail, size)? {
        End::Directory(at, bytes) => (at, bytes),
        End::Zip64(at) => zip64_directory(&read_at(file, at, 56)?, at)?,
    };
    if bytes > MOST_DIRECTORY_BYTES || at.checked_add(bytes).is_none_or(|end| end > size) {
        let what = "its table of entries is outside the file";
        return Err(FormatError::malformed(at, what));
    }
    parse_directory(&read_at(file, at, bytes)?, at)
}

fn read_at(file: &mut (impl Read + Seek), at: u64, bytes: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(at))?;
    let mut read = Vec::new();
    file.take(bytes).read_to_end(&mut read)?;
    Ok(read)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let found: [u8; N] = bytes.get(at..at.checked_add(N)?)?.try_into().ok()?;
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(&found);
    Some(u64::from_le_bytes(wide))
}

/// Location of the table of entries, as the last bytes of a file state it.
enum End {
    /// Offset and length of the table of entries.
    Directory(u64, u64),
    /// Offset of the Zip64 record that states it.
    Zip64(u64),
}

/// Reads the location of the table of entries from `tail`, the last bytes of a file of `size` bytes.
fn find_directory(tail: &[u8], size: u64) -> Result<End, FormatError> {
    let from = size - tail.len() as u64;
    let found = memchr::memmem::rfind(tail, b"PK\x05\x06");
    let read = || {
        let at = found?;
        let bytes = number::<4>(tail, at + 12)?;
        let offset = number::<4>(tail, at + 16)?;
        let comment = number::<2>(tail, at + 20)? as usize;
        (at + 22 + comment == tail.len()).then_some(())?;
        let zip64 = at
            .checked_sub(20)
            .filter(|at| tail[*at..].starts_with(b"PK\x06\x07"));
        Some((bytes, offset, zip64))
    };
    let no_end = || FormatError::malformed(from, "its end is not that of a zip file");
    Ok(match read().ok_or_else(no_end)? {
        (_, _, Some(at)) => End::Zip64(number::<8>(tail, at + 8).ok_or_else(no_end)?),
        (bytes, offset, None) => End::Directory(offset, bytes),
    })
}

fn zip64_directory(record: &[u8], at: u64) -> Result<(u64, u64), FormatError> {
    let is_record = record.starts_with(b"PK\x06\x06");
    let found = number::<8>(record, 48).zip(number::<8>(record, 40));
    found
        .filter(|_| is_record)
        .ok_or_else(|| FormatError::malformed(at, "its 64-bit end is damaged"))
}

/// The entries of a zip file's table, which starts at `from`.
pub fn parse_directory(table: &[u8], from: u64) -> Result<Vec<ZipEntry>, FormatError> {
    let mut entries: Vec<ZipEntry> = Vec::new();
    let mut at = 0;
    while at < table.len() {
        let place = from + at as u64;
        let cut = || FormatError::malformed(place, "its table of entries is cut off");
        let entry = &table[at..];
        if !entry.starts_with(b"PK\x01\x02") {
            return Err(FormatError::malformed(
                place,
                "an entry of its table is damaged",
            ));
        }
        let field = |at| number::<2>(entry, at).ok_or_else(cut);
        let (flags, method) = (field(8)?, field(10)?);
        let (name_bytes, extra_bytes, comment_bytes) = (field(28)?, field(30)?, field(32)?);
        let wide = |at| number::<4>(entry, at).ok_or_else(cut);
        let (packed, whole, _, start) = (wide(20)?, wide(24)?, wide(38)?, wide(42)?);
        let crc = wide(16)?;
        let name_end = 46 + name_bytes as usize;
        let extra_end = name_end + extra_bytes as usize;
        let name = entry.get(46..name_end).ok_or_else(cut)?;
        let extra = entry.get(name_end..extra_end).ok_or_else(cut)?;
        at += extra_end + comment_bytes as usize;
        let name = String::from_utf8_lossy(name).into_owned();
        let method = match method {
            _ if flags & 1 != 0 => Method::Encrypted,
            0 => Method::Stored,
            8 => Method::Deflated,
            _ => Method::Other,
        };
        // Sizes of 4 GiB and more are in an extra field, in this order.
        let mut wider = zip64_numbers(extra).into_iter();
        let mut of = |narrow: u64| match narrow {
            0xffff_ffff => wider.next().ok_or_else(cut),
            narrow => Ok(narrow),
        };
        let (whole, packed, start) = (of(whole)?, of(packed)?, of(start)?);
        if entries.iter().any(|entry| entry.name == name) || entries.len() >= MOST_ENTRIES {
            let what = format!("its entry {name} comes twice, or is one of too many");
            return Err(FormatError::malformed(place, what));
        }
        entries.push(ZipEntry {
            name,
            at: start,
            method,
            packed,
            bytes: whole,
            crc: crc as u32,
        });
    }
    if entries.is_empty() {
        Err(FormatError::malformed(from, "it has no entries"))
    } else {
        Ok(entries)
    }
}

fn zip64_numbers(mut extra: &[u8]) -> Vec<u64> {
    while let (Some(tag), Some(bytes)) = (number::<2>(extra, 0), number::<2>(extra, 2)) {
        let end = (4 + bytes as usize).min(extra.len());
        if tag == 1 {
            let (numbers, _) = extra[4..end].as_chunks::<8>();
            return numbers.iter().map(|n| u64::from_le_bytes(*n)).collect();
        }
        extra = &extra[end..];
    }
    Vec::new()
}

/// Offset of the bytes of an entry, after its own header.
fn entry_from(file: &mut (impl Read + Seek), entry: &ZipEntry) -> Result<u64, FormatError> {
    let local = read_at(file, entry.at, 30)?;
    let lengths = number::<2>(&local, 26).zip(number::<2>(&local, 28));
    let lengths = lengths.filter(|_| local.starts_with(b"PK\x03\x04"));
    match lengths {
        Some((name, extra)) => Ok(entry.at + 30 + name + extra),
        None => {
            let what = format!("its entry {} is not at the offset in its table", entry.name);
            Err(FormatError::malformed(entry.at, what))
        }
    }
}

fn array_in_place(
    file: &mut (impl Read + Seek),
    size: u64,
    entry: &ZipEntry,
) -> Result<Array, FormatError> {
    let from = entry_from(file, entry)?;
    if from.checked_add(entry.bytes).is_none_or(|end| end > size) {
        let what = format!("its entry {} is outside the file", entry.name);
        return Err(FormatError::malformed(entry.at, what));
    }
    array_at(file, from, entry)
}

/// The array of the `.npy` that starts at `from`.
fn array_at(
    file: &mut (impl Read + Seek),
    from: u64,
    entry: &ZipEntry,
) -> Result<Array, FormatError> {
    let head = read_at(file, from, entry.bytes.min(MOST_HEADER_BYTES as u64 + 12))?;
    let name = entry.array().unwrap_or(&entry.name);
    let wrong = |what: String| FormatError::malformed(from, what);
    let header = parse_npy_header(&head)
        .map_err(|error| wrong(format!("its entry {}: {error}", entry.name)))?;
    check_name(name, &[]).map_err(|what| FormatError::malformed(entry.at, what))?;
    let wrong = |what: &str| wrong(format!("its array {name} {what}"));
    if header.shape.is_empty() {
        return Err(wrong("is a single number"));
    }
    let row_bytes = header.row_bytes().filter(|bytes| *bytes > 0);
    let row_bytes = row_bytes.ok_or_else(|| wrong("has rows of no or too many bytes"))?;
    let rows = row_bytes.checked_mul(header.shape[0]);
    let filled = rows.and_then(|rows| rows.checked_add(header.data_offset));
    if filled != Some(entry.bytes) {
        return Err(wrong("is not as long as its shape says"));
    }
    Ok(Array {
        from: from + header.data_offset,
        name: name.to_owned(),
        header,
        row_bytes,
    })
}

/// The entries of a zip file in memory, if all its arrays are valid.
pub fn read_entries(bytes: &[u8]) -> Option<Vec<ZipEntry>> {
    let mut file = io::Cursor::new(bytes);
    let size = bytes.len() as u64;
    let entries = entries_of(&mut file, size).ok()?;
    for entry in &entries {
        array_in_place(&mut file, size, entry).ok()?;
    }
    Some(entries)
}
