//! The job `train classify`: trains on images or vectors with a head over very many classes.

use std::fmt;
use std::str::FromStr;

use pelton_comm::Comm;
use pelton_data::{as_text, check_positive, check_range, check_share};
use pelton_nn::{ClassifierOptions, Net, Trainer, classifier};
use pelton_softmax::HeadOptions;
pub use pelton_softmax::{HeadKind, Logits, Precision};
use serde::{Deserialize, Serialize};

use crate::deep::{FitConfig, MOST_WIDTH, Optimizer};
use crate::error::TrainError;

/// Initial values of a head's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// The mean features of their classes, by the net before training.
    Means,
    /// Random numbers.
    Random,
}

impl FromStr for Begin {
    type Err = String;

    fn from_str(text: &str) -> Result<Begin, String> {
        match text {
            "means" => Ok(Begin::Means),
            "random" => Ok(Begin::Random),
            _ => Err(format!(
                "class vectors do not begin at `{text}`: use means or random"
            )),
        }
    }
}

impl fmt::Display for Begin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Begin::Means => "means",
            Begin::Random => "random",
        })
    }
}

/// A head over very many classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeadConfig {
    /// How the classes of a step are chosen.
    #[serde(with = "as_text")]
    pub kind: HeadKind,
    /// Initial values of the rows.
    #[serde(with = "as_text")]
    pub begin: Begin,
    /// Whether the mean of the features is taken off them.
    pub centre: bool,
    /// Whether sampled classes are reweighted to represent all classes outside the step's own.
    pub correct: bool,
    /// Steps after which graph or trees are rebuilt within an epoch; if absent, only between epochs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuild: Option<u64>,
    /// Number of features that the net outputs.
    pub embedding: usize,
    /// How features and classes are compared.
    #[serde(with = "as_text")]
    pub logits: Logits,
    /// Learning rate of the head as a multiple of that of the net.
    pub rate: f32,
    /// Micro-batches per rank and batch.
    pub micro_batches: usize,
    /// Whether their work and their communication overlap.
    pub overlap: bool,
    /// Part of the gradients of the net's large parameters that travels between ranks; 1 for all.
    pub density: f64,
}

impl Default for HeadConfig {
    fn default() -> HeadConfig {
        HeadConfig {
            kind: HeadKind::Full,
            begin: Begin::Means,
            centre: true,
            correct: true,
            rebuild: None,
            embedding: 128,
            logits: Logits::default(),
            rate: 1.0,
            micro_batches: 1,
            overlap: true,
            density: 1.0,
        }
    }
}

impl HeadConfig {
    /// A feature net followed by this head.
    pub(crate) fn trainer(
        &self,
        net: Net,
        classes: u64,
        fit: &FitConfig,
        comm: Comm,
    ) -> Result<Box<dyn Trainer>, TrainError> {
        self.check(fit)?;
        let head = HeadOptions {
            kind: self.kind,
            logits: self.logits,
            classes,
            d: net.classes,
            correct: self.correct,
            centre: self.centre,
            precision: fit.precision,
            seed: fit.seed,
            scratch_bytes: HeadOptions::SCRATCH_BYTES,
        };
        let options = ClassifierOptions {
            micro_batches: self.micro_batches,
            overlap: self.overlap,
            head_rate: self.rate,
            density: self.density,
        };
        Ok(classifier(net, &head, options, fit.seed, comm)?)
    }

    /// Notes for the user, one sentence each, on what the budget of a step amounts to, if there is one.
    pub(crate) fn notes(&self, fit: &FitConfig, classes: u64) -> Vec<String> {
        let budget = self.kind.budget(classes, self.correct);
        let own = (fit.batch * fit.accumulate).min(classes);
        if budget.all < own {
            return vec![format!(
                "a step takes {} of {classes} classes, and its batch may have {own}, which take part all the same: nothing is left for others; give `head` a larger part, or a smaller `batch`",
                budget.all
            )];
        }
        let HeadKind::Knn { neighbours, .. } = self.kind else {
            return vec![];
        };
        let fit = (budget.near as f64 / own as f64).min(neighbours as f64);
        let mut note = format!(
            "a step takes {} of {classes} classes: {fit:.1} of the {neighbours} nearest of each class of the batch fit into {}, and {} are kept for draws",
            budget.all,
            budget.near,
            budget.all - budget.near
        );
        if fit < 0.5 * neighbours as f64 {
            note += "; most neighbours are left out: give `head` a larger part or fewer neighbours, or a smaller `batch`";
        }
        vec![note]
    }

    pub(crate) fn check(&self, fit: &FitConfig) -> Result<(), TrainError> {
        if let Some(steps) = self.rebuild {
            check_range("rebuild", steps, 1..=u64::MAX)?;
        }
        check_range("embedding", self.embedding, 1..=MOST_WIDTH)?;
        check_range("micro_batches", self.micro_batches, 1..=MOST_WIDTH)?;
        check_positive("head_rate", self.rate.into())?;
        check_share("density", self.density)?;
        if self.density < 1.0 && fit.optimizer == Optimizer::Adamw {
            return Err(TrainError::config(
                "`density` below 1 takes `optimizer` sgd or lars; choose one of them, or leave `density` at 1"
                    .to_string(),
            ));
        }
        if fit.smoothing != 0.0 {
            return Err(TrainError::config(format!(
                "`smoothing` {}: a head over many classes knows only the right class; leave it at 0",
                fit.smoothing
            )));
        }
        Ok(())
    }
}
