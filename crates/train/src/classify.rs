//! The job `train classify`: trains on images or vectors with a head over very many classes.

use pelton_comm::Comm;
use pelton_data::{as_text, check_positive, check_range, check_share};
use pelton_feed::settings;
use pelton_feed::settings::{some, value};
use pelton_nn::{ClassifierOptions, Net, Trainer, classifier};
use pelton_softmax::HeadOptions;
pub use pelton_softmax::{HeadKind, Logits, Precision};
use serde::{Deserialize, Serialize};

use crate::deep::{FitConfig, MOST_WIDTH, Optimizer};
use crate::error::TrainError;

pelton_key::names! {
    /// Initial values of a head's rows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Begin: "a beginning of class vectors" {
        /// The mean features of their classes, by the net before training.
        Means = "means",
        /// Random numbers.
        Random = "random",
    }
}

settings! {
    /// A head over very many classes.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct HeadConfig: "Head" {
        #[serde(with = "as_text")]
        kind: HeadKind = HeadKind::Full, flag(One, value, as "head", help HeadKind::help()), "How the classes of a step are chosen.";
        #[serde(with = "as_text")]
        begin: Begin = Begin::Means, flag(One, value),
            "Initial class vectors: means (the mean features of a few examples of each class) or random (default: means)";
        centre: bool = true, flag(Bool, value), "Subtract the mean from the features: true or false (default: true)";
        correct: bool = true, flag(Bool, value),
            "Weight random classes so that they represent all that do not take part: true or false (default: true)";
        #[serde(skip_serializing_if = "Option::is_none")]
        rebuild: Option<u64> = None, flag(One, some, of "STEPS"),
            "Make the graph of knn, or the trees of selective, again after so many steps too, not only in each epoch";
        embedding: usize = 128, flag(One, value), "Number of features that the net computes for an example";
        #[serde(with = "as_text")]
        logits: Logits = Logits::default(), flag(One, value, help Logits::HELP), "How features and classes are compared.";
        rate: f32 = 1.0, flag(One, value, as "head_rate"), "Learning rate of the head as a multiple of that of the net";
        micro_batches: usize = 1, flag(One, value), "Number of micro-batches in a rank's part of a batch";
        overlap: bool = true, flag(Bool, value), "Compute one micro-batch while others are communicated: true or false";
        density: f64 = 1.0, flag(One, value, of "PART"),
            "Share of the gradients of the net's large parameters that ranks exchange, the largest ones; 0.25, 0.0625 … in the first epochs (default: 1, all)";
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
