//! Walks over the entries of a tar file, from header to header without reading the data between.
//!
//! The same walk indexes a file, and splits a record in memory into members.

use std::io;
use std::ops::Range;

use crate::locate::places::byte_source::ByteSource;
use crate::locate::tar::header::{BLOCK, Pax, parse, parse_pax};
use crate::record::error::Fault;

/// Longest name or pax header that is read: names of files have at most 4096 bytes, and other attributes a few more.
const MOST_EXTENSION_BYTES: u64 = 1 << 20;
/// Most headers of names and attributes before one member.
const MOST_EXTENSIONS: usize = 8;

/// One entry, by offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Offset of the first byte, including its long-name header if it has one.
    pub(crate) start: u64,
    /// Offset of the data.
    pub(crate) data: u64,
    /// Bytes of data.
    pub(crate) size: u64,
    /// End of the entry with its padding, at most the end of the bytes.
    pub(crate) end: u64,
    pub(crate) kind: u8,
    /// Range of the name.
    pub(crate) name: Range<u64>,
    /// Range of the part before the name and a slash; empty if there is none.
    pub(crate) prefix: Range<u64>,
    pub(crate) sparse: bool,
}

impl Entry {
    /// Whether it is a regular file.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.kind, b'0' | 0 | b'7')
    }
}

/// One step of a walk.
#[derive(Debug)]
pub(crate) enum Step {
    Entry(Entry),
    /// The end: a block of zeros, or no more bytes.
    End {
        has_block: bool,
    },
}

/// Why a walk cannot continue.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The bytes end within the entry that starts at `start`; `needed` is the end of that entry.
    Truncated {
        start: u64,
        needed: u64,
    },
    /// A fault, and its offset.
    Damaged {
        at: u64,
        what: &'static str,
    },
    Failed(io::Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        Broken::Failed(error)
    }
}

/// The entry at `start`.
pub(crate) fn step(source: &mut impl ByteSource, start: u64) -> Result<Step, Broken> {
    let size = source.size();
    let mut at = start;
    let mut long_name = None;
    let mut pax = Pax::default();
    let mut pax_from = 0;
    for _ in 0..=MOST_EXTENSIONS {
        let truncated = |needed| Broken::Truncated { start, needed };
        if at == size && at == start {
            return Ok(Step::End { has_block: false });
        }
        let data = match at.checked_add(BLOCK as u64) {
            Some(data) if data <= size => data,
            _ => return Err(truncated(at.saturating_add(BLOCK as u64))),
        };
        let block = source.bytes(at, BLOCK)?;
        let block = block.first_chunk().expect("a block was asked for");
        let damaged = |what| Broken::Damaged { at, what };
        let Some(header) = parse(block).map_err(damaged)? else {
            return if at == start {
                Ok(Step::End { has_block: true })
            } else {
                Err(damaged("the archive ends between a name and its member"))
            };
        };
        let is_extension = matches!(header.kind, b'L' | b'K' | b'x' | b'g');
        let bytes = match pax.size {
            Some(bytes) if !is_extension => bytes,
            _ => header.size,
        };
        let data_end = data.checked_add(bytes).filter(|end| *end <= size);
        let Some(data_end) = data_end else {
            return Err(truncated(data.saturating_add(bytes)));
        };
        let end = data_end.next_multiple_of(BLOCK as u64).min(size);
        if !is_extension {
            let offset = |range: Range<usize>| at + range.start as u64..at + range.end as u64;
            let path = pax
                .path
                .map(|path| pax_from + path.start as u64..pax_from + path.end as u64);
            let (name, prefix) = match path.or(long_name) {
                Some(name) => (name, 0..0),
                None => (offset(header.name), offset(header.prefix)),
            };
            return Ok(Step::Entry(Entry {
                start,
                data,
                size: bytes,
                end,
                kind: header.kind,
                name,
                prefix,
                sparse: pax.sparse || header.kind == b'S',
            }));
        }
        if bytes > MOST_EXTENSION_BYTES {
            return Err(damaged("a name or pax header is longer than 1 MiB"));
        }
        match header.kind {
            b'L' => {
                let name = source.bytes(data, bytes as usize)?;
                let length = memchr::memchr(0, name).unwrap_or(name.len());
                long_name = Some(data..data + length as u64);
            }
            b'x' => {
                pax = parse_pax(source.bytes(data, bytes as usize)?).map_err(damaged)?;
                pax_from = data;
            }
            // A long link name, or attributes of all members; neither matters here.
            _ => {}
        }
        at = end;
    }
    Err(Broken::Damaged {
        at: start,
        what: "a member has too many headers before its own",
    })
}

/// Verifies that a group is whole: headers up to its very end.
pub(crate) fn check_group(group: &[u8]) -> Result<(), Fault> {
    let mut at = 0;
    let mut files = 0;
    let fault = |at, what| {
        Fault::new(format!(
            "byte {offset} of it: {what}; the archive is cut off, damaged or changed: fetch or make it again",
            offset = at
        ))
    };
    while at < group.len() as u64 {
        match step(&mut &*group, at) {
            Ok(Step::Entry(entry)) => {
                files += usize::from(entry.is_file());
                at = entry.end;
            }
            Ok(Step::End { .. }) => return Err(fault(at, "it contains a block of zeros")),
            Err(Broken::Damaged { at, what }) => return Err(fault(at, what)),
            Err(Broken::Truncated { start, .. }) => {
                return Err(fault(start, "a member reaches past its end"));
            }
            Err(Broken::Failed(_)) => return Err(fault(at, "it cannot be read")),
        }
    }
    match files {
        0 => Err(Fault::NO_RECORD),
        _ => Ok(()),
    }
}
