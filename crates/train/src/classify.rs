//! The job `train classify`: the job of images, or of vectors, with a head over very many classes.

use std::fmt;
use std::str::FromStr;

use pelton_comm::Comm;
use pelton_data::as_text;
use pelton_nn::{ClassifierOptions, Net, Trainer, classifier};
pub use pelton_softmax::HeadKind;
use pelton_softmax::{HeadOptions, Logits, Margin};
use serde::{Deserialize, Serialize};

use crate::deep::{FitConfig, Optimizer};
use crate::error::TrainError;

/// Bytes that may keep products between a head's scoring and its update.
const SCRATCH: usize = 64 << 20;

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
    pub logits: LogitsSetting,
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
            logits: LogitsSetting(Logits::Cosine {
                scale: 16.0,
                margin: Margin::None,
            }),
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
            logits: self.logits.0,
            classes,
            d: net.classes,
            seed: fit.seed,
            scratch_bytes: SCRATCH,
        };
        let options = ClassifierOptions {
            micro_batches: self.micro_batches,
            overlap: self.overlap,
            head_rate: self.rate,
            density: self.density,
        };
        Ok(classifier(net, &head, options, fit.device, fit.seed, comm)?)
    }

    fn check(&self, fit: &FitConfig) -> Result<(), TrainError> {
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
        if !(self.density > 0.0 && self.density <= 1.0) {
            return Err(TrainError::config(format!(
                "`density` {} is no part of the gradients; give a number above 0 and at most 1",
                self.density
            )));
        }
        if self.density < 1.0 && fit.optimizer != Optimizer::Sgd {
            return Err(TrainError::config(
                "`density` below 1 takes `optimizer` sgd; choose it, or leave `density` at 1"
                    .to_string(),
            ));
        }
        let positive = self.rate.is_finite() && self.rate > 0.0;
        if !positive || self.embedding == 0 || self.micro_batches == 0 {
            return Err(TrainError::config(format!(
                "`head_rate` {}, `embedding` {} and `micro_batches` {} must be above 0",
                self.rate, self.embedding, self.micro_batches
            )));
        }
        Ok(())
    }
}

/// [`Logits`] as text: `product`, `cosine[:SCALE]`, `cosface[:SCALE[:MARGIN]]` or `arcface[:SCALE[:MARGIN]]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogitsSetting(pub Logits);

impl LogitsSetting {
    /// A line of help.
    pub const HELP: &str = "Logits: product, cosine[:SCALE], or with a margin cosface[:SCALE[:MARGIN]] or arcface[:SCALE[:MARGIN]] (default: cosine:16)";
}

impl FromStr for LogitsSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<LogitsSetting, String> {
        let bad = || {
            format!(
                "`{text}` are no logits: use product, cosine[:SCALE], cosface[:SCALE[:MARGIN]] or arcface[:SCALE[:MARGIN]], such as cosine:16"
            )
        };
        let mut parts = text.split(':');
        let kind = parts.next().unwrap_or_default();
        let mut number = |default: f32| match parts.next() {
            None => Ok(default),
            Some(part) => {
                let number = part.parse::<f32>().ok();
                number.filter(|x| x.is_finite() && *x > 0.0).ok_or_else(bad)
            }
        };
        let logits = match kind {
            "product" => Logits::Product,
            "cosine" => Logits::Cosine {
                scale: number(16.0)?,
                margin: Margin::None,
            },
            "cosface" => Logits::Cosine {
                scale: number(16.0)?,
                margin: Margin::Cosine(number(0.1)?),
            },
            "arcface" => Logits::Cosine {
                scale: number(16.0)?,
                margin: Margin::Angle(number(0.1)?),
            },
            _ => return Err(bad()),
        };
        match parts.next() {
            None => Ok(LogitsSetting(logits)),
            Some(_) => Err(bad()),
        }
    }
}

impl fmt::Display for LogitsSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Logits::Product => f.write_str("product"),
            Logits::Cosine { scale, margin } => match margin {
                Margin::None => write!(f, "cosine:{scale}"),
                Margin::Cosine(m) => write!(f, "cosface:{scale}:{m}"),
                Margin::Angle(m) => write!(f, "arcface:{scale}:{m}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_are_text_and_back() {
        for text in ["product", "cosine:8", "cosface:16:0.2", "arcface:30:0.5"] {
            let setting: LogitsSetting = text.parse().expect("logits");
            assert_eq!(setting.to_string(), text);
        }
        for wrong in [
            "",
            "cos",
            "cosine:0",
            "cosine:1:2",
            "product:1",
            "arcface:1:x",
        ] {
            let error = wrong.parse::<LogitsSetting>().unwrap_err();
            assert!(error.contains("such as cosine:16"), "{error}");
        }
    }
}
