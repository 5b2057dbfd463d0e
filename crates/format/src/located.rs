//! What a scan finds out about a file of records of unequal length; its sidecar keeps all of it.

use crate::codes::Codes;
use crate::elias_fano::EliasFano;

/// Places, labels and totals of the records of a file.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    /// Byte offset of each record; a record reaches to the next.
    pub(crate) starts: EliasFano,
    /// Where the last record ends.
    pub(crate) end: u64,
    /// Distinct labels; of text in order of first appearance.
    pub(crate) labels: Vec<f64>,
    /// Their names in ascending order, where labels have names and are 0, 1, 2 ….
    pub(crate) names: Vec<String>,
    /// Which of them each record has, where the records do not say so themselves.
    pub(crate) codes: Codes,
    /// Largest feature index as written, plus 1; 0 where there is none.
    pub(crate) index_end: u64,
    /// Entries of all records; of rows of bytes their bytes.
    pub(crate) nonzeros: u64,
    /// Bytes of the longest record.
    pub(crate) longest: u64,
    /// Counts that notes are made of; what they mean is the format's affair.
    pub(crate) tallies: Vec<u64>,
}
