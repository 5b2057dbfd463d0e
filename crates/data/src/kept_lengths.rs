//! The lengths of a text's records in tokens, counted once and kept beside the indexes.
//!
//! Layout, little-endian: the magic bytes, the number of records (8 bytes), a length for each (4 bytes), and the
//! CRC-32C of all that (4 bytes). The name holds a hash of the data's state ([`Dataset::cache_path`]), so that other
//! data does not find the file. A file that is damaged is counted anew and replaced.
//!
//! Cost: 4 bytes a record; a million lengths are read in milliseconds, where counting them is a pass over the data.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use pelton_comm::Comm;
use pelton_format::Dataset;
use pelton_run::{Event, Interrupt, Observer, RunContext};
use pelton_storage::WholeFile;
use pelton_text::{Tokenizer, pair_sides};

use crate::error::DataError;
use crate::open::OpenedData;
use crate::texts::Texts;

const MAGIC: &[u8; 8] = b"PLTLEN\x01\n";

/// Tokens of each record, its end counted as one, or of each of the two `sides` of each record: as they were kept, or counted and kept now. Of several ranks the
/// first counts and keeps them before the others look for them.
pub(crate) fn record_lengths(
    opened: &OpenedData,
    tokenizer: Tokenizer,
    sides: usize,
    context: &mut RunContext<'_>,
) -> Result<Vec<u32>, DataError> {
    in_turn(context.comm, || {
        let of = (tokenizer, sides);
        kept(opened, of, context.interrupt, context.observer)
    })
}

/// What `keep` returns; the first rank calls it before all others, which find what it left in the cache folder. All
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
    (tokenizer, sides): (Tokenizer, usize),
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<Vec<u32>, DataError> {
    let suffix = match (tokenizer, sides) {
        (Tokenizer::Whitespace, 1) => ".pelton-word-lengths",
        (Tokenizer::Bytes, 1) => ".pelton-byte-lengths",
        (Tokenizer::Whitespace, _) => ".pelton-word-pair-lengths",
        (Tokenizer::Bytes, _) => ".pelton-byte-pair-lengths",
    };
    let dataset = &opened.dataset;
    let path = dataset.cache_path(&opened.cache_dir, suffix);
    match load(&path, sides as u64 * dataset.records()) {
        Ok(lengths) => return Ok(lengths),
        Err(error) => tracing::debug!(path = %path.display(), %error, "no lengths were kept"),
    }
    let lengths = counted(dataset, (tokenizer, sides), interrupt, observer)?;
    // What was counted from a file that changed meanwhile is kept under no name.
    dataset.check_unchanged()?;
    if let Some(folder) = path.parent() {
        // A failure shows when the file is written.
        let _ = fs::create_dir_all(folder);
    }
    if let Err(error) = save(&path, &lengths) {
        observer(Event::Note(&format!(
            "the lengths are not kept and are counted anew next time: {}: {error}",
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
        // What is no pair is refused where it is decoded.
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
        return Err(format!("{size} bytes where {records} records need others"));
    }
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    parse(&bytes, records).map_err(str::to_owned)
}

fn size_of(records: u64) -> u64 {
    MAGIC.len() as u64 + 8 + 4 * records + 4
}

/// The lengths of `records` records that `bytes` hold.
pub fn parse(bytes: &[u8], records: u64) -> Result<Vec<u32>, &'static str> {
    let rest = bytes
        .strip_prefix(MAGIC)
        .ok_or("it does not begin as such a file does")?;
    let (count, rest) = rest.split_first_chunk::<8>().ok_or("it is cut off")?;
    let (body, stored) = rest.split_last_chunk::<4>().ok_or("it is cut off")?;
    if u64::from_le_bytes(*count) != records || body.len() as u64 != 4 * records {
        return Err("it is of another number of records");
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
            assert!(error.contains("need others"), "{error}");
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
