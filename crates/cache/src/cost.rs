//! What a range of the space takes in memory: its bytes, and a checksum for every record that has some of
//! them.
//!
//! `sum_bytes` is what a checksum takes, 0 where there are none. A record that is cut has a checksum for
//! either part, so that a cut costs one more.

use std::ops::Range;

use crate::resident::records_in;
use crate::space::Space;

/// Memory for a range.
pub(crate) fn cost(space: &Space, range: &Range<u64>, sum_bytes: u64) -> u64 {
    let bytes = range.end - range.start;
    match sum_bytes {
        0 => bytes,
        _ => {
            let records = records_in(space, range);
            bytes + sum_bytes * (records.end - records.start)
        }
    }
}

/// The end of the longest beginning of a range that takes no more than `room`. All but `sum_bytes` of the
/// room is used, or all of the range.
pub(crate) fn fitting(space: &Space, range: &Range<u64>, room: u64, sum_bytes: u64) -> u64 {
    if sum_bytes == 0 {
        return range.end.min(range.start.saturating_add(room));
    }
    let records = records_in(space, range);
    // Up to the end of a record.
    let cost = |id: u64| {
        let end = space.record(id).end.min(range.end);
        (end - range.start) + sum_bytes * (id + 1 - records.start)
    };
    let (mut low, mut high) = (records.start, records.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if cost(middle) <= room {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if low == records.end {
        return range.end;
    }
    let used = if low > records.start {
        cost(low - 1)
    } else {
        0
    };
    let begin = space.record(low).start.max(range.start);
    begin + (room - used).saturating_sub(sum_bytes)
}
