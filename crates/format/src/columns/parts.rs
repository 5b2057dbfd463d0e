//! Groups of records in parts, so that scanning them takes little memory.

use std::ops::Range;

/// Groups of records in parts of some size.
pub(super) struct Parts<'a> {
    groups: &'a [u64],
    /// The first part of each group, and after them the number of parts.
    firsts: Vec<u64>,
}

/// Records of a part; a scan holds some bytes for each. Parts of a Parquet group decode some pages twice.
const PART: u64 = 1 << 20;

impl Parts<'_> {
    pub(super) fn new(groups: &[u64]) -> Parts<'_> {
        let mut firsts = vec![0];
        for group in groups.windows(2) {
            firsts.push(firsts[firsts.len() - 1] + (group[1] - group[0]).div_ceil(PART));
        }
        Parts { groups, firsts }
    }

    pub(super) fn count(&self) -> u64 {
        self.firsts[self.firsts.len() - 1]
    }

    pub(super) fn rows(&self, part: u64) -> Range<u64> {
        let group = self.firsts.partition_point(|first| *first <= part) - 1;
        let from = self.groups[group] + (part - self.firsts[group]) * PART;
        from..self.groups[group + 1].min(from + PART)
    }
}
