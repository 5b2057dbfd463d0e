//! The job `train classify`: the job of images, or of vectors, with a head over very many classes.

use pelton_comm::Comm;
use pelton_data::{as_text, check_positive, check_range, check_share};
use pelton_nn::{ClassifierOptions, Net, Trainer, classifier};
use pelton_softmax::HeadOptions;
pub use pelton_softmax::{HeadKind, Logits};
use serde::{Deserialize, Serialize};

use crate::deep::{FitConfig, MOST_WIDTH, Optimizer};
use crate::error::TrainError;

/// A head over very many classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeadConfig {
    /// How the classes of a step are chosen.
    #[serde(with = "as_text")]
    pub kind: HeadKind,
    /// Features that the net makes.
    pub embedding: usize,
    /// How features and classes are compared.
    #[serde(with = "as_text")]
    pub logits: Logits,
    /// Learning rate of the head as a multiple of that of the net.
    pub rate: f32,
    /// Micro-batches that a rank's part of a batch is cut into.
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
    /// A net of features with this head behind it.
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
            correct: true,
            centre: false,
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

    pub(crate) fn check(&self, fit: &FitConfig) -> Result<(), TrainError> {
        check_range("embedding", self.embedding, 1..=MOST_WIDTH)?;
        check_range("micro_batches", self.micro_batches, 1..=MOST_WIDTH)?;
        check_positive("head_rate", self.rate.into())?;
        check_share("density", self.density)?;
        if fit.optimizer == Optimizer::Adamw {
            return Err(TrainError::config(
                "`optimizer` adamw: a head over many classes takes sgd or lars; choose one of them"
                    .to_string(),
            ));
        }
        if fit.smoothing != 0.0 {
            return Err(TrainError::config(format!(
                "`smoothing` {}: a head over many classes knows only the right class; leave it at 0",
                fit.smoothing
            )));
        }
        if self.density < 1.0 && fit.optimizer != Optimizer::Sgd {
            return Err(TrainError::config(
                "`density` below 1 takes `optimizer` sgd; choose it, or leave `density` at 1"
                    .to_string(),
            ));
        }
        Ok(())
    }
}
