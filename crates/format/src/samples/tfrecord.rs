//! TFRecord: TensorFlow's files of records of bytes, mostly of `tf.train.Example`.
//!
//! ```text
//! record  length u64 | masked CRC32C of these 8 bytes u32 | bytes | masked CRC32C of them u32
//! masked  (crc rotated right by 15 bits) + 0xa282ead8
//! ```
//!
//! Numbers are little-endian. A scan hops from header to header and verifies the checksum of each length; those of the
//! bytes are verified when they are decoded. The scan parses Examples, and verifies their checksum only if they add a
//! label or a length (`framed/scan.rs`).
//!
//! Cost: one walk over the headers, all of the file if records are short; kept in a sidecar. Scanning chunks in several
//! threads was rejected: each header depends on the one before, and one thread keeps up with a drive.

use std::ops::Range;
use std::sync::Arc;

use crate::locate::format::{Format, Match, Shard, Source};
use crate::locate::places::byte_source::{ByteSource, FileWindow, STRETCH};
use crate::locate::places::elias_fano::EliasFanoBuilder;
use crate::locate::places::located::Located;
use crate::locate::places::sidecar::RecordShape;
use crate::locate::scanned::Scanned;
use crate::record::cells::label_column::LabelColumn;
use crate::record::error::{Fault, FormatError, FormatErrorKind};
use crate::record::kind::Head;
use crate::record::labels::{MOST_LABELS, too_many_labels};
use crate::samples::framed::scan::ExampleScan;
use crate::samples::framed::{self, AS_BYTES, FramedDecoder, Framing, Payload};

const NAME: &str = "tfrecord";
/// Tells these sidecars from others.
const SHAPE: u64 = 8;
/// How records are found, in words.
const HEADERS: &str = "from a walk over the headers of records";
/// Bytes before and after those of a record.
const HEADER: u64 = 12;
const FOOTER: u64 = 4;
/// Most records to try for a valid one, which determines the payload.
const FIRST_RECORDS: usize = 64;
/// Assumed mean bytes of a record for building the list of offsets.
const EXPECTED_RECORD_BYTES: u64 = 1 << 10;

/// Records that turn out to be Examples or not, or records as bytes.
pub(crate) enum TfRecord {
    Found,
    AsBytes,
}

impl Format for TfRecord {
    fn name(&self) -> &'static str {
        NAME
    }

    fn argument(&self) -> Option<&'static str> {
        match self {
            TfRecord::Found => None,
            TfRecord::AsBytes => Some(AS_BYTES),
        }
    }

    fn check(&self, argument: &str) -> Result<(), String> {
        framed::check_argument(NAME, argument)
    }

    /// By the checksum of the first length.
    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        let first = head.bytes.first_chunk::<12>();
        if first.is_some_and(|header| length_of(header).is_some()) {
            Some(Match::Magic)
        } else {
            let is_one = head.ends_in(&["tfrecord", "tfrecords"]);
            (is_one || head.name.contains(".tfrecord-")).then_some(Match::Name)
        }
    }

    fn refuses_label(&self, label: &LabelColumn) -> Option<&'static str> {
        framed::refuses_label(label)
    }

    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Shard, FormatError> {
        let mut window = source.window()?;
        let first = first_sound(&mut window)?;
        let payload = Payload::new(&first, NAME, source, notes)?;
        let shape = RecordShape::Classed {
            format: SHAPE,
            label: payload.hash(),
        };
        let (located, index) =
            source.located(shape, 0, notes, || scan(source, &mut window, &payload))?;
        let (payload, remarks) = payload.with_tallies(&located.tallies);
        let path = source.path.display();
        notes.extend(remarks.iter().map(|remark| format!("{path}: {remark}")));
        let records = located.starts.len();
        let decoder = FramedDecoder {
            framing: Arc::new(Checked),
            payload,
        };
        Ok(Shard::fields(records, decoder).at(located, index, HEADERS))
    }
}

fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The length that a header states, if its checksum fits.
fn length_of(header: &[u8; 12]) -> Option<u64> {
    let (length, checksum) = header.split_first_chunk::<8>()?;
    let stated = u32::from_le_bytes(checksum.try_into().ok()?);
    (masked(crc32c::crc32c(length)) == stated).then(|| u64::from_le_bytes(*length))
}

/// The walk cannot continue at record `record`, with its header at `at`.
fn malformed(record: u64, at: u64, what: &str, remedy: &str) -> FormatError {
    FormatError::malformed(at, format!("record {record} {what}; {remedy}"))
}

/// The byte range of the record with its header at `at`; an error if it exceeds the file.
#[inline]
fn next_record(
    source: &mut impl ByteSource,
    record: u64,
    at: u64,
) -> Result<Range<u64>, FormatError> {
    let size = source.size();
    let cut = |needed: Option<u64>| {
        let needed = needed.map_or("beyond any file".into(), |needed| {
            format!("to byte {needed}")
        });
        let what = format!("is cut off: it would reach {needed}, and the file ends at byte {size}");
        malformed(record, at, &what, "fetch the file again")
    };
    let start = at + HEADER;
    if start > size {
        return Err(cut(Some(start)));
    }
    let header = source.bytes(at, HEADER as usize)?;
    let header = header.first_chunk().expect("as many bytes were asked for");
    let length = length_of(header).ok_or_else(|| {
        let remedy = match record {
            0 => "not a valid TFRecord file (damaged, or compressed with ZLIB): fetch it again, or write it with GZIP or uncompressed",
            _ => "the file is damaged: fetch it again",
        };
        malformed(record, at, "has a length that its checksum does not fit", remedy)
    })?;
    let end = start.checked_add(length);
    match end.and_then(|end| end.checked_add(FOOTER)) {
        Some(stop) if stop <= size => Ok(start..stop - FOOTER),
        needed => Err(cut(needed)),
    }
}

/// Whether the checksum after the bytes of a record fits.
fn is_sound(source: &mut impl ByteSource, bytes: &Range<u64>) -> std::io::Result<bool> {
    let (mut at, mut crc) = (bytes.start, 0);
    while at < bytes.end {
        let length = (bytes.end - at).min(STRETCH);
        crc = crc32c::crc32c_append(crc, source.bytes(at, length as usize)?);
        at += length;
    }
    Ok(source.bytes(bytes.end, FOOTER as usize)? == masked(crc).to_le_bytes())
}

/// The bytes of the first record with a valid checksum.
fn first_sound(window: &mut FileWindow) -> Result<Vec<u8>, FormatError> {
    let mut at = 0;
    for record in 0..FIRST_RECORDS as u64 {
        if at == window.size() {
            break;
        }
        let bytes = next_record(window, record, at)?;
        if is_sound(window, &bytes)? {
            let length = (bytes.end - bytes.start) as usize;
            let bytes = window.bytes(bytes.start, length);
            return Ok(bytes?.to_vec());
        }
        at = bytes.end + FOOTER;
    }
    let what = "no checksum of its first records fits them; the file is damaged: fetch it again";
    Err(FormatError::malformed(0, what))
}

fn scan(
    source: &Source<'_>,
    window: &mut FileWindow,
    payload: &Payload,
) -> Result<Located, FormatError> {
    let mut examples = match payload {
        Payload::Example(fields) => Some(ExampleScan::new(fields.clone())),
        Payload::Bytes(_) => None,
    };
    let mut starts = EliasFanoBuilder::new(EXPECTED_RECORD_BYTES);
    let (mut at, mut longest, mut first_bad) = (0, 0, None);
    let mut end = window.size();
    while at < end {
        source.options.check_interrupt()?;
        let bytes = match next_record(window, starts.len(), at) {
            Err(error)
                if source.options.tolerant
                    && matches!(error.kind(), FormatErrorKind::Malformed) =>
            {
                // A record that cannot be decoded, however much follows it.
                first_bad = Some(starts.len());
                starts.push(at);
                if let Some(examples) = &mut examples {
                    examples.add_unread();
                }
                end = end.min(at + HEADER);
                longest = longest.max(end - at);
                break;
            }
            bytes => bytes?,
        };
        starts.push(at);
        if let Some(examples) = &mut examples {
            let sound = |window: &mut FileWindow| is_sound(window, &bytes);
            examples.add(window, bytes.clone(), sound)?;
            if examples.classes() > MOST_LABELS {
                return Err(too_many_labels(MOST_LABELS));
            }
        }
        longest = longest.max(bytes.end + FOOTER - at);
        at = bytes.end + FOOTER;
    }
    let records = starts.len();
    let scanned = match examples {
        Some(examples) => examples.finish(),
        None => Scanned::of_bytes(Payload::row_bytes(
            records,
            end.saturating_sub(records * (HEADER + FOOTER)),
        )),
    };
    Ok(Located {
        first_bad,
        ..scanned.located(starts.finish(end), end, longest)
    })
}

/// Bytes with checksums around them.
#[derive(Debug)]
struct Checked;

impl Framing for Checked {
    fn open<R>(
        &self,
        _: u64,
        frame: &[u8],
        with: impl FnOnce(&[u8]) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let parts = frame
            .split_first_chunk::<{ HEADER as usize }>()
            .and_then(|(_, rest)| rest.split_last_chunk::<{ FOOTER as usize }>());
        let (bytes, checksum) = parts.ok_or_else(|| Fault::new("it is cut off, or its length is damaged, so the data after it is lost; fetch or write the file again"))?;
        let (found, expected) = (u32::from_le_bytes(*checksum), masked(crc32c::crc32c(bytes)));
        if found != expected {
            return Err(Fault::new(format!(
                "its checksum is {found:#010x}, but its bytes give {expected:#010x}; the file is damaged: fetch or write it again"
            )));
        }
        with(bytes)
    }
}

/// The byte ranges of the records of a file in memory; `None` if a header is wrong.
pub fn find_tfrecords(file: &[u8]) -> Option<Vec<Range<usize>>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < file.len() as u64 {
        let bytes = next_record(&mut &*file, ranges.len() as u64, at).ok()?;
        at = bytes.end + FOOTER;
        ranges.push(bytes.start as usize..bytes.end as usize);
    }
    Some(ranges)
}
