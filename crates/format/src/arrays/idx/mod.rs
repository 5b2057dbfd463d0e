//! IDX, the format of MNIST and its kin: a header of sizes, then numbers.
//!
//! ```text
//! 0 u8 | 0 u8 | type u8 (8: unsigned byte, 12: i32 big-endian) | dimensions u8 | a size u32 big-endian each | data
//! ```
//!
//! The first size is the number of records; the others are the shape of a picture: rows, columns and channels
//! (interleaved), as far as the header has them. Pictures are bytes. Labels, bytes or i32, are in a file of one
//! dimension that is found by name: `images-idx3` becomes `labels-idx1`, with or without `.gz`. They are read whole
//! when the data is opened, so a record needs one read. If `x-names.txt` is next to `x-images.idx`, its lines are the
//! names of the labels 0, 1, 2 …. Format: LeCun, "The MNIST database of handwritten digits"; the names are Pelton's.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::locate::format::{Format, Match, Shard, Source};
use crate::locate::names_file::names_next_to;
use crate::locate::origin::Origin;
use crate::locate::places::Places;
use crate::locate::sample::SampleShape;
use crate::record::contents::Contents;
use crate::record::error::FormatError;
use crate::record::kind::Head;
use crate::record::labels::codes::Codes;
use crate::record::options::OpenOptions;

/// The type of 32-bit integers.
const INTEGERS: u8 = 0x0c;
/// Most dimensions read: records, rows, columns, channels.
const MOST_DIMENSIONS: usize = 4;
/// Largest side of a picture, and most channels.
const MOST_SIDE: u32 = 1 << 24;
/// Longer names files are ignored.
const MOST_NAME_BYTES: u64 = 1 << 30;

/// The header of an IDX file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdxHeader {
    /// Sizes; the first is the number of records.
    pub sizes: Vec<u32>,
    /// Bytes of a number: 1, or 4 for an i32.
    pub number_bytes: u64,
}

impl IdxHeader {
    /// Bytes of the header.
    pub fn data_offset(&self) -> u64 {
        4 + 4 * self.sizes.len() as u64
    }

    /// Number of records.
    pub fn records(&self) -> u64 {
        u64::from(self.sizes.first().copied().unwrap_or(0))
    }

    /// Bytes of one record; `None` if they exceed 64 bits.
    pub fn record_bytes(&self) -> Option<u64> {
        let mut sides = self.sizes.iter().skip(1).map(|side| u64::from(*side));
        sides.try_fold(self.number_bytes, u64::checked_mul)
    }

    fn contents(&self) -> Contents {
        let side = |i: usize| self.sizes.get(i).copied().unwrap_or(1);
        let (height, width) = match self.sizes.len() {
            2 => (1, side(1)),
            _ => (side(1), side(2)),
        };
        Contents::Pixels {
            height,
            width,
            channels: side(3),
            planar: false,
        }
    }
}

/// Reads the header at the start of `bytes`; errors name no path.
pub fn parse_idx_header(bytes: &[u8]) -> Result<IdxHeader, FormatError> {
    let short = || FormatError::malformed(bytes.len() as u64, "the file ends inside its header");
    let Some(&[zero, also_zero, kind, dimensions]) = bytes.first_chunk::<4>() else {
        return Err(short());
    };
    if bytes.starts_with(b"MMIDIDX") {
        let what = "it is an index of Megatron-LM; name the .bin next to it, with the format `documents` or windows:LENGTH";
        return Err(FormatError::malformed(0, what));
    }
    if (zero, also_zero) != (0, 0) {
        let found = format!(
            "its magic number is {zero:02x}{also_zero:02x}{kind:02x}{dimensions:02x}, and an IDX file starts with two zero bytes"
        );
        return Err(FormatError::malformed(0, found));
    }
    let name = match kind {
        8 | INTEGERS => "",
        9 => "signed bytes",
        0x0b => "16-bit integers",
        0x0d => "32-bit floating point numbers",
        0x0e => "64-bit floating point numbers",
        _ => "numbers of an unknown type",
    };
    if !name.is_empty() {
        let what = format!("it holds {name} (type {kind:#04x})");
        return Err(FormatError::malformed(2, what));
    }
    let dimensions = usize::from(dimensions);
    if !(1..=MOST_DIMENSIONS).contains(&dimensions) {
        let what = format!("it has {dimensions} dimensions, and 1 to 4 are read");
        return Err(FormatError::malformed(3, what));
    }
    let Some(sizes) = bytes.get(4..4 + 4 * dimensions) else {
        return Err(short());
    };
    let sizes = sizes.as_chunks::<4>().0.iter();
    let sizes: Vec<u32> = sizes.map(|size| u32::from_be_bytes(*size)).collect();
    for (i, &size) in sizes.iter().enumerate().skip(1) {
        if size == 0 || size > MOST_SIDE {
            let at = 4 + 4 * i as u64;
            let what = format!(
                "dimension {} has size {size}, and 1 to {MOST_SIDE} are read",
                i + 1
            );
            return Err(FormatError::malformed(at, what));
        }
    }
    let number_bytes = if kind == INTEGERS { 4 } else { 1 };
    Ok(IdxHeader {
        sizes,
        number_bytes,
    })
}

/// The header of a file of `size` bytes; an error unless the data fill the rest of the file.
fn whole_header(head: &[u8], size: u64) -> Result<IdxHeader, FormatError> {
    const REMEDY: &str =
        "expected a whole IDX file of unsigned bytes, or of labels as 32-bit integers";
    let header = parse_idx_header(head).map_err(|error| error.with_remedy(REMEDY))?;
    let expected = header
        .record_bytes()
        .and_then(|bytes| bytes.checked_mul(header.records()))
        .and_then(|bytes| bytes.checked_add(header.data_offset()));
    if expected == Some(size) {
        return Ok(header);
    }
    let stated: Vec<String> = header.sizes.iter().map(u32::to_string).collect();
    let needed = match expected {
        Some(bytes) => format!("{bytes} bytes"),
        None => "more bytes than a file can have".into(),
    };
    let stated = stated.join(" × ");
    let what = format!(
        "its header states {stated} values, which take {needed}, and it has {size}; {REMEDY}"
    );
    Err(FormatError::malformed(4, what))
}

/// IDX images with a file of labels next to them, as MNIST has.
pub(crate) struct Idx;

impl Format for Idx {
    fn name(&self) -> &'static str {
        "idx"
    }

    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        let says_idx = ["-idx", ".idx"].iter().any(|part| head.name.contains(part));
        let is_idx = says_idx || matches!(head.bytes, [0, 0, 8, 1..=4, ..]);
        (is_idx && !head.ends_in(&["bin"])).then_some(Match::Hint)
    }

    fn has_features(&self) -> bool {
        true
    }

    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Shard, FormatError> {
        let header = whole_header(source.head, source.stamp.size)?;
        if header.sizes.len() == 1 {
            return Err(FormatError::new(
                "it holds labels and no pictures; name the file of the images, and its labels are found",
            ));
        }
        if header.number_bytes != 1 {
            let what = "it holds 32-bit integers (type 0x0c); expected pictures of unsigned bytes";
            return Err(FormatError::malformed(2, what));
        }
        let records = header.records();
        let bytes = header.record_bytes().unwrap_or(0);
        let (labels, codes, names) = labels_of(source, records, notes)?;
        Ok(Shard {
            names,
            codes,
            records,
            bytes: records * bytes,
            longest: bytes,
            places: Places::Fixed {
                from: header.data_offset(),
                bytes,
            },
            ..Shard::samples(
                header.contents(),
                records * bytes,
                labels,
                SampleShape::Whole,
            )
        })
    }
}

/// Candidate paths for the labels of a file of pictures, best first.
fn label_places(path: &Path) -> Vec<PathBuf> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return Vec::new();
    };
    let plain = name.strip_suffix(".gz").unwrap_or(name);
    if !plain.contains("images") {
        return Vec::new();
    }
    let mut labels = plain.replacen("images", "labels", 1);
    for dimensions in ["2", "3", "4"] {
        labels = labels.replace(&format!("idx{dimensions}"), "idx1");
    }
    let gz = format!("{labels}.gz");
    let in_order = if name == plain {
        [labels, gz]
    } else {
        [gz, labels]
    };
    in_order.map(|name| path.with_file_name(name)).into()
}

/// The distinct label values, ascending, and the label of each record. If labels have names, all named values, with
/// their names.
fn labels_of(
    source: &Source<'_>,
    records: u64,
    notes: &mut Vec<String>,
) -> Result<(Vec<f64>, Codes, Vec<String>), FormatError> {
    let places = label_places(source.path);
    let is_there = |place: &&PathBuf| Origin::is_there(place, source.options);
    let Some(path) = places.iter().find(is_there) else {
        if source.options.any_label {
            // Predictions do not use them.
            return Ok((Vec::new(), Codes::One, Vec::new()));
        }
        return Err(FormatError::new(match places.first() {
            Some(place) => format!(
                "its labels are looked for in {}, which is not there; put them next to the images",
                place.display()
            ),
            None => "its name lacks the word images, from which the name of the labels' file is made; call it NAME-images-idx3-ubyte and the labels NAME-labels-idx1-ubyte".into(),
        }));
    };
    let bytes = read_labels(source, path, notes)?;
    let header = whole_header(&bytes, bytes.len() as u64).map_err(|error| error.in_file(path))?;
    if header.sizes.len() != 1 || header.records() != records {
        return Err(FormatError::new(format!(
            "it holds {records} records, and {} holds {} labels; fetch both again",
            path.display(),
            header.records()
        )));
    }
    let numbers = &bytes[header.data_offset() as usize..];
    let labels: Vec<i32> = match header.number_bytes {
        1 => numbers.iter().map(|byte| i32::from(*byte)).collect(),
        _ => {
            let numbers = numbers.as_chunks::<4>().0.iter();
            numbers.map(|label| i32::from_be_bytes(*label)).collect()
        }
    };
    let mut values = labels.clone();
    values.sort_unstable();
    values.dedup();
    let names = names_of(source.path, source.options);
    let is_named = |label: &i32| usize::try_from(*label).is_ok_and(|label| label < names.len());
    if !names.is_empty() && values.iter().all(is_named) {
        let codes = labels.iter().map(|&label| label as u32).collect();
        let values = (0..names.len()).map(|label| label as f64).collect();
        return Ok((values, Codes::new(codes), names));
    }
    let code = |label| values.partition_point(|value| value < label) as u32;
    let codes = labels.iter().map(code).collect();
    let values = values.into_iter().map(f64::from).collect();
    Ok((values, Codes::new(codes), Vec::new()))
}

/// The names of the labels of a file of pictures, if a valid names file is next to it.
fn names_of(path: &Path, options: &OpenOptions) -> Vec<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    let plain = name.map(|name| name.strip_suffix(".gz").unwrap_or(name));
    let named = plain.filter(|name| name.contains("images"));
    named.map_or_else(Vec::new, |name| {
        let file = path.with_file_name(name.replacen("images", "names", 1));
        names_next_to(&file.with_extension("txt"), MOST_NAME_BYTES, options)
    })
}

/// The bytes of the labels' file, decompressed.
fn read_labels(
    source: &Source<'_>,
    path: &Path,
    notes: &mut Vec<String>,
) -> Result<Vec<u8>, FormatError> {
    let origin = Origin::find(path, source.options, notes)?;
    let mut bytes = Vec::new();
    origin
        .input(path)?
        .into_reader()
        .take(origin.stamp.size)
        .read_to_end(&mut bytes)
        .map_err(|e| FormatError::io(path, "read it", e))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuses(bytes: &[u8], at: u64, message: &str) {
        let error = parse_idx_header(bytes).unwrap_err().to_string();
        let place = format!("byte {at}: ");
        assert!(
            error.starts_with(&place) && error.contains(message),
            "{error}"
        );
    }

    #[test]
    fn headers() {
        let header = parse_idx_header(b"\0\0\x08\x03\0\0\0\x02\0\0\0\x1c\0\0\0\x1d").unwrap();
        assert_eq!(header.sizes, [2, 28, 29]);
        assert_eq!((header.records(), header.record_bytes()), (2, Some(812)));
        refuses(b"\0\0\x08", 3, "ends inside its header");
        refuses(b"\0\0\x08\x01\0\0\0", 7, "ends inside its header");
        refuses(b"\0\x01\x08\x01\0\0\0\x02", 0, "magic number is 00010801");
        refuses(b"\0\0\x0d\x01\0\0\0\x02", 2, "32-bit floating point");
        let header = parse_idx_header(b"\0\0\x0c\x01\0\0\0\x02").unwrap();
        assert_eq!((header.records(), header.record_bytes()), (2, Some(4)));
        refuses(b"\0\0\x07\x01\0\0\0\x02", 2, "an unknown type");
        refuses(b"\0\0\x08\x05\0\0\0\x02", 3, "5 dimensions");
        refuses(
            b"\0\0\x08\x02\0\0\0\x02\0\0\0\0",
            8,
            "dimension 2 has size 0",
        );
        refuses(b"\0\0\x08\x02\0\0\0\x02\xff\0\0\0", 8, "dimension 2 has");
    }

    #[test]
    fn names_of_labels() {
        let found = label_places(Path::new("d/train-images-idx3-ubyte.gz"));
        let expected = ["d/train-labels-idx1-ubyte.gz", "d/train-labels-idx1-ubyte"];
        assert_eq!(found, expected.map(PathBuf::from));
        let found = label_places(Path::new("t10k-images.idx3-ubyte"));
        assert_eq!(found[0], PathBuf::from("t10k-labels.idx1-ubyte"));
        assert!(label_places(Path::new("pictures")).is_empty());
    }
}
