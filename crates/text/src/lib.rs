//! Tokens of text, as bytes.
//!
//! ```
//! use pelton_text::{Ends, Tokenizer, Vocabulary, VocabularyOptions};
//!
//! let options = VocabularyOptions { tokenizer: Tokenizer::Whitespace, min_count: 1, max_size: None };
//! let vocabulary = Vocabulary::from_text(b"the cat sat on the mat", &options)?;
//! let mut ids = Vec::new();
//! vocabulary.encode(b"the dog sat", Ends::default(), &mut ids);
//! let mut text = Vec::new();
//! vocabulary.decode(&ids, &mut text)?;
//! assert_eq!(text, b"the <unk> sat");
//! # Ok::<(), pelton_text::TextError>(())
//! ```
//!
//! A [`Tokenizer`] defines a token: a run of bytes without white space, or a byte. Words are found 64 bytes at a time
//! ([`BlockBits`]); [`words`] iterates over them, [`LineLengths`] counts them in each line of a text that arrives in
//! pieces. A [`Vocabulary`], counted on all threads from a text, gives tokens their ids and is saved in a readable
//! file.
//!
//! No encoding is required: bytes that are not UTF-8 are ordinary bytes of words.

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
