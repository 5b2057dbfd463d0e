//! The result of scanning framed records.

use crate::locate::places::elias_fano::EliasFano;
use crate::locate::places::located::Located;
use crate::record::labels::codes::Codes;

/// The result of a scan.
pub(crate) struct Scanned {
    pub(crate) labels: Vec<f64>,
    pub(crate) names: Vec<String>,
    pub(crate) codes: Codes,
    pub(crate) row_bytes: u64,
    pub(crate) tallies: Vec<u64>,
}

impl Scanned {
    /// Records of bytes; their rows take `row_bytes`.
    pub(crate) fn of_bytes(row_bytes: u64) -> Scanned {
        Scanned {
            labels: Vec::new(),
            names: Vec::new(),
            codes: Codes::One,
            row_bytes,
            tallies: Vec::new(),
        }
    }

    /// Adds the offsets of the records.
    pub(crate) fn located(self, starts: EliasFano, end: u64, longest: u64) -> Located {
        Located {
            first_bad: None,
            starts,
            end,
            labels: self.labels,
            names: self.names,
            codes: self.codes,
            index_end: 0,
            nonzeros: self.row_bytes,
            longest,
            tallies: self.tallies,
        }
    }
}
