//! Documents of token ids as Megatron-LM writes them: the ids in a `.bin`, and next to it an `.idx` with their type and the
//! lengths of the documents.
//!
//! ```text
//! MMIDIDX\0\0  version: u64  type: u8  sequences: u64  bounds: u64
//! lengths of the sequences: i32 each   their offsets: i64 each   bounds of the documents, in sequences: i64 each
//! ```

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use pelton_batch::DType;
use pelton_key::Digest;

use crate::arrays::ids::IdsDecoder;
use crate::locate::format::{Format, Shard, Source};
use crate::locate::places::Places;
use crate::locate::places::elias_fano::EliasFanoBuilder;
use crate::record::error::FormatError;

/// The first bytes of an `.idx`, and the types that it numbers from 1.
const MAGIC: &[u8] = b"MMIDIDX\0\0";
const TYPES: [Option<DType>; 8] = [
    Some(DType::U8),
    Some(DType::I8),
    Some(DType::I16),
    Some(DType::I32),
    Some(DType::I64),
    None,
    None,
    Some(DType::U16),
];
const HEAD: u64 = 34;

const NAME: &str = "documents";

/// Documents of token ids.
pub(crate) struct Documents;

/// The head of an `.idx`.
pub(super) struct IndexHead {
    pub dtype: DType,
    sequences: u64,
    bounds: u64,
}

/// The head of an `.idx`; `None` if the file is of another kind.
pub(super) fn head(path: &Path, file: impl Read) -> Result<Option<IndexHead>, FormatError> {
    let mut head = Vec::new();
    if file.take(HEAD).read_to_end(&mut head).is_err() || !head.starts_with(MAGIC) {
        return Ok(None);
    }
    let wrong = |what: String| FormatError::malformed(0, format!("{} {what}", path.display()));
    let Ok(head) = <[u8; HEAD as usize]>::try_from(head) else {
        return Err(wrong("ends within its head; write it again".to_owned()));
    };
    let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
    if number(9) != 1 {
        return Err(wrong(format!(
            "is of version {}, and only version 1 can be read",
            number(9)
        )));
    }
    let code = usize::from(head[17]);
    let dtype = code.checked_sub(1).and_then(|at| *TYPES.get(at)?);
    let dtype = dtype.ok_or_else(|| {
        wrong(format!(
            "says that ids are of type {code}, which is not one of whole numbers"
        ))
    })?;
    Ok(Some(IndexHead {
        dtype,
        sequences: number(18),
        bounds: number(26),
    }))
}

impl Format for Documents {
    fn name(&self) -> &'static str {
        NAME
    }

    fn in_place_only(&self) -> bool {
        true
    }

    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Shard, FormatError> {
        let path = source.path.with_extension("idx");
        let of_index =
            |what: String| FormatError::malformed(0, format!("{} {what}", path.display()));
        let open = |from: u64| -> std::io::Result<BufReader<File>> {
            let mut file = File::open(&path)?;
            file.seek(SeekFrom::Start(from))?;
            Ok(BufReader::new(file))
        };
        let unread = |error: std::io::Error| {
            of_index(format!(
                "cannot be read ({error}); the format `documents` is a .bin of Megatron-LM with its .idx next to it"
            ))
        };
        let head = head(&path, open(0).map_err(unread)?)?;
        let head = head.ok_or_else(|| of_index("is no index of Megatron-LM".to_owned()))?;
        let IndexHead {
            dtype,
            sequences,
            bounds,
        } = head;
        let needed = 12 * u128::from(sequences) + 8 * u128::from(bounds) + u128::from(HEAD);
        let length = path.metadata().map_err(unread)?.len();
        if needed != u128::from(length) {
            return Err(of_index(format!(
                "has {length} bytes, and its {sequences} sequences and {bounds} bounds of documents need {needed}; write it again"
            )));
        }
        let mut lengths = open(HEAD).map_err(unread)?;
        let mut offsets = open(HEAD + 4 * sequences).map_err(unread)?;
        let mut ends = open(HEAD + 12 * sequences).map_err(unread)?;
        let mut next_bound = || -> Result<u64, FormatError> {
            Ok(u64::from_le_bytes(bytes_of(&mut ends).map_err(unread)?))
        };
        let size = source.stamp.size;
        let mean = size / bounds.max(1);
        let mut starts = EliasFanoBuilder::new(mean.max(1));
        let (mut digest, mut longest, mut empty) = (Digest::new("documents"), 0, 0_u64);
        let (mut end, mut sequence) = (None, 0);
        let mut bound = if bounds == 0 { 0 } else { next_bound()? };
        if bound != 0 {
            return Err(of_index(format!(
                "begins its documents at sequence {bound}, not at 0"
            )));
        }
        for document in 1..bounds {
            let (from, mut bytes) = (end, 0);
            let next = next_bound()?;
            if next < bound || next > sequences {
                return Err(of_index(format!(
                    "ends document {} at sequence {next}, which is not from {bound} to {sequences}; write it again",
                    document - 1
                )));
            }
            bound = next;
            while sequence < bound {
                let ids = i32::from_le_bytes(bytes_of(&mut lengths).map_err(unread)?);
                let offset = i64::from_le_bytes(bytes_of(&mut offsets).map_err(unread)?);
                let here = u64::try_from(offset)
                    .ok()
                    .filter(|at| *at == end.unwrap_or(0));
                let long = u64::try_from(ids)
                    .ok()
                    .map(|ids| ids * dtype.bytes() as u64);
                let after = here.zip(long).and_then(|(at, long)| at.checked_add(long));
                let Some(after) = after.filter(|after| *after <= size) else {
                    return Err(of_index(format!(
                        "has sequence {sequence} of {ids} ids at byte {offset}, and {} has {size} bytes and {} before it; the two do not belong together",
                        source.path.display(),
                        end.unwrap_or(0)
                    )));
                };
                bytes += long.unwrap_or(0);
                end = Some(after);
                sequence += 1;
            }
            if bytes == 0 {
                empty += 1;
                continue;
            }
            let start = from.unwrap_or(0);
            starts.push(start);
            digest = digest.word(start);
            longest = longest.max(bytes);
        }
        let end = end.unwrap_or(0);
        if starts.is_empty() {
            return Err(FormatError::empty());
        }
        if end != size || sequence != sequences {
            return Err(of_index(format!(
                "has {} bytes of ids in documents, and {} has {size}; the two do not belong together",
                end,
                source.path.display()
            )));
        }
        if empty > 0 {
            notes.push(format!(
                "{}: {empty} documents without ids are left out",
                source.path.display()
            ));
        }
        let records = starts.len();
        let decoder = IdsDecoder::new(dtype, None, digest.value());
        Ok(Shard {
            bytes: end,
            longest,
            places: Places::listed(starts.finish(end), end, "an index of Megatron-LM"),
            ..Shard::fields(records, decoder)
        })
    }
}

fn bytes_of<const N: usize>(file: &mut impl Read) -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}
