//! The words of a text, one after another.

use std::iter::FusedIterator;
use std::ops::Range;

use crate::white_space::{BlockBits, filled};

/// The words of `text`: its runs of bytes without white space.
#[inline]
pub fn words(text: &[u8]) -> Words<'_> {
    Words {
        text,
        base: 0,
        next: 0,
        edges: 0,
        in_word: false,
    }
}

/// Iterates over the words of a text; see [`words`].
#[derive(Clone, Debug)]
pub struct Words<'a> {
    text: &'a [u8],
    /// Offset of the block of `edges`.
    base: usize,
    /// Offset of the next block.
    next: usize,
    /// The remaining bytes of the block at which a word starts or ends.
    edges: u64,
    /// Whether the last byte of the block belongs to a word.
    in_word: bool,
}

impl Words<'_> {
    #[inline]
    fn next_edge(&mut self) -> Option<usize> {
        while self.edges == 0 {
            if self.next >= self.text.len() {
                return None;
            }
            let rest = &self.text[self.next..];
            let bits = match rest.first_chunk() {
                Some(block) => BlockBits::new(block),
                None => BlockBits::new(&filled(rest)),
            };
            let of_words = !bits.spaces;
            self.edges = of_words ^ (of_words << 1 | u64::from(self.in_word));
            self.in_word = of_words >> 63 == 1;
            self.base = self.next;
            self.next += 64;
        }
        let edge = self.base + self.edges.trailing_zeros() as usize;
        self.edges &= self.edges - 1;
        Some(edge)
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.next_edge()?;
        let end = self.next_edge().unwrap_or(self.text.len());
        Some(&self.text[start..end])
    }
}

impl FusedIterator for Words<'_> {}

/// Calls `each` with the range of every word of a text; like [`words`], but without returning between the words of a
/// block.
#[inline]
pub(crate) fn for_each_word(text: &[u8], mut each: impl FnMut(Range<usize>)) {
    // Start of a word that continues from block to block.
    let mut open = None;
    let mut base = 0;
    for bits in BlockBits::of_text(text) {
        let of_words = !bits.spaces;
        let edges = of_words ^ (of_words << 1 | u64::from(open.is_some()));
        let (mut starts, mut ends) = (edges & of_words, edges & bits.spaces);
        let place = |bits: u64| base + bits.trailing_zeros() as usize;
        if ends != 0
            && let Some(start) = open.take()
        {
            each(start..place(ends));
            ends &= ends - 1;
        }
        while ends != 0 {
            each(place(starts)..place(ends));
            starts &= starts - 1;
            ends &= ends - 1;
        }
        if starts != 0 {
            open = Some(place(starts));
        }
        base += 64;
    }
    if let Some(start) = open {
        each(start..text.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::white_space::is_white_space;
    use proptest::prelude::*;

    fn check(text: &[u8]) {
        let expected = text
            .split(|byte| is_white_space(*byte))
            .filter(|word| !word.is_empty());
        let mut ranges = Vec::new();
        for_each_word(text, |range| ranges.push(&text[range]));
        assert!(
            ranges.into_iter().eq(expected.clone()),
            "{}",
            text.escape_ascii()
        );
        assert!(words(text).eq(expected), "{}", text.escape_ascii());
    }

    #[test]
    fn words_that_meet_the_ends_of_blocks() {
        for length in 0..200 {
            for cut in 0..=length {
                let mut text = vec![b'a'; length];
                check(&text);
                if cut < length {
                    text[cut] = b'\n';
                    check(&text);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn words_of_any_text(text in "[ab\\n\\t\\r \u{e9}]{0,300}") {
            check(text.as_bytes());
        }

        #[test]
        fn words_of_any_bytes(text in prop::collection::vec(any::<u8>(), 0..300)) {
            check(&text);
        }
    }
}
