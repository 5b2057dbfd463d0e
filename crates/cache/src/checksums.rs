//! Checksums of records in memory: CRC-32C, made by the rank that loads a record, kept beside the data
//! and compared by whoever reads the whole record.
//!
//! A read brings the checksums of its records along in the same batch of gets. A record that lies in the
//! memory of two ranks, or only in part in that of what stays, has one in each, of the part that lies there. The number of a record follows
//! from its place by division where records are of one size, otherwise by a search over the location
//! index. Cost where enabled: 4 bytes a record, one more get a range, and the sum itself at about
//! 10 GB/s.
//!
//! What is read without its whole record (a part of one, or what stands between files' records) is
//! counted, not compared.

use std::ops::Range;

use pelton_comm::Get;

use crate::CacheError;
use crate::resident::{SUM_BYTES, Sums, Table, records_in};
use crate::space::Space;

/// Writes the checksums of all records of `sums` behind the data that `memory` holds, of which the
/// range's first byte is at `data`.
pub(crate) fn seal(space: &Space, sums: &Sums, data: usize, memory: &mut [u8]) {
    let mut at = sums.at as usize;
    for id in records_in(space, &sums.range) {
        let record = clip(&space.record(id), &sums.range);
        let from = data + (record.start - sums.range.start) as usize;
        let sum = crc32c::crc32c(&memory[from..from + (record.end - record.start) as usize]);
        memory[at..at + SUM_BYTES as usize].copy_from_slice(&sum.to_le_bytes());
        at += SUM_BYTES as usize;
    }
}

fn clip(record: &Range<u64>, range: &Range<u64>) -> Range<u64> {
    record.start.max(range.start)..record.end.min(range.end)
}

/// The comparisons for one batch of gets.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    checks: Vec<Check>,
    stored: Vec<[u8; SUM_BYTES as usize]>,
    /// Ranges with a part of a record.
    pub(crate) partial: u64,
}

#[derive(Debug)]
struct Check {
    /// Number of the get.
    get: usize,
    /// Where its first byte lies in the space.
    start: u64,
    rank: usize,
    /// Records that lie wholly in it, as far as their rank holds them.
    records: Range<u64>,
    /// What their rank holds.
    held: Range<u64>,
    /// Where the first one's checksum is.
    at: u64,
}

impl Checks {
    /// Adds what can be compared of the get number `get`, of `length` bytes from `start` of the space.
    pub(crate) fn add(
        &mut self,
        space: &Space,
        table: &Table,
        get: usize,
        rank: usize,
        range: Range<u64>,
    ) {
        let sums = table.sums(rank, range.start);
        let mut records = records_in(space, &range);
        let is_whole = |id: u64| {
            let record = clip(&space.record(id), &sums.range);
            range.start <= record.start && record.end <= range.end
        };
        let whole = records.end - records.start;
        if !records.is_empty() && !is_whole(records.start) {
            records.start += 1;
        }
        if !records.is_empty() && !is_whole(records.end - 1) {
            records.end -= 1;
        }
        self.partial += u64::from(whole > records.end - records.start);
        if records.is_empty() {
            return;
        }
        self.checks.push(Check {
            get,
            start: range.start,
            rank,
            at: sums.at + SUM_BYTES * (records.start - sums.first),
            records,
            held: sums.range.clone(),
        });
    }

    /// Adds the gets of the checksums themselves.
    pub(crate) fn request<'b>(&'b mut self, gets: &mut Vec<Get<'b>>) -> Compare<'b> {
        let total: u64 = self.checks.iter().map(Check::count).sum();
        self.stored.resize(total as usize, [0; SUM_BYTES as usize]);
        let first = gets.len();
        let mut rest = self.stored.as_flattened_mut();
        for check in &self.checks {
            let length = check.count() * SUM_BYTES;
            let (buffer, behind) = std::mem::take(&mut rest).split_at_mut(length as usize);
            rest = behind;
            gets.push(Get {
                rank: check.rank,
                offset: check.at,
                buffer,
            });
        }
        Compare {
            checks: &self.checks,
            first,
        }
    }
}

impl Check {
    fn count(&self) -> u64 {
        self.records.end - self.records.start
    }
}

/// The comparisons, once the gets are done.
pub(crate) struct Compare<'b> {
    checks: &'b [Check],
    /// Number of the first get that brought checksums.
    first: usize,
}

impl Compare<'_> {
    /// Compares, and returns the number of records; the first that differs is the error.
    pub(crate) fn run(&self, space: &Space, gets: &[Get<'_>]) -> Result<u64, CacheError> {
        let mut compared = 0;
        for (check, sums) in self.checks.iter().zip(&gets[self.first..]) {
            let data = &gets[check.get];
            let (stored, _) = sums.buffer.as_chunks::<{ SUM_BYTES as usize }>();
            for (id, expected) in check.records.clone().zip(stored) {
                let record = clip(&space.record(id), &check.held);
                let place = (record.start - check.start) as usize;
                let length = (record.end - record.start) as usize;
                let found = crc32c::crc32c(&data.buffer[place..place + length]);
                let expected = u32::from_le_bytes(*expected);
                if found != expected {
                    return Err(corrupt(space, id, check.rank, expected, found));
                }
            }
            // A record that is cut is counted with its first part.
            let cut = check.records.clone().next();
            let cut = cut.is_some_and(|id| space.record(id).start < check.held.start);
            compared += check.count() - u64::from(cut);
        }
        Ok(compared)
    }
}

fn corrupt(space: &Space, record: u64, rank: usize, expected: u32, found: u32) -> CacheError {
    let dataset = space.dataset();
    let file = dataset.locate(record).file as usize;
    CacheError::Corrupt {
        path: dataset.files()[file].path().to_path_buf(),
        record,
        rank,
        expected,
        found,
    }
}
