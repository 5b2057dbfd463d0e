//! Progress of a run, epoch by epoch.

use std::cmp::Ordering;

use pelton_nn::{Counts, HeadFigures};
use serde::{Deserialize, Serialize};

/// Progress of a run: the part of a checkpoint next to the parameters.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// The state of the feed, in its format.
    pub(crate) feed: Option<String>,
    /// Fingerprint of the data of `validation`, and digest of the `class_weights`.
    pub(crate) validation: Option<u64>,
    pub(crate) class_weights: Option<u64>,
    /// Steps of the optimiser.
    pub(crate) steps: u64,
    /// Figures of the current epoch.
    pub(crate) epoch: NetEpoch,
    /// Epochs that ended.
    pub(crate) epochs: Vec<NetEpoch>,
    pub(crate) fresh_examples: u64,
    pub(crate) echoed_examples: u64,
    /// Seconds of training before the last start.
    pub(crate) wall_s: f64,
    pub(crate) step_s: f64,
    pub(crate) wait_s: f64,
    /// Seconds of loading, and figures of a head.
    pub(crate) load_s: f64,
    pub(crate) head: HeadFigures,
    /// The best validation loss, and the epoch it followed.
    pub(crate) best: Option<(f64, u64)>,
    /// Mean training loss of the first step, before parameters changed, and of the last ones.
    pub(crate) loss: Option<(f64, f64)>,
}

/// Steps averaged for the final loss, later ones with more weight.
const LAST_STEPS: u64 = 16;

impl Progress {
    /// Notes the mean loss of a step.
    pub(super) fn note_loss(&mut self, loss: f64) {
        let (first, last) = self.loss.unwrap_or((loss, loss));
        let weight = 1.0 / (self.steps + 1).clamp(1, LAST_STEPS) as f64;
        self.loss = Some((first, last + weight * (loss - last)));
    }

    /// A sentence for the user, if no loss at the end is better than when it was first measured.
    pub(super) fn no_better(&self) -> Option<String> {
        let (Some(first), Some(last)) = (self.epochs.first(), self.epochs.last()) else {
            return None;
        };
        let of_epochs =
            [first, last].map(|epoch| epoch.validation_loss.unwrap_or(epoch.train_loss));
        let what = first.validation_loss.map_or("training", |_| "validation");
        // The last steps of a short run may be most of it; whole epochs say more.
        let several = self.epochs.len() > 1;
        let end = |of_steps| if several { last.train_loss } else { of_steps };
        let steps = self.loss.filter(|_| self.steps > 1);
        let steps = steps.map(|(first, last)| ("training", "the first step", [first, end(last)]));
        let epochs = several.then_some((what, "the first epoch", of_epochs));
        let (what, when, [before, now]) = [steps, epochs]
            .into_iter()
            .flatten()
            // NaN does not count as better.
            .find(|(_, _, [before, now])| now.partial_cmp(before) != Some(Ordering::Less))?;
        Some(format!(
            "the {what} loss did not fall: {before:.4} in {when}, {now:.4} at the end; lower `rate`, or check the labels"
        ))
    }

    /// Examples, or words, a second of training.
    pub(super) fn rows_per_s(&self) -> f64 {
        let rows: u64 = self.epochs.iter().map(|e| e.rows).sum();
        rows as f64 / (self.step_s + self.wait_s).max(1e-9)
    }
}

/// One line of `metrics.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NetEpoch {
    /// Epochs finished.
    pub epoch: u64,
    /// Mean training loss, while the parameters changed.
    pub train_loss: f64,
    /// Training examples, or words, with the right class on top.
    pub train_accuracy: f64,
    /// Examples, or words, of all ranks.
    pub rows: u64,
    /// Mean loss on validation data.
    pub validation_loss: Option<f64>,
    /// Validation examples predicted right.
    pub validation_accuracy: Option<f64>,
    /// Learning rate of the last step.
    pub rate: f64,
    /// Examples of the last step, over all ranks.
    pub step_examples: u64,
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

    /// Text for a person.
    pub(super) fn line(&self, language: bool) -> String {
        let shown = |loss: f64, accuracy: f64| {
            if language {
                format!("perplexity {:.2}", loss.exp())
            } else {
                format!("loss {loss:.4}, {:.2} % right", 100.0 * accuracy)
            }
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
