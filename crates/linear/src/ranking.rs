//! Rows by the score of one class, from the highest: the areas under its curves, the ROC curve, and thresholds.
//!
//! Rows of equal scores count together: no threshold separates them.

use serde::{Deserialize, Serialize};

/// Scores of rows, from the highest, with whether their row is of the class.
#[derive(Clone, Debug)]
pub struct Ranking {
    ranked: Vec<(f64, bool)>,
    positives: usize,
    negatives: usize,
}

/// The goal in the choice of a threshold between two classes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ThresholdGoal {
    /// The largest F1 of the positive class.
    F1,
    /// The largest mean of the recalls of both classes.
    Balanced,
    /// The largest recall with at least this precision.
    Precision(f64),
    /// The largest precision with at least this recall.
    Recall(f64),
}

impl std::fmt::Display for ThresholdGoal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ThresholdGoal::F1 => f.write_str("f1"),
            ThresholdGoal::Balanced => f.write_str("balanced"),
            ThresholdGoal::Precision(least) => write!(f, "precision:{least}"),
            ThresholdGoal::Recall(least) => write!(f, "recall:{least}"),
        }
    }
}

impl std::str::FromStr for ThresholdGoal {
    type Err = String;

    fn from_str(text: &str) -> Result<ThresholdGoal, String> {
        let share = |text: &str| {
            text.parse()
                .ok()
                .filter(|share| *share > 0.0 && *share <= 1.0)
        };
        let goal = match text.split_once(':') {
            None if text == "f1" => Some(ThresholdGoal::F1),
            None if text == "balanced" => Some(ThresholdGoal::Balanced),
            Some(("precision", least)) => share(least).map(ThresholdGoal::Precision),
            Some(("recall", least)) => share(least).map(ThresholdGoal::Recall),
            _ => None,
        };
        goal.ok_or_else(|| {
            format!("`{text}` is not f1, balanced, precision:SHARE or recall:SHARE with a share above 0, up to 1")
        })
    }
}

impl TryFrom<String> for ThresholdGoal {
    type Error = String;

    fn try_from(text: String) -> Result<ThresholdGoal, String> {
        text.parse()
    }
}

impl From<ThresholdGoal> for String {
    fn from(goal: ThresholdGoal) -> String {
        goal.to_string()
    }
}

impl Ranking {
    /// From rows in any order. `None` if all rows are of the class, or none.
    ///
    /// Cost: a sort, in place.
    pub(crate) fn new(mut ranked: Vec<(f64, bool)>) -> Option<Ranking> {
        ranked.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        let positives = ranked.iter().filter(|row| row.1).count();
        let negatives = ranked.len() - positives;
        (positives > 0 && negatives > 0).then_some(Ranking {
            ranked,
            positives,
            negatives,
        })
    }

    /// The scores that occur, falling, with the rows of the class and the others of at least that score.
    fn steps(&self) -> impl Iterator<Item = (f64, usize, usize)> {
        // −0 and 0 are one score.
        let groups = self.ranked.chunk_by(|a, b| a.0 == b.0);
        groups.scan((0, 0), |(own, others), group| {
            let positives = group.iter().filter(|row| row.1).count();
            *own += positives;
            *others += group.len() - positives;
            Some((group[0].0, *own, *others))
        })
    }

    /// The area under the ROC curve, and average precision: that under the steps of precision by recall.
    pub fn areas(&self) -> [f64; 2] {
        // Pairs of a positive and a negative row in the right order, those of one score for half.
        let (mut pairs, mut precision) = (0.0, 0.0);
        let (mut above, mut before) = (0, 0);
        for (_, own, others) in self.steps() {
            let new = (own - above) as f64;
            pairs += (others - before) as f64 * (above as f64 + 0.5 * new);
            precision += new * own as f64 / (own + others) as f64;
            (above, before) = (own, others);
        }
        let all = self.positives as f64 * self.negatives as f64;
        [pairs / all, precision / self.positives as f64]
    }

    /// The ROC curve as (share of the others, share of the class) of at least each score, from (0, 0) to (1, 1): a
    /// point each time that the sum of both shares has grown by 2 / `most`, and the one before a larger step. About
    /// `most` remain, at most twice as many, and the area changes by at most 1 / `most`.
    pub fn roc(&self, most: usize) -> Vec<(f64, f64)> {
        let mut curve = vec![(0.0, 0.0)];
        let mut before = (0.0, 0.0);
        let least = 2.0 / most as f64;
        let grown = |from: (f64, f64), to: (f64, f64)| to.0 - from.0 + to.1 - from.1;
        for (_, own, others) in self.steps() {
            let share = |part: usize, whole: usize| part as f64 / whole as f64;
            let point = (share(others, self.negatives), share(own, self.positives));
            let last = *curve.last().expect("it begins with one");
            if grown(last, point) >= least {
                // If many rows have one score, the line to it starts at the point before.
                if grown(before, point) >= least && before != last {
                    curve.push(before);
                }
                curve.push(point);
            }
            before = point;
        }
        if curve.last() != Some(&(1.0, 1.0)) {
            curve.push((1.0, 1.0));
        }
        curve
    }

    /// The best least score of the class for `goal`, halfway to the next lower one; of equally good ones the highest.
    /// `None` if no score reaches the wanted precision.
    pub fn threshold(&self, goal: ThresholdGoal) -> Option<f64> {
        let worth = |own: usize, others: usize| {
            let recall = own as f64 / self.positives as f64;
            let precision = own as f64 / (own + others) as f64;
            match goal {
                ThresholdGoal::F1 => Some([
                    2.0 * own as f64 / (self.positives + own + others) as f64,
                    0.0,
                ]),
                ThresholdGoal::Balanced => {
                    Some([recall - others as f64 / self.negatives as f64, 0.0])
                }
                ThresholdGoal::Precision(least) => {
                    (precision >= least).then_some([recall, precision])
                }
                ThresholdGoal::Recall(least) => (recall >= least).then_some([precision, recall]),
            }
        };
        let mut best: Option<([f64; 2], f64)> = None;
        let mut steps = self.steps().peekable();
        while let Some((score, own, others)) = steps.next() {
            let Some(found) = worth(own, others) else {
                continue;
            };
            if best.is_none_or(|(worth, _)| found > worth) {
                let next = steps.peek().map_or(score, |next| next.0);
                let middle = 0.5 * score + 0.5 * next;
                // Neighbouring f64 have no number in between.
                let is_between = middle > next && middle <= score;
                best = Some((found, if is_between { middle } else { score }));
            }
        }
        best.map(|(_, score)| score)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::derive;

    fn rows(seed: u64, count: u64, levels: u64) -> Vec<(f64, bool)> {
        let row = |row| {
            let own = derive(derive(seed, row), 1).is_multiple_of(3);
            let score = derive(derive(seed, row), 2) % levels;
            (
                score as f64 + if own { 0.3 * levels as f64 } else { 0.0 },
                own,
            )
        };
        (0..count).map(row).collect()
    }

    #[test]
    fn a_thinned_roc_curve_keeps_its_ends_and_its_area() {
        for (count, levels) in [(3, 2), (50, 4), (3_000, 7), (30_000, 1 << 40)] {
            let Some(ranking) = Ranking::new(rows(count, count, levels)) else {
                continue;
            };
            let curve = ranking.roc(200);
            assert!(curve.len() <= 250, "{}", curve.len());
            assert_eq!((curve[0], curve[curve.len() - 1]), ((0.0, 0.0), (1.0, 1.0)));
            let trapezoid = |pair: &[(f64, f64)]| {
                let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
                assert!(x1 >= x0 && y1 >= y0);
                0.5 * (x1 - x0) * (y0 + y1)
            };
            let area: f64 = curve.windows(2).map(trapezoid).sum();
            let exact = ranking.areas()[0];
            assert!((area - exact).abs() < 1e-3, "{count}: {area}, {exact}");
        }
    }

    #[test]
    fn thresholds_are_the_best_of_all() {
        for goal in ["f1", "balanced", "precision:0.7", "recall:0.9"] {
            let goal: ThresholdGoal = goal.parse().unwrap();
            for seed in 0..20 {
                let rows = rows(seed, 60, 30);
                let ranking = Ranking::new(rows.clone()).unwrap();
                // By definition, at every score.
                let worth = |from: f64| {
                    let count = |own: bool, from: f64| {
                        let rows = rows.iter().filter(|row| row.1 == own && row.0 >= from);
                        rows.count() as f64
                    };
                    let (all, others) = (count(true, f64::MIN), count(false, f64::MIN));
                    let (hits, alarms) = (count(true, from), count(false, from));
                    let (recall, precision) = (hits / all, hits / (hits + alarms));
                    match goal {
                        ThresholdGoal::F1 => 2.0 * precision * recall / (precision + recall),
                        ThresholdGoal::Balanced => 0.5 * (recall + 1.0 - alarms / others),
                        ThresholdGoal::Precision(p) if precision >= p => recall,
                        ThresholdGoal::Recall(r) if recall >= r => precision,
                        _ => f64::NAN,
                    }
                };
                let best = rows.iter().map(|row| worth(row.0)).fold(f64::NAN, f64::max);
                let found = ranking.threshold(goal).map_or(f64::NAN, worth);
                let is_same = (found - best).abs() < 1e-12 || found.is_nan() && best.is_nan();
                assert!(is_same, "{goal} {seed}: {found}, {best}");
            }
        }
    }

    #[test]
    fn goals_are_written_as_they_are_read() {
        for text in ["f1", "balanced", "precision:0.9", "recall:1"] {
            assert_eq!(text.parse::<ThresholdGoal>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "f2",
            "precision",
            "precision:0",
            "recall:1.5",
            "recall:NaN",
            "0.5",
        ] {
            assert!(text.parse::<ThresholdGoal>().is_err(), "{text}");
        }
    }
}
