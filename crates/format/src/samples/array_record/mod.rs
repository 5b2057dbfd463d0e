//! ArrayRecord: files of records for random access, made of Riegeli's chunks (`riegeli.rs`).
//!
//! ```text
//! file       chunks of records | footer, a chunk | postscript, a chunk in the last 64 KiB
//! footer     records: metadata (array_record_metadata = 1: version = 1, num_chunks = 2, num_records = 3),
//!            then for each chunk chunk_offset = 1, decoded_data_size = 2, num_records = 3
//! postscript records: footer_offset = 1, magic = 2
//! ```
//!
//! The footer lists the offsets of the chunks, so files of bytes are not scanned at all. Files of `tf.train.Example`
//! are read and decompressed once, for their labels and the lengths of their features. A chunk is a record: files
//! with more than one record in a group are refused, because each record would cost reading and decompressing its
//! whole group.
//!
//! Cost: one read of the footer, some ten bytes a record, whenever a file is opened.

pub(crate) mod riegeli;

use std::cell::RefCell;
use std::fmt::Display;
use std::sync::Arc;

use crate::locate::format::{Format, Match, Shard, Source};
use crate::locate::places::byte_source::{ByteSource, FileWindow};
use crate::locate::places::elias_fano::{EliasFano, EliasFanoBuilder};
use crate::locate::places::located::Located;
use crate::locate::places::sidecar::RecordShape;
use crate::locate::places::{IN_FILE, IndexSource, Places};
use crate::locate::scanned::Scanned;
use crate::record::cells::label_column::LabelColumn;
use crate::record::error::{Fault, FormatError};
use crate::record::kind::Head;
use crate::record::labels::{MOST_LABELS, too_many_labels};
use crate::samples::array_record::riegeli::{BLOCK, CHUNK_HEADER, Chunk, Wrong, chunk};
use crate::samples::framed::example::{delimited, varint};
use crate::samples::framed::scan::ExampleScan;
use crate::samples::framed::{self, AS_BYTES, FramedDecoder, Framing, Payload};

const NAME: &str = "array_record";
/// Tells these sidecars from others.
const SHAPE: u64 = 9;
/// The magic number of a postscript.
const MAGIC: u64 = 0x7193_0e70_4fda_e05e;
const VERSION: u64 = 1;
/// Most records to try for a valid one, which determines the payload.
const FIRST_RECORDS: usize = 64;
const FETCH: &str = "the file is damaged or not written to its end: fetch it again";

/// Records that turn out to be Examples or not, or records as bytes.
pub(crate) enum ArrayRecord {
    Found,
    AsBytes,
}

impl Format for ArrayRecord {
    fn name(&self) -> &'static str {
        NAME
    }

    fn argument(&self) -> Option<&'static str> {
        match self {
            ArrayRecord::Found => None,
            ArrayRecord::AsBytes => Some(AS_BYTES),
        }
    }

    fn check(&self, argument: &str) -> Result<(), String> {
        framed::check_argument(NAME, argument)
    }

    /// By the hash in the header of the first chunk, the file's signature, which no other format has.
    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        const SIGNATURE: &[u8] = &[0x91, 0xba, 0xc2, 0x3c, 0x92, 0x87, 0xe1, 0xa9];
        let is_name =
            head.ends_in(&["array_record", "arrayrecord"]) || head.name.contains(".array_record-");
        if head.bytes.get(24..32) == Some(SIGNATURE) {
            Some(Match::Magic)
        } else {
            is_name.then_some(Match::Name)
        }
    }

    fn in_place_only(&self) -> bool {
        true
    }

    fn refuses_label(&self, label: &LabelColumn) -> Option<&'static str> {
        framed::refuses_label(label)
    }

    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Shard, FormatError> {
        let mut window = source.window()?;
        let table = read_table(&mut window)?;
        if table.starts.is_empty() {
            return Err(FormatError::empty());
        }
        let first = first_sound(source, &mut window, &table)?;
        let payload = Payload::new(&first, NAME, source, notes)?;
        let (located, index) = match &payload {
            Payload::Bytes(_) => {
                let records = table.starts.len();
                let scanned = Scanned::of_bytes(Payload::row_bytes(records, table.record_bytes));
                (table.located(scanned), IndexSource::Arithmetic)
            }
            Payload::Example(fields) => {
                let shape = RecordShape::Classed {
                    format: SHAPE,
                    label: payload.hash(),
                };
                let scan = ExampleScan::new(fields.clone());
                source.located(shape, 0, notes, || {
                    scan_table(source, &mut window, table, scan)
                })?
            }
        };
        let (payload, remarks) = payload.with_tallies(&located.tallies);
        let path = source.path.display();
        notes.extend(remarks.iter().map(|remark| format!("{path}: {remark}")));
        let (records, end) = (located.starts.len(), located.end);
        let starts = Arc::new(located.starts);
        let decoder = FramedDecoder {
            framing: Arc::new(Chunks(Arc::clone(&starts))),
            payload,
        };
        Ok(Shard {
            records,
            bytes: end - starts.walk(0).next().unwrap_or(end),
            longest: located.longest,
            nonzeros: located.nonzeros,
            index,
            places: Places::Listed {
                starts,
                end,
                from: IN_FILE,
            },
            labels: located.labels.into(),
            names: located.names,
            codes: located.codes,
            ..Shard::fields(records, decoder)
        })
    }
}

/// The contents of the footer.
struct Table {
    starts: EliasFano,
    end: u64,
    longest: u64,
    /// Bytes of all records, without compression.
    record_bytes: u64,
}

impl Table {
    fn located(self, scanned: Scanned) -> Located {
        scanned.located(self.starts, self.end, self.longest)
    }
}

fn malformed(at: u64, what: impl Display, remedy: &str) -> FormatError {
    FormatError::malformed(at, format!("{what}; {remedy}"))
}

/// The chunk in the `length` bytes at `at`.
fn read_chunk<'w>(
    window: &'w mut impl ByteSource,
    at: u64,
    length: u64,
) -> Result<Result<Chunk<'w>, Wrong>, FormatError> {
    let bytes = window.bytes(at, length as usize)?;
    Ok(chunk(at, bytes))
}

fn read_table(window: &mut impl ByteSource) -> Result<Table, FormatError> {
    let size = window.size();
    let Some(postscript_at) = size.checked_sub(BLOCK) else {
        return Err(malformed(
            0,
            "it has not the 64 KiB of any ArrayRecord",
            FETCH,
        ));
    };
    let mut scratch = Vec::new();
    let postscript = read_chunk(window, postscript_at, BLOCK)?;
    let footer_at = postscript.ok().and_then(|chunk| {
        let records = chunk.records().ok()?;
        let first = *records.sizes().ok()?.first()?;
        let first = records.values(&mut scratch).ok()?.get(..first as usize)?;
        let [footer, magic] = numbers(first)?;
        (magic == MAGIC && footer <= postscript_at).then_some(footer)
    });
    let Some(footer_at) = footer_at else {
        return Err(malformed(
            postscript_at,
            "it does not end in a postscript",
            FETCH,
        ));
    };
    let wrong = |what: Wrong| {
        let (what, remedy) = split_remedy(what);
        malformed(footer_at, format!("its footer: {what}"), remedy)
    };
    let footer = read_chunk(window, footer_at, postscript_at - footer_at)?;
    let footer = footer.map_err(wrong)?;
    // A chunk takes 40 bytes at least, and an entry fewer.
    if footer.records > size / CHUNK_HEADER as u64 || footer.record_bytes > size {
        return Err(wrong("it has more entries than there can be chunks"));
    }
    let records = footer.records().map_err(wrong)?;
    let sizes = records.sizes().map_err(wrong)?;
    let mut rest = records.values(&mut scratch).map_err(wrong)?;
    let mut starts = EliasFanoBuilder::new(1 << 10);
    let (mut record_bytes, mut longest) = (0u64, 0);
    for (i, size) in sizes.iter().enumerate() {
        // Sizes fill the values.
        let (message, others) = rest.split_at(*size as usize);
        rest = others;
        if i == 0 {
            check_metadata(message, sizes.len() as u64 - 1).map_err(wrong)?;
            continue;
        }
        let [at, bytes, records] = numbers(message).ok_or("an entry is none").map_err(wrong)?;
        let ascends = starts.last().is_none_or(|last| last < at);
        if !ascends || at >= footer_at {
            return Err(wrong("chunks do not lie one after another"));
        }
        if records != 1 {
            return Err(malformed(
                at,
                format!("{records} records are one group there"),
                "write the file with group_size:1, so that each is read by itself",
            ));
        }
        longest = longest.max(starts.last().map_or(0, |last| at - last));
        starts.push(at);
        let sum = record_bytes.checked_add(bytes);
        record_bytes = sum.ok_or("its chunks are too long").map_err(wrong)?;
    }
    let last = starts.last().unwrap_or(footer_at);
    Ok(Table {
        starts: starts.finish(footer_at),
        end: footer_at,
        longest: longest.max(footer_at - last),
        record_bytes,
    })
}

/// The fault, and its remedy: that of the text, if it has one.
fn split_remedy(what: Wrong) -> (&'static str, &'static str) {
    what.split_once("; ").unwrap_or((what, FETCH))
}

fn check_metadata(message: &[u8], chunks: u64) -> Result<(), Wrong> {
    let metadata = delimited(&mut &*message, 0, message.len() as u64).ok();
    let metadata = metadata.filter(|(number, _)| *number == 1);
    let found = metadata.and_then(|(_, at)| numbers(&message[at.start as usize..at.end as usize]));
    match found {
        Some([VERSION, count]) if count == chunks => Ok(()),
        Some([VERSION, _]) => Err("it has not as many entries as it says"),
        Some([..]) => Err("it is of another version; update this program, or write it again"),
        None => Err("its metadata are none"),
    }
}

/// The numbers of the fields 1, 2 … of a message, 0 for missing ones; other fields are skipped.
fn numbers<const N: usize>(message: &[u8]) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    let mut rest = message;
    while !rest.is_empty() {
        let (tag, bytes) = varint(rest)?;
        let (value, length) = varint(&rest[bytes..])?;
        rest = &rest[bytes + length..];
        match tag & 7 {
            0 => {
                let field = usize::try_from(tag >> 3).ok()?.checked_sub(1)?;
                if let Some(number) = numbers.get_mut(field) {
                    *number = value;
                }
            }
            2 => rest = rest.get(usize::try_from(value).ok()?..)?,
            _ => return None,
        }
    }
    Some(numbers)
}

/// The only record of a chunk.
fn one_record<'s>(chunk: &'s Chunk<'_>, scratch: &'s mut Vec<u8>) -> Result<&'s [u8], Wrong> {
    match chunk.records {
        1 => chunk.records()?.values(scratch),
        _ => Err("its chunk has not one record, as the footer says"),
    }
}

/// Calls `with` with each record in order, or its fault, until it returns false.
fn for_each(
    source: &Source<'_>,
    window: &mut FileWindow,
    table: &Table,
    mut with: impl FnMut(u64, Result<&[u8], Wrong>) -> bool,
) -> Result<(), FormatError> {
    let mut scratch = Vec::new();
    let ends = table.starts.walk(0).skip(1).chain([table.end]);
    for (at, end) in table.starts.walk(0).zip(ends) {
        source.options.check_interrupt()?;
        let chunk = read_chunk(window, at, end - at)?;
        let record = match &chunk {
            Ok(chunk) => one_record(chunk, &mut scratch),
            Err(what) => Err(*what),
        };
        if !with(at, record) {
            break;
        }
    }
    Ok(())
}

/// The bytes of the first record in a valid chunk.
fn first_sound(
    source: &Source<'_>,
    window: &mut FileWindow,
    table: &Table,
) -> Result<Vec<u8>, FormatError> {
    let (mut sound, mut unsound, mut tried) = (None, None, 0);
    for_each(source, window, table, |at, record| {
        match record {
            Ok(record) => sound = Some(record.to_vec()),
            Err(what) => unsound = unsound.or(Some((at, what))),
        }
        tried += 1;
        sound.is_none() && tried < FIRST_RECORDS
    })?;
    sound.ok_or_else(|| {
        let (at, what) = unsound.expect("a file without chunks is refused before");
        let (what, remedy) = split_remedy(what);
        malformed(at, what, remedy)
    })
}

/// Scans the Examples of a file.
fn scan_table(
    source: &Source<'_>,
    window: &mut FileWindow,
    table: Table,
    mut examples: ExampleScan,
) -> Result<Located, FormatError> {
    let mut too_many = false;
    for_each(source, window, &table, |_, record| {
        match record {
            // Its checksums fit.
            Ok(mut record) => {
                let bytes = 0..record.len() as u64;
                let added = examples.add(&mut record, bytes, |_| Ok(true));
                added.expect("reading memory does not fail");
            }
            Err(_) => examples.add_unread(),
        }
        too_many = examples.classes() > MOST_LABELS;
        !too_many
    })?;
    if too_many {
        return Err(too_many_labels(MOST_LABELS));
    }
    Ok(table.located(examples.finish()))
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::default();
}

/// Records, one a chunk.
#[derive(Debug)]
struct Chunks(Arc<EliasFano>);

impl Framing for Chunks {
    fn open<R>(
        &self,
        record: u64,
        frame: &[u8],
        with: impl FnOnce(&[u8]) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let damaged = |what: Wrong| {
            let (what, remedy) = split_remedy(what);
            Fault::new(format!("{what}; {remedy}"))
        };
        let chunk = chunk(self.0.get(record), frame).map_err(damaged)?;
        SCRATCH.with_borrow_mut(|scratch| with(one_record(&chunk, scratch).map_err(damaged)?))
    }
}
