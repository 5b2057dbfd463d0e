//! Ids for tokens.

use rayon::prelude::*;

use crate::error::TextError;
use crate::tokenizer::Tokenizer;
use crate::word_counts::WordCounts;
use crate::word_table::WordTable;
use crate::words::{for_each_word, words};

/// Special tokens, which are not words of the text; their ids come first.
///
/// A word spelled like one of them is that token, so `<unk>` in a corpus that replaces rare words by it is the unknown
/// token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Special {
    /// Fills rows up: `<pad>`.
    Pad = 0,
    /// Replaces every word without an id: `<unk>`.
    Unknown = 1,
    /// Begins a sentence: `<bos>`.
    Begin = 2,
    /// Ends a sentence: `<eos>`.
    End = 3,
}

impl Special {
    /// All of them, in the order of their ids.
    pub const ALL: [Special; 4] = [Special::Pad, Special::Unknown, Special::Begin, Special::End];

    /// Number of special tokens, which is the id of the first other token.
    pub const COUNT: u32 = Special::ALL.len() as u32;

    /// Its id.
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// How it is spelled.
    pub const fn spelling(self) -> &'static str {
        match self {
            Special::Pad => "<pad>",
            Special::Unknown => "<unk>",
            Special::Begin => "<bos>",
            Special::End => "<eos>",
        }
    }
}

/// Which words get ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VocabularyOptions {
    /// Definition of a token. All bytes have ids, whatever the other options.
    pub tokenizer: Tokenizer,
    /// Words that occur less often get no id.
    pub min_count: u64,
    /// Most tokens of the vocabulary, including the special ones.
    pub max_size: Option<u32>,
}

impl Default for VocabularyOptions {
    fn default() -> VocabularyOptions {
        VocabularyOptions {
            tokenizer: Tokenizer::Whitespace,
            min_count: 1,
            max_size: None,
        }
    }
}

/// Tokens added around an encoded sentence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// `<bos>` before it.
    pub begin: bool,
    /// `<eos>` after it.
    pub end: bool,
}

/// Every byte, so that a token of one byte is a slice.
const BYTES: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut i = 0;
    while i < 256 {
        bytes[i] = i as u8;
        i += 1;
    }
    bytes
};

/// Ids for the tokens of a text: the special ones from 0, then words by count, the most frequent first, ties by their
/// bytes; or the 256 bytes in order.
///
/// Memory: the bytes of the words and about 20 more a word. A look-up takes one hash and one comparison.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    tokenizer: Tokenizer,
    /// The special tokens and the words.
    words: WordTable,
    /// How often each word occurs; empty for bytes.
    counts: Vec<u64>,
}

impl Vocabulary {
    /// Counts the words of sentences, one after another.
    ///
    /// Errors: a `max_size` below the number of special tokens, or more words than ids.
    pub fn from_sentences<S: AsRef<[u8]>>(
        sentences: impl IntoIterator<Item = S>,
        options: &VocabularyOptions,
    ) -> Result<Vocabulary, TextError> {
        check(options)?;
        if options.tokenizer == Tokenizer::Bytes {
            return Vocabulary::of_bytes();
        }
        let mut counts = WordCounts::default();
        for sentence in sentences {
            words(sentence.as_ref()).try_for_each(|word| counts.add(word, 1))?;
        }
        Vocabulary::of_counts(&counts, options)
    }

    /// Counts the words of chunks of sentences on all threads of the current pool; the result equals that of
    /// [`Vocabulary::from_sentences`].
    ///
    /// Errors: a `max_size` below the number of special tokens, or more words than ids.
    pub fn from_chunks<C>(
        chunks: impl ParallelIterator<Item = C>,
        options: &VocabularyOptions,
    ) -> Result<Vocabulary, TextError>
    where
        C: IntoIterator,
        C::Item: AsRef<[u8]>,
    {
        check(options)?;
        match options.tokenizer {
            Tokenizer::Bytes => Vocabulary::of_bytes(),
            Tokenizer::Whitespace => {
                Vocabulary::of_counts(&WordCounts::of_chunks(chunks)?, options)
            }
        }
    }

    /// Counts the words of a text in memory on all threads of the current pool.
    ///
    /// Errors: a `max_size` below the number of special tokens, or more words than ids.
    pub fn from_text(text: &[u8], options: &VocabularyOptions) -> Result<Vocabulary, TextError> {
        check(options)?;
        match options.tokenizer {
            Tokenizer::Bytes => Vocabulary::of_bytes(),
            Tokenizer::Whitespace => Vocabulary::of_counts(&WordCounts::of_text(text)?, options),
        }
    }

    /// The vocabulary of these words in the order of their ids, after the special tokens; the list may begin with
    /// those. All counts are 0.
    ///
    /// Errors: a word appears twice or is not a word; or more words than ids.
    pub fn from_words<W: AsRef<[u8]>>(listed: &[W]) -> Result<Vocabulary, TextError> {
        let specials = Special::ALL.len();
        let mut table = with_specials(listed.len() + specials, 0)?;
        let spelled =
            |(word, special): (&W, Special)| word.as_ref() == special.spelling().as_bytes();
        let begins = listed.len() >= specials && listed.iter().zip(Special::ALL).all(spelled);
        let from = if begins { specials } else { 0 };
        for (place, word) in listed.iter().enumerate().skip(from) {
            let word = word.as_ref();
            let refuse = |problem: &str| {
                let word = String::from_utf8_lossy(word);
                TextError::new(format!("word {place} of the list, {word:?}, {problem}"))
            };
            if words(word).ne([word]) {
                return Err(refuse(
                    "is empty or has white space in it; list words one by one",
                ));
            }
            if table.number(word).is_some() {
                return Err(refuse("appears twice or is a special token; list it once"));
            }
            table.insert(word)?;
        }
        let counts = vec![0; table.len()];
        Ok(Vocabulary::from_parts(Tokenizer::Whitespace, table, counts))
    }

    /// The vocabulary of bytes, which needs no text.
    fn of_bytes() -> Result<Vocabulary, TextError> {
        Ok(Vocabulary {
            tokenizer: Tokenizer::Bytes,
            words: with_specials(0, 0)?,
            counts: Vec::new(),
        })
    }

    fn of_counts(
        counts: &WordCounts,
        options: &VocabularyOptions,
    ) -> Result<Vocabulary, TextError> {
        let sorted = counts.sorted();
        let room = options.max_size.unwrap_or(u32::MAX) as usize;
        let mut vocabulary = Vocabulary {
            tokenizer: Tokenizer::Whitespace,
            words: with_specials(0, 0)?,
            counts: vec![0; Special::ALL.len()],
        };
        for (word, count) in sorted {
            if let Some(special) = vocabulary.words.number(word) {
                vocabulary.counts[special as usize] += count;
            } else if count >= options.min_count && vocabulary.counts.len() < room {
                vocabulary.words.insert(word)?;
                vocabulary.counts.push(count);
            } else {
                vocabulary.counts[Special::Unknown.id() as usize] += count;
            }
        }
        Ok(vocabulary)
    }

    /// The vocabulary that counting under these limits would have given, if this one was counted without limits: the
    /// most frequent words, with the counts of the others added to `<unk>`. All bytes keep their ids.
    ///
    /// Errors: no room for the special tokens.
    pub fn limited(&self, min_count: u64, max_size: Option<u32>) -> Result<Vocabulary, TextError> {
        let options = VocabularyOptions {
            tokenizer: self.tokenizer,
            min_count,
            max_size,
        };
        check(&options)?;
        if self.tokenizer == Tokenizer::Bytes {
            return Ok(self.clone());
        }
        let specials = Special::ALL.len();
        // Counts descend, so the words to keep come first.
        let frequent = self.counts[specials..].partition_point(|count| *count >= min_count);
        let room = max_size.map_or(usize::MAX, |size| size as usize);
        let (kept, others) = self.counts.split_at(room.min(specials + frequent));
        let mut counts = kept.to_vec();
        counts[Special::Unknown.id() as usize] += others.iter().sum::<u64>();
        let mut words = with_specials(counts.len(), 0)?;
        for word in self.words.words().take(counts.len()).skip(specials) {
            words.insert(word)?;
        }
        Ok(Vocabulary::from_parts(self.tokenizer, words, counts))
    }

    /// A vocabulary from its parts; words are the special tokens, then others.
    pub(crate) fn from_parts(
        tokenizer: Tokenizer,
        words: WordTable,
        counts: Vec<u64>,
    ) -> Vocabulary {
        Vocabulary {
            tokenizer,
            words,
            counts,
        }
    }

    /// What a token is.
    pub fn tokenizer(&self) -> Tokenizer {
        self.tokenizer
    }

    /// Number of tokens, including the special ones; ids are below it.
    pub fn size(&self) -> u32 {
        match self.tokenizer {
            Tokenizer::Whitespace => self.words.len() as u32,
            Tokenizer::Bytes => Special::COUNT + 256,
        }
    }

    /// A hash of its tokens and their ids: two vocabularies with the same fingerprint encode text equally. Counts do
    /// not affect it. Takes a pass over the words.
    pub fn fingerprint(&self) -> u64 {
        let kind = crc32c::crc32c(self.tokenizer.to_string().as_bytes());
        // No word has white space in it.
        let tokens = self.words.words().fold(kind, |sum, word| {
            crc32c::crc32c_append(crc32c::crc32c_append(sum, word), b"\n")
        });
        u64::from(self.size()) << 32 | u64::from(tokens)
    }

    /// Bytes it takes in memory.
    pub fn heap_bytes(&self) -> u64 {
        self.words.heap_bytes() + 8 * self.counts.capacity() as u64
    }

    /// The id of a token; that of `<unk>` for an unknown word.
    #[inline]
    pub fn id(&self, token: &[u8]) -> u32 {
        let number = match (self.tokenizer, token) {
            (Tokenizer::Bytes, [byte]) => Some(id_of_byte(*byte)),
            _ => self.words.number(token),
        };
        number.unwrap_or(Special::Unknown.id())
    }

    /// The bytes of the token with this id, if any.
    pub fn token(&self, id: u32) -> Option<&[u8]> {
        if (id as usize) < self.words.len() {
            return Some(self.words.word(id));
        }
        match self.tokenizer {
            Tokenizer::Whitespace => None,
            Tokenizer::Bytes => {
                let byte = (id - Special::COUNT) as usize;
                BYTES.get(byte..byte + 1)
            }
        }
    }

    /// How often the token with this id occurs in the counted text, with all words without an id counted for `<unk>`;
    /// `None` for an unknown id or if tokens are bytes.
    pub fn count(&self, id: u32) -> Option<u64> {
        self.counts.get(id as usize).copied()
    }

    /// Appends the ids of a sentence's tokens, with the requested tokens at its ends.
    pub fn encode(&self, sentence: &[u8], ends: Ends, out: &mut Vec<u32>) {
        if ends.begin {
            out.push(Special::Begin.id());
        }
        match self.tokenizer {
            Tokenizer::Bytes => out.extend(sentence.iter().copied().map(id_of_byte)),
            Tokenizer::Whitespace => {
                let unknown = Special::Unknown.id();
                for_each_word(sentence, |range| {
                    out.push(self.words.number_in(sentence, range).unwrap_or(unknown));
                });
            }
        }
        if ends.end {
            out.push(Special::End.id());
        }
    }

    /// Appends the text of tokens: words with a blank between, or bytes. `<pad>`, `<bos>` and `<eos>` add nothing.
    ///
    /// Errors: an id without a token; `out` is then unchanged.
    pub fn decode(&self, ids: &[u32], out: &mut Vec<u8>) -> Result<(), TextError> {
        let before = out.len();
        let silent = [Special::Pad, Special::Begin, Special::End].map(Special::id);
        let mut is_first = true;
        for (position, &id) in ids.iter().enumerate() {
            let Some(token) = self.token(id) else {
                out.truncate(before);
                let size = self.size();
                return Err(TextError::new(format!(
                    "token {position} has the id {id}, but the vocabulary has {size} tokens; decode with the vocabulary that encoded"
                )));
            };
            if silent.contains(&id) {
                continue;
            }
            if !is_first && self.tokenizer == Tokenizer::Whitespace {
                out.push(b' ');
            }
            is_first = false;
            out.extend_from_slice(token);
        }
        Ok(())
    }
}

#[inline]
fn id_of_byte(byte: u8) -> u32 {
    Special::COUNT + u32::from(byte)
}

fn check(options: &VocabularyOptions) -> Result<(), TextError> {
    match options.max_size {
        Some(found) if found < Special::COUNT => {
            let least = Special::COUNT;
            Err(TextError::new(format!(
                "a vocabulary of at most {found} tokens has no room for the {least} special ones; raise `max_size` to {least} or more"
            )))
        }
        _ => Ok(()),
    }
}

/// A table of the special tokens, with room for others.
pub(crate) fn with_specials(words: usize, bytes: usize) -> Result<WordTable, TextError> {
    let mut table = WordTable::with_capacity(words, bytes);
    for special in Special::ALL {
        table.insert(special.spelling().as_bytes())?;
    }
    Ok(table)
}
