//! How well the labels of examples that may have several are ranked.

use pelton_nn::Input;
use serde::Serialize;

/// First classes that are measured.
const CUTS: [usize; 3] = [1, 3, 5];

/// Best classes of an example that the figures look at.
pub(crate) const MOST_CUT: usize = CUTS[CUTS.len() - 1];

/// Figures of the first 1, 3 and 5 classes, as the extreme classification repository has them (Bhatia et al., 2016).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LabelRanks {
    /// The part of these classes that are labels of the example.
    pub precision: [f64; 3],
    /// Each hit over the logarithm of its place, as a part of the most that there can be; of examples with labels.
    pub ndcg: [f64; 3],
    /// Precision with each label weighted by the inverse of the chance that it was noticed, as a part of the most that
    /// there can be (Jain, Prabhu and Varma, KDD 2016, with A = 0.55 and B = 1.5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propensity_scored_precision: Option<[f64; 3]>,
}

impl LabelRanks {
    /// For people: name and values.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let of = |parts: &[f64; 3]| {
            let each = parts.iter().zip(CUTS);
            let each = each.map(|(part, cut)| format!("{:.2} % at {cut}", 100.0 * part));
            each.collect::<Vec<_>>().join(", ")
        };
        let mut lines = vec![("precision", of(&self.precision)), ("nDCG", of(&self.ndcg))];
        let scored = self.propensity_scored_precision.as_ref();
        lines.extend(scored.map(|parts| ("propensity-scored precision", of(parts))));
        lines
    }
}

/// Sums over examples, of which each rank has its own.
pub(crate) struct RankSums {
    /// Of each class, over the chance that it is noticed.
    inverse: Option<Vec<f64>>,
    /// Hits, gains as parts of the ideal, weighted hits and the most of these, by cut.
    sums: [[f64; 3]; 4],
    /// Examples, and those with labels.
    examples: [f64; 2],
}

impl RankSums {
    /// With the training examples of each class, and of all.
    pub(crate) fn new(sizes: Option<(&[u64], u64)>) -> RankSums {
        let (a, b) = (0.55, 1.5_f64);
        let inverse = sizes.map(|(sizes, examples)| {
            let c = ((examples.max(1) as f64).ln() - 1.0) * (b + 1.0).powf(a);
            let of = |&size: &u64| 1.0 + c * (size as f64 + b).powf(-a);
            sizes.iter().map(of).collect()
        });
        RankSums {
            inverse,
            sums: [[0.0; 3]; 4],
            examples: [0.0; 2],
        }
    }

    /// Examples, and the best classes of each.
    pub(crate) fn add_each(&mut self, input: Input<'_>, best: &[Vec<u64>]) {
        for (labels, best) in input.label_lists().zip(best) {
            self.add(labels, best);
        }
    }

    /// An example with these labels, each once, and its best classes.
    fn add(&mut self, labels: &[i64], best: &[u64]) {
        let gain = |place: usize| 1.0 / (place as f64 + 2.0).log2();
        let weight = |class: u64| {
            let inverse = self.inverse.as_ref();
            inverse.map_or(0.0, |inverse| inverse[class as usize])
        };
        let mut most: Vec<f64> = labels.iter().map(|&label| weight(label as u64)).collect();
        most.sort_unstable_by(|a, b| b.total_cmp(a));
        self.examples[0] += 1.0;
        self.examples[1] += f64::from(u8::from(!labels.is_empty()));
        for (at, cut) in CUTS.into_iter().enumerate() {
            let places = best.iter().take(cut).enumerate();
            let hits = places.filter(|(_, class)| labels.contains(&(**class as i64)));
            let (mut gained, mut weighted) = (0.0, 0.0);
            for (place, &class) in hits {
                self.sums[0][at] += 1.0 / cut as f64;
                gained += gain(place);
                weighted += weight(class);
            }
            if !labels.is_empty() {
                let ideal: f64 = (0..cut.min(labels.len())).map(gain).sum();
                self.sums[1][at] += gained / ideal;
            }
            self.sums[2][at] += weighted;
            self.sums[3][at] += most.iter().take(cut).sum::<f64>();
        }
    }

    /// All sums, to be added up over ranks.
    pub(crate) fn numbers(&self) -> Vec<f64> {
        let sums = self.sums.as_flattened().iter();
        sums.chain(&self.examples).copied().collect()
    }

    /// The figures of sums over all ranks.
    pub(crate) fn figures(&self, numbers: &[f64]) -> LabelRanks {
        let part = |at: usize, over: f64| -> [f64; 3] {
            std::array::from_fn(|cut| numbers[3 * at + cut] / over.max(1.0))
        };
        let most = |cut: usize| numbers[9 + cut].max(f64::MIN_POSITIVE);
        LabelRanks {
            precision: part(0, numbers[12]),
            ndcg: part(1, numbers[13]),
            propensity_scored_precision: (self.inverse.as_ref())
                .map(|_| std::array::from_fn(|cut| numbers[6 + cut] / most(cut))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_three_examples_are_those_worked_out_by_hand() {
        let mut sums = RankSums::new(Some((&[1, 0, 7, 2, 3, 9], 20)));
        sums.add(&[2, 5], &[5, 0, 2, 1, 3]);
        sums.add(&[], &[0, 1, 2, 3, 4]);
        sums.add(&[1], &[0, 3, 2, 4, 1]);
        let found = sums.figures(&sums.numbers());
        let precision = [1.0 / 3.0, 2.0 / 9.0, 3.0 / 15.0];
        for (found, expected) in found.precision.iter().zip(precision) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
        let log = f64::log2;
        let first = 1.0 + 1.0 / log(3.0);
        let second = (1.0 + 1.0 / log(4.0)) / first;
        let ndcg = [0.5, second / 2.0, (second + 1.0 / log(6.0)) / 2.0];
        for (found, expected) in found.ndcg.iter().zip(ndcg) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
        let c = (20.0_f64.ln() - 1.0) * 2.5_f64.powf(0.55);
        let inverse = |size: f64| 1.0 + c * (size + 1.5).powf(-0.55);
        let (two, five, one) = (inverse(7.0), inverse(9.0), inverse(0.0));
        let expected = [five / (two + one), (two + five) / (two + five + one), 1.0];
        let scored = found.propensity_scored_precision.unwrap();
        for (found, expected) in scored.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
        assert_eq!(RankSums::new(None).figures(&[0.0; 14]).ndcg, [0.0; 3]);
    }
}
