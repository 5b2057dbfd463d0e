//! Definitions of a token.

use crate::white_space::BlockBits;

pelton_key::names! {
    /// The unit that a text is cut into.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum Tokenizer: "a tokenizer" {
        /// Runs of bytes without white space.
        #[default]
        Whitespace = "whitespace",
        /// Single bytes.
        Bytes = "bytes",
    }
}

impl Tokenizer {
    /// Tokens of a sentence.
    pub fn count(self, sentence: &[u8]) -> usize {
        match self {
            Tokenizer::Bytes => sentence.len(),
            Tokenizer::Whitespace => {
                let mut after_space = true;
                BlockBits::of_text(sentence)
                    .map(|bits| bits.word_starts(&mut after_space).count_ones() as usize)
                    .sum()
            }
        }
    }
}

/// The two sides of a pair of sentences, split at the first tab; `None` without a tab.
pub fn pair_sides(text: &[u8]) -> Option<[&[u8]; 2]> {
    let tab = text.iter().position(|&byte| byte == b'\t')?;
    Some([&text[..tab], &text[tab + 1..]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_back() {
        for tokenizer in [Tokenizer::Whitespace, Tokenizer::Bytes] {
            assert_eq!(
                tokenizer.to_string().parse::<Tokenizer>().unwrap(),
                tokenizer
            );
        }
        let error = "words".parse::<Tokenizer>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "`words` is not a tokenizer: use whitespace or bytes"
        );
    }

    #[test]
    fn counts_what_a_plain_split_counts() {
        let long = "ab  c ".repeat(50);
        for text in ["", " ", "a", " a", "a ", "a\tb\r\n\x0bc\x0cd", &long] {
            let expected = text
                .split([' ', '\t', '\r', '\n', '\x0b', '\x0c'])
                .filter(|word| !word.is_empty())
                .count();
            assert_eq!(Tokenizer::Whitespace.count(text.as_bytes()), expected);
            assert_eq!(Tokenizer::Bytes.count(text.as_bytes()), text.len());
        }
    }
}
