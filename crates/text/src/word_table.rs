//! Words with numbers from 0, in the order they came: one string of bytes, where each word starts in it, and
//! a hash table of numbers.
//!
//! A word costs its bytes and about 10 more; a map from vectors of bytes would cost some 60 and follow a
//! pointer for each comparison. The hash is seeded anew in each process, so that no text can be made to
//! collide; no result depends on it.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::error::TextError;

/// Most words: their numbers have 32 bits, four of which a vocabulary keeps to itself.
const MOST_WORDS: u64 = u32::MAX as u64 - 4;
/// Most bytes of words: their places have 32 bits.
const MOST_BYTES: u64 = u32::MAX as u64;

/// Words with numbers.
#[derive(Clone, Debug)]
pub(crate) struct WordTable {
    bytes: Vec<u8>,
    /// Where each word starts in `bytes`, and where the last one ends.
    starts: Vec<u32>,
    numbers: HashTable<u32>,
    hashes: RandomState,
}

impl Default for WordTable {
    fn default() -> WordTable {
        WordTable {
            bytes: Vec::new(),
            starts: vec![0],
            numbers: HashTable::new(),
            hashes: RandomState::default(),
        }
    }
}

impl WordTable {
    /// With room for `words` words of `bytes` bytes together.
    pub(crate) fn with_capacity(words: usize, bytes: usize) -> WordTable {
        let mut starts = Vec::with_capacity(words + 1);
        starts.push(0);
        WordTable {
            bytes: Vec::with_capacity(bytes),
            starts,
            numbers: HashTable::with_capacity(words),
            hashes: RandomState::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    pub(crate) fn heap_bytes(&self) -> u64 {
        let table = self.numbers.allocation_size();
        (self.bytes.capacity() + 4 * self.starts.capacity() + table) as u64
    }

    /// The word of a number below [`WordTable::len`].
    #[inline]
    pub(crate) fn word(&self, number: u32) -> &[u8] {
        word_at(&self.bytes, &self.starts, number)
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len() as u32).map(|number| self.word(number))
    }

    #[inline]
    fn hash(hashes: &RandomState, word: &[u8]) -> u64 {
        let mut hasher = hashes.build_hasher();
        hasher.write(word);
        hasher.finish()
    }

    #[inline]
    pub(crate) fn number(&self, word: &[u8]) -> Option<u32> {
        let hash = WordTable::hash(&self.hashes, word);
        let found = self.numbers.find(hash, |&number| self.word(number) == word);
        found.copied()
    }

    /// The number of a word, and whether it is new.
    #[inline]
    pub(crate) fn insert(&mut self, word: &[u8]) -> Result<(u32, bool), TextError> {
        let hash = WordTable::hash(&self.hashes, word);
        let found = self.numbers.find(hash, |&number| {
            word_at(&self.bytes, &self.starts, number) == word
        });
        match found {
            Some(number) => Ok((*number, false)),
            None => Ok((self.push(hash, word)?, true)),
        }
    }

    #[cold]
    fn push(&mut self, hash: u64, word: &[u8]) -> Result<u32, TextError> {
        let end = self.bytes.len() as u64 + word.len() as u64;
        check_room(self.len() as u64, end)?;
        let number = self.len() as u32;
        self.bytes.extend_from_slice(word);
        self.starts.push(end as u32);
        let (bytes, starts, hashes) = (&self.bytes, &self.starts, &self.hashes);
        self.numbers.insert_unique(hash, number, |&number| {
            WordTable::hash(hashes, word_at(bytes, starts, number))
        });
        Ok(number)
    }
}

/// Whether one more word than `words` has a number, where the words together then have `bytes` bytes.
fn check_room(words: u64, bytes: u64) -> Result<(), TextError> {
    match words < MOST_WORDS && bytes <= MOST_BYTES {
        true => Ok(()),
        false => Err(TextError::TooManyWords {
            words: MOST_WORDS,
            bytes: MOST_BYTES,
        }),
    }
}

#[inline]
fn word_at<'a>(bytes: &'a [u8], starts: &[u32], number: u32) -> &'a [u8] {
    let number = number as usize;
    &bytes[starts[number] as usize..starts[number + 1] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_back() {
        let mut table = WordTable::with_capacity(2, 4);
        let words: Vec<String> = (0..1000).map(|i| format!("w{}", i * 7919 % 500)).collect();
        let mut distinct: Vec<&str> = Vec::new();
        for word in &words {
            let known = distinct.iter().position(|other| other == word);
            let expected = (known.unwrap_or(distinct.len()) as u32, known.is_none());
            assert_eq!(table.insert(word.as_bytes()).unwrap(), expected);
            if known.is_none() {
                distinct.push(word);
            }
        }
        assert_eq!(table.len(), 500);
        assert!(
            table
                .words()
                .eq(distinct.iter().map(|word| word.as_bytes()))
        );
        assert_eq!(table.number(distinct[77].as_bytes()), Some(77));
        assert_eq!(table.number(b"absent"), None);
        assert_eq!(table.number(b""), None);
        assert_eq!(
            table.insert(b"").unwrap(),
            (500, true),
            "a word may be empty"
        );
        assert!(table.heap_bytes() >= 500 * 8);
    }

    #[test]
    fn numbers_and_places_have_32_bits() {
        assert!(check_room(MOST_WORDS - 1, MOST_BYTES).is_ok());
        for (words, bytes) in [(MOST_WORDS, 0), (0, MOST_BYTES + 1)] {
            let error = check_room(words, bytes).unwrap_err();
            assert!(matches!(error, TextError::TooManyWords { .. }));
            assert!(error.to_string().contains("count a part of it"), "{error}");
        }
    }
}
