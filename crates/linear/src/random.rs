//! Random orders under a key: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
//! Its state is one integer, so each pass has its own stream by its own key.

use pelton_key::mix;

/// A stream of random numbers.
pub(crate) struct Stream(u64);

/// A key for part `part` of the purpose of `key`.
pub(crate) fn derive(key: u64, part: u64) -> u64 {
    mix(mix(key ^ 0x9E37_79B9_7F4A_7C15).wrapping_add(part.wrapping_mul(0xD1B5_4A32_D192_ED03)))
}

impl Stream {
    pub(crate) fn new(key: u64) -> Stream {
        Stream(key)
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Puts `items` in random order (Fisher–Yates). Two draws come from one random number by
    /// multiply-shift on 32 bits; its unevenness is below len / 2^32, far under what a visiting
    /// order can show.
    pub(crate) fn shuffle(&mut self, items: &mut [u32]) {
        let mut bits = 0;
        for i in (1..items.len()).rev() {
            if i & 1 == 1 || bits == 0 {
                bits = self.next();
            } else {
                bits >>= 32;
            }
            let j = ((bits & 0xFFFF_FFFF) * (i as u64 + 1)) >> 32;
            items.swap(i, j as usize);
        }
    }
}
