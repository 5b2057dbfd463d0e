//! Verification: whether two records have the same class, judged by the cosine of their features.
//!
//! A pair is accepted if its cosine is above a threshold. The true accept rate (TAR) at a false accept rate (FAR) is
//! the share of same-class pairs above the lowest threshold that accepts at most this share of the others (Huang et
//! al., "Labeled Faces in the Wild", 2007; Klare et al., CVPR 2015).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use pelton_run::{RunContext, peak_rss_bytes};
use serde::Serialize;

use crate::embeddings::Embedder;
use crate::error::TrainError;
use crate::evaluate::EvaluateConfig;
use crate::finished::Labels;

/// False accept rates: as text, and as the number of pairs of different classes per accepted one.
const RATES: [(&str, usize); 6] = [
    ("1e-1", 10),
    ("1e-2", 100),
    ("1e-3", 1_000),
    ("1e-4", 10_000),
    ("1e-5", 100_000),
    ("1e-6", 1_000_000),
];
/// Folds of the accuracy, and the number of pairs from which folds are used.
const FOLDS: usize = 10;
const MANY: usize = 100;

/// Statistics of a verification.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerificationFigures {
    /// True accept rates by false accept rate; `None` for those that need more pairs.
    pub tar: BTreeMap<&'static str, Option<f64>>,
    /// Share of the pairs judged correctly. From 100 pairs on, the mean over ten folds in the order of the file, each
    /// with the best threshold of the other nine.
    pub accuracy: f64,
    /// The best threshold over all pairs.
    pub threshold: f64,
    /// Folds of the accuracy.
    pub folds: usize,
    /// Pairs of one class.
    pub same: usize,
    /// Pairs of different classes.
    pub different: usize,
    /// Seconds.
    pub wall_s: f64,
    /// Most memory of the process.
    pub peak_rss_bytes: u64,
}

/// Two records, and whether they have the same class.
type Pair = (usize, usize, bool);

/// Cosine, and whether the pair has the same class.
type Judged = (f64, bool);

/// Verifies the pairs of a text file with lines `RECORD RECORD SAME`, with 1 for pairs of one class and 0 for others.
///
/// Errors: a run that is not finished, damaged, or of another job than `train classify`; data of other sizes; a line
/// that is not a pair of its records; pairs of one kind only.
pub fn verify(
    of: &EvaluateConfig,
    file: &Path,
    mut context: RunContext<'_>,
) -> Result<VerificationFigures, TrainError> {
    let began = Instant::now();
    let context = &mut context;
    let text = pelton_storage::read_text(file).map_err(|error| {
        TrainError::config(format!(
            "`pairs` {}: cannot be read as text ({error}); check the path",
            file.display()
        ))
    })?;
    let mut embedder = Embedder::open(&of.model)?;
    let records = embedder.records(of, Labels::Unused, context)?;
    let pairs = parse(&text, records.data.dataset.records()).map_err(|(line, problem)| {
        TrainError::config(format!("{}:{line}: {problem}", file.display()))
    })?;
    let same = pairs.iter().filter(|pair| pair.2).count();
    let different = pairs.len() - same;
    if same == 0 || different == 0 {
        return Err(TrainError::config(format!(
            "{}: has {same} pairs of one class and {different} of different ones; give pairs of both kinds",
            file.display()
        )));
    }
    let (features, _) = embedder.all(&records, context)?;
    let row = |record: usize| &features[record * embedder.d..][..embedder.d];
    let cosine = |a, b| {
        let pairs = row(a).iter().zip(row(b));
        pairs
            .map(|(a, b)| f64::from(*a) * f64::from(*b))
            .sum::<f64>()
    };
    let judged: Vec<Judged> = pairs
        .iter()
        .map(|&(a, b, same)| (cosine(a, b), same))
        .collect();
    let (accuracy, folds) = accuracy(&judged);
    Ok(VerificationFigures {
        tar: accept_rates(&judged),
        accuracy,
        threshold: best_threshold(judged),
        folds,
        same,
        different,
        wall_s: began.elapsed().as_secs_f64(),
        peak_rss_bytes: peak_rss_bytes(),
    })
}

/// The pairs of a text, or the number of a bad line and its problem.
fn parse(text: &str, records: u64) -> Result<Vec<Pair>, (usize, String)> {
    let pair = |(line, text): (usize, &str)| {
        let malformed = || {
            let found: String = text.chars().take(40).collect();
            (
                line,
                format!(
                    "{found:?} is not a pair; write the numbers of two records and 1 if they have the same class, otherwise 0, such as 17 4 1"
                ),
            )
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let &[a, b, same @ ("0" | "1")] = words.as_slice() else {
            return Err(malformed());
        };
        let record = |word: &str| match word.parse::<u64>() {
            Ok(record) if record < records => Ok(record as usize),
            Ok(record) => Err((
                line,
                format!(
                    "there is no record {record}, since the data has {records}, numbered from 0; correct the line, or give the data of these pairs"
                ),
            )),
            Err(_) => Err(malformed()),
        };
        Ok((record(a)?, record(b)?, same == "1"))
    };
    (1..).zip(text.lines()).map(pair).collect()
}

/// The true accept rate at each of [`RATES`].
fn accept_rates(judged: &[Judged]) -> BTreeMap<&'static str, Option<f64>> {
    let of = |kind: bool| {
        let pairs = judged.iter().filter(move |pair| pair.1 == kind);
        pairs.map(|pair| pair.0)
    };
    let mut different: Vec<f64> = of(false).collect();
    different.sort_by(|a, b| b.total_cmp(a));
    let rate = |of_one: usize| {
        let accepted = different.len() / of_one;
        // At most the acceptable number of pairs of different classes exceed this cosine.
        let threshold = different.get(accepted).filter(|_| accepted > 0)?;
        let right = of(true).filter(|cosine| cosine > threshold).count();
        Some(right as f64 / of(true).count().max(1) as f64)
    };
    RATES.map(|(text, of_one)| (text, rate(of_one))).into()
}

/// The threshold above which pairs are accepted with the fewest mistakes, between two cosines; the highest of equal
/// ones.
fn best_threshold(mut judged: Vec<Judged>) -> f64 {
    judged.sort_by(|a, b| b.0.total_cmp(&a.0));
    let Some(highest) = judged.first() else {
        return 0.0;
    };
    let (mut threshold, mut right, mut most) = (highest.0, 0i64, 0);
    for (i, &(cosine, same)) in judged.iter().enumerate() {
        right += if same { 1 } else { -1 };
        let next = judged.get(i + 1).map_or(-1.0 - cosine.abs(), |next| next.0);
        if right > most && next < cosine {
            (threshold, most) = ((cosine + next) / 2.0, right);
        }
    }
    threshold
}

/// The share of pairs judged correctly, and the number of folds.
fn accuracy(judged: &[Judged]) -> (f64, usize) {
    let share = |pairs: &[Judged], threshold: f64| {
        let right = pairs.iter().filter(|pair| (pair.0 > threshold) == pair.1);
        right.count() as f64 / pairs.len() as f64
    };
    if judged.len() < MANY {
        return (share(judged, best_threshold(judged.to_vec())), 1);
    }
    let fold = |i: usize| {
        let places = i * judged.len() / FOLDS..(i + 1) * judged.len() / FOLDS;
        let others = [&judged[..places.start], &judged[places.end..]].concat();
        share(&judged[places], best_threshold(others))
    };
    ((0..FOLDS).map(fold).sum::<f64>() / FOLDS as f64, FOLDS)
}

#[cfg(test)]
mod tests {
    use pelton_key::KeyedRng;

    use super::*;

    /// By trying every cosine as threshold.
    fn most_right(judged: &[Judged]) -> usize {
        let right = |threshold: f64| {
            let pairs = judged.iter();
            pairs.filter(|pair| (pair.0 > threshold) == pair.1).count()
        };
        let thresholds = judged.iter().map(|pair| pair.0).chain([-2.0]);
        thresholds.map(right).max().unwrap()
    }

    #[test]
    fn rates_and_thresholds_equal_brute_force() {
        let mut rng = KeyedRng::new(3);
        for count in [2, 7, 90, 400, 3000] {
            // Few different cosines, so that many are equal.
            let cosines = (0..count).map(|i| {
                let same = i % 3 == 0;
                let cosine = rng.below(40) as f64 / 50.0 + if same { 0.2 } else { 0.0 };
                (cosine, same)
            });
            let judged: Vec<Judged> = cosines.collect();
            let different = judged.iter().filter(|pair| !pair.1).count();
            let same = count - different;
            for ((text, rate), (_, of_one)) in accept_rates(&judged).into_iter().zip(RATES) {
                let far: f64 = text.parse().unwrap();
                assert!((far * of_one as f64 - 1.0).abs() < 1e-12, "{text}");
                // The most pairs of one class that a threshold accepts without too many of the others.
                let accepted = |threshold: f64, kind: bool| {
                    let pairs = judged.iter();
                    pairs
                        .filter(|pair| pair.1 == kind && pair.0 > threshold)
                        .count()
                };
                let allowed = different / of_one;
                let sound = judged.iter().map(|pair| pair.0);
                let sound = sound.filter(|&threshold| accepted(threshold, false) <= allowed);
                let most = sound.map(|threshold| accepted(threshold, true)).max();
                let expected = most.map(|most| most as f64 / same as f64);
                assert_eq!(rate, expected.filter(|_| allowed > 0), "{count} {text}");
            }
            let threshold = best_threshold(judged.clone());
            let right = judged.iter().filter(|pair| (pair.0 > threshold) == pair.1);
            assert_eq!(right.count(), most_right(&judged), "{count}");
            let (accuracy, folds) = accuracy(&judged);
            assert_eq!(folds, if count < MANY { 1 } else { FOLDS });
            let bound = most_right(&judged) as f64 / count as f64;
            assert!(
                accuracy <= bound + 1e-12 && accuracy > bound - 0.1,
                "{accuracy} {bound}"
            );
        }
        // The best threshold of the other nine folds differs from that of the last, and misjudges half of it.
        let pair = |i: usize| match i % 2 {
            0 => (if i / 10 == 9 { 0.45 } else { 0.6 }, true),
            _ => (0.4, false),
        };
        let judged: Vec<Judged> = (0..100).map(pair).collect();
        assert!((accuracy(&judged).0 - 0.95).abs() < 1e-12);
        assert_eq!(most_right(&judged), 100);
    }

    #[test]
    fn lines_that_are_no_pairs_are_told() {
        assert_eq!(
            parse("0 1 1\n 3\t2  0\n", 4),
            Ok(vec![(0, 1, true), (3, 2, false)])
        );
        for (text, line, part) in [
            ("0 1 1\n0 1\n", 2, "\"0 1\" is not a pair"),
            ("0 1 2", 1, "otherwise 0"),
            ("0 x 1", 1, "is not a pair"),
            ("-1 0 1", 1, "is not a pair"),
            ("0 1 1 1", 1, "is not a pair"),
            ("0 1 1\n\n", 2, "is not a pair"),
            (
                "0 1 1\n1 4 0",
                2,
                "there is no record 4, since the data has 4",
            ),
        ] {
            let (at, problem) = parse(text, 4).unwrap_err();
            assert_eq!(at, line, "{text}");
            assert!(problem.contains(part), "{text}: {problem}");
        }
    }
}
