//! The offsets of records: by arithmetic, or in lists of starts, found by scans and saved in sidecars.

pub(crate) mod byte_source;
pub(crate) mod chunk_quotes;
pub(crate) mod chunks_in_order;
pub(crate) mod compressed;
pub(crate) mod elias_fano;
pub(crate) mod gathered;
pub(crate) mod input;
pub(crate) mod line_scan;
pub(crate) mod located;
pub(crate) mod newlines;
pub(crate) mod scan_chunk;
pub(crate) mod sidecar;
pub(crate) mod stamp;
pub(crate) mod token_scan;

use std::sync::Arc;

use pelton_storage::FileSet;

use crate::locate::places::elias_fano::EliasFano;

/// Starts of records that a search for line ends found.
pub(crate) const LINE_ENDS: &str = "from a search for line ends";
/// Starts of records that the file lists.
pub(crate) const IN_FILE: &str = "in the file";

/// The offsets of the records of a file.
#[derive(Clone, Debug)]
pub(crate) enum Places {
    /// Each `bytes` long, from `from` on.
    Fixed { from: u64, bytes: u64 },
    /// Each `bytes` long, `stride` bytes after the start of the one before, the first at `from`: they may overlap.
    Spaced { from: u64, stride: u64, bytes: u64 },
    /// Each `bytes` long, from the start of the file on, except the last, which ends at `end`.
    Cut { bytes: u64, end: u64 },
    /// From each start to the next, the last to `end`.
    Listed {
        starts: Arc<EliasFano>,
        end: u64,
        /// How the starts were found, in words.
        from: &'static str,
    },
    /// Each record is a file of a set.
    Files(Arc<FileSet>),
}

impl Places {
    pub(crate) fn listed(starts: EliasFano, end: u64, from: &'static str) -> Places {
        Places::Listed {
            starts: Arc::new(starts),
            end,
            from,
        }
    }

    /// Offset and length of record `i` of the file.
    #[inline]
    pub(crate) fn get(&self, i: u64) -> (u64, u64) {
        match self {
            Places::Fixed { from, bytes } => (from + i * bytes, *bytes),
            Places::Spaced {
                from,
                stride,
                bytes,
            } => (from + i * stride, *bytes),
            Places::Cut { bytes, end } => {
                let start = i * bytes;
                (start, (*bytes).min(end - start))
            }
            Places::Listed { starts, end, .. } => {
                let mut walk = starts.walk(i);
                let start = walk.next().expect("the record exists");
                (start, walk.next().unwrap_or(*end) - start)
            }
            Places::Files(files) => files.range(i as usize),
        }
    }

    pub(crate) fn heap_bytes(&self) -> u64 {
        match self {
            // The set's memory is counted with its file.
            Places::Fixed { .. }
            | Places::Spaced { .. }
            | Places::Cut { .. }
            | Places::Files(_) => 0,
            Places::Listed { starts, .. } => starts.heap_bytes(),
        }
    }
}

/// How the offsets of records were determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IndexSource {
    /// By arithmetic, or from tables in the file itself.
    Arithmetic,
    /// From a sidecar file.
    Sidecar,
    /// By a scan just now.
    Built,
}
