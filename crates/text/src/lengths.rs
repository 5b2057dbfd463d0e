//! Lengths of lines, in words and bytes, of a text that arrives in pieces.
//!
//! No line is stored, so lines may have any length. Words are counted 64 bytes at a time, by bits.

use crate::white_space::BlockBits;
use crate::white_space::filled;

/// Length of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineLength {
    /// Words in it.
    pub words: u64,
    /// Bytes in it, without the `\n` or `\r\n` that ends it.
    pub bytes: u64,
}

/// Counts the words and bytes of each line.
#[derive(Clone, Debug)]
pub struct LineLengths {
    line: LineLength,
    after_space: bool,
    after_return: bool,
}

impl Default for LineLengths {
    fn default() -> LineLengths {
        LineLengths {
            line: LineLength::default(),
            after_space: true,
            after_return: false,
        }
    }
}

impl LineLengths {
    /// Continues with the next piece of the text, and calls `each` for every line that ends in it. An error of `each`
    /// is returned; the counter must not be used after it.
    pub fn push<E>(
        &mut self,
        piece: &[u8],
        mut each: impl FnMut(LineLength) -> Result<(), E>,
    ) -> Result<(), E> {
        let (blocks, rest) = piece.as_chunks::<64>();
        for block in blocks {
            self.block(block, 64, &mut each)?;
        }
        if rest.is_empty() {
            Ok(())
        } else {
            self.block(&filled(rest), rest.len(), &mut each)
        }
    }

    /// The last line, if it has no end.
    pub fn finish(self) -> Option<LineLength> {
        (self.line.bytes > 0).then(|| self.without_return())
    }

    fn without_return(&self) -> LineLength {
        LineLength {
            words: self.line.words,
            bytes: self.line.bytes - u64::from(self.after_return),
        }
    }

    /// The first `length` bytes of a block; the rest are blanks.
    #[inline]
    fn block<E>(
        &mut self,
        block: &[u8; 64],
        length: usize,
        each: &mut impl FnMut(LineLength) -> Result<(), E>,
    ) -> Result<(), E> {
        let bits = BlockBits::new(block);
        let mut starts = bits.word_starts(&mut self.after_space);
        let mut newlines = bits.newlines;
        let mut from = 0;
        while newlines != 0 {
            let at = newlines.trailing_zeros() as usize;
            newlines &= newlines - 1;
            let before = (1 << at) - 1;
            self.line.words += u64::from((starts & before).count_ones());
            starts &= !before;
            self.line.bytes += (at - from) as u64;
            if at > from {
                self.after_return = block[at - 1] == b'\r';
            }
            each(self.without_return())?;
            self.line = LineLength::default();
            self.after_return = false;
            from = at + 1;
        }
        self.line.words += u64::from(starts.count_ones());
        self.line.bytes += (length - from) as u64;
        if length > from {
            self.after_return = block[length - 1] == b'\r';
        }
        self.after_space = bits.spaces >> (length - 1) & 1 == 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::words::words;
    use proptest::prelude::*;

    fn lengths<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<LineLength> {
        let mut found = Vec::new();
        let mut lengths = LineLengths::default();
        for piece in pieces {
            let Ok(()) = lengths.push(piece, |line| {
                found.push(line);
                Ok::<(), Infallible>(())
            });
        }
        found.extend(lengths.finish());
        found
    }

    fn plain(text: &[u8]) -> Vec<LineLength> {
        let lines = text.split_inclusive(|byte| *byte == b'\n');
        lines
            .map(|line| {
                let line = line.strip_suffix(b"\n").unwrap_or(line);
                LineLength {
                    words: words(line).count() as u64,
                    bytes: line.strip_suffix(b"\r").unwrap_or(line).len() as u64,
                }
            })
            .collect()
    }

    #[test]
    fn lines_of_every_kind() {
        let of = |words, bytes| LineLength { words, bytes };
        assert_eq!(lengths([&b""[..]]), []);
        assert_eq!(lengths([&b"\n\r\n"[..]]), [of(0, 0), of(0, 0)]);
        assert_eq!(lengths([&b"a b\r\n"[..], b" cd"]), [of(2, 3), of(1, 3)]);
        assert_eq!(lengths([&b"a\r"[..], b"\n"]), [of(1, 1)]);
        assert_eq!(lengths([&b"a"[..], b"b", b"\n"]), [of(1, 2)]);
    }

    #[test]
    fn an_error_ends_the_count() {
        let outcome = LineLengths::default().push(b"a\nb\n", |_| Err("enough"));
        assert_eq!(outcome, Err("enough"));
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            text in "[ab \\n\\r\\t]{0,300}", cuts in prop::collection::vec(0usize..300, 0..6),
        ) {
            let text = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut.min(&text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]);
            prop_assert_eq!(lengths(pieces), plain(text));
        }
    }
}
