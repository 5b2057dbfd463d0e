//! Training settings of nets, shared by all jobs.

use std::fmt;
use std::str::FromStr;

use pelton_comm::Comm;
use pelton_data::{
    HeldOut, OpenedData, PeerConfig, Validation, as_text, check_positive, check_range,
    check_seconds, check_threads,
};
use pelton_feed::PipelineConfig;
use pelton_fetch::Access;
use pelton_nn::{Course, GrowingBatch, Growth, Rule, Schedule};
use pelton_plan::Order;
use pelton_run::{Event, RunContext};
use pelton_softmax::Precision;
use pelton_storage::spare_memory;
use serde::{Deserialize, Serialize};

use crate::error::TrainError;

/// How parameters are changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Optimizer {
    /// Stochastic gradient descent with momentum.
    #[default]
    Sgd,
    /// Adam with decoupled weight decay.
    Adamw,
    /// Layer-wise adaptive rates.
    Lars,
}

impl fmt::Display for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Optimizer::Sgd => "sgd",
            Optimizer::Adamw => "adamw",
            Optimizer::Lars => "lars",
        })
    }
}

impl FromStr for Optimizer {
    type Err = String;

    fn from_str(text: &str) -> Result<Optimizer, String> {
        match text {
            "sgd" => Ok(Optimizer::Sgd),
            "adamw" => Ok(Optimizer::Adamw),
            "lars" => Ok(Optimizer::Lars),
            _ => Err(format!(
                "`{text}` is not an optimizer: use sgd, adamw or lars"
            )),
        }
    }
}

/// Schedule of the learning rate, as text: `constant`, `cosine` or `step:AT,AT,…[:FACTOR]`.
#[derive(Clone, Debug, PartialEq)]
pub struct CourseSetting(pub Course);

impl CourseSetting {
    /// A line of help.
    pub const HELP: &str = "Learning rate after the warm-up: constant, cosine (to 0), or step:EPOCH,EPOCH,…[:FACTOR] (times FACTOR at each, by default 0.1; an EPOCH below 1 is a share of the run)";
}

impl FromStr for CourseSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<CourseSetting, String> {
        let bad = || {
            format!(
                "`{text}` is not a schedule: use constant, cosine or step:EPOCH,EPOCH,…[:FACTOR]"
            )
        };
        Ok(CourseSetting(match text {
            "constant" => Course::Constant,
            "cosine" => Course::Cosine,
            _ => {
                let rest = text.strip_prefix("step:").ok_or_else(bad)?;
                let (at, factor) = rest.split_once(':').unwrap_or((rest, "0.1"));
                let number = |text: &str| -> Option<f64> {
                    text.parse()
                        .ok()
                        .filter(|x: &f64| *x > 0.0 && *x <= MOST_OF_COURSE)
                };
                let at: Option<Vec<f64>> = at.split(',').map(number).collect();
                Course::Step {
                    at: at.filter(|at| at.is_sorted()).ok_or_else(bad)?,
                    factor: number(factor).ok_or_else(bad)?,
                }
            }
        }))
    }
}

impl fmt::Display for CourseSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Course::Constant => f.write_str("constant"),
            Course::Cosine => f.write_str("cosine"),
            Course::Step { at, factor } => {
                let at: Vec<String> = at.iter().map(f64::to_string).collect();
                write!(f, "step:{}:{factor}", at.join(","))
            }
        }
    }
}

/// Widest layer, and largest count of anything that a net has in parallel.
pub(crate) const MOST_WIDTH: usize = 1 << 20;
/// Most examples of a batch, and most batches of a step.
const MOST_EXAMPLES: u64 = 1 << 32;
/// Latest epoch and largest factor of a schedule, and most batches of a step that grows.
const MOST_OF_COURSE: f64 = 1e6;
/// Largest useful factor on parameters.
const MOST_DECAY: f32 = 1e6;

/// How a net is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FitConfig {
    /// Validation data, read as the training data is, or a share of the training records.
    #[serde(with = "as_text::option", skip_serializing_if = "Option::is_none")]
    pub validation: Option<Validation>,
    /// Test data; none if empty.
    pub test: Vec<String>,
    /// Epochs.
    pub epochs: u64,
    /// Examples in a batch, over all ranks.
    pub batch: u64,
    /// Batches accumulated into the gradient of one step.
    pub accumulate: u64,
    /// Whether a step grows to more batches over the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grow: Option<GrowingBatch>,
    /// Order of the epochs.
    #[serde(with = "as_text")]
    pub order: Order,
    /// How records are read.
    #[serde(with = "as_text")]
    pub access: Access,
    /// How parameters are changed.
    pub optimizer: Optimizer,
    /// Learning rate; the optimiser's default if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Momentum of sgd and lars.
    pub momentum: f32,
    /// Whether sgd uses Nesterov momentum.
    pub nesterov: bool,
    /// Weight decay.
    pub weight_decay: f32,
    /// Trust coefficient of lars.
    pub trust: f32,
    /// Schedule of the learning rate.
    #[serde(with = "as_text")]
    pub schedule: CourseSetting,
    /// Epochs of warm-up.
    pub warmup: f64,
    /// Part of the probability that a target shares with all classes.
    pub smoothing: f32,
    /// Clip gradients to this norm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<f64>,
    /// Training ends after this many epochs without a better validation loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<u64>,
    /// Precision of the operands of products in training; weights, sums, norms, evaluation and recurrent layers use
    /// f32.
    #[serde(with = "as_text")]
    pub precision: Precision,
    /// Random seed.
    pub seed: u64,
    /// Compute threads; 0 for all processors.
    pub threads: usize,
    /// Threads that decode.
    pub feed_threads: usize,
    /// Bytes that the feed may hold.
    pub memory_bytes: u64,
    /// Seconds between checkpoints within an epoch.
    pub checkpoint_seconds: f64,
    /// The cache in all ranks' memory between the files and the feeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<PeerConfig>,
}

impl Default for FitConfig {
    fn default() -> FitConfig {
        FitConfig {
            validation: None,
            test: Vec::new(),
            epochs: 10,
            batch: 128,
            accumulate: 1,
            grow: None,
            order: Order::Full,
            access: Access::Auto,
            optimizer: Optimizer::Sgd,
            rate: None,
            momentum: 0.9,
            nesterov: true,
            weight_decay: 1e-4,
            trust: 1e-3,
            schedule: CourseSetting(Course::Cosine),
            warmup: 0.0,
            smoothing: 0.0,
            clip: None,
            patience: None,
            precision: Precision::F32,
            seed: 0,
            threads: 0,
            feed_threads: 1,
            memory_bytes: pelton_storage::memory_budget(FitConfig::USUAL_MEMORY, 1),
            checkpoint_seconds: 60.0,
            cache: None,
        }
    }
}

impl FitConfig {
    /// Default bytes of the feed, if the machine has them.
    pub const USUAL_MEMORY: u64 = 256 << 20;

    /// Settings of a job on nets that may change when a run is resumed. All others decide what the saved numbers mean,
    /// or which records remain, and must be equal.
    pub(crate) const CHANGING: [&str; 11] = [
        "data.device_model",
        "fit.access",
        "fit.cache",
        "fit.clip",
        "fit.epochs",
        "fit.patience",
        "fit.rate",
        "fit.schedule",
        "fit.test",
        "fit.warmup",
        "head.rate",
    ];

    /// Notes that half precision is not faster on this processor.
    pub(crate) fn note_precision(&self, context: &mut RunContext<'_>) {
        if self.precision == Precision::Bf16 && !self.precision.is_fast() {
            let note = "`precision` bf16 is not faster here: this processor lacks AVX-512 BF16";
            (context.observer)(Event::Note(note));
        }
    }

    /// Refuses invalid settings.
    pub(crate) fn check(&self) -> Result<(), TrainError> {
        check_positive("rate", self.rate())?;
        check_range("batch", self.batch, 1..=MOST_EXAMPLES)?;
        check_range("accumulate", self.accumulate, 1..=MOST_EXAMPLES)?;
        check_range("epochs", self.epochs, 1..=u64::MAX)?;
        check_positive("trust", f64::from(self.trust))?;
        if let Some(clip) = self.clip {
            check_positive("clip", clip)?;
        }
        if let Some(patience) = self.patience {
            check_range("patience", patience, 1..=u64::MAX)?;
        }
        check_range("weight_decay", self.weight_decay, 0.0..=MOST_DECAY)?;
        check_seconds("checkpoint_every", self.checkpoint_seconds)?;
        check_threads("`feed_threads`", self.feed_threads)?;
        // 0 means all processors.
        check_threads("`threads`", self.threads.max(1))?;
        let epochs = self.epochs as f64;
        if !(0.0..=epochs).contains(&self.warmup) {
            return Err(TrainError::config(format!(
                "`warmup` {} is out of range; give a number of epochs from 0 to the {epochs} of the run",
                self.warmup
            )));
        }
        if !(0.0..1.0).contains(&self.smoothing) || !(0.0..1.0).contains(&self.momentum) {
            return Err(TrainError::config(format!(
                "`smoothing` {} or `momentum` {} is out of range: give numbers from 0 to below 1",
                self.smoothing, self.momentum
            )));
        }
        Ok(())
    }

    /// Refuses settings that several ranks do not support.
    pub(crate) fn check_ranks(
        &self,
        pipeline: &PipelineConfig,
        comm: &Comm,
    ) -> Result<(), TrainError> {
        let echo = pipeline.echo.filter(|echo| echo.auto().is_some());
        match echo.filter(|_| comm.size() > 1) {
            None => Ok(()),
            Some(echo) => Err(TrainError::config(format!(
                "`echo` {echo} depends on each rank's clock, so ranks would take different numbers of steps; give a fixed number of repeats, or train on one rank"
            ))),
        }
    }

    /// The records held out for validation, if `validation` is a share.
    pub(crate) fn held_out(&self, data: &OpenedData) -> Result<Option<HeldOut>, TrainError> {
        match self.validation {
            Some(Validation::Share(share)) => {
                let records = data.dataset.records();
                Ok(Some(HeldOut::share(records, share, self.seed)?))
            }
            _ => Ok(None),
        }
    }

    /// The files of validation data, if it names any.
    pub(crate) fn validation_paths(&self) -> Vec<String> {
        match &self.validation {
            Some(Validation::Data(path)) => vec![path.clone()],
            _ => vec![],
        }
    }

    /// The learning rate; by default one that suits the optimiser.
    pub fn rate(&self) -> f64 {
        self.rate.unwrap_or(match self.optimizer {
            Optimizer::Sgd => 0.1,
            Optimizer::Adamw => 1e-3,
            // Heads over 2 000 classes learn at rates 1 to 5, fastest at 3. At 10, momentum drives them to chance:
            // biases take the rate without the trust ratio.
            Optimizer::Lars => 3.0,
        })
    }

    /// The rule of the optimiser, with its constants.
    pub fn rule(&self) -> Rule {
        match self.optimizer {
            Optimizer::Sgd => Rule::Sgd {
                momentum: self.momentum,
                nesterov: self.nesterov,
            },
            Optimizer::Adamw => Rule::AdamW {
                mean_decay: 0.9,
                square_decay: 0.999,
                epsilon: 1e-8,
            },
            Optimizer::Lars => Rule::Lars {
                momentum: self.momentum,
                trust: self.trust,
            },
        }
    }

    pub(crate) fn schedule(&self) -> Schedule {
        Schedule {
            rate: self.rate(),
            warmup_epochs: self.warmup,
            course: self.schedule.0.clone(),
            batch: self.grow,
        }
    }
}

/// Refuses a net with too many parameters on this rank for the available memory.
pub(crate) fn check_memory(parameters: usize) -> Result<(), TrainError> {
    // With their gradients.
    let needed = 2 * 4 * parameters as u64;
    let spare = spare_memory();
    if needed <= spare || spare == 0 {
        Ok(())
    } else {
        Err(TrainError::config(format!(
            "the net has {parameters} parameters, and training them needs at least {:.1} GB, but {:.1} GB are available; use fewer or narrower layers",
            needed as f64 / 1e9,
            spare as f64 / 1e9
        )))
    }
}

/// A batch that grows, as text: `cosine:MOST[:FROM[:epoch]]` or `inverse:MOST[:FROM[:epoch]]`.
pub fn growing_batch(text: &str) -> Result<GrowingBatch, String> {
    let bad = || {
        format!(
            "`{text}` is not a batch growth: use cosine:MOST[:FROM[:epoch]] or inverse:MOST[:FROM[:epoch]], such as cosine:8:0.1"
        )
    };
    let mut parts = text.split(':');
    let growth = match parts.next() {
        Some("cosine") => Growth::Cosine,
        Some("inverse") => Growth::Inverse,
        _ => return Err(bad()),
    };
    let most: f64 = parts.next().and_then(|p| p.parse().ok()).ok_or_else(bad)?;
    let from: f64 = parts.next().unwrap_or("0").parse().map_err(|_| bad())?;
    let by_epoch = match parts.next() {
        None => false,
        Some("epoch") => true,
        Some(_) => return Err(bad()),
    };
    if (1.0..=MOST_OF_COURSE).contains(&most)
        && (0.0..1.0).contains(&from)
        && parts.next().is_none()
    {
        Ok(GrowingBatch {
            growth,
            most,
            from,
            by_epoch,
        })
    } else {
        Err(bad())
    }
}
