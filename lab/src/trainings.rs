//! Trainings of tables: jobs of `pelton train`, saved when they finish.
//!
//! An interrupted table continues: finished trainings are saved by their settings, and the current one resumes from its
//! checkpoint.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Instant;

use pelton_comm::run_ranks_over;
use pelton_run::{Event, RunContext, RunOptions, peak_rss_bytes, reset_peak_rss};
use pelton_train::{
    ImageConfig, LanguageConfig, NetEpoch, NetSummary, TrainError, image, language,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kept::{Kept, key_of};
use crate::machine::{Others, commit};
use crate::table::{interrupted, unwritable};

/// The job of a training.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Job {
    /// `train image` or `train classify`.
    Images(Box<ImageConfig>),
    /// `train language`.
    Text(Box<LanguageConfig>),
}

/// A training to run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Training {
    pub(crate) job: Job,
    /// Ranks, threads of this process.
    pub(crate) ranks: usize,
    /// Bytes a second of a modelled network between them, if any.
    pub(crate) link: Option<f64>,
}

impl Training {
    fn key(&self) -> String {
        key_of(&serde_json::to_string(self).expect("settings are text and numbers"))
    }
}

/// Results of a training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trained {
    /// Commit of the code that trained it.
    pub(crate) commit: String,
    /// Elapsed seconds; for a resumed training, of its last part.
    pub(crate) seconds: f64,
    /// Processors that other work took meanwhile, if known.
    pub(crate) others: Option<f64>,
    /// Peak memory of the process since its start, if known.
    pub(crate) peak_bytes: Option<u64>,
    /// Finished epochs; a loss that is not a number ends them and is not an error.
    pub(crate) epochs: Vec<NetEpoch>,
    /// Figures of the whole, if it finished.
    pub(crate) summary: Option<Value>,
}

impl Trained {
    /// In percent: that of the best epoch, or of a guess between ten classes if no epoch ended with a number.
    pub(crate) fn best_accuracy(&self) -> f64 {
        let of_epoch = |epoch: &NetEpoch| 100.0 * epoch.validation_accuracy.unwrap_or(0.0);
        let all = self.epochs.iter().map(of_epoch);
        all.reduce(f64::max).unwrap_or(10.0)
    }
}

/// All trainings of a folder.
pub(crate) struct Trainings {
    out: PathBuf,
    kept: Kept,
}

impl Trainings {
    /// The finished trainings in the folder `out` of a table.
    pub(crate) fn open(out: &Path) -> Result<Trainings, TrainError> {
        // As `pelton train` does for nets, or memory of each step comes from the system again.
        pelton_cli::keep_large_blocks();
        Ok(Trainings {
            out: out.to_path_buf(),
            kept: Kept::open(out)?,
        })
    }

    /// Whether a training is finished.
    pub(crate) fn has(&self, training: &Training) -> bool {
        self.kept.get::<Trained>(&training.key()).is_some()
    }

    /// Trains, unless it is finished.
    pub(crate) fn train(
        &mut self,
        training: &Training,
        context: &mut RunContext<'_>,
    ) -> Result<Trained, TrainError> {
        let folder = self.out.join("runs").join(training.key());
        let trained = self.train_in(training, &folder, context)?;
        if folder.exists() {
            std::fs::remove_dir_all(&folder).map_err(|error| unwritable(&folder, &error))?;
        }
        Ok(trained)
    }

    /// Trains in this folder, from its checkpoint on, unless finished.
    pub(crate) fn train_in(
        &mut self,
        training: &Training,
        folder: &Path,
        context: &mut RunContext<'_>,
    ) -> Result<Trained, TrainError> {
        let key = training.key();
        if let Some(trained) = self.kept.get(&key) {
            return Ok(trained);
        }
        let folder = RunOptions {
            out: folder.to_path_buf(),
            resume: true,
            overwrite: false,
        };
        let counts = reset_peak_rss();
        let (others, began) = (Others::now(), Instant::now());
        let (epochs, summary) = run(training, &folder, context)?;
        let value = |summary| serde_json::to_value(summary).expect("numbers and text");
        let trained = Trained {
            commit: commit().to_string(),
            seconds: began.elapsed().as_secs_f64(),
            others: others.and_then(|others| others.processors()),
            peak_bytes: counts.then(peak_rss_bytes),
            epochs,
            summary: summary.map(value),
        };
        self.kept.keep(&key, &trained)?;
        Ok(trained)
    }
}

/// Runs a job in this folder, to its end or to a loss that is not a number; forwards only progress events.
fn run(
    training: &Training,
    folder: &RunOptions,
    context: &mut RunContext<'_>,
) -> Result<(Vec<NetEpoch>, Option<NetSummary>), TrainError> {
    let (interrupt, observer) = (context.interrupt, &mut *context.observer);
    let (sender, receiver) = mpsc::channel();
    let summaries = std::thread::scope(|scope| {
        let all = scope.spawn(move || {
            run_ranks_over(training.link, training.ranks, |comm| {
                let sender = sender.clone();
                let passed_on = &mut |event: Event<'_>| {
                    if let Event::Progress { what, done, total } = event
                        && comm.rank() == 0
                    {
                        // The receiver outlives the sender.
                        let _ = sender.send((what.to_string(), done, total));
                    }
                };
                let own = RunContext::new(&comm, interrupt, passed_on).in_folder(folder);
                match &training.job {
                    Job::Images(job) => image::run(job, own),
                    Job::Text(job) => language::run(job, own),
                }
            })
        });
        for (what, done, total) in receiver {
            observer(Event::Progress {
                what: &what,
                done,
                total,
            });
        }
        all.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let summary = match summaries.map_err(|failed| failed.source) {
        Ok(summaries) => summaries.into_iter().next(),
        Err(TrainError::NotANumber { .. }) => None,
        Err(TrainError::Interrupted { .. }) => return Err(interrupted()),
        Err(error) => return Err(error),
    };
    let file = folder.out.join("metrics.jsonl");
    // There is no file if the first epoch failed.
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let epochs: Result<Vec<NetEpoch>, _> = text.lines().map(serde_json::from_str).collect();
    let epochs = epochs.map_err(|error| {
        TrainError::config(format!(
            "{}: cannot be read ({error}); run it again",
            file.display()
        ))
    })?;
    Ok((epochs, summary))
}
