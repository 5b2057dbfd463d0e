//! Sentences of a made-up language: `demo:text`.
//!
//! It has 4092 words in 22 classes: two classes of 2 words, two of 4, and so on up to six of 512, so that frequencies
//! fall about as in Zipf's law. A sentence is a walk over classes, with one word of each:
//!
//! - the next class follows from the last two, one of four with chances 12, 2, 1 and 1 of 16 (syntax of order
//!   two);
//! - every other word follows from the word before (collocations);
//! - the others are drawn by Zipf's law within the class, in an order specific to the sentence's topic, one of eight
//!   (earlier words predict later ones).
//!
//! So the word before is informative, the two before are more so, and the whole sentence most. Lengths have mean 21 and
//! deviation 10, as in the Penn Treebank.

use pelton_format::Rows;
use pelton_key::mix;

use super::draws::Draws;

/// Numbers that distinguish the generators' keys.
const TEXT: u32 = 5;
const CLASSES: u32 = 22;
const TOPICS: u64 = 8;
/// Least and most words of a class, as powers of two.
const POWERS: [u32; 2] = [1, 9];
const MOST_WORDS: usize = 80;

/// A generator of sentences with its memory.
pub(super) struct Sentences {
    seed: u64,
    line: Vec<u8>,
}

impl Sentences {
    pub(super) fn new(seed: u64) -> Sentences {
        Sentences {
            seed,
            line: Vec::new(),
        }
    }

    /// Appends sentence `row`, with blanks between words.
    pub(super) fn append(&mut self, row: u64, rows: &mut Rows) {
        let mut draws = Draws::new(self.seed, row, TEXT);
        let topic = u64::from(draws.bits()) % TOPICS;
        // The sum of four exponential numbers.
        let length = (0..4)
            .map(|_| -5.0 * libm::log(draws.uniform()))
            .sum::<f64>();
        let length = (1 + length as usize).min(MOST_WORDS);
        let (mut before, mut class) = (0, 0);
        let mut last = 0;
        self.line.clear();
        for place in 0..length {
            (before, class) = (class, next_class(before, class, draws.bits()));
            let words = words_of(class);
            let linked = draws.bits().is_multiple_of(2);
            let number = if linked && place > 0 {
                hash(2, last, u64::from(class)) % u64::from(words)
            } else {
                let rank = zipf(words, draws.uniform());
                (rank + hash(3, topic, u64::from(class))) % u64::from(words)
            };
            last = u64::from(first_word(class)) + number;
            if place > 0 {
                self.line.push(b' ');
            }
            spell(last, &mut self.line);
        }
        rows.push_bytes(0, &self.line);
    }
}

/// A hash of the inputs of a choice; the language is the same for every seed.
fn hash(kind: u64, a: u64, b: u64) -> u64 {
    mix(mix(mix(kind) ^ a) ^ b) >> 8
}

/// The class after two others.
fn next_class(before: u32, class: u32, draw: u32) -> u32 {
    let choice = match draw % 16 {
        0..12 => 0,
        12..14 => 1,
        14 => 2,
        _ => 3,
    };
    let context = u64::from(before * CLASSES + class);
    (hash(1, context, choice) % u64::from(CLASSES)) as u32
}

/// Words of a class.
fn words_of(class: u32) -> u32 {
    1 << (class / 2 + POWERS[0]).min(POWERS[1])
}

/// Index of the first word of a class.
fn first_word(class: u32) -> u32 {
    (0..class).map(words_of).sum()
}

/// A rank below `words` by Zipf's law: its chance falls as log((rank + 2) / (rank + 1)).
fn zipf(words: u32, uniform: f64) -> u64 {
    let above = libm::pow(f64::from(words + 1), uniform);
    (above as u64 - 1).min(u64::from(words) - 1)
}

/// Writes a word: one syllable for the first 75, two for the others.
fn spell(word: u64, line: &mut Vec<u8>) {
    const FIRST: &[u8; 15] = b"bdfghjklmnprstv";
    const SECOND: &[u8; 5] = b"aeiou";
    let mut syllable = |number: u64| {
        line.push(FIRST[(number / 5 % 15) as usize]);
        line.push(SECOND[(number % 5) as usize]);
    };
    if word >= 75 {
        syllable(word / 75);
    }
    syllable(word % 75);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn every_word_has_a_spelling_of_its_own() {
        let words = first_word(CLASSES);
        assert_eq!(words, 4092);
        let spelled = |word| {
            let mut line = Vec::new();
            spell(u64::from(word), &mut line);
            line
        };
        let spellings: HashSet<Vec<u8>> = (0..words).map(spelled).collect();
        assert_eq!(spellings.len(), words as usize);
    }

    /// Counts of the first sentences, for the entropies below.
    fn sentences(count: u64) -> Vec<Vec<String>> {
        let mut generator = Sentences::new(0);
        let mut rows = Rows::new(pelton_format::Layout::Bytes);
        (0..count).for_each(|row| generator.append(row, &mut rows));
        let words = |i| match rows.row(i) {
            pelton_format::Row::Bytes(line) => std::str::from_utf8(line)
                .unwrap()
                .split(' ')
                .map(str::to_owned)
                .collect(),
            _ => panic!("sentences are bytes"),
        };
        (0..rows.len()).map(words).collect()
    }

    #[test]
    fn lengths_and_frequencies_are_those_of_a_language() {
        let sentences = sentences(20_000);
        let lengths = sentences.iter().map(|words| words.len() as f64);
        let mean = lengths.clone().sum::<f64>() / 2e4;
        let variance = lengths.map(|length| (length - mean).powi(2)).sum::<f64>() / 2e4;
        // 20, plus 0.5 for 1 less rounding down; five deviations of a mean are 0.35.
        assert!((mean - 20.5).abs() < 0.35, "{mean}");
        assert!((variance.sqrt() - 10.0).abs() < 0.5, "{variance}");
        let mut counts: HashMap<&str, u64> = HashMap::new();
        for word in sentences.iter().flatten() {
            *counts.entry(word).or_default() += 1;
        }
        let mut counts: Vec<u64> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        assert!(counts.len() > 3500, "{} words", counts.len());
        // Zipf's law: from the 10th word to the 1000th the count falls about a hundredfold.
        let fall = counts[9] as f64 / counts[999] as f64;
        assert!((20.0..500.0).contains(&fall), "{fall}");
    }

    /// A model of pairs of words, smoothed by single ones, predicts new sentences far better than a model of single
    /// words.
    #[test]
    fn what_came_before_tells_what_comes_next() {
        let all = sentences(40_000);
        let (train, test) = all.split_at(36_000);
        let mut counts: [HashMap<Vec<&str>, f64>; 2] = Default::default();
        let mut followers: [HashMap<Vec<&str>, f64>; 2] = Default::default();
        for words in train {
            for end in 0..words.len() {
                for order in 0..=1.min(end) {
                    let gram: Vec<&str> = words[end - order..=end].iter().map(|w| &**w).collect();
                    *followers[order].entry(gram[..order].to_vec()).or_default() += 1.0;
                    *counts[order].entry(gram).or_default() += 1.0;
                }
            }
        }
        let mut bits = [0.0_f64; 2];
        let mut tokens = 0.0;
        for words in test {
            for end in 1..words.len() {
                let mut chance = 1.0 / 4092.0;
                for order in 0..=1 {
                    let gram: Vec<&str> = words[end - order..=end].iter().map(|w| &**w).collect();
                    let seen = followers[order].get(&gram[..order]).unwrap_or(&0.0);
                    let count = counts[order].get(&gram).unwrap_or(&0.0);
                    // Pseudo-counts of the shorter model.
                    let weight = [1.0, 20.0][order];
                    chance = (count + weight * chance) / (seen + weight);
                    bits[order] -= chance.log2();
                }
                tokens += 1.0;
            }
        }
        let perplexity = bits.map(|bits| (bits / tokens).exp2());
        let [single, pairs] = perplexity;
        assert!(pairs < 0.5 * single, "{perplexity:?}");
    }
}
