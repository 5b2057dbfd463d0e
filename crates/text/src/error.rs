//! What can be wrong with text, vocabularies and sentences.

use std::io;
use std::path::PathBuf;

/// Why a text, a vocabulary or a batch of sentences is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A tokenizer of another name.
    #[error("'{found}' is no tokenizer: use whitespace or bytes")]
    UnknownTokenizer {
        /// The name.
        found: String,
    },
    /// A vocabulary too small for its special tokens.
    #[error(
        "a vocabulary of at most {found} tokens has no room for the {least} special ones; raise `max_size` to {least} or more"
    )]
    MaxSize {
        /// The most tokens asked for.
        found: u32,
        /// The fewest there are.
        least: u32,
    },
    /// More distinct words than have numbers, or more bytes of them.
    #[error(
        "the text has more than {words} distinct words or {bytes} bytes of them; count a part of it, or use the tokenizer bytes"
    )]
    TooManyWords {
        /// The most words.
        words: u64,
        /// The most bytes of distinct words.
        bytes: u64,
    },
    /// A list of words with one that cannot be numbered.
    #[error("word {place} of the list, {word:?}, {problem}")]
    BadWord {
        /// Its place, from 0.
        place: usize,
        /// The word.
        word: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A number that no token has.
    #[error(
        "token {position} has the number {id} where the vocabulary has {size} tokens; decode with the vocabulary that encoded"
    )]
    UnknownId {
        /// Its place among those to decode, from 0.
        position: usize,
        /// The number.
        id: u32,
        /// Tokens of the vocabulary.
        size: u32,
    },
    /// The operating system refused an operation.
    #[error("{}: cannot {operation} ({source}); check the path, its permissions and the disk", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted, such as `read it`.
        operation: &'static str,
        /// The system's own error.
        source: io::Error,
    },
    /// A file of another kind.
    #[error("{}: is no vocabulary; name a file that was saved as one, or make one with pelton vocabulary", path.display())]
    NotAVocabulary {
        /// The file.
        path: PathBuf,
    },
    /// A vocabulary of a later version.
    #[error("{}: is a vocabulary of version {found}, and this program reads up to {newest}; update it, or build the vocabulary again", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: String,
        /// The newest that is read.
        newest: u32,
    },
    /// A file larger than any vocabulary.
    #[error("{}: its {size} bytes are more than the {limit} of the largest vocabulary; name another file", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// The most.
        limit: u64,
    },
    /// A line of a vocabulary that is not what was saved.
    #[error("{}: line {line}: {what}; build the vocabulary again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// What does not hold.
        what: &'static str,
    },
    /// A vocabulary whose bytes are not those that were saved.
    #[error("{}: its checksum is {found:08x} where its last line says {stated:08x}; it was changed or cut: fetch it again or build it again", path.display())]
    Checksum {
        /// The file.
        path: PathBuf,
        /// The checksum of its lines.
        found: u32,
        /// What the last line says.
        stated: u32,
    },
}
