//! Numbers that all ranks know.

/// A number that every rank can compute for every other: element `i` of `rank` in `case`.
pub(super) fn number(case: u64, rank: usize, i: usize) -> u64 {
    let mixed = (case << 48) ^ ((rank as u64) << 32) ^ i as u64;
    let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// Lengths around the boundaries of shares, pages and the two algorithms of an all-reduce.
pub(super) fn lengths(size: usize) -> impl Iterator<Item = usize> {
    let around = [0, 1, 2, 3, 511, 512, 513, 1024, 1025, 20_011];
    around.into_iter().chain([size - 1, size, size + 1])
}
