//! The figures of a run on a net.

use pelton_nn::Counts;
use serde::Serialize;

use super::progress::Progress;
use crate::class_sizes::SizeAccuracy;
use crate::label_ranks::LabelRanks;

/// A random sample of the test data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TestSample {
    /// Examples of the sample.
    pub examples: u64,
    /// Of all test data.
    pub of: u64,
    /// Bounds of the accuracy on all test data, of 95 % confidence (Wilson's).
    pub accuracy_bounds: [f64; 2],
}

impl TestSample {
    /// What it tells of all test data.
    pub fn what(&self) -> String {
        let [low, high] = self.accuracy_bounds.map(|bound| 100.0 * bound);
        format!(
            "random ones of {}; {low:.2} to {high:.2} % of all are right, with 95 % confidence",
            self.of
        )
    }

    pub(super) fn new(of: u64, counts: Counts) -> TestSample {
        // The 97.5 % quantile of the normal distribution.
        let z: f64 = 1.959_964;
        let n = counts.rows.max(1) as f64;
        let share = counts.correct as f64 / n;
        let middle = (share + z * z / (2.0 * n)) / (1.0 + z * z / n);
        let half =
            z / (1.0 + z * z / n) * (share * (1.0 - share) / n + (z / (2.0 * n)).powi(2)).sqrt();
        TestSample {
            examples: counts.rows,
            of,
            accuracy_bounds: [middle - half, middle + half],
        }
    }
}

/// The figures of a finished run. With several ranks, examples and times are of rank 0, losses of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NetSummary {
    /// Test examples predicted right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_accuracy: Option<f64>,
    /// Mean loss on test data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_loss: Option<f64>,
    /// The sample of the test data that was measured, if that was not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_sample: Option<TestSample>,
    /// Test accuracy by the number of training examples of the class, of a head over many classes, unless all are of
    /// about the same size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_accuracy_by_class_size: Option<Vec<SizeAccuracy>>,
    /// How the labels of test examples that may have several are ranked; `test_accuracy` is the precision of the best
    /// class then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_label_ranks: Option<LabelRanks>,
    /// exp of the mean loss of a word of the test data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_perplexity: Option<f64>,
    /// The same for validation data, best epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_perplexity: Option<f64>,
    /// Mean loss on validation data, best epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_validation_loss: Option<f64>,
    /// The kind of the head over many classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// Its classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<u64>,
    /// Mean share of them used in a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_fraction: Option<f64>,
    /// Of head `near`, the part of the nearest classes that its lists found, each time before they were made again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_recall: Option<f64>,
    /// Training examples of all ranks a second, including time spent building graphs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_s: Option<f64>,
    /// Seconds of the head without its communication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_s: Option<f64>,
    /// Seconds of the feature net.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features_s: Option<f64>,
    /// Seconds that the ranks waited for features, gradients and sums.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub communication_s: Option<f64>,
    /// Bytes a second of the modelled network between ranks; none if the network is not modelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modelled_link_bytes_per_s: Option<f64>,
    /// Seconds of building graphs or forests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph_s: Option<f64>,
    /// Steps of a head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u64>,
    /// Epochs.
    pub epochs: u64,
    /// Steps of the optimiser.
    pub steps: u64,
    /// Whether training ended before its last epoch for lack of improvement.
    pub ended_early: bool,
    /// Seconds from the first step to the end.
    pub wall_s: f64,
    /// Examples a second of training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub examples_per_s: Option<f64>,
    /// Words a second of training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_s: Option<f64>,
    /// Seconds of a step without its wait.
    pub step_s: f64,
    /// Seconds before the first step.
    pub prepare_s: f64,
    /// Seconds in which something was loaded.
    pub load_s: f64,
    /// Seconds of steps.
    pub compute_s: f64,
    /// Seconds in which both happened.
    pub overlap_s: f64,
    /// Part of the training time spent waiting for batches.
    pub feed_wait_fraction: f64,
    /// Part of the elements of batches that is padding.
    pub padded_fraction: f64,
    /// Most memory of the process.
    pub peak_rss_bytes: u64,
    /// Examples used for the first time in their epoch.
    pub fresh_examples: u64,
    /// Repeats of examples.
    pub echoed_examples: u64,
    /// Examples that the plan dropped.
    pub dropped: u64,
    /// Whether the run was bound by its input, and what would help.
    pub verdict: String,
    /// Whether the loss at the end is no better than at the beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

impl NetSummary {
    pub(super) fn new(progress: &Progress, test: Option<Counts>, language: bool) -> NetSummary {
        let mean = |counts: Counts| counts.loss / counts.rows.max(1) as f64;
        let trained = progress.step_s + progress.wait_s;
        let per_s = progress.rows_per_s();
        let best = progress.best.map(|(loss, _)| loss);
        NetSummary {
            test_accuracy: test
                .filter(|_| !language)
                .map(|c| c.correct as f64 / c.rows.max(1) as f64),
            test_loss: test.map(mean),
            test_perplexity: test.filter(|_| language).map(|c| mean(c).exp()),
            validation_perplexity: best.filter(|_| language).map(f64::exp),
            best_validation_loss: best,
            epochs: progress.epochs.len() as u64,
            warning: progress.no_better(),
            steps: progress.steps,
            examples_per_s: (!language).then_some(per_s),
            tokens_per_s: language.then_some(per_s),
            step_s: progress.step_s / progress.steps.max(1) as f64,
            compute_s: progress.step_s,
            feed_wait_fraction: progress.wait_s / trained.max(1e-9),
            fresh_examples: progress.fresh_examples,
            echoed_examples: progress.echoed_examples,
            ..NetSummary::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_the_shares_that_a_sample_does_not_refute() {
        for (rows, correct) in [(90, 45), (90, 0), (90, 90), (10_000, 9_371), (1, 1)] {
            let counts = Counts {
                rows,
                correct,
                ..Counts::default()
            };
            let sample = TestSample::new(100_000, counts);
            let (n, share) = (rows as f64, correct as f64 / rows as f64);
            for bound in sample.accuracy_bounds {
                let variance = bound * (1.0 - bound) / n;
                let off = (share - bound).powi(2) - 1.959_964_f64.powi(2) * variance;
                assert!(off.abs() < 1e-9, "{correct} of {rows}");
            }
        }
    }
}
