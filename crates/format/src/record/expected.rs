//! Sizes and checksums of shards as an index states them.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hasher;
use std::path::Path;

use sha1::{Digest, Sha1};
use twox_hash::{XxHash3_64, XxHash3_128, XxHash64};

use crate::record::error::FormatError;
use crate::record::mixing::mix;

/// From the fastest to the slowest.
const KINDS: [&str; 5] = ["xxh3_64", "xxh3_128", "xxh128", "xxh64", "sha1"];

/// Size and checksum of a shard, as stated by an index.
#[derive(Clone, Debug)]
pub struct Expected {
    bytes: Option<u64>,
    /// The checksum that is fastest to compute, and its kind; unknown kinds are not checked.
    sum: Option<(&'static str, String)>,
    unknown: Vec<String>,
}

impl Expected {
    pub(crate) fn new(bytes: Option<u64>, sums: &HashMap<String, String>) -> Expected {
        let known = KINDS
            .iter()
            .find_map(|kind| Some((*kind, sums.get(*kind)?.to_ascii_lowercase())));
        let mut unknown: Vec<String> = sums.keys().cloned().collect();
        unknown.sort();
        Expected {
            bytes,
            unknown: if known.is_none() { unknown } else { vec![] },
            sum: known,
        }
    }

    /// A hash of the expected checksum; `None` if there is none to verify.
    pub(crate) fn key(&self) -> Option<u64> {
        let (_, sum) = self.sum.as_ref()?;
        Some(sum.bytes().fold(2, |hash, byte| mix(hash, u64::from(byte))))
    }

    /// Compares the size; notes checksums that cannot be compared.
    pub(crate) fn check_size(
        &self,
        path: &Path,
        size: u64,
        notes: &mut Vec<String>,
    ) -> Result<(), FormatError> {
        if !self.unknown.is_empty() {
            notes.push(format!(
                "{}: its index states checksums that are not checked: {}",
                path.display(),
                self.unknown.join(", ")
            ));
        }
        match self.bytes {
            Some(bytes) if bytes != size => Err(differs("bytes", &bytes, &size)),
            _ => Ok(()),
        }
    }

    /// Compares the checksum of all bytes; `pieces` passes them on in order.
    pub(crate) fn check_sum(
        &self,
        pieces: impl FnOnce(&mut dyn FnMut(&[u8])) -> Result<(), FormatError>,
    ) -> Result<(), FormatError> {
        let Some((kind, expected)) = &self.sum else {
            return Ok(());
        };
        let found = match *kind {
            "xxh3_64" => {
                let mut hash = XxHash3_64::new();
                pieces(&mut |piece| hash.write(piece))?;
                format!("{:016x}", hash.finish())
            }
            "xxh64" => {
                let mut hash = XxHash64::with_seed(0);
                pieces(&mut |piece| hash.write(piece))?;
                format!("{:016x}", hash.finish())
            }
            "sha1" => {
                let mut hash = Sha1::new();
                pieces(&mut |piece| hash.update(piece))?;
                let digest = hash.finalize();
                digest.iter().map(|byte| format!("{byte:02x}")).collect()
            }
            _ => {
                let mut hash = XxHash3_128::new();
                pieces(&mut |piece| hash.write(piece))?;
                format!("{:032x}", hash.finish_128())
            }
        };
        if found == *expected {
            Ok(())
        } else {
            Err(differs(&format!("checksum {kind}"), expected, &found))
        }
    }
}

fn differs(what: &str, expected: &dyn Display, found: &dyn Display) -> FormatError {
    let sentence = format!(
        "its index states {what} {expected}, found {found}; the file is damaged: fetch it again"
    );
    FormatError::malformed(0, sentence)
}
