//! Digests: numbers that identify contents, made by folding words one after the other.
//!
//! They are stored in checkpoints and files, so their values never change. They detect mistakes and damage, but not
//! deliberate collisions.

use crate::mix::{GOLDEN_GAMMA, mix};

/// Words folded to one number, in their order.
///
/// ```
/// use pelton_key::Digest;
/// let digest = Digest::new("pair").words([3, 4]);
/// assert_eq!(digest.value(), Digest::new("pair").word(3).word(4).value());
/// assert_ne!(digest.value(), Digest::new("pair").words([4, 3]).value());
/// assert_ne!(digest.value(), Digest::new("place").words([3, 4]).value());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest(u64);

impl Digest {
    /// A digest of nothing; `name` keeps things of different kinds apart.
    pub const fn new(name: &str) -> Digest {
        let (bytes, mut i) = (name.as_bytes(), 0);
        let mut digest = Digest(bytes.len() as u64);
        while i < bytes.len() {
            digest = digest.word(bytes[i] as u64);
            i += 1;
        }
        digest
    }

    /// With one more word.
    #[inline]
    #[must_use]
    pub const fn word(self, word: u64) -> Digest {
        let mixed = mix(self.0 ^ word).wrapping_mul(GOLDEN_GAMMA);
        Digest(mixed.rotate_left(7))
    }

    /// With some more words.
    #[must_use]
    pub fn words(self, words: impl IntoIterator<Item = u64>) -> Digest {
        words.into_iter().fold(self, Digest::word)
    }

    /// With some bytes, and how many there are.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Digest {
        let word_of = |chunk: &[u8]| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        };
        self.word(bytes.len() as u64)
            .words(bytes.chunks(8).map(word_of))
    }

    /// The number.
    pub const fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_files_stay() {
        let digest = Digest::new("test").words([100, 2, 0]);
        assert_eq!(digest.value(), 0xD8D3_6639_A172_C7EF);
        assert_eq!(digest.bytes(b"nine bytes").value(), 0x9D98_910C_2B56_F372);
    }
}
