//! The length and digests of a file that a manifest lists.

use std::io::{self, Write};
use std::path::Path;

use highway::{HighwayHash, HighwayHasher};
use serde::{Deserialize, Serialize};

/// Bytes in a part with its own digest.
pub(crate) const PART: u64 = if cfg!(test) { 1 << 12 } else { 64 << 20 };

/// The length of a file, and the digest of each part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub(crate) bytes: u64,
    pub(crate) parts: Vec<String>,
}

impl Entry {
    /// The entry of a file.
    pub fn read(path: &Path) -> io::Result<Entry> {
        let mut sum = Digesting::new(io::sink());
        io::copy(&mut pelton_storage::open_file(path)?, &mut sum)?;
        Ok(sum.finish().1)
    }
}

pub(crate) fn digest(part: &[u8]) -> String {
    format!("{:016x}", HighwayHasher::default().hash64(part))
}

/// A writer that computes the entry of the bytes written.
pub(crate) struct Digesting<W> {
    out: W,
    part: HighwayHasher,
    entry: Entry,
}

impl<W: Write> Digesting<W> {
    pub(crate) fn new(out: W) -> Digesting<W> {
        Digesting {
            out,
            part: HighwayHasher::default(),
            entry: Entry::default(),
        }
    }

    fn end_part(&mut self) {
        let part = std::mem::take(&mut self.part).finalize64();
        self.entry.parts.push(format!("{part:016x}"));
    }

    pub(crate) fn finish(mut self) -> (W, Entry) {
        if !self.entry.bytes.is_multiple_of(PART) {
            self.end_part();
        }
        (self.out, self.entry)
    }
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = (PART - self.entry.bytes % PART).min(bytes.len() as u64);
        let written = self.out.write(&bytes[..left as usize])?;
        self.part.append(&bytes[..written]);
        self.entry.bytes += written as u64;
        if written > 0 && self.entry.bytes.is_multiple_of(PART) {
            self.end_part();
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
