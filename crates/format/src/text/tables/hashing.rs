//! The hash of a value among 2^bits features.

use pelton_key::mix;

/// A hash of bytes that is the same on every machine and in every version: models depend on it.
pub(crate) fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    let mut hash = mix(seed ^ bytes.len() as u64);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = mix(hash ^ u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(hash ^ u64::from_le_bytes(last))
}

/// The feature below 2^`bits` and the sign of a hash.
#[inline]
pub(crate) fn place(hash: u64, bits: u32) -> (u32, f32) {
    let hash = mix(hash);
    let sign = if hash & 1 == 0 { 1.0 } else { -1.0 };
    ((hash >> (64 - bits)) as u32, sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_never_change() {
        let hash = |text: &str| place(hash_bytes(1, text.as_bytes()), 18);
        let found = ["", "a", "female", "a longer text than eight bytes"].map(hash);
        assert_eq!(found, GOLDEN);
    }

    const GOLDEN: [(u32, f32); 4] = [
        (116_523, 1.0),
        (166_375, -1.0),
        (140_630, -1.0),
        (71_522, -1.0),
    ];

    #[test]
    fn places_are_spread_evenly() {
        let mut counts = [0_u32; 64];
        let mut sum = 0.0;
        for i in 0..64_000_u32 {
            let (at, sign) = place(hash_bytes(7, i.to_string().as_bytes()), 6);
            counts[at as usize] += 1;
            sum += sign;
        }
        // Means of 1000 and 0; five standard deviations.
        assert!(counts.iter().all(|count| (840..1160).contains(count)));
        assert!(sum.abs() < 5.0 * 253.0, "{sum}");
    }
}
