//! Tokens of text, as bytes.
//!
//! A [`Tokenizer`] says what a token is: a run of bytes without white space, or a byte. Words are found
//! 64 bytes at a time ([`BlockBits`]); [`words`] walks over them, [`LineLengths`] counts them in each line
//! of a text that arrives in pieces. A [`Vocabulary`], counted on all threads from a text, gives tokens their
//! numbers and is kept in a file that people can read.
//!
//! No encoding is asked for: bytes that are no UTF-8 are bytes of words like any other.

mod error;
mod tokenizer;
mod white_space;

mod lengths;
mod words;

mod vocabulary;
mod vocabulary_file;
mod word_counts;
mod word_table;

pub use error::TextError;
pub use lengths::{LineLength, LineLengths};
pub use tokenizer::{Tokenizer, pair_sides};
pub use vocabulary::{Ends, Special, Vocabulary, VocabularyOptions};
pub use white_space::{BlockBits, is_white_space};
pub use words::{Words, words};

/// Entry points over plain bytes, for fuzzing.
#[doc(hidden)]
pub mod raw;
