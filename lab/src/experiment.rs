//! The settings of a published table: one TOML file each in `experiments/`, read when it is named.

use std::collections::BTreeMap;
use std::path::Path;

use pelton_linear::InnerPasses;
use serde::{Deserialize, Deserializer};

use pelton_train::TrainError;

/// Folder of the tables.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../experiments");

/// The work behind a published table.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name, the argument of `reproduce`.
    pub name: String,
    /// Epochs of block minimization.
    #[serde(default = "thirty")]
    pub epochs: u64,
    /// Seeds to repeat with.
    #[serde(default = "one")]
    pub seeds: u64,
    /// Passes over a block while it is in memory, each tried.
    #[serde(default, deserialize_with = "inner_passes")]
    pub inner_passes: Vec<InnerPasses>,
    /// Memory of feeds over the data's size in memory.
    #[serde(default = "quarter")]
    pub memory_share: f64,
    /// Least bytes of page units; 0 for rows by themselves.
    #[serde(default)]
    pub units: Vec<u64>,
    /// Numbers of ranks.
    #[serde(default)]
    pub ranks: Vec<usize>,
    /// Memory of all ranks over the bytes of the data.
    #[serde(default)]
    pub memory: Vec<f64>,
    /// Loads per epoch to try in addition to the fewest that fit, with memory for a quarter of the data.
    #[serde(default)]
    pub loads: Vec<u64>,
    /// Consecutive records shuffled as one chunk.
    #[serde(default)]
    pub chunks: Vec<u64>,
    /// Files of the data.
    #[serde(default = "one")]
    pub files: u64,
    /// Sentences of a batch, each tried.
    #[serde(default)]
    pub batches: Vec<u64>,
    /// Batching policies.
    #[serde(default)]
    pub policies: Vec<String>,
    /// The policies with perplexity measured over all epochs.
    #[serde(default)]
    pub followed: Vec<String>,
    /// Learning rates over those of the nets, each tried.
    #[serde(default)]
    pub rates: Vec<f64>,
    /// Schedule of the learning rate of nets, as in `--schedule`.
    #[serde(default = "constant")]
    pub schedule: String,
    /// Precision of products in the training of nets, as in `--precision`.
    #[serde(default = "single")]
    pub precision: String,
    /// Time of the source for a batch over that of a training step.
    #[serde(default)]
    pub ratio: f64,
    /// Lengths of queues over the number of records.
    #[serde(default)]
    pub queues: Vec<f64>,
    /// Nets to train.
    #[serde(default, rename = "net")]
    pub nets: Vec<NetSetting>,
    /// Pictures for nets, if the other sets have none: the first of these that exists.
    #[serde(default)]
    pub pictures: Vec<SetConfig>,
    /// The data sets.
    #[serde(default, rename = "set")]
    pub sets: Vec<SetConfig>,
    /// Minutes that all runs take at scale 1 on two cores, if measured.
    #[serde(default)]
    pub minutes: Option<f64>,
    /// Settings of all runs, as in `run.toml`.
    #[serde(default)]
    pub base: toml::Table,
    /// Runs of training.
    #[serde(default, rename = "run")]
    pub runs: Vec<RunSetting>,
    /// Figures of their summaries to show.
    #[serde(default)]
    pub shown: Vec<String>,
    /// Differences from the publication.
    #[serde(default)]
    pub differs: String,
    /// Texts for language models, if there are any in addition to other nets.
    #[serde(default, rename = "text")]
    pub texts: Vec<SetConfig>,
}

/// The job of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `train classify` or `train image`.
    #[default]
    Classify,
    /// `train language`.
    Language,
}

/// One run of training: a line of a table.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSetting {
    /// The published table or figure.
    pub table: String,
    /// The line's name.
    pub method: String,
    /// Its job.
    #[serde(default)]
    pub job: Kind,
    /// Classes at scale 1, if the data is generated; replaces `{classes}` in its name.
    #[serde(default)]
    pub classes: u64,
    /// Ranks that train together.
    #[serde(default = "alone")]
    pub ranks: usize,
    /// Bytes a second of a modelled network between them; `None` for immediate delivery.
    #[serde(default)]
    pub link: Option<f64>,
    /// Its changes to the base.
    #[serde(default)]
    pub config: toml::Table,
    /// Published figures, by their names in the summary.
    #[serde(default)]
    pub published: BTreeMap<String, f64>,
}

impl RunSetting {
    /// Classes at a scale.
    pub(crate) fn classes_at(&self, scale: f64) -> u64 {
        ((self.classes as f64 * scale).round() as u64).max(2)
    }
}

fn alone() -> usize {
    1
}

/// A net of an experiment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetSetting {
    /// The net, as in `train image` and `train language`.
    pub model: String,
    /// Width of its layers, as a multiple of the published one.
    #[serde(default = "whole")]
    pub width: f64,
    /// Learning rate.
    pub rate: f64,
    /// Examples of a batch.
    pub batch: u64,
    /// Epochs, if different from those of the experiment.
    #[serde(default)]
    pub epochs: Option<u64>,
    /// Echoes to compare, in the notation of loaders; `none` is the first.
    #[serde(default)]
    pub echoes: Vec<String>,
    /// The echoes that also run in real time, not only modelled.
    #[serde(default)]
    pub waits: Vec<String>,
    /// Accuracy known to be possible on the data.
    #[serde(default)]
    pub known: Option<f64>,
}

/// One data set of an experiment: generated if it has `rows`, else files below the folder of real data.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SetConfig {
    /// Its name; for a generated set the demo's.
    pub name: String,
    /// Rows to generate at scale 1.
    pub rows: Option<u64>,
    /// Blocks per epoch.
    pub blocks: u64,
    /// Training file.
    pub train: Option<String>,
    /// Test file.
    pub test: Option<String>,
    /// Label to train as +1 against all others.
    pub positive: Option<f64>,
    /// Whether to divide each feature by its largest absolute value and keep every fifth row for the test.
    pub scaled: bool,
}

impl Experiment {
    /// The experiment of that name in `experiments/`, or the one in a TOML file.
    pub fn find(name: &str) -> Result<Experiment, TrainError> {
        if name.ends_with(".toml") {
            return Experiment::read(Path::new(name));
        }
        let path = Path::new(FOLDER).join(format!("{name}.toml"));
        if path.is_file() {
            return Experiment::read(&path);
        }
        Err(TrainError::config(format!(
            "{name} is not a table; use {} or a .toml file",
            Experiment::names().join(", ")
        )))
    }

    /// Names of the tables in `experiments/`.
    pub fn names() -> Vec<String> {
        let entries = std::fs::read_dir(FOLDER).into_iter().flatten().flatten();
        let name = |path: &Path| Some(path.file_stem()?.to_str()?.to_string());
        let mut names: Vec<String> = entries.filter_map(|entry| name(&entry.path())).collect();
        names.sort();
        names
    }

    /// Keeps the runs, sets, nets and policies with names that contain `only`. Lists without such a name stay whole.
    ///
    /// Errors: `only` is in none of the names.
    pub fn keep(&mut self, only: &str) -> Result<(), TrainError> {
        fn matching<T: Clone>(
            all: &mut Vec<T>,
            only: &str,
            names: &mut Vec<String>,
            name: impl Fn(&T) -> &str,
        ) -> bool {
            names.extend(all.iter().map(|of| name(of).to_string()));
            let kept: Vec<T> = all
                .iter()
                .filter(|of| name(of).contains(only))
                .cloned()
                .collect();
            let some = !kept.is_empty();
            if some {
                *all = kept;
            }
            some
        }
        let mut names = Vec::new();
        let found = [
            matching(&mut self.runs, only, &mut names, |run| &run.method),
            matching(&mut self.sets, only, &mut names, |set| &set.name),
            matching(&mut self.texts, only, &mut names, |set| &set.name),
            matching(&mut self.nets, only, &mut names, |net| &net.model),
            matching(&mut self.policies, only, &mut names, |policy| policy),
        ];
        matching(&mut self.followed, only, &mut names, |policy| policy);
        if found.contains(&true) {
            return Ok(());
        }
        names.dedup();
        Err(TrainError::config(format!(
            "`only` {only} is in no name of the table {}; use one of: {}",
            self.name,
            names.join("; ")
        )))
    }

    fn read(path: &Path) -> Result<Experiment, TrainError> {
        let wrong = |problem: String| TrainError::config(format!("{}: {problem}", path.display()));
        let text = std::fs::read_to_string(path)
            .map_err(|error| wrong(format!("cannot be read ({error}); check the path")))?;
        toml::from_str(&text).map_err(|error| {
            wrong(format!(
                "is not an experiment ({}); compare it with those in experiments/",
                error.message()
            ))
        })
    }
}

fn constant() -> String {
    "constant".to_string()
}

fn single() -> String {
    "f32".to_string()
}

fn thirty() -> u64 {
    30
}

fn one() -> u64 {
    1
}

fn whole() -> f64 {
    1.0
}

fn quarter() -> f64 {
    0.25
}

fn inner_passes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<InnerPasses>, D::Error> {
    Vec::<String>::deserialize(from)?
        .iter()
        .map(|text| text.parse().map_err(serde::de::Error::custom))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_name() {
        let mut heads = Experiment::find("knn-softmax").unwrap();
        heads.keep("sampled").unwrap();
        assert!(
            heads.runs.len() > 2 && heads.runs.iter().all(|run| run.method.contains("sampled"))
        );
        let error = heads.keep("nonsense").unwrap_err().to_string();
        assert!(error.contains("sampled, 5 %"), "{error}");
        let mut nets = Experiment::find("lirs-dnn").unwrap();
        let sets = nets.sets.len();
        nets.keep("vgg").unwrap();
        assert_eq!((nets.nets.len(), nets.sets.len()), (1, sets));
    }
}
