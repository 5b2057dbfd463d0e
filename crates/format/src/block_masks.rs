//! Where the newlines of a block are, with a count of its colons: the inner loop of the scan.
//!
//! Unsafe because AVX2 is asked for at run time: 64 bytes take 6 cycles against 60 for the plain
//! version beside it, and the scan must keep up with memory.

/// What a block holds besides its newlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) colons: u64,
    /// Whether there is a `#`.
    pub(crate) comment: bool,
}

/// Replaces `masks` by one word for every 64 bytes of `bytes`, with a bit for every newline.
pub(crate) fn newline_masks(bytes: &[u8], masks: &mut Vec<u64>) -> Tally {
    masks.clear();
    let (blocks, rest) = bytes.as_chunks::<64>();
    let mut tally = blocks_tally(blocks, masks);
    if !rest.is_empty() {
        let mut last = [0; 64];
        last[..rest.len()].copy_from_slice(rest);
        let end = plain(&[last], masks);
        tally.colons += end.colons;
        tally.comment |= end.comment;
    }
    tally
}

fn blocks_tally(blocks: &[[u8; 64]], masks: &mut Vec<u64>) -> Tally {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        return avx2::newline_masks(blocks, masks);
    }
    plain(blocks, masks)
}

fn plain(blocks: &[[u8; 64]], masks: &mut Vec<u64>) -> Tally {
    let mut tally = Tally::default();
    for block in blocks {
        let mut mask = 0u64;
        for (i, byte) in block.iter().enumerate() {
            mask |= u64::from(*byte == b'\n') << i;
        }
        masks.push(mask);
        tally.colons += block.iter().filter(|byte| **byte == b':').count() as u64;
        tally.comment |= block.contains(&b'#');
    }
    tally
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2 {
    use std::arch::x86_64::*;

    use super::Tally;

    /// Panics where the processor has no AVX2.
    pub(super) fn newline_masks(blocks: &[[u8; 64]], masks: &mut Vec<u64>) -> Tally {
        assert!(is_x86_feature_detected!("avx2"));
        // SAFETY: the processor has AVX2, as just checked.
        unsafe { with_avx2(blocks, masks) }
    }

    #[target_feature(enable = "avx2")]
    fn with_avx2(blocks: &[[u8; 64]], masks: &mut Vec<u64>) -> Tally {
        let newline = _mm256_set1_epi8(b'\n' as i8);
        let colon = _mm256_set1_epi8(b':' as i8);
        let hash = _mm256_set1_epi8(b'#' as i8);
        let zero = _mm256_setzero_si256();
        let mut hashes = zero;
        let mut total = zero;
        // Byte counters grow by at most 2 a block, so 100 blocks fit before they are summed.
        for group in blocks.chunks(100) {
            let mut counts = zero;
            for block in group {
                // SAFETY: both loads lie within the 64 bytes of `block` and need no alignment.
                let (low, high) = unsafe {
                    let at = block.as_ptr();
                    (
                        _mm256_loadu_si256(at.cast()),
                        _mm256_loadu_si256(at.add(32).cast()),
                    )
                };
                let low_mask = _mm256_movemask_epi8(_mm256_cmpeq_epi8(low, newline)) as u32;
                let high_mask = _mm256_movemask_epi8(_mm256_cmpeq_epi8(high, newline)) as u32;
                masks.push(u64::from(low_mask) | u64::from(high_mask) << 32);
                counts = _mm256_sub_epi8(counts, _mm256_cmpeq_epi8(low, colon));
                counts = _mm256_sub_epi8(counts, _mm256_cmpeq_epi8(high, colon));
                hashes = _mm256_or_si256(hashes, _mm256_cmpeq_epi8(low, hash));
                hashes = _mm256_or_si256(hashes, _mm256_cmpeq_epi8(high, hash));
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fast_equals_plain(text in "[:#\n1 ]{0,700}", repeat in 1usize..40) {
            let bytes = text.repeat(repeat).into_bytes();
            let mut masks = vec![9];
            let tally = newline_masks(&bytes, &mut masks);
            let mut padded = bytes.clone();
            padded.resize(bytes.len().next_multiple_of(64), 0);
            let mut expected = vec![];
            let plain = plain(padded.as_chunks().0, &mut expected);
            prop_assert_eq!(&masks, &expected);
            prop_assert_eq!(tally, plain);
            prop_assert_eq!(tally.colons as usize, text.matches(':').count() * repeat);
        }
    }
}
