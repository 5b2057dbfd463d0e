//! Dropout with a mask computed from a key and each element's index, forward and again backward: nothing is stored.

use rayon::prelude::*;

use crate::simd::{self, Kernel, Simd};

/// Numbers that share the mixed part of the key.
const BLOCK: usize = 16 * 1024;

/// Zeroes a share `drop` of `x` and multiplies the rest by 1/(1 − drop). The same `key` drops the same elements:
/// forward on the values, backward on their gradient. Panics unless 0 ≤ drop < 1.
pub fn dropout(x: &mut [f32], drop: f32, key: u64) {
    dropout_at(Simd::current(), x, drop, key);
}

pub(crate) fn dropout_at(level: Simd, x: &mut [f32], drop: f32, key: u64) {
    assert!((0.0..1.0).contains(&drop), "a share to drop of {drop}");
    if drop == 0.0 {
        return;
    }
    x.par_chunks_mut(BLOCK).enumerate().for_each(|(block, x)| {
        // The finaliser of SplitMix64.
        let z = key.wrapping_add((block as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        let key = z ^ z >> 31;
        let kernel = Mask {
            x,
            key,
            below: (f64::from(drop) * 4_294_967_296.0) as u32,
            keep: 1.0 / (1.0 - drop),
        };
        simd::run(level, kernel);
    });
}

struct Mask<'a> {
    x: &'a mut [f32],
    key: u64,
    below: u32,
    keep: f32,
}

impl Kernel for Mask<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (low, high) = (self.key as u32, (self.key >> 32) as u32);
        for (i, x) in (0u32..).zip(self.x) {
            // Two rounds of shifts and multiplications (constants of lowbias32), with half of the key before each.
            let z = i.wrapping_mul(0x9E37_79B9) ^ low;
            let z = (z ^ z >> 16).wrapping_mul(0x7FEB_352D);
            let z = (z ^ z >> 15 ^ high).wrapping_mul(0x846C_A68B);
            let z = z ^ z >> 16;
            *x = if z < self.below { 0.0 } else { *x * self.keep };
        }
    }
}
