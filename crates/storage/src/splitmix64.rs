//! The SplitMix64 finaliser (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
//! OOPSLA 2014): a bijection of 64-bit words whose output bits all depend on all input bits.
//!
//! Enough to place faults and probe offsets reproducibly and to tell files apart; the orders of a
//! training run have their own, stronger permutation elsewhere.

/// A well-mixed word for each `word`.
pub fn mix(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number in [0, 1) for each `word`, with 53 random bits.
pub(crate) fn unit_interval(word: u64) -> f64 {
    (mix(word) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_published_sequence() {
        // First outputs of SplitMix64 seeded with 1234567 (the Rosetta Code test vector).
        let mut state = 1_234_567u64;
        let mut next = || {
            let value = mix(state);
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            value
        };
        assert_eq!(next(), 6_457_827_717_110_365_317);
        assert_eq!(next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn unit_interval_is_uniform_in_the_mean() {
        let mean = (0..10_000).map(unit_interval).sum::<f64>() / 10_000.0;
        // Standard error of the mean: 1/√(12·10⁴) = 0.0029; five of them.
        assert!((mean - 0.5).abs() < 0.0145, "mean {mean}");
    }
}
