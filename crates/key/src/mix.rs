//! SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014): a counter that
//! steps by the golden ratio, and a bijection of 64-bit words; each output bit depends on all input bits.

/// 2^64 / golden ratio, odd: the increment that spreads consecutive counters best.
pub const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finaliser of SplitMix64 (Stafford's variant 13): a bijection of 64 bits in which every input
/// bit changes every output bit with a chance near one half.
#[inline]
pub const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The number that SplitMix64 draws in the state `word`: [`mix`] without its fixed point at 0.
#[inline]
pub fn splitmix64(word: u64) -> u64 {
    mix(word.wrapping_add(GOLDEN_GAMMA))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_published_sequence() {
        // First outputs of SplitMix64 seeded with 1234567 (the Rosetta Code test vector).
        assert_eq!(splitmix64(1_234_567), 6_457_827_717_110_365_317);
        let next = GOLDEN_GAMMA.wrapping_add(1_234_567);
        assert_eq!(splitmix64(next), 3_203_168_211_198_807_973);
    }
}
