//! The figures of a run on a net.

use pelton_nn::Counts;
use serde::{Deserialize, Serialize};

use super::fit::Progress;

/// One line of `metrics.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetEpoch {
    /// Epochs finished.
    pub epoch: u64,
    /// Mean training loss, while the parameters changed.
    pub train_loss: f64,
    /// Training examples, or words, whose class was the most likely.
    pub train_accuracy: f64,
    /// Examples, or words, of this rank.
    pub rows: u64,
    /// Mean loss on validation data.
    pub validation_loss: Option<f64>,
    /// Validation examples predicted right.
    pub validation_accuracy: Option<f64>,
    /// Learning rate of the last step.
    pub rate: f64,
    /// Seconds spent waiting for batches.
    pub wait_s: f64,
    /// Seconds of steps.
    pub compute_s: f64,
    /// Seconds of the run so far.
    pub wall_s: f64,
}

impl NetEpoch {
    pub(super) fn training(&mut self, counts: Counts) {
        let before = self.rows as f64;
        self.rows += counts.rows;
        let now = self.rows.max(1) as f64;
        self.train_loss = (self.train_loss * before + counts.loss) / now;
        self.train_accuracy = (self.train_accuracy * before + counts.correct as f64) / now;
    }

    pub(super) fn validation(&mut self, counts: Counts) {
        let rows = counts.rows.max(1) as f64;
        self.validation_loss = Some(counts.loss / rows);
        self.validation_accuracy = Some(counts.correct as f64 / rows);
    }

    /// For a person.
    pub(super) fn line(&self, language: bool) -> String {
        let shown = |loss: f64, accuracy: f64| match language {
            true => format!("perplexity {:.2}", loss.exp()),
            false => format!("loss {loss:.4}, {:.2} % right", 100.0 * accuracy),
        };
        let mut text = format!(
            "epoch {}: training {}",
            self.epoch,
            shown(self.train_loss, self.train_accuracy)
        );
        if let (Some(loss), Some(accuracy)) = (self.validation_loss, self.validation_accuracy) {
            text += &format!("; validation {}", shown(loss, accuracy));
        }
        let per_s = self.rows as f64 / (self.wait_s + self.compute_s).max(1e-9);
        let unit = if language { "words/s" } else { "images/s" };
        text + &format!(
            "; {per_s:.0} {unit}, waited {:.1} of {:.1} s",
            self.wait_s,
            self.wait_s + self.compute_s
        )
    }
}

/// The figures of a finished run. Of several ranks examples and times are those of rank 0, losses of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NetSummary {
    /// Test examples predicted right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_accuracy: Option<f64>,
    /// Mean loss on test data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_loss: Option<f64>,
    /// exp of the mean loss of a word of the test data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_perplexity: Option<f64>,
    /// The same of validation data, best epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_perplexity: Option<f64>,
    /// Mean loss on validation data, best epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_validation_loss: Option<f64>,
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
    /// Seconds of a step, its wait aside.
    pub step_s: f64,
    /// Seconds before the first step.
    pub prepare_s: f64,
    /// Seconds in which something was loaded.
    pub load_s: f64,
    /// Seconds of steps.
    pub compute_s: f64,
    /// Seconds in which both went on.
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
    /// Examples that the plan left out.
    pub dropped: u64,
    /// Whether the run was bound by its input, and what would help.
    pub verdict: String,
}

impl NetSummary {
    pub(super) fn new(progress: &Progress, test: Option<Counts>, language: bool) -> NetSummary {
        let mean = |counts: Counts| counts.loss / counts.rows.max(1) as f64;
        let rows: u64 = progress.epochs.iter().map(|e| e.rows).sum();
        let trained = progress.step_s + progress.wait_s;
        let per_s = rows as f64 / trained.max(1e-9);
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
