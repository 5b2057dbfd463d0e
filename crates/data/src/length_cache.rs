//! The lengths of records, in tokens of a text or of a field, counted once and kept next to the indexes.
//!
//! Layout, little-endian: the magic bytes, the number of records (8 bytes), a length for each (4 bytes), and the
//! CRC-32C of all that (4 bytes). The name contains a hash of the data's state ([`Dataset::cache_path`]), so that other
//! data does not find the file. A damaged file is recounted and replaced.
//!
//! Cost: 4 bytes a record; a million lengths are read in milliseconds; counting them takes a pass over the data.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use pelton_comm::Comm;
use pelton_fetch::OnBadRecord;
use pelton_format::{Dataset, RecordFields, Row, element_value};
use pelton_key::Digest;
use pelton_run::{Event, Interrupt, Observer, RunContext};
use pelton_storage::{WholeFile, make_cache_folder};
use pelton_text::{Tokenizer, pair_sides};

use crate::error::DataError;
use crate::open::OpenedData;
use crate::pass::Pass;
use crate::texts::Texts;

const MAGIC: &[u8; 8] = b"PLTLEN\x01\n";

/// The quantity counted for each record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counted<'a> {
    /// Tokens, including one for the end, of each side: one, or two separated by a tab.
    Tokens(Tokenizer, usize),
    /// A field of this name: its value if it is one integer, otherwise its number of elements along the first
    /// dimension.
    Field(&'a str, OnBadRecord),
}

impl Counted<'_> {
    fn sides(self) -> usize {
        match self {
            Counted::Tokens(_, sides) => sides,
            Counted::Field(..) => 1,
        }
    }

    fn suffix(self) -> String {
        match self {
            Counted::Tokens(Tokenizer::Whitespace, 1) => ".pelton-word-lengths".to_owned(),
            Counted::Tokens(Tokenizer::Bytes, 1) => ".pelton-byte-lengths".to_owned(),
            Counted::Tokens(Tokenizer::Whitespace, _) => ".pelton-word-pair-lengths".to_owned(),
            Counted::Tokens(Tokenizer::Bytes, _) => ".pelton-byte-pair-lengths".to_owned(),
            Counted::Field(name, _) => {
                let digest = Digest::new("lengths").bytes(name.as_bytes());
                format!(".pelton-lengths-{:016x}", digest.value())
            }
        }
    }
}

/// The lengths of each record, read from a file or counted and saved now. With several ranks, rank 0 counts and saves
/// them before the others look for the file.
pub(crate) fn record_lengths(
    opened: &OpenedData,
    what: Counted<'_>,
    context: &mut RunContext<'_>,
) -> Result<Vec<u32>, DataError> {
    in_turn(context.comm, || {
        kept(opened, what, context.interrupt, context.observer)
    })
}

/// The result of `keep`; the first rank calls it before all others, which then find its file in the cache folder. All
/// ranks call it.
pub(crate) fn in_turn<T>(
    comm: &Comm,
    keep: impl FnOnce() -> Result<T, DataError>,
) -> Result<T, DataError> {
    if comm.rank() > 0 {
        comm.barrier()?;
        return keep();
    }
    let kept = keep()?;
    comm.barrier()?;
    Ok(kept)
}

fn kept(
    opened: &OpenedData,
    what: Counted<'_>,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<Vec<u32>, DataError> {
    let dataset = &opened.dataset;
    let path = dataset.cache_path(&opened.cache_dir, &what.suffix());
    match load(&path, what.sides() as u64 * dataset.records()) {
        Ok(lengths) => return Ok(lengths),
        Err(error) => tracing::debug!(path = %path.display(), %error, "no lengths were kept"),
    }
    let lengths = match what {
        Counted::Tokens(tokenizer, sides) => {
            counted(dataset, (tokenizer, sides), interrupt, observer)?
        }
        Counted::Field(name, on_bad_record) => {
            of_field(dataset, (name, on_bad_record), interrupt, observer)?
        }
    };
    // Counts from a file that changed meanwhile are not saved.
    dataset.check_unchanged()?;
    // Writing the file reports a failure.
    let _ = make_cache_folder(&opened.cache_dir);
    if let Err(error) = save(&path, &lengths) {
        observer(Event::Note(&format!(
            "the lengths cannot be saved and will be counted again next time: {}: {error}",
            path.display()
        )));
    }
    Ok(lengths)
}

fn counted(
    dataset: &Arc<Dataset>,
    (tokenizer, sides): (Tokenizer, usize),
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<Vec<u32>, DataError> {
    let mut lengths = vec![1_u32; sides * dataset.records() as usize];
    let mut texts = Texts::new(dataset, "counting tokens", interrupt)?;
    while texts.next_step(observer, |id, text| {
        let of_record = &mut lengths[sides * id as usize..][..sides];
        // Invalid pairs are refused when decoded.
        let text = match sides {
            1 => [text, &[]],
            _ => pair_sides(text).unwrap_or([text, &[]]),
        };
        for (length, side) in of_record.iter_mut().zip(text) {
            *length = tokenizer.count(side) as u32 + 1;
        }
    })? {}
    Ok(lengths)
}

fn of_field(
    dataset: &Arc<Dataset>,
    (name, on_bad_record): (&str, OnBadRecord),
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<Vec<u32>, DataError> {
    // The later read refuses or skips bad records.
    let mut lengths = vec![1_u32; dataset.records() as usize];
    let mut wrong = None;
    let mut pass = Pass::new(dataset, "counting lengths", on_bad_record, interrupt)?;
    while pass.next_step(observer, |batch| {
        for i in 0..batch.rows.len() {
            let id = batch.rows.id(i);
            match length_in(dataset.record_fields(), batch.rows.row(i), name) {
                Ok(length) => lengths[id as usize] = length,
                Err(problem) => {
                    wrong.get_or_insert((id, problem));
                }
            }
        }
    })? {}
    match wrong {
        Some((id, problem)) if on_bad_record == OnBadRecord::Fail => Err(DataError::Config(
            format!("`lengths` field:{name}: record {id} {problem}"),
        )),
        _ => Ok(lengths),
    }
}

/// The length by a field of a row, or the problem.
fn length_in(fields: &RecordFields, row: Row<'_>, name: &str) -> Result<u32, String> {
    let Row::Bytes(row) = row else {
        return Err("has features and no fields".to_owned());
    };
    let fields = fields.split(row).map_err(|fault| fault.to_string())?;
    let field = fields.iter().find(|field| field.name == name);
    let field = field.ok_or("has no such field")?;
    if let Some(&length) = field.dims.first() {
        return u32::try_from(length).map_err(|_| format!("has {length} elements there"));
    }
    let value = field
        .dtype
        .map_or(f64::NAN, |dtype| element_value(dtype, field.bytes));
    length_of_number(value).ok_or_else(|| format!("has {value} there, which is not a length"))
}

/// A number as a length, if it is valid.
pub(crate) fn length_of_number(number: f64) -> Option<u32> {
    let fits = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
    fits.then_some(number as u32)
}

fn save(path: &Path, lengths: &[u32]) -> io::Result<()> {
    let body: Vec<u8> = lengths
        .iter()
        .flat_map(|length| length.to_le_bytes())
        .collect();
    let count = (lengths.len() as u64).to_le_bytes();
    let checksum = checksum(&count, &body).to_le_bytes();
    let mut file = WholeFile::create(path)?;
    for part in [MAGIC, &count[..], &body, &checksum] {
        file.write_all(part)?;
    }
    file.publish()
}

fn load(path: &Path, records: u64) -> Result<Vec<u32>, String> {
    let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
    // Before anything is allocated for it.
    if size != size_of(records) {
        return Err(format!(
            "has {size} bytes, which do not fit {records} records"
        ));
    }
    let bytes = pelton_storage::read_file(path).map_err(|error| error.to_string())?;
    parse(&bytes, records).map_err(str::to_owned)
}

fn size_of(records: u64) -> u64 {
    MAGIC.len() as u64 + 8 + 4 * records + 4
}

/// The lengths of `records` records in `bytes`.
pub fn parse(bytes: &[u8], records: u64) -> Result<Vec<u32>, &'static str> {
    let rest = bytes
        .strip_prefix(MAGIC)
        .ok_or("it is not a file of lengths")?;
    let (count, rest) = rest.split_first_chunk::<8>().ok_or("it is cut off")?;
    let (body, stored) = rest.split_last_chunk::<4>().ok_or("it is cut off")?;
    if u64::from_le_bytes(*count) != records || body.len() as u64 != 4 * records {
        return Err("it is for a different number of records");
    }
    if u32::from_le_bytes(*stored) != checksum(count, body) {
        return Err("its checksum is wrong");
    }
    let lengths = body.as_chunks::<4>().0.iter();
    Ok(lengths.map(|length| u32::from_le_bytes(*length)).collect())
}

fn checksum(count: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(count), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_come_back_and_damage_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lengths");
        for lengths in [
            vec![],
            vec![7],
            (0..1000).map(|i| i * i % 97).collect::<Vec<u32>>(),
        ] {
            save(&path, &lengths).unwrap();
            let records = lengths.len() as u64;
            assert_eq!(load(&path, records).unwrap(), lengths);
            assert_eq!(fs::metadata(&path).unwrap().len(), size_of(records));
            let error = load(&path, records + 1).unwrap_err();
            assert!(error.contains("do not fit"), "{error}");
            let good = fs::read(&path).unwrap();
            for at in 0..good.len() {
                let mut bad = good.clone();
                bad[at] ^= 4;
                assert!(parse(&bad, records).is_err(), "byte {at}");
                assert!(parse(&good[..at], records).is_err(), "cut at {at}");
            }
        }
        assert!(load(&folder.path().join("absent"), 1).is_err());
    }
}
