//! The state of a file, for detecting changes.

use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

/// Size and times of last change, for detecting changes of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) size: u64,
    pub(crate) modified: Option<SystemTime>,
    /// When its bytes, name, owner or permissions last changed, in nanoseconds since 1970. Programs can set
    /// `modified`, but not this time, so replaced bytes show here. 0 for a remote file.
    pub(crate) touched_ns: i64,
    /// The server's tag of its content; 0 for a local file.
    pub(crate) tag: u64,
}

impl Stamp {
    pub(crate) fn from_metadata(status: &std::fs::Metadata) -> Stamp {
        Stamp {
            size: status.len(),
            modified: status.modified().ok(),
            touched_ns: (status.ctime().saturating_mul(1_000_000_000))
                .saturating_add(status.ctime_nsec()),
            tag: 0,
        }
    }

    /// Whether a file that is being read still has the same bytes. A new name, link or permission does not matter to
    /// a reader, so `touched_ns` does not count.
    pub(crate) fn has_bytes_of(&self, other: &Stamp) -> bool {
        (self.size, self.modified, self.tag) == (other.size, other.modified, other.tag)
    }

    /// Nanoseconds since 1970, for files and keys.
    pub(crate) fn modified_ns(&self) -> i128 {
        let Some(modified) = self.modified else {
            return 0;
        };
        match modified.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => after.as_nanos() as i128,
            Err(before) => -(before.duration().as_nanos() as i128),
        }
    }
}
