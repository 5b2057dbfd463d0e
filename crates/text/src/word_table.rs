//! Words with ids from 0, in order of insertion: one string of bytes, the start of each word in it, and a hash table
//! of ids.
//!
//! A word costs its bytes and about 10 more; a map from vectors of bytes would cost some 60 and follow a pointer for
//! each comparison. Each process draws a new hash seed, so that no text can be crafted to collide; results do not
//! depend on it.

use std::hash::{BuildHasher, Hasher};
use std::ops::Range;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::error::TextError;

/// Most words: ids have 32 bits, and a vocabulary reserves four.
const MOST_WORDS: u64 = u32::MAX as u64 - 4;
/// Most bytes of words: their offsets have 32 bits.
const MOST_BYTES: u64 = u32::MAX as u64;

/// Words with ids.
#[derive(Clone, Debug)]
pub(crate) struct WordTable {
    bytes: Vec<u8>,
    /// Start of each word in `bytes`, and the end of the last.
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

    /// The word with an id below [`WordTable::len`].
    #[inline]
    pub(crate) fn word(&self, number: u32) -> &[u8] {
        &self.bytes[range_of(&self.starts, number)]
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len() as u32).map(|number| self.word(number))
    }

    #[inline]
    pub(crate) fn number(&self, word: &[u8]) -> Option<u32> {
        self.number_in(word, 0..word.len())
    }

    /// The id of the word at a range of a text.
    #[inline]
    pub(crate) fn number_in(&self, text: &[u8], range: Range<usize>) -> Option<u32> {
        let key = Key::new(text, range);
        self.find(&key, key.hash(&self.hashes))
    }

    #[inline]
    fn find(&self, key: &Key<'_>, hash: u64) -> Option<u32> {
        let found = self.numbers.find(hash, |&number| {
            key.is_at(&self.bytes, range_of(&self.starts, number))
        });
        found.copied()
    }

    /// The id of a word, and whether it is new.
    #[inline]
    pub(crate) fn insert(&mut self, word: &[u8]) -> Result<(u32, bool), TextError> {
        let key = Key::new(word, 0..word.len());
        let hash = key.hash(&self.hashes);
        match self.find(&key, hash) {
            Some(number) => Ok((number, false)),
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
            Key::new(bytes, range_of(starts, number)).hash(hashes)
        });
        Ok(number)
    }
}

/// Whether there is room for one more word after `words`, with `bytes` bytes in total then.
fn check_room(words: u64, bytes: u64) -> Result<(), TextError> {
    if words < MOST_WORDS && bytes <= MOST_BYTES {
        Ok(())
    } else {
        Err(TextError::new(format!(
            "the text has more than {MOST_WORDS} distinct words or {MOST_BYTES} bytes of them; count a part of it, or use the tokenizer bytes"
        )))
    }
}

#[inline]
fn range_of(starts: &[u32], number: u32) -> Range<usize> {
    let number = number as usize;
    starts[number] as usize..starts[number + 1] as usize
}

/// Most bytes of a word that is compared as one number.
const SHORT: usize = 16;

/// The first `i` bytes of a number, for each `i`.
const MASKS: [u128; SHORT + 1] = {
    let mut masks = [0; SHORT + 1];
    let mut i = 1;
    while i <= SHORT {
        masks[i] = u128::MAX >> (128 - 8 * i);
        i += 1;
    }
    masks
};

/// A word to look for. Nearly all are short, and are hashed and compared in a few cycles without a branch on
/// their length.
enum Key<'a> {
    Short { length: usize, bytes: u128 },
    Long(&'a [u8]),
}

impl<'a> Key<'a> {
    #[inline]
    fn new(text: &'a [u8], range: Range<usize>) -> Key<'a> {
        let length = range.len();
        if length <= SHORT {
            Key::Short {
                length,
                bytes: short(text, range.start, length),
            }
        } else {
            Key::Long(&text[range])
        }
    }

    #[inline]
    fn hash(&self, hashes: &RandomState) -> u64 {
        let mut hasher = hashes.build_hasher();
        match self {
            Key::Short { bytes, .. } => hasher.write_u128(*bytes),
            Key::Long(word) => hasher.write(word),
        }
        hasher.finish()
    }

    #[inline]
    fn is_at(&self, text: &[u8], range: Range<usize>) -> bool {
        match self {
            Key::Short { length, bytes } => {
                range.len() == *length && short(text, range.start, *length) == *bytes
            }
            Key::Long(word) => text[range] == **word,
        }
    }
}

/// At most [`SHORT`] bytes of a text as a number.
#[inline]
fn short(text: &[u8], start: usize, length: usize) -> u128 {
    let rest = &text[start..];
    let bytes = match rest.first_chunk() {
        Some(bytes) => *bytes,
        None => {
            let mut bytes = [0; SHORT];
            bytes[..rest.len()].copy_from_slice(rest);
            bytes
        }
    };
    u128::from_le_bytes(bytes) & MASKS[length]
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
    fn words_of_every_length() {
        let mut table = WordTable::default();
        // With zeros, only the length distinguishes a word from a shorter one.
        let words: Vec<Vec<u8>> = (0..40)
            .flat_map(|length| [vec![0; length], vec![b'a'; length]])
            .skip(1)
            .collect();
        for (number, word) in (0..).zip(&words) {
            assert_eq!(table.insert(word).unwrap(), (number, true), "{word:?}");
        }
        for (number, word) in (0..).zip(&words) {
            let text = [b"ab", &word[..], b"cd"].concat();
            let found = table.number_in(&text, 2..2 + word.len());
            assert_eq!((table.word(number), found), (&word[..], Some(number)));
        }
    }

    #[test]
    fn numbers_and_places_have_32_bits() {
        assert!(check_room(MOST_WORDS - 1, MOST_BYTES).is_ok());
        for (words, bytes) in [(MOST_WORDS, 0), (0, MOST_BYTES + 1)] {
            let error = check_room(words, bytes).unwrap_err();
            assert!(error.to_string().contains("count a part of it"), "{error}");
        }
    }
}
