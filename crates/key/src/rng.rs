//! A small generator seeded by a key.
//!
//! It is counter-based: number `i` of a stream is a hash of (key, i), so a stream can be entered
//! anywhere and its whole state is two integers. Two rounds of mixing with the key between them keep
//! the streams of different keys apart (one round would make all of them shifts of one sequence).
//! Not for secrets.

use crate::mix::{GOLDEN_GAMMA, mix};

/// Random numbers by counter under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyedRng {
    key: u64,
    counter: u64,
}

impl KeyedRng {
    /// The stream of `key` from its start.
    pub fn new(key: u64) -> KeyedRng {
        KeyedRng { key, counter: 0 }
    }

    /// The stream of `key` from number `counter` on.
    pub fn at(key: u64, counter: u64) -> KeyedRng {
        KeyedRng { key, counter }
    }

    /// How many numbers have been drawn; with the key, the whole state.
    pub fn counter(&self) -> u64 {
        self.counter
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let inner = mix(self.counter.wrapping_mul(GOLDEN_GAMMA) ^ self.key);
        self.counter = self.counter.wrapping_add(1);
        mix(inner.wrapping_add(self.key.rotate_left(32)))
    }

    /// A number in `0..bound`, each equally likely (multiply-shift with rejection: Lemire, "Fast
    /// random integer generation in an interval", 2019). Asserts `bound > 0`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        let mut product = u128::from(self.next_u64()) * u128::from(bound);
        if (product as u64) < bound {
            let unfair = bound.wrapping_neg() % bound;
            while (product as u64) < unfair {
                product = u128::from(self.next_u64()) * u128::from(bound);
            }
        }
        (product >> 64) as u64
    }

    /// A number in `[0, 1)` with 53 random bits.
    #[inline]
    pub fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Fills `out` with random bits.
    pub fn fill(&mut self, out: &mut [u64]) {
        for word in out {
            *word = self.next_u64();
        }
    }

    /// Puts `items` in a uniformly random order (Fisher–Yates from the end).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let chosen = self.below(last as u64 + 1) as usize;
            items.swap(last, chosen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Stage, key};

    #[test]
    fn a_stream_can_be_entered_anywhere() {
        let mut from_start = KeyedRng::new(9);
        let mut numbers = [0; 50];
        from_start.fill(&mut numbers);
        for (index, &number) in numbers.iter().enumerate() {
            assert_eq!(KeyedRng::at(9, index as u64).next_u64(), number);
        }
        assert_eq!(from_start.counter(), 50);
    }

    #[test]
    fn below_is_even_for_bounds_that_do_not_divide() {
        for bound in [1_u64, 2, 3, 5, 7, 10, 100] {
            let mut rng = KeyedRng::new(key(bound, 0, Stage::Sample(0)));
            let mut counts = vec![0_u64; bound as usize];
            let draws = 10_000 * bound;
            for _ in 0..draws {
                counts[rng.below(bound) as usize] += 1;
            }
            let chi: f64 = counts.iter().map(|&c| (c as f64 - 1e4).powi(2) / 1e4).sum();
            let freedom = (bound - 1) as f64;
            assert!(
                chi <= freedom + 5.0 * (2.0 * freedom).sqrt() + 1e-9,
                "bound {bound}: {chi}"
            );
        }
    }

    #[test]
    fn below_rejects_to_stay_even_for_a_huge_bound() {
        // With the bound at 3/4 of 2^64 the plain multiply-shift would give some numbers twice the
        // chance of others, and a low half would hold two thirds of the draws instead of half.
        let bound = 3 << 62;
        let mut rng = KeyedRng::new(1);
        let mut by_residue = [0_u32; 3];
        for _ in 0..30_000 {
            by_residue[(rng.below(bound) % 3) as usize] += 1;
        }
        for count in by_residue {
            assert!((9_500..10_500).contains(&count), "{by_residue:?}");
        }
    }

    #[test]
    fn shuffle_reaches_every_order_equally() {
        let mut counts = std::collections::HashMap::new();
        let mut rng = KeyedRng::new(4);
        for _ in 0..24_000 {
            let mut items = [0, 1, 2, 3];
            rng.shuffle(&mut items);
            *counts.entry(items).or_insert(0_u32) += 1;
        }
        assert_eq!(counts.len(), 24);
        let chi: f64 = counts
            .values()
            .map(|&c| (f64::from(c) - 1e3).powi(2) / 1e3)
            .sum();
        assert!(chi < 23.0 + 5.0 * 46_f64.sqrt(), "{chi}");
    }

    #[test]
    fn floats_stay_below_one() {
        let mut rng = KeyedRng::new(2);
        let mean = (0..10_000).map(|_| rng.next_f64()).sum::<f64>() / 1e4;
        assert!((mean - 0.5).abs() < 0.015, "{mean}");
        assert!((0..10_000).all(|_| (0.0..1.0).contains(&rng.next_f64())));
    }
}
