//! Finds the newlines of a chunk and counts its colons: the inner loop of the scan.
//!
//! Unsafe because AVX2 is detected at run time and positions are written past the vector's end within its reserved
//! capacity: 64 bytes take 6 cycles against 60 for the plain version next to it, and the scan must keep up with memory.

#[cfg(target_arch = "x86_64")]
use std::io::{self, Read};

use pelton_cpu::Simd;

/// Counts of other bytes in a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) colons: u64,
    /// Whether it contains a `#`.
    pub(crate) comment: bool,
}

/// Replaces `newlines` by the positions of the newlines of `bytes`, ascending.
pub(crate) fn find_newlines(bytes: &[u8], newlines: &mut Vec<u32>) -> Tally {
    assert!(u32::try_from(bytes.len()).is_ok());
    newlines.clear();
    #[cfg(target_arch = "x86_64")]
    if Simd::current() >= Simd::Avx2 {
        let (blocks, rest) = bytes.as_chunks::<64>();
        let mut tally = avx2::find_newlines(blocks, newlines);
        let end = plain(rest, blocks.len() * 64, newlines);
        tally.colons += end.colons;
        tally.comment |= end.comment;
        return tally;
    }
    plain(bytes, 0, newlines)
}

fn plain(bytes: &[u8], from: usize, newlines: &mut Vec<u32>) -> Tally {
    newlines.extend(memchr::memchr_iter(b'\n', bytes).map(|at| (from + at) as u32));
    Tally {
        colons: bytes.iter().filter(|byte| **byte == b':').count() as u64,
        comment: bytes.contains(&b'#'),
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2 {
    use std::arch::x86_64::*;

    use pelton_cpu::Simd;

    use super::Tally;

    /// Panics if the processor lacks AVX2 or POPCNT.
    pub(super) fn find_newlines(blocks: &[[u8; 64]], newlines: &mut Vec<u32>) -> Tally {
        assert!(Simd::Avx2.is_available());
        // SAFETY: the processor has both, as just checked.
        unsafe { with_avx2(blocks, newlines) }
    }

    #[target_feature(enable = "avx2,popcnt")]
    fn with_avx2(blocks: &[[u8; 64]], newlines: &mut Vec<u32>) -> Tally {
        let newline = _mm256_set1_epi8(b'\n' as i8);
        let colon = _mm256_set1_epi8(b':' as i8);
        let hash = _mm256_set1_epi8(b'#' as i8);
        let zero = _mm256_setzero_si256();
        let mut hashes = zero;
        let mut total = zero;
        // Byte counters grow by at most 2 a block, so 100 blocks fit before they are summed.
        for (number, group) in blocks.chunks(100).enumerate() {
            let mut counts = zero;
            newlines.reserve(64 * group.len());
            for (i, block) in group.iter().enumerate() {
                // SAFETY: both loads are within the 64 bytes of `block` and need no alignment.
                let (low, high) = unsafe {
                    let at = block.as_ptr();
                    (
                        _mm256_loadu_si256(at.cast()),
                        _mm256_loadu_si256(at.add(32).cast()),
                    )
                };
                let low_mask = _mm256_movemask_epi8(_mm256_cmpeq_epi8(low, newline)) as u32;
                let high_mask = _mm256_movemask_epi8(_mm256_cmpeq_epi8(high, newline)) as u32;
                let mask = u64::from(low_mask) | u64::from(high_mask) << 32;
                counts = _mm256_sub_epi8(counts, _mm256_cmpeq_epi8(low, colon));
                counts = _mm256_sub_epi8(counts, _mm256_cmpeq_epi8(high, colon));
                hashes = _mm256_or_si256(hashes, _mm256_cmpeq_epi8(low, hash));
                hashes = _mm256_or_si256(hashes, _mm256_cmpeq_epi8(high, hash));
                if mask != 0 {
                    let base = ((number * 100 + i) * 64) as u32;
                    // SAFETY: every block of the group has 64 elements of the reserve.
                    unsafe { push_positions(mask, base, newlines) };
                }
            }
            total = _mm256_add_epi64(total, _mm256_sad_epu8(counts, zero));
        }
        let colons = _mm256_extract_epi64::<0>(total)
            + _mm256_extract_epi64::<1>(total)
            + _mm256_extract_epi64::<2>(total)
            + _mm256_extract_epi64::<3>(total);
        Tally {
            colons: colons as u64,
            comment: _mm256_movemask_epi8(hashes) != 0,
        }
    }

    /// Appends `base` plus the position of every bit of `mask`. Two are always written, so that the
    /// usual one or two lines a block cost no mispredicted branch.
    ///
    /// # Safety
    /// `newlines` has room for 64 more.
    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    unsafe fn push_positions(mut mask: u64, base: u32, newlines: &mut Vec<u32>) {
        let count = mask.count_ones() as usize;
        let length = newlines.len();
        // SAFETY: at most max(2, count) ≤ 64 elements past the length are written, all reserved by the caller, and the
        // first `count` of them are initialised.
        unsafe {
            let out = newlines.as_mut_ptr().add(length);
            out.write(base.wrapping_add(mask.trailing_zeros()));
            mask &= mask - 1;
            out.add(1).write(base.wrapping_add(mask.trailing_zeros()));
            mask &= mask.wrapping_sub(1);
            let mut at = 2;
            while mask != 0 {
                out.add(at).write(base.wrapping_add(mask.trailing_zeros()));
                mask &= mask - 1;
                at += 1;
            }
            newlines.set_len(length + count);
        }
    }
}

/// Counts the newlines of a text.
pub(crate) fn newlines_in(mut text: impl Read) -> io::Result<u64> {
    let mut buffer = vec![0; 256 << 10];
    let mut newlines = 0;
    loop {
        match text.read(&mut buffer)? {
            0 => return Ok(newlines),
            length => newlines += memchr::memchr_iter(b'\n', &buffer[..length]).count() as u64,
        }
    }
}

/// A line without its end.
#[inline]
pub(crate) fn without_line_end(line: &[u8]) -> &[u8] {
    match line {
        [text @ .., b'\r', b'\n'] | [text @ .., b'\n'] => text,
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fast_equals_plain(text in "[:#\n1 ]{0,700}", repeat in 1usize..40) {
            let bytes = text.repeat(repeat).into_bytes();
            let mut found = vec![9];
            let tally = find_newlines(&bytes, &mut found);
            let mut expected = vec![];
            let plain = plain(&bytes, 0, &mut expected);
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(tally, plain);
            prop_assert_eq!(tally.colons as usize, text.matches(':').count() * repeat);
        }
    }

    #[test]
    fn nothing_but_newlines() {
        let mut found = vec![];
        find_newlines(&vec![b'\n'; 100_000], &mut found);
        assert!(found.iter().copied().eq(0..100_000));
    }
}
