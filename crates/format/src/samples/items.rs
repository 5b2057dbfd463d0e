//! Records that a program makes: `items:COUNT:DIGEST` has COUNT records without bytes. The first stage of the pipeline
//! makes each record from its index.

use std::path::Path;
use std::sync::Arc;

use pelton_storage::MemoryStorage;

use crate::locate::format::{Opened, Shard};
use crate::locate::places::Places;
use crate::locate::places::stamp::Stamp;
use crate::locate::sample::SampleShape;
use crate::record::contents::Contents;
use crate::record::error::FormatError;
use crate::record::kind::{FormatKind, ITEMS};
use crate::record::mixing::mix;

/// Count and digest of such records; `None` for other names.
pub(crate) fn parse(path: &Path) -> Option<(u64, u64)> {
    let rest = path.to_str()?.strip_prefix("items:")?;
    let (count, digest) = rest.split_once(':')?;
    Some((count.parse().ok()?, u64::from_str_radix(digest, 16).ok()?))
}

/// `records` records without bytes; the digest distinguishes them from others.
pub(crate) fn open(path: &Path, records: u64, digest: u64) -> Result<Opened, FormatError> {
    if records == 0 {
        return Err(FormatError::empty());
    }
    let name = path.display().to_string();
    Ok(Opened {
        path: path.to_path_buf(),
        source: path.to_path_buf(),
        kind: FormatKind::new(ITEMS, None),
        guessed: false,
        storage: Arc::new(MemoryStorage::named(name, Vec::new())),
        remote: None,
        stamp: Stamp {
            size: 0,
            modified: None,
            touched_ns: 0,
            tag: digest,
        },
        sample: mix(digest, records),
        shard: Shard {
            places: Places::Fixed { from: 0, bytes: 0 },
            records,
            ..Shard::samples(Contents::Image, 0, Vec::new(), SampleShape::Whole)
        },
        scan_seconds: 0.0,
        parts: None,
    })
}
