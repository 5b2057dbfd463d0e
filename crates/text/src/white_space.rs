//! Finds white space and newlines in 64 bytes at once: the inner loop of all searches for words.
//!
//! A byte separates words if it is a blank, tab, newline, vertical tab, form feed or carriage return: the white space
//! of ASCII, as in C's `isspace`. The result is one bit a byte, so that words are counted and found by counting bits.

/// Whether a byte separates words.
#[inline]
pub fn is_white_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// White space and newlines of 64 bytes, the lowest bit first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockBits {
    /// Bytes that separate words, including newlines.
    pub spaces: u64,
    /// Newlines.
    pub newlines: u64,
}

impl BlockBits {
    /// The bits of a whole block.
    #[inline]
    pub fn new(block: &[u8; 64]) -> BlockBits {
        BlockBits {
            spaces: bits_where(block, |byte| {
                (byte == b' ') | (byte.wrapping_sub(b'\t') < 5)
            }),
            newlines: bits_where(block, |byte| byte == b'\n'),
        }
    }

    /// For each block of a text; the last one is padded with blanks.
    #[inline]
    pub fn of_text(text: &[u8]) -> impl Iterator<Item = BlockBits> {
        let (blocks, rest) = text.as_chunks::<64>();
        let last = (!rest.is_empty()).then(|| BlockBits::new(&filled(rest)));
        blocks.iter().map(BlockBits::new).chain(last)
    }

    /// The starts of words. `after_space` says whether the byte before the block separates words, and is updated for
    /// the next block; it is true before a text.
    #[inline]
    pub fn word_starts(self, after_space: &mut bool) -> u64 {
        let before = self.spaces << 1 | u64::from(*after_space);
        *after_space = self.spaces >> 63 == 1;
        before & !self.spaces
    }
}

/// A block of fewer than 64 bytes, padded with blanks.
#[inline]
pub(crate) fn filled(rest: &[u8]) -> [u8; 64] {
    let mut block = [b' '; 64];
    block[..rest.len()].copy_from_slice(rest);
    block
}

/// One bit for each byte: a comparison that compilers vectorise, and then eight bits at a time by a multiplication.
#[inline]
fn bits_where(block: &[u8; 64], is: impl Fn(u8) -> bool) -> u64 {
    let flags = block.map(|byte| u8::from(is(byte)));
    let mut bits = 0;
    for (i, eight) in flags.as_chunks::<8>().0.iter().enumerate() {
        // Flag j, at bit 8 j, is moved to bit 56 + j by the factor's bit 56 − 7 j; no two sums meet.
        let gathered = u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        bits |= gathered << (8 * i);
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(block: &[u8; 64]) -> BlockBits {
        let bits = |is: fn(u8) -> bool| {
            (0..)
                .zip(block)
                .fold(0, |bits, (i, &byte)| bits | u64::from(is(byte)) << i)
        };
        BlockBits {
            spaces: bits(is_white_space),
            newlines: bits(|byte| byte == b'\n'),
        }
    }

    #[test]
    fn every_byte_at_every_place() {
        for byte in 0..=255 {
            for place in 0..64 {
                for other in [b'a', b' '] {
                    let mut block = [other; 64];
                    block[place] = byte;
                    assert_eq!(BlockBits::new(&block), plain(&block), "{byte} at {place}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn fast_equals_plain(block in prop::collection::vec(any::<u8>(), 64)) {
            let block: [u8; 64] = block.try_into().unwrap();
            prop_assert_eq!(BlockBits::new(&block), plain(&block));
        }
    }
}
