//! Digests: numbers that identify contents, made by folding words one after the other.
//!
//! They are stored in checkpoints and files, so their values never change. They detect mistakes and damage, but not
//! deliberate collisions.

use crate::mix::{GOLDEN_GAMMA, mix};

/// Words folded to one number, in their order.
///
/// ```
/// use pelton_key::Digest;
/// let digest = Digest::new(1).words([3, 4]);
/// assert_eq!(digest.value(), Digest::new(1).word(3).word(4).value());
/// assert_ne!(digest.value(), Digest::new(1).words([4, 3]).value());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest(u64);

impl Digest {
    /// A digest of nothing; `kind` keeps things of different kinds apart.
    pub fn new(kind: u64) -> Digest {
        Digest(kind)
    }

    /// With one more word.
    #[inline]
    #[must_use]
    pub fn word(self, word: u64) -> Digest {
        let mixed = mix(self.0 ^ word).wrapping_mul(GOLDEN_GAMMA);
        Digest(mixed.rotate_left(7))
    }

    /// With some more words.
    #[must_use]
    pub fn words(self, words: impl IntoIterator<Item = u64>) -> Digest {
        words.into_iter().fold(self, Digest::word)
    }

    /// The number.
    pub fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_files_stay() {
        assert_eq!(Digest::new(5).value(), 5);
        let digest = Digest::new(1).words([100, 2, 0]);
        assert_eq!(digest.value(), 0x4668_F5F4_E94C_24F4);
    }
}
