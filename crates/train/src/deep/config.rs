//! Training settings of nets, shared by all jobs.

use std::fmt;
use std::str::FromStr;

use pelton_comm::Comm;
use pelton_data::{
    HeldOut, OpenedData, PeerConfig, Validation, as_text, check_positive, check_range,
    check_seconds, check_threads,
};
use pelton_feed::settings::{bytes, list, some, value};
use pelton_feed::{PipelineConfig, settings};
use pelton_fetch::Access;
use pelton_nn::{Course, GrowingBatch, Growth, Rule, Schedule};
use pelton_plan::Order;
use pelton_run::{Event, RunContext};
use pelton_softmax::Precision;
use pelton_storage::spare_memory;
use serde::{Deserialize, Serialize};

use crate::error::TrainError;

pelton_key::names! {
    /// How parameters are changed.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Optimizer: "an optimizer" {
        /// Stochastic gradient descent with momentum.
        #[default]
        Sgd = "sgd",
        /// Adam with decoupled weight decay.
        Adamw = "adamw",
        /// Layer-wise adaptive rates.
        Lars = "lars",
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

settings! {
    /// How a net is trained.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct FitConfig: "Training" {
        #[serde(with = "as_text::option", skip_serializing_if = "Option::is_none")]
        validation: Option<Validation> = None, flag(One, some, of "DATA|SHARE"),
            "Validation data, or a share of the training records such as 0.1; the parameters of the epoch with the lowest validation loss are kept";
        test: Vec<String> = Vec::new(), flag(Each, list), "Test data";
        epochs: u64 = 10, flag(One, value), "Epochs";
        batch: u64 = 128, flag(One, value), "Examples in a batch, over all ranks";
        accumulate: u64 = 1, flag(One, value), "Batches whose gradients are accumulated for one step";
        #[serde(skip_serializing_if = "Option::is_none")]
        grow: Option<GrowingBatch> = None, flag(One, growing),
            "Let a step grow to MOST batches, starting at the part FROM of the run, at every step or at the start of each epoch: cosine:MOST[:FROM[:epoch]] or inverse:MOST[:FROM[:epoch]]";
        #[serde(with = "as_text")]
        order: Order = Order::Full, flag(One, value, help format!("Order: {}", Order::forms())), "Order of the epochs.";
        #[serde(with = "as_text")]
        access: Access = Access::Auto, flag(One, value), "How records are read: auto, direct, window[:GAP_BYTES] or scatter";
        optimizer: Optimizer = Optimizer::Sgd, flag(One, value, help format!("Optimizer: {}", Optimizer::names())), "Optimizer.";
        #[serde(skip_serializing_if = "Option::is_none")]
        rate: Option<f64> = None, flag(One, some), "Learning rate (default: 0.1 with sgd, 20 for text; 0.001 with adamw; 3 with lars)";
        momentum: f32 = 0.9, flag(One, value), "Momentum of sgd and lars";
        nesterov: bool = true, flag(Bool, value), "Nesterov momentum for sgd: true or false (default: true for images, false for text)";
        weight_decay: f32 = 1e-4, flag(One, value), "Weight decay, not applied to biases and norms";
        trust: f32 = 1e-3, "Trust of lars.";
        #[serde(with = "as_text")]
        schedule: CourseSetting = CourseSetting(Course::Cosine), flag(One, value, help CourseSetting::HELP), "The course of the learning rate.";
        warmup: f64 = 0.0, flag(One, value),
            "Epochs over which the learning rate rises from near 0 (default: 0, or 0.5 with `begin` random)";
        smoothing: f32 = 0.0, flag(One, value), "Label smoothing: share of the target probability that is spread over all classes";
        #[serde(skip_serializing_if = "Option::is_none")]
        clip: Option<f64> = None, flag(One, some), "Clip gradients to this norm";
        #[serde(skip_serializing_if = "Option::is_none")]
        patience: Option<u64> = None, flag(One, some), "Stop after this many epochs without a lower validation loss";
        #[serde(with = "as_text")]
        precision: Precision = Precision::F32, flag(One, value),
            "Numbers that training multiplies: f32, or bf16, faster on processors with AVX-512 BF16; weights, sums and recurrent layers stay f32 (default: f32)";
        seed: u64 = 0, flag(One, value), "Random seed";
        threads: usize = 0, flag(One, value), "Compute threads of each rank (default: all processors)";
        feed_threads: usize = 1, flag(One, value), "Decoding threads of each rank";
        memory_bytes: u64 = pelton_storage::memory_budget(FitConfig::USUAL_MEMORY, 1), flag(One, bytes, as "memory"),
            "Memory of the feed (default: 256MiB, or a quarter of what the machine or container has, if that is less)";
        checkpoint_seconds: f64 = 60.0, flag(One, value, as "checkpoint_every"), "Seconds between checkpoints within an epoch";
        #[serde(skip_serializing_if = "Option::is_none")]
        cache: Option<PeerConfig> = None, "The memory of all ranks between the files and the feeds.";
    }
}

fn growing(field: &mut Option<GrowingBatch>, texts: &[String]) -> Result<(), String> {
    *field = Some(growing_batch(&texts[0])?);
    Ok(())
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
