//! The sidecar file stores the result of the scan of a text or tar file, so that it is scanned once.
//!
//! It is next to the data as `NAME.pelton-index`, or in the cache folder if the data's folder cannot be written. It
//! states size, times and sampled checksum of the data and how it was read; unless all of them fit, and its own
//! checksum and every field are valid, it is ignored. All numbers are 64-bit little-endian, the last four bytes are the
//! CRC32C of the rest.

use std::io::{self, Read, Write};
use std::num::NonZeroU32;
use std::path::Path;

use pelton_storage::WholeFile;

use crate::locate::checksum::without_checksum;
use crate::locate::places::elias_fano::EliasFano;
use crate::locate::places::located::Located;
use crate::locate::places::scan_chunk::LineShape;
use crate::locate::places::stamp::Stamp;
use crate::record::labels::MOST_LABELS;
use crate::record::labels::codes::Codes;

/// First bytes of a sidecar; the last one is its version.
pub(crate) const MAGIC: &[u8; 8] = b"pltnidx\x06";

/// The structure of the records of a scanned file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordShape {
    Lines(LineShape),
    /// Records of a format with classes that the scan collects; `label` identifies the key.
    Classed {
        format: u64,
        label: u64,
    },
    /// Records that are derived from the file's bytes and may be longer; `hash` identifies the input and the
    /// derivation.
    #[cfg_attr(
        not(feature = "columns"),
        expect(dead_code, reason = "made by columns alone")
    )]
    Made {
        hash: u64,
    },
    /// Runs of this many tokens of text.
    Tokens(NonZeroU32),
}

/// Most counts and words of text: one a field, some for notes, or the schema of some thousands of keys.
const MOST_TALLIES: u64 = 1 << 18;

/// The key that a sidecar must match.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SidecarKey {
    pub(crate) shape: RecordShape,
    /// The start offset of the scan.
    pub(crate) from: u64,
    pub(crate) stamp: Stamp,
    pub(crate) sample: u64,
}

impl SidecarKey {
    pub(crate) fn words(&self) -> [u64; 10] {
        let (kind, delimiter, label, columns) = match self.shape {
            RecordShape::Lines(LineShape::Libsvm) => (1, 0, 0, 0),
            RecordShape::Lines(LineShape::LibsvmTargets) => (1, 0, 1, 0),
            RecordShape::Lines(LineShape::Delimited {
                delimiter,
                decimal_comma,
                label,
                columns,
            }) => {
                let delimiter = u64::from(delimiter) | u64::from(decimal_comma) << 8;
                let label = label.map_or(u64::MAX, |label| label as u64);
                // 2 meant lines without newlines in quotes, 4 lines of UTF-8 text.
                (20, delimiter, label, columns as u64)
            }
            RecordShape::Lines(LineShape::Text) => (3, 0, 0, 0),
            RecordShape::Classed { format, label } => (format, 0, label, 0),
            RecordShape::Made { hash } => (32, 0, hash, 0),
            RecordShape::Tokens(length) => (5, 0, 0, u64::from(length.get())),
        };
        let modified = self.stamp.modified_ns();
        [
            kind,
            delimiter,
            label,
            columns,
            self.from,
            self.stamp.size,
            modified as u64,
            (modified >> 64) as u64,
            self.stamp.touched_ns as u64,
            self.sample,
        ]
    }
}

/// The bytes of a sidecar.
pub(crate) fn encode(key: &SidecarKey, contents: &Located) -> Vec<u8> {
    let offsets = contents.starts.parts();
    let (code_width, codes) = contents.codes.to_words();
    let mut bytes = MAGIC.to_vec();
    let mut put = |word: u64| bytes.extend_from_slice(&word.to_le_bytes());
    key.words().into_iter().for_each(&mut put);
    [
        contents.index_end,
        contents.nonzeros,
        contents.longest,
        contents.end,
        contents.first_bad.unwrap_or(u64::MAX),
        contents.labels.len() as u64,
        contents.tallies.len() as u64,
        contents.names.iter().map(|name| name_words(name)).sum(),
        code_width,
        offsets.len,
        u64::from(offsets.low_bits),
        offsets.low.len() as u64,
        offsets.high.len() as u64,
    ]
    .into_iter()
    .for_each(&mut put);
    contents
        .labels
        .iter()
        .for_each(|label| put(label.to_bits()));
    for name in &contents.names {
        put(name.len() as u64);
        for chunk in name.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            put(u64::from_le_bytes(word));
        }
    }
    contents
        .tallies
        .iter()
        .chain(&codes)
        .chain(offsets.low)
        .chain(offsets.high)
        .for_each(|word| put(*word));
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Words that a name takes: its length, then its bytes, filled up with zeros.
fn name_words(name: &str) -> u64 {
    1 + name.len().div_ceil(8) as u64
}

/// The names of `labels` labels from words; empty if there are no words. `None` if they do not ascend, are not text, or
/// the words do not end with the last.
fn read_names(mut words: &[u64], labels: &[f64]) -> Option<Vec<String>> {
    if words.is_empty() {
        return Some(Vec::new());
    }
    let mut names: Vec<String> = Vec::new();
    for (class, label) in labels.iter().enumerate() {
        let (length, rest) = words.split_first()?;
        let length = usize::try_from(*length).ok()?;
        let (packed, rest) = rest.split_at_checked(length.div_ceil(8))?;
        let mut bytes: Vec<u8> = packed.iter().flat_map(|word| word.to_le_bytes()).collect();
        if bytes.drain(length..).any(|byte| byte != 0) {
            return None;
        }
        let name = String::from_utf8(bytes).ok()?;
        let ascends = names.last().is_none_or(|last| *last < name);
        if name.is_empty() || !ascends || *label != class as f64 {
            return None;
        }
        names.push(name);
        words = rest;
    }
    words.is_empty().then_some(names)
}

/// The contents of a sidecar, if it is complete and matches the key.
pub(crate) fn decode(bytes: &[u8], key: &SidecarKey) -> Option<Located> {
    let body = without_checksum(bytes)?.strip_prefix(MAGIC)?;
    let (words, rest) = body.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let (stated, words) = words.split_at_checked(10)?;
    if !rest.is_empty() || stated != key.words() {
        return None;
    }
    let (fields, words) = words.split_first_chunk::<13>()?;
    let [
        index_end,
        nonzeros,
        longest,
        end,
        first_bad,
        labels,
        tallies,
        name_words,
        code_width,
        len,
        low_bits,
        low_words,
        high_words,
    ] = *fields;
    let code_words = Codes::word_count(code_width, len)?;
    let expected = [tallies, name_words, code_words, low_words, high_words]
        .into_iter()
        .try_fold(labels, u64::checked_add)?;
    let size = match key.shape {
        RecordShape::Made { .. } => i64::MAX as u64,
        _ => key.stamp.size,
    };
    if words.len() as u64 != expected
        || labels > MOST_LABELS as u64
        || tallies > MOST_TALLIES
        || end > size
    {
        return None;
    }
    let (labels, words) = words.split_at(labels as usize);
    let (names, words) = words.split_at(name_words as usize);
    let (tallies, words) = words.split_at(tallies as usize);
    let (codes, words) = words.split_at(code_words as usize);
    let codes = Codes::from_words(code_width, len, labels.len(), codes)?;
    let (low, high) = words.split_at(low_words as usize);
    let labels: Vec<f64> = labels.iter().map(|label| f64::from_bits(*label)).collect();
    let names = read_names(names, &labels)?;
    let sound =
        labels.iter().all(|label| label.is_finite()) && index_end <= 1 << 32 && longest <= size;
    if !sound {
        return None;
    }
    let low_bits = u32::try_from(low_bits).ok()?;
    let starts = EliasFano::from_parts(len, low_bits, low.to_vec(), high.to_vec(), end)?;
    let mut last = None;
    let mut found_longest = 0;
    for start in starts.walk(0).chain([end]) {
        if start < key.from {
            return None;
        }
        if let Some(last) = last {
            found_longest = found_longest.max(start - last);
        }
        last = Some(start);
    }
    // Lines and tokens end at the end of the file; records of other shapes may not.
    let is_text = match key.shape {
        RecordShape::Lines(_) | RecordShape::Tokens(_) => true,
        RecordShape::Classed { .. } | RecordShape::Made { .. } => false,
    };
    let first_bad = (first_bad != u64::MAX).then_some(first_bad);
    let sound = found_longest == longest
        && first_bad.is_none_or(|record| record < len)
        && (end == size || !is_text);
    sound.then_some(Located {
        first_bad,
        starts,
        end,
        labels,
        names,
        codes,
        tallies: tallies.to_vec(),
        index_end,
        nonzeros,
        longest,
    })
}

/// Reads a sidecar; `None` unless it exists and is valid.
pub(crate) fn load(path: &Path, key: &SidecarKey) -> Option<Located> {
    let file = pelton_storage::open_file(path).ok()?;
    // A sidecar is at most a few times as large as its data, so a foreign file cannot fill the memory.
    let limit = key.stamp.size.saturating_mul(16).saturating_add(1 << 16);
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).ok()?;
    decode(&bytes, key)
}

/// Writes a sidecar whole or not at all.
pub(crate) fn store(path: &Path, key: &SidecarKey, contents: &Located) -> io::Result<()> {
    let mut file = WholeFile::create(path)?;
    file.write_all(&encode(key, contents))?;
    file.publish()
}
