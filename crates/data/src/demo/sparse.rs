//! Sparse generators: bags of words drawn from a power law over millions of features (`webspam`,
//! `kdd`).
//!
//! A word of rank k is drawn with a chance near 1/(k ln F), Zipf's law, as k = ⌊F^u⌋ for a uniform u: no table, two
//! multiplications and an exponential a draw. The label shifts words: ranks come in pairs of nearly equal popularity,
//! and a word typical of the other class is exchanged for its partner with a probability that differs from row to row:
//! some rows say little about their class. So the planted separator is +1 on one word of each pair and −1 on the other,
//! rows are at every distance from it, and words too rare to be learned add noise. Ranks are spread over the feature
//! indices, so popular features are not together in memory.

use pelton_format::Rows;

use super::draws::Draws;

/// Parameters of the sparse sets.
pub(super) struct Shape {
    pub(super) features: u64,
    generator: u32,
    /// Words drawn for a row, evenly between these.
    words: (u32, u32),
    positive: f64,
    /// Chance of an exchange, evenly between these over the rows.
    exchange: (f64, f64),
    /// Whether a feature's value counts how often its word was drawn.
    counts: bool,
}

/// 8 700 words have 5 570 distinct ones on average: the popular ones repeat.
pub(super) const WEBSPAM: Shape = Shape {
    features: 16_609_143,
    generator: 2,
    words: (4_350, 13_050),
    positive: 0.606,
    exchange: (0.02, 0.8),
    counts: true,
};

/// 46 words have 43.6 distinct ones on average.
pub(super) const KDD: Shape = Shape {
    features: 29_890_095,
    generator: 3,
    words: (30, 62),
    positive: 0.86,
    exchange: (0.0, 0.42),
    counts: false,
};

pub(super) struct Sparse {
    shape: &'static Shape,
    seed: u64,
    log_features: f64,
    words: Vec<u32>,
}

/// A prime that divides neither feature count, so `rank * SPREAD % features` is one to one.
const SPREAD: u64 = 2_654_435_761;

impl Sparse {
    pub(super) fn new(shape: &'static Shape, seed: u64) -> Sparse {
        Sparse {
            shape,
            seed,
            log_features: libm::log(shape.features as f64),
            words: Vec::new(),
        }
    }

    pub(super) fn append(&mut self, row: u64, rows: &mut Rows) {
        let mut draws = Draws::new(self.seed, row, self.shape.generator);
        let positive = draws.uniform() < self.shape.positive;
        let (least, most) = self.shape.exchange;
        let exchange = least + (most - least) * draws.uniform();
        let (least, most) = self.shape.words;
        let count = least + (draws.uniform() * f64::from(most - least + 1)) as u32;
        self.words.clear();
        for _ in 0..count {
            let rank = self.rank(draws.uniform());
            // An even rank is typical of +1. The draw comes first so that every word takes two.
            let partner = rank ^ 1;
            let other = draws.uniform() < exchange && rank.is_multiple_of(2) != positive;
            let rank = if other && partner < self.shape.features {
                partner
            } else {
                rank
            };
            self.words
                .push((rank * SPREAD % self.shape.features) as u32);
        }
        self.words.sort_unstable();
        // `write` cannot fail; the type says so.
        let pushed: Result<(), std::convert::Infallible> =
            rows.push_sparse_with(|indices, values| {
                let words = self.words.chunk_by(|a, b| a == b);
                if self.shape.counts {
                    // √count, so that the squares of a row add up to its words.
                    let norm = f64::from(count).sqrt();
                    for word in words {
                        indices.push(word[0]);
                        values.push(((word.len() as f64).sqrt() / norm) as f32);
                    }
                } else {
                    let start = indices.len();
                    indices.extend(words.map(|word| word[0]));
                    let distinct = indices.len() - start;
                    let value = (1.0 / (distinct as f64).sqrt()) as f32;
                    values.resize(values.len() + distinct, value);
                }
                Ok(u32::from(positive))
            });
        match pushed {
            Ok(()) => {}
        }
    }

    /// Rank from 0 of the word at `u` of the distribution.
    #[inline]
    fn rank(&self, u: f64) -> u64 {
        let rank = libm::exp(u * self.log_features) as u64;
        rank.clamp(1, self.shape.features) - 1
    }
}
