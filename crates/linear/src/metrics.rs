//! How well a model predicts rows with labels: counts, log loss, and the areas under the curves of its ranking.
//!
//! All figures are exact and those of scikit-learn under the same names, `average` macro and `zero_division` 0; with
//! more than two classes the areas are means over the classes, each against the rest.

use serde::{Deserialize, Serialize};

use crate::loss::Loss;
use crate::peers::{Exchange, Peers};
use crate::predict::{Prediction, log_probabilities};
use crate::ranking::Ranking;
use crate::threshold::{Threshold, score_of};

/// Most classes for which every pair is counted.
const MOST_PAIRS: usize = 100;
/// Ranges of the probability of the positive class, of equal width.
const BINS: usize = 10;

/// Sums over rows, and their scores.
#[derive(Clone, Debug)]
pub struct Metrics {
    loss: Loss,
    /// The class that two classes are ranked by.
    positive: u32,
    /// Of each class: rows of it, rows given it, and both.
    counts: Vec<[u64; 3]>,
    /// Rows by class and the class given; empty with many classes.
    pairs: Vec<u64>,
    log_loss: f64,
    squares: f64,
    /// Of each range: rows, Σ of their probability, and rows of the positive class.
    bins: [(u64, f64, u64); BINS],
    labels: Vec<u32>,
    /// One a row with two classes, else one a row and class.
    scores: Vec<f64>,
    /// Most bytes for labels, scores and sorting; 0 once they do not fit.
    room: u64,
    shares: Vec<f64>,
}

/// How well a model predicts. Absent figures do not exist for this model or data, or did not fit in memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Rows.
    pub records: u64,
    /// Share of the rows that are given their own class.
    pub accuracy: f64,
    /// Mean over the classes of the share of their rows that is given them.
    pub balanced_accuracy: f64,
    /// Mean over the classes of F1.
    pub f1: f64,
    /// Mean of −ln p of the row's class; of models with probabilities.
    pub log_loss: Option<f64>,
    /// Mean of (p − y)² of the positive class; of models with probabilities and two classes.
    pub brier: Option<f64>,
    /// Area under the ROC curve.
    pub auc: Option<f64>,
    /// Average precision: the area under the steps of precision by recall.
    pub average_precision: Option<f64>,
    /// The positive class, if there are two.
    pub positive: Option<u32>,
    /// Every class.
    pub by_class: Vec<ClassFigures>,
    /// Rows by class, then by the class given; empty with more than 100 classes.
    pub confusion: Vec<Vec<u64>>,
    /// Rows by the probability of the positive class, in ten ranges of equal width; without those that have no row.
    pub calibration: Vec<CalibrationBin>,
}

/// One class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassFigures {
    /// Rows of it.
    pub records: u64,
    /// Share of the rows given it that are of it.
    pub precision: f64,
    /// Share of its rows that are given it.
    pub recall: f64,
    /// The harmonic mean of both.
    pub f1: f64,
}

/// The rows with a probability of the positive class in one range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CalibrationBin {
    /// Rows.
    pub records: u64,
    /// Mean of the probability.
    pub probability: f64,
    /// Share of the rows that are of the class.
    pub share: f64,
}

impl Metrics {
    /// Bytes for labels and scores of `records` rows, and for sorting the scores of one class.
    pub fn bytes(classes: usize, records: u64) -> u64 {
        let each = if classes == 2 { 1 } else { classes };
        records * (4 + 8 * each + size_of::<(f64, bool)>()) as u64
    }

    /// No rows yet. Two classes are ranked by `positive`; labels and scores take up to `room` bytes.
    pub fn new(loss: Loss, classes: usize, positive: u32, room: u64) -> Metrics {
        Metrics {
            loss,
            positive,
            counts: vec![[0; 3]; classes],
            pairs: vec![
                0;
                if classes <= MOST_PAIRS {
                    classes * classes
                } else {
                    0
                }
            ],
            log_loss: 0.0,
            squares: 0.0,
            bins: [(0, 0.0, 0); BINS],
            labels: Vec::new(),
            scores: Vec::new(),
            room,
            shares: Vec::new(),
        }
    }

    /// Adds a row of class `class`, which must be one of the model's.
    pub fn add(&mut self, class: u32, prediction: Prediction<'_>) {
        let (own, given) = (class as usize, prediction.class as usize);
        self.count(own, given);
        let mut shares = std::mem::take(&mut self.shares);
        let has_shares = log_probabilities(self.loss, prediction.values, &mut shares).is_some();
        if has_shares {
            // A probability may round to 0, its logarithm does not.
            self.log_loss -= shares[own];
            shares.iter_mut().for_each(|share| *share = share.exp());
            self.add_shares(own, &shares);
        }
        self.rank(class, prediction, has_shares.then_some(&shares));
        self.shares = shares;
    }

    fn add_shares(&mut self, own: usize, shares: &[f64]) {
        if shares.len() == 2 {
            let share = shares[self.positive as usize];
            let is_positive = own == self.positive as usize;
            self.squares += (share - f64::from(u8::from(is_positive))).powi(2);
            let bin = (share * BINS as f64) as usize;
            let (records, sum, positives) = &mut self.bins[bin.min(BINS - 1)];
            *records += 1;
            *sum += share;
            *positives += u64::from(is_positive);
        }
    }

    fn rank(&mut self, class: u32, prediction: Prediction<'_>, shares: Option<&Vec<f64>>) {
        if Metrics::bytes(self.counts.len(), self.labels.len() as u64 + 1) > self.room {
            (self.labels, self.scores, self.room) = (Vec::new(), Vec::new(), 0);
            return;
        }
        self.labels.push(class);
        match (prediction.values, shares) {
            (&[value], _) => self.scores.push(score_of(self.positive, &[value])),
            (_, Some(shares)) => self.scores.extend(shares),
            (values, None) => self.scores.extend(values),
        }
    }

    /// Adds the sums of the other ranks. Scores are not exchanged, so there are no areas over several ranks.
    pub fn add_up<E>(&mut self, peers: &mut Peers<'_, E>) -> Result<(), E> {
        (self.labels, self.scores, self.room) = (Vec::new(), Vec::new(), 0);
        let counts = self.counts.iter_mut().flatten();
        let mut whole: Vec<&mut u64> = counts.chain(&mut self.pairs).collect();
        let mut parts = vec![&mut self.log_loss, &mut self.squares];
        for (records, sum, positives) in &mut self.bins {
            whole.extend([records, positives]);
            parts.push(sum);
        }
        let mut sums: Vec<f64> = whole.iter().map(|count| **count as f64).collect();
        sums.extend(parts.iter().map(|part| **part));
        peers(Exchange::Sum(&mut sums))?;
        let (counted, summed) = sums.split_at(whole.len());
        whole
            .into_iter()
            .zip(counted)
            .for_each(|(count, sum)| *count = *sum as u64);
        parts
            .into_iter()
            .zip(summed)
            .for_each(|(part, sum)| *part = *sum);
        Ok(())
    }

    /// Whether the scores of all rows did not fit in memory, so that there are no areas.
    pub fn lacks_room(&self) -> bool {
        self.room == 0
    }

    /// The figures of all rows added.
    pub fn figures(&self) -> Figures {
        let classes = self.counts.len();
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let of_class = |&[own, given, both]: &[u64; 3]| ClassFigures {
            records: own,
            precision: share(both, given),
            recall: share(both, own),
            f1: share(2 * both, own + given),
        };
        let by_class: Vec<ClassFigures> = self.counts.iter().map(of_class).collect();
        let records = self.counts.iter().map(|counts| counts[0]).sum();
        let right = self.counts.iter().map(|counts| counts[2]).sum();
        // As scikit-learn, of classes that occur: in the labels, or for F1 in either.
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let occurring = self.counts.iter().zip(&by_class);
        let recalls = occurring.clone().filter(|(counts, _)| counts[0] > 0);
        let f1s = occurring.filter(|(counts, _)| counts[0] + counts[1] > 0);
        let has_shares = self.loss.has_probabilities() && records > 0;
        let per_record = |sum: f64| has_shares.then(|| sum / records as f64);
        let areas = self.areas();
        Figures {
            records,
            accuracy: share(right, records),
            balanced_accuracy: mean(recalls.map(|(_, figures)| figures.recall).collect()),
            f1: mean(f1s.map(|(_, figures)| figures.f1).collect()),
            log_loss: per_record(self.log_loss),
            brier: per_record(self.squares).filter(|_| classes == 2),
            auc: areas.map(|areas| areas[0]),
            average_precision: areas.map(|areas| areas[1]),
            positive: (classes == 2).then_some(self.positive),
            by_class,
            confusion: (self.pairs.chunks(classes.max(1)).map(<[u64]>::to_vec)).collect(),
            calibration: (self.bins.iter().filter(|bin| bin.0 > 0))
                .map(|&(records, sum, positives)| CalibrationBin {
                    records,
                    probability: sum / records as f64,
                    share: share(positives, records),
                })
                .collect(),
        }
    }

    /// The areas under the ROC curve and under precision by recall.
    fn areas(&self) -> Option<[f64; 2]> {
        let classes = self.counts.len();
        let each = if classes == 2 { 1 } else { classes };
        let mut sum = [0.0; 2];
        for place in 0..each {
            let found = self.ranking_at(place, each)?.areas();
            sum.iter_mut()
                .zip(found)
                .for_each(|(sum, area)| *sum += area / each as f64);
        }
        Some(sum)
    }

    fn ranking_at(&self, place: usize, each: usize) -> Option<Ranking> {
        let class = if each == 1 {
            self.positive
        } else {
            place as u32
        };
        let scores = self.scores.iter().skip(place).step_by(each);
        let ranked = scores.zip(&self.labels);
        Ranking::new(
            ranked
                .map(|(&score, &label)| (score, label == class))
                .collect(),
        )
    }

    /// The rows by the score of the positive of two classes; `None` without scores of all rows, or if all rows are of
    /// one class.
    pub fn ranking(&self) -> Option<Ranking> {
        (self.counts.len() == 2).then(|| self.ranking_at(0, 1))?
    }

    /// Recounts with the classes that a threshold gives; needs two classes and the scores of all rows.
    pub fn decide_from(&mut self, threshold: &Threshold) {
        self.counts = vec![[0; 3]; 2];
        self.pairs = vec![0; 4];
        for at in 0..self.labels.len() {
            let own = self.labels[at];
            let given = threshold.class(self.scores[at]);
            self.count(own as usize, given as usize);
        }
    }

    fn count(&mut self, own: usize, given: usize) {
        let classes = self.counts.len();
        self.counts[own][0] += 1;
        self.counts[given][1] += 1;
        self.counts[own][2] += u64::from(own == given);
        if let Some(pair) = self.pairs.get_mut(own * classes + given) {
            *pair += 1;
        }
    }
}

#[cfg(test)]
mod tests;
