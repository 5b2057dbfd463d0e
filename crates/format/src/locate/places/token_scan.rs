//! One parallel pass over a text that cuts it into records of a given number of tokens.
//!
//! A token is a word or a newline, which stands for the end of a sentence; so `a cat\n` has three, and a last line
//! without its newline has no end. Threads take chunks in the order of the file and turn each into one bit a byte, set
//! where a token begins; that needs only the byte before the chunk. The count of tokens before a chunk is known once
//! all earlier chunks are counted, so merging the chunks determines the cuts: by counting bits, 64 bytes of text at a
//! time.
//!
//! Rejected: a first pass that counts and a second one that cuts, which reads the file twice.
//!
//! Cost: one read of the file; memory 2 + log2(mean length) bits a record, and 300 KiB a thread.

use std::io;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};

use pelton_text::BlockBits;

use crate::locate::places::chunks_in_order::{CHUNK, scan_in_order};
use crate::locate::places::elias_fano::EliasFanoBuilder;
use crate::locate::places::input::Input;
use crate::locate::places::located::Located;
use crate::record::error::FormatError;
use crate::record::labels::codes::Codes;

/// Cuts the bytes of a file from `from` up to `size` every `length` tokens.
pub(crate) fn scan_tokens(
    file: &Input,
    length: NonZeroU32,
    from: u64,
    size: u64,
    threads: usize,
    interrupt: &AtomicBool,
) -> Result<Located, FormatError> {
    let chunks = (size - from).div_ceil(CHUNK);
    let mut cuts = None;
    let outcome = scan_in_order(
        chunks,
        threads,
        Vec::new,
        |buffer, chunk, tokens| {
            if interrupt.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let start = from + chunk * CHUNK;
            token_starts(file, from, start..(start + CHUNK).min(size), buffer, tokens)
        },
        |chunk, tokens: &mut Vec<u64>| {
            let cuts = cuts.get_or_insert_with(|| {
                // The first chunk's mean length determines the split of the offsets.
                let found: u64 = tokens.iter().map(|bits| u64::from(bits.count_ones())).sum();
                let bytes = CHUNK.min(size - from) * u64::from(length.get());
                Cuts::new(length, bytes / found.max(1))
            });
            cuts.add(from + chunk * CHUNK, tokens);
            true
        },
    );
    outcome?;
    Ok(cuts.unwrap_or_else(|| Cuts::new(length, 1)).finish(size))
}

/// One bit for each byte of a range of a file, set if a token begins there; the text begins at `from`.
fn token_starts(
    file: &Input,
    from: u64,
    range: std::ops::Range<u64>,
    buffer: &mut Vec<u8>,
    mut tokens: Vec<u64>,
) -> io::Result<Vec<u64>> {
    let behind = u64::from(range.start > from);
    buffer.resize((range.end - range.start + behind) as usize, 0);
    file.read_exact_at(buffer, range.start - behind)?;
    let (before, text) = buffer.split_at(behind as usize);
    let mut after_space = before.iter().all(|byte| pelton_text::is_white_space(*byte));
    tokens.clear();
    tokens.extend(
        BlockBits::of_text(text).map(|bits| bits.word_starts(&mut after_space) | bits.newlines),
    );
    Ok(tokens)
}

/// The starts of records so far.
struct Cuts {
    length: u64,
    /// Tokens before the next record starts.
    to_next: u64,
    starts: EliasFanoBuilder,
    longest: u64,
}

impl Cuts {
    fn new(length: NonZeroU32, mean_bytes: u64) -> Cuts {
        Cuts {
            length: u64::from(length.get()),
            to_next: 0,
            starts: EliasFanoBuilder::new(mean_bytes.max(1)),
            longest: 0,
        }
    }

    /// Continues with the tokens of a chunk that begins at `base`.
    fn add(&mut self, base: u64, tokens: &[u64]) {
        for (block, &bits) in (0..).zip(tokens) {
            let mut bits = bits;
            let mut left = u64::from(bits.count_ones());
            while self.to_next < left {
                for _ in 0..self.to_next {
                    bits &= bits - 1;
                }
                self.start(base + 64 * block + u64::from(bits.trailing_zeros()));
                left -= self.to_next;
                self.to_next = self.length;
            }
            self.to_next -= left;
        }
    }

    #[inline]
    fn start(&mut self, at: u64) {
        if let Some(last) = self.starts.last() {
            self.longest = self.longest.max(at - last);
        }
        self.starts.push(at);
    }

    fn finish(mut self, size: u64) -> Located {
        if let Some(last) = self.starts.last() {
            self.longest = self.longest.max(size - last);
        }
        let starts = self.starts.finish(size);
        let first = starts.walk(0).next().unwrap_or(size);
        Located {
            first_bad: None,
            starts,
            end: size,
            codes: Codes::One,
            names: Vec::new(),
            tallies: Vec::new(),
            labels: Vec::new(),
            index_end: 0,
            nonzeros: size - first,
            longest: self.longest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The starts of tokens, byte by byte.
    fn plain(text: &[u8]) -> Vec<u64> {
        let is_space = |byte: u8| byte == b' ' || (9..=13).contains(&byte);
        let mut starts = Vec::new();
        let mut in_word = false;
        for (at, &byte) in (0..).zip(text) {
            if byte == b'\n' || !is_space(byte) && !in_word {
                starts.push(at);
            }
            in_word = !is_space(byte);
        }
        starts
    }

    fn check(text: &[u8], from: u64, length: u32) {
        let input = Input::of_bytes(text);
        let size = text.len() as u64;
        let tokens = plain(&text[from as usize..]).into_iter();
        let expected: Vec<u64> = tokens
            .map(|at| at + from)
            .step_by(length as usize)
            .collect();
        let ends = expected.iter().skip(1).copied().chain([size]);
        let longest = expected
            .iter()
            .zip(ends)
            .map(|(start, end)| end - start)
            .max();
        let length = NonZeroU32::new(length).unwrap();
        for threads in [1, 3] {
            let stop = AtomicBool::new(false);
            let found = scan_tokens(&input, length, from, size, threads, &stop).unwrap();
            assert!(found.starts.walk(0).eq(expected.iter().copied()));
            assert_eq!(found.longest, longest.unwrap_or(0));
            assert_eq!(found.nonzeros, size - expected.first().unwrap_or(&size));
            assert_eq!(found.end, size);
        }
    }

    #[test]
    fn texts_of_every_kind() {
        for length in [1, 2, 3, 35] {
            for text in [
                &b""[..],
                b" ",
                b"\n",
                b"\n\n\n",
                b"a",
                b" a",
                b"a\n",
                b"a b\r\nc\td  e\n\n\r\nf",
                b"\r\n\r\n",
                b"a\x0b\x0cb\0c \xff\xfe\n\x80",
            ] {
                check(text, 0, length);
            }
            check(b"\xef\xbb\xbfa b c", 3, length);
        }
    }

    #[test]
    fn tokens_that_meet_the_ends_of_chunks() {
        let chunk = CHUNK as usize;
        for around in ["a", " ", "\n", "ab", "a ", " a", "\r\n", "\n\n"] {
            for shift in 0..3 {
                for filler in [b'x', b' ', b'\n'] {
                    let mut text = vec![filler; 2 * chunk + 10];
                    for end in [chunk, 2 * chunk] {
                        let at = end - shift;
                        text[at..at + around.len()].copy_from_slice(around.as_bytes());
                    }
                    check(&text, 0, 1);
                    check(&text, 0, 7);
                }
            }
        }
    }

    #[test]
    fn an_interruption_ends_it() {
        let input = Input::of_bytes(b"a b");
        let stop = AtomicBool::new(true);
        let length = NonZeroU32::new(2).unwrap();
        let error = scan_tokens(&input, length, 0, 3, 1, &stop).unwrap_err();
        assert!(error.to_string().contains("interrupted"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text(text in "[ab \\n\\r\\t]{0,300}", length in 1u32..9) {
            check(text.as_bytes(), 0, length);
        }

        #[test]
        fn long_texts(seed in any::<[u8; 97]>(), length in 1u32..200) {
            let text: Vec<u8> = (0..CHUNK as usize * 2 + 77)
                .map(|i| b"ab \n\r\t c"[usize::from(seed[i % 97] ^ (i / 97) as u8) % 8])
                .collect();
            check(&text, 0, length);
        }
    }
}
