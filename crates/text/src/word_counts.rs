//! Counts how often each word of a text occurs, in several threads.
//!
//! Each thread counts chunks of its own and the counts are added up. The assignment of chunks to threads changes only
//! the order in which words are found, not the result: counts are sorted.

use std::cmp::Reverse;

use rayon::prelude::*;

use crate::error::TextError;
use crate::white_space::is_white_space;
use crate::word_table::WordTable;
use crate::words::words;

/// Bytes of a text that a thread counts at a time.
const CHUNK: usize = 1 << 20;

/// Words and how often each occurs.
#[derive(Debug, Default)]
pub(crate) struct WordCounts {
    words: WordTable,
    counts: Vec<u64>,
}

impl WordCounts {
    /// Counts the words of chunks of sentences.
    pub(crate) fn of_chunks<C>(
        chunks: impl ParallelIterator<Item = C>,
    ) -> Result<WordCounts, TextError>
    where
        C: IntoIterator,
        C::Item: AsRef<[u8]>,
    {
        let counted = chunks.try_fold(WordCounts::default, |mut counts, chunk| {
            for sentence in chunk {
                counts.add_sentence(sentence.as_ref())?;
            }
            Ok(counts)
        });
        counted.try_reduce(WordCounts::default, WordCounts::merged)
    }

    /// Counts the words of a text in memory, cut at white space.
    pub(crate) fn of_text(text: &[u8]) -> Result<WordCounts, TextError> {
        WordCounts::of_chunks(chunks(text).into_par_iter().map(|chunk| [chunk]))
    }

    fn add_sentence(&mut self, sentence: &[u8]) -> Result<(), TextError> {
        words(sentence).try_for_each(|word| self.add(word, 1))
    }

    #[inline]
    pub(crate) fn add(&mut self, word: &[u8], times: u64) -> Result<(), TextError> {
        match self.words.insert(word)? {
            (_, true) => self.counts.push(times),
            (number, false) => self.counts[number as usize] += times,
        }
        Ok(())
    }

    fn merged(self, other: WordCounts) -> Result<WordCounts, TextError> {
        let (mut all, fewer) = if self.counts.len() >= other.counts.len() {
            (self, other)
        } else {
            (other, self)
        };
        for (word, &count) in fewer.words.words().zip(&fewer.counts) {
            all.add(word, count)?;
        }
        Ok(all)
    }

    /// The words by count, the most frequent first, ties by their bytes.
    pub(crate) fn sorted(&self) -> Vec<(&[u8], u64)> {
        let counts = self.counts.iter().copied();
        let mut sorted: Vec<(&[u8], u64)> = self.words.words().zip(counts).collect();
        sorted.par_sort_unstable_by_key(|&(word, count)| (Reverse(count), word));
        sorted
    }
}

/// Parts of a text of about [`CHUNK`] bytes; none ends within a word.
fn chunks(mut text: &[u8]) -> Vec<&[u8]> {
    let mut chunks = Vec::with_capacity(text.len() / CHUNK + 1);
    while text.len() > CHUNK {
        let behind = text[CHUNK..].iter().position(|byte| is_white_space(*byte));
        let (chunk, rest) = text.split_at(behind.map_or(text.len(), |behind| CHUNK + behind));
        chunks.push(chunk);
        text = rest;
    }
    if !text.is_empty() {
        chunks.push(text);
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_part_no_word() {
        let word = [b'x'; 999];
        let text = [&word[..], b" "].concat().repeat(3000);
        let found = chunks(&text);
        assert_eq!(found.len(), 3);
        assert!(found.concat() == text);
        let counts = WordCounts::of_text(&text).unwrap();
        assert_eq!(counts.sorted(), [(&word[..], 3000)]);
        let one = vec![b'y'; 3 * CHUNK];
        assert!(
            chunks(&one) == [&one[..]],
            "a word longer than a chunk stays whole"
        );
    }
}
