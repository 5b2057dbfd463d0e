//! The state of a loader, as a small document.

use pelton_format::{ContentSum, Dataset};
use pelton_plan::{Hint, Place, Plan};
use serde::{Deserialize, Serialize};

use crate::as_text;
use crate::error::FeedError;
use crate::options::LoaderOptions;
use crate::stages::Stages;

const VERSION: u32 = 1;

/// The position of a loader: everything before `step` of `epoch` was delivered, nothing after it.
///
/// It does not contain the number of ranks: the plan's batches are global, and any number of ranks continues
/// with the same ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoaderState {
    version: u32,
    /// Fingerprint of the data, as hexadecimal digits.
    data: String,
    /// Fingerprint of the plan: order, seed, batches, echo, buckets, mixture and filter.
    plan: String,
    /// Fingerprint of stages that must not change, such as those that decode text by a vocabulary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stages: Option<String>,
    /// Epoch of the next batch.
    pub epoch: u64,
    /// Its step.
    pub step: u64,
    /// Batches of repeats that `auto` echo returned by decisions of the clock.
    pub auto_batches: u64,
    /// A hint of the plan from the step or before it, as hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Identifies the state of the files, as hexadecimal digits.
    files: String,
    /// Checksums of the records in the first whole epoch, and in this one so far.
    #[serde(
        default,
        with = "as_text::option",
        skip_serializing_if = "Option::is_none"
    )]
    first: Option<ContentSum>,
    #[serde(
        default,
        with = "as_text::option",
        skip_serializing_if = "Option::is_none"
    )]
    so_far: Option<ContentSum>,
}

impl LoaderState {
    pub(crate) fn new(
        dataset: &Dataset,
        stream: &Plan,
        stages: Option<u64>,
        place: Place,
        auto_batches: u64,
        hint: Option<&Hint>,
    ) -> LoaderState {
        LoaderState {
            version: VERSION,
            data: format!("{:016x}", dataset.fingerprint()),
            plan: format!("{:016x}", stream.fingerprint()),
            stages: stages.map(|digest| format!("{digest:016x}")),
            epoch: place.epoch,
            step: place.step,
            auto_batches,
            hint: hint.map(Hint::to_string),
            files: String::new(),
            first: None,
            so_far: None,
        }
    }

    /// With what records said before it, of all ranks.
    pub fn having_seen(
        self,
        files: u64,
        first: Option<ContentSum>,
        so_far: Option<ContentSum>,
    ) -> LoaderState {
        LoaderState {
            files: format!("{files:016x}"),
            first,
            so_far,
            ..self
        }
    }

    /// The state of the files, and what records said in the first whole epoch and in this one so far.
    pub fn seen(&self) -> (u64, Option<ContentSum>, Option<ContentSum>) {
        let files = u64::from_str_radix(&self.files, 16).unwrap_or(0);
        (files, self.first, self.so_far)
    }

    /// The state before an epoch.
    pub fn beginning(dataset: &Dataset, plan: &Plan, stages: &Stages, epoch: u64) -> LoaderState {
        let place = Place { epoch, step: 0 };
        LoaderState::new(dataset, plan, stages.fingerprint(), place, 0, None)
    }

    /// The state as one line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and text")
    }

    /// The state that a line of JSON says.
    ///
    /// Errors: text that is not a state, or of another version.
    pub fn from_json(text: &str) -> Result<LoaderState, FeedError> {
        let refuse = |problem: String| FeedError::State(problem);
        let unreadable = |error| refuse(format!("it cannot be read ({error})"));
        let document: serde_json::Value = serde_json::from_str(text).map_err(unreadable)?;
        match document.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version != u64::from(VERSION) => Err(refuse(format!(
                "it has version {version} and this program reads version {VERSION}"
            ))),
            _ => serde_json::from_value(document).map_err(unreadable),
        }
    }

    /// Options with which a loader of these stages resumes from here.
    ///
    /// Errors: a state of other data, of another plan or of other stages with a
    /// [`fingerprint`](crate::Stage::fingerprint), such as another vocabulary; or a step that the plan does not
    /// have. Custom functions and augmentation are not compared: changing them is deliberate.
    pub fn resume(
        &self,
        dataset: &Dataset,
        stream: &Plan,
        stages: &Stages,
        options: &LoaderOptions,
    ) -> Result<LoaderOptions, FeedError> {
        let refuse = |problem: &str| Err(FeedError::State(problem.to_owned()));
        if self.data != format!("{:016x}", dataset.fingerprint()) {
            return refuse("it was saved for other data, or the data changed");
        }
        if self.plan != format!("{:016x}", stream.fingerprint()) {
            return refuse(
                "it was saved with another order, seed, batch, echo, bucket policy, mixture or filter",
            );
        }
        let given = stages.fingerprint().map(|digest| format!("{digest:016x}"));
        match (&self.stages, given) {
            (Some(of_state), Some(given)) if *of_state != given => {
                return refuse(
                    "it was saved with other stages: the vocabulary, the ends of sentences or a custom stage differs",
                );
            }
            (Some(_), None) => {
                return refuse(
                    "a stage that it was saved with is missing and must not be, such as one that decodes text",
                );
            }
            (None, Some(_)) => {
                return refuse(
                    "it was saved without a stage that must not be added, such as one that decodes text",
                );
            }
            _ => {}
        }
        // A damaged hint is left out: the step is then found by a walk through the epoch.
        let hint: Option<Hint> = self.hint.as_ref().and_then(|hint| hint.parse().ok());
        if hint.is_none() && self.step > stream.steps(self.epoch) {
            return refuse("its step is beyond the end of its epoch");
        }
        Ok(LoaderOptions {
            start: Place {
                epoch: self.epoch,
                step: self.step,
            },
            auto_batches: self.auto_batches,
            hint,
            ..options.clone()
        })
    }
}
