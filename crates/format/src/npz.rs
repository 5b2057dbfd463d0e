//! NumPy's `.npz`: a zip file of `.npy` entries, each of which is a field, a record being one row of each.
//!
//! Only entries that are stored, not compressed, are read (`np.savez`), since places must be known without reading
//! what comes before. The rows of a record lie in different places of the file: [`Gathered`] reads them as if they
//! were side by side, which costs a copy of what is read.

use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

use pelton_batch::DType;
use pelton_storage::{AlignedBuffer, Granularity, RangeRead, Storage, StorageError};

use crate::codes::Codes;
use crate::data_file::{Places, Reach};
use crate::error::FormatError;
use crate::fields::{self, Column, check_name};
use crate::format::{Format, Found, Match, Source};
use crate::kind::Head;
use crate::npy::{MOST_HEADER_BYTES, NpyHeader, parse_npy_header};
use crate::raw_records::RawDecoder;

/// Most entries.
const MOST_ENTRIES: usize = 4096;
/// Longest table of entries.
const MOST_DIRECTORY_BYTES: u64 = 16 << 20;

/// NumPy arrays in a zip file.
pub(crate) struct Npz;

impl Format for Npz {
    fn name(&self) -> &'static str {
        "npz"
    }

    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        head.ends_in(&["npz"]).then_some(Match::Name)
    }

    fn in_place_only(&self) -> bool {
        true
    }

    fn open(&self, source: &Source<'_>, _: &mut Vec<String>) -> Result<Found, FormatError> {
        let failed = |e| FormatError::io(source.path, "read it", e);
        let malformed = |(offset, what)| FormatError::Malformed {
            path: source.path.to_path_buf(),
            offset,
            what,
            remedy: "save arrays of equal first length with np.savez",
        };
        let input = source.input()?;
        let mut file = input.from(0);
        let entries = entries_of(&mut file, source.stamp.size);
        let entries = entries.map_err(failed)?.map_err(malformed)?;
        let mut arrays = Vec::new();
        for entry in entries {
            arrays.push(
                array_of(&mut file, source.stamp.size, entry)
                    .map_err(failed)?
                    .map_err(malformed)?,
            );
        }
        let records = arrays.first().map_or(0, |array| array.header.shape[0]);
        if let Some(other) = arrays.iter().find(|array| array.header.shape[0] != records) {
            let (first, found) = (&arrays[0].name, other.header.shape[0]);
            let name = &other.name;
            let what = format!("{name} has {found} rows where {first} has {records}");
            return Err(malformed((other.from, what)));
        }
        let names: Vec<&str> = arrays.iter().map(|array| array.name.as_str()).collect();
        let label = fields::label_field(source.path, &names, &source.options.label)?;
        let mut labels = Vec::new();
        if let Some(at) = label {
            let array = &arrays[at];
            if array.header.shape.len() != 1 {
                return Err(FormatError::NoLabelColumn {
                    path: source.path.to_path_buf(),
                    wanted: array.name.clone(),
                    columns: "of one number a row where they are labels".into(),
                });
            }
            let column = Column {
                from: array.from,
                stride: array.row_bytes,
                count: records,
                dtype: array.header.number,
            };
            let interrupt = &source.options.interrupt;
            labels = fields::scan_labels(&input, source.path, column, interrupt)?;
            // In the order that they have in the data set, so that no table stands between.
            labels.sort_by(f64::total_cmp);
        }
        let specs: Vec<(String, DType, Vec<usize>)> = arrays
            .iter()
            .map(|array| (array.name.clone(), array.header.number, array.header.row()))
            .collect();
        let gathered = Gathered {
            storage: source.storage()?,
            parts: arrays
                .iter()
                .map(|array| (array.from, array.row_bytes))
                .collect(),
            record_bytes: arrays.iter().map(|array| array.row_bytes).sum(),
            records,
        };
        let bytes = gathered.record_bytes;
        Ok(Found {
            records,
            bytes: records * bytes,
            longest: bytes,
            places: Places::Fixed { from: 0, bytes },
            storage: Some(Arc::new(gathered)),
            reach: Reach::Gathered {
                places: arrays.len() as u32,
            },
            ..Found::fields(
                labels,
                records,
                Codes::One,
                RawDecoder::packed(&specs, label),
            )
        })
    }
}

/// Where something is wrong, and what.
type Wrong = (u64, String);

/// An entry of the zip file.
#[derive(Debug, PartialEq, Eq)]
pub struct ZipEntry {
    name: String,
    /// Where its own header lies.
    at: u64,
    bytes: u64,
}

/// An array of the file.
struct Array {
    name: String,
    header: NpyHeader,
    /// Where its first row lies.
    from: u64,
    row_bytes: u64,
}

fn entries_of(
    file: &mut (impl Read + Seek),
    size: u64,
) -> std::io::Result<Result<Vec<ZipEntry>, Wrong>> {
    let tail_bytes = size.min((64 << 10) + 22 + 20);
    let tail = read_at(file, size - tail_bytes, tail_bytes)?;
    let directory = match find_directory(&tail, size) {
        Ok(directory) => directory,
        Err(End::Wrong(wrong)) => return Ok(Err(wrong)),
        Err(End::Zip64(at)) => match zip64_directory(&read_at(file, at, 56)?, at) {
            Ok(directory) => directory,
            Err(wrong) => return Ok(Err(wrong)),
        },
    };
    let (at, bytes) = directory;
    if bytes > MOST_DIRECTORY_BYTES || at.checked_add(bytes).is_none_or(|end| end > size) {
        return Ok(Err((at, "its table of entries does not lie in it".into())));
    }
    Ok(parse_directory(&read_at(file, at, bytes)?, at))
}

fn read_at(file: &mut (impl Read + Seek), at: u64, bytes: u64) -> std::io::Result<Vec<u8>> {
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

/// Why the last bytes of a file do not say where its table of entries lies.
enum End {
    Wrong(Wrong),
    /// Another record says it.
    Zip64(u64),
}

/// Where the table of entries lies and its length.
fn find_directory(tail: &[u8], size: u64) -> Result<(u64, u64), End> {
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
    let no_end = || End::Wrong((from, "its end is not that of a zip file".into()));
    match read().ok_or_else(no_end)? {
        (_, _, Some(at)) => Err(End::Zip64(number::<8>(tail, at + 8).ok_or_else(no_end)?)),
        (bytes, offset, None) => Ok((offset, bytes)),
    }
}

fn zip64_directory(record: &[u8], at: u64) -> Result<(u64, u64), Wrong> {
    let is_record = record.starts_with(b"PK\x06\x06");
    let found = number::<8>(record, 48).zip(number::<8>(record, 40));
    found
        .filter(|_| is_record)
        .ok_or_else(|| (at, "its 64-bit end is damaged".into()))
}

/// The entries of a zip file's table, which lies at `from`.
pub fn parse_directory(table: &[u8], from: u64) -> Result<Vec<ZipEntry>, Wrong> {
    let mut entries: Vec<ZipEntry> = Vec::new();
    let mut at = 0;
    while at < table.len() {
        let place = from + at as u64;
        let cut = || (place, "its table of entries is cut off".to_owned());
        let entry = &table[at..];
        if !entry.starts_with(b"PK\x01\x02") {
            return Err((place, "an entry of its table is damaged".into()));
        }
        let field = |at| number::<2>(entry, at).ok_or_else(cut);
        let (flags, method) = (field(8)?, field(10)?);
        let (name_bytes, extra_bytes, comment_bytes) = (field(28)?, field(30)?, field(32)?);
        let wide = |at| number::<4>(entry, at).ok_or_else(cut);
        let (packed, whole, _, start) = (wide(20)?, wide(24)?, wide(38)?, wide(42)?);
        let name_end = 46 + name_bytes as usize;
        let extra_end = name_end + extra_bytes as usize;
        let name = entry.get(46..name_end).ok_or_else(cut)?;
        let extra = entry.get(name_end..extra_end).ok_or_else(cut)?;
        at += extra_end + comment_bytes as usize;
        let name = String::from_utf8_lossy(name).into_owned();
        if method != 0 || flags & 1 != 0 {
            let how = if flags & 1 != 0 {
                "encrypted"
            } else {
                "compressed"
            };
            return Err((
                place,
                format!("its entry {name} is {how}, and records are read where they lie"),
            ));
        }
        // Sizes from 4 GiB on stand in an extra field, in this order.
        let mut wider = zip64_numbers(extra).into_iter();
        let mut of = |narrow: u64| match narrow {
            0xffff_ffff => wider.next().ok_or_else(cut),
            narrow => Ok(narrow),
        };
        let (whole, packed, start) = (of(whole)?, of(packed)?, of(start)?);
        if packed != whole {
            return Err((place, format!("its entry {name} has two sizes")));
        }
        let Some(name) = name.strip_suffix(".npy") else {
            return Err((place, format!("its entry {name} is no array (.npy)")));
        };
        if entries.iter().any(|entry| entry.name == name) || entries.len() >= MOST_ENTRIES {
            return Err((
                place,
                format!("its entry {name} comes twice, or is one of too many"),
            ));
        }
        entries.push(ZipEntry {
            name: name.to_owned(),
            at: start,
            bytes: whole,
        });
    }
    match entries.is_empty() {
        true => Err((from, "it has no entries".into())),
        false => Ok(entries),
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

fn array_of(
    file: &mut (impl Read + Seek),
    size: u64,
    entry: ZipEntry,
) -> std::io::Result<Result<Array, Wrong>> {
    let local = read_at(file, entry.at, 30)?;
    let lengths = number::<2>(&local, 26).zip(number::<2>(&local, 28));
    let lengths = lengths.filter(|_| local.starts_with(b"PK\x03\x04"));
    let Some((name, extra)) = lengths else {
        let what = format!("its entry {} does not lie where its table says", entry.name);
        return Ok(Err((entry.at, what)));
    };
    let from = entry.at + 30 + name + extra;
    let head = read_at(file, from, entry.bytes.min(MOST_HEADER_BYTES as u64 + 12))?;
    let read = || {
        let header = parse_npy_header(&head)
            .map_err(|(at, what)| (from + at, format!("its entry {}.npy: {what}", entry.name)))?;
        check_name(&entry.name, &[]).map_err(|what| (entry.at, what))?;
        let wrong = |what: &str| (from, format!("its entry {} {what}", entry.name));
        if header.shape.is_empty() {
            return Err(wrong("is a single number"));
        }
        let row_bytes = header.row_bytes().filter(|bytes| *bytes > 0);
        let row_bytes = row_bytes.ok_or_else(|| wrong("has rows of no or too many bytes"))?;
        let rows = row_bytes.checked_mul(header.shape[0]);
        let filled = rows.and_then(|rows| rows.checked_add(header.data_offset));
        let ends = from.checked_add(entry.bytes).is_some_and(|end| end <= size);
        if filled != Some(entry.bytes) || !ends {
            return Err(wrong("is not as long as its shape says"));
        }
        Ok(Array {
            from: from + header.data_offset,
            name: entry.name.clone(),
            header,
            row_bytes,
        })
    };
    Ok(read())
}

/// Rows of several arrays as if those of one record lay side by side.
#[derive(Debug)]
struct Gathered<S> {
    storage: S,
    /// Where the first row of each array lies, and the bytes of its rows.
    parts: Vec<(u64, u64)>,
    record_bytes: u64,
    records: u64,
}

impl<S: Storage> Storage for Gathered<S> {
    fn name(&self) -> String {
        self.storage.name()
    }

    fn size(&self) -> Result<u64, StorageError> {
        self.storage.size()?;
        Ok(self.records * self.record_bytes)
    }

    fn granularity(&self) -> Granularity {
        Granularity::BYTE
    }

    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        let units = self.storage.granularity();
        let size = self.records * self.record_bytes;
        // What each range needs of each array: the first record, where the rows begin in the buffer, and the buffer.
        let mut buffers = Vec::with_capacity(reads.len() * self.parts.len());
        for read in reads.iter_mut() {
            let left = size.saturating_sub(read.offset);
            read.filled = left.min(read.buffer.len() as u64) as usize;
            if read.filled == 0 {
                continue;
            }
            let first = read.offset / self.record_bytes;
            let last = (read.offset + read.filled as u64 - 1) / self.record_bytes;
            for (from, row_bytes) in &self.parts {
                let begin = from + first * row_bytes;
                let wanted = (last - first + 1) * row_bytes;
                // Rows lie in the file, far from the largest offset.
                let (start, length) = units.align_out(begin, wanted).unwrap_or((begin, wanted));
                let mut buffer = AlignedBuffer::with_capacity(4096, length as usize);
                buffer.resize(length as usize, 0);
                buffers.push((start, (begin - start) as usize, buffer));
            }
        }
        let mut batch: Vec<RangeRead<'_>> = buffers
            .iter_mut()
            .map(|(offset, _, buffer)| RangeRead {
                offset: *offset,
                buffer,
                filled: 0,
            })
            .collect();
        self.storage.read_batch(&mut batch)?;
        let filled: Vec<usize> = batch.iter().map(|read| read.filled).collect();
        let mut gathered = buffers.iter().zip(filled);
        for read in reads.iter_mut().filter(|read| read.filled > 0) {
            let first = read.offset / self.record_bytes;
            let end = read.offset + read.filled as u64;
            let mut at = 0;
            for (_, row_bytes) in &self.parts {
                let ((_, skip, buffer), filled) = gathered.next().expect("one for each array");
                let mut record = first;
                while record * self.record_bytes < end {
                    let place = record * self.record_bytes + at;
                    let from = place.max(read.offset);
                    let to = (place + row_bytes).min(end);
                    if from < to {
                        let begin = skip + ((record - first) * row_bytes + from - place) as usize;
                        let length = (to - from) as usize;
                        if begin + length > filled {
                            // The file became shorter.
                            read.filled = 0;
                            break;
                        }
                        let to = (from - read.offset) as usize;
                        read.buffer[to..to + length]
                            .copy_from_slice(&buffer[begin..begin + length]);
                    }
                    record += 1;
                }
                at += row_bytes;
            }
        }
        Ok(())
    }
}

/// The path is for messages only.
pub fn read_entries(bytes: &[u8]) -> Option<Vec<ZipEntry>> {
    let mut file = std::io::Cursor::new(bytes);
    let entries = entries_of(&mut file, bytes.len() as u64).ok()?.ok()?;
    for entry in &entries {
        let ZipEntry { name, at, bytes } = entry;
        let entry = ZipEntry {
            name: name.clone(),
            at: *at,
            bytes: *bytes,
        };
        let size = file.get_ref().len() as u64;
        array_of(&mut file, size, entry).ok()?.ok()?;
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use pelton_storage::MemoryStorage;
    use pelton_storage::conformance::check_storage;

    use super::*;

    #[test]
    fn rows_are_gathered() {
        let (records, widths) = (5000u64, [3u64, 8, 1]);
        let file: Vec<u8> = (0..records * 12 + 100)
            .map(|i| (i * 7 + i / 251) as u8)
            .collect();
        let mut from = 100;
        let mut parts = Vec::new();
        for width in widths {
            parts.push((from, width));
            from += width * records;
        }
        let mut expected = Vec::new();
        for record in 0..records {
            for (from, width) in &parts {
                let at = (from + record * width) as usize;
                expected.extend_from_slice(&file[at..at + *width as usize]);
            }
        }
        let gathered = Gathered {
            storage: MemoryStorage::new(file),
            parts,
            record_bytes: 12,
            records,
        };
        check_storage(&gathered, &expected);
    }
}
