//! The job `train classify`: trains on images or vectors with a head over very many classes.

use std::fmt;
use std::str::FromStr;

use pelton_comm::Comm;
use pelton_data::{as_text, check_positive, check_range, check_share};
use pelton_feed::settings;
use pelton_feed::settings::{some, value};
use pelton_key::listed;
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

/// Classes, over the examples of a batch, from which on not all take part by default, if a full head also has so many
/// times the multiplications of the net. A partial one saves two fifths of a step there, and less below.
const MANY: u64 = 64;
const DEAR: f64 = 2.0;

/// Most classes among which the nearest to features, and those nearest to one another, are found at a bearable cost: with
/// a million, `near` takes 15 times as long as `knn`, whose graph takes time with the square of the classes.
const MOST_BY_FEATURES: u64 = 250_000;
const MOST_IN_GRAPHS: u64 = 2_000_000;

/// Classes that then take part, over the examples of a batch, and bounds on their part of all.
const ACTIVE: f64 = 16.0;
const LEAST_PART: f64 = 0.01;
const MOST_PART: f64 = 0.25;

/// Comparisons with a class, beyond which a test measures a sample, and the smallest that it takes.
const COMPARISONS: u64 = 20_000_000_000;
const LEAST_TESTED: u64 = 10_000;

/// How the classes of a step are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HeadChoice {
    /// `full`; where there are many classes and the head costs more than the net `near`, then `knn` and `sampled`.
    Auto,
    /// This way.
    Kind(HeadKind),
}

impl HeadChoice {
    fn help() -> String {
        format!(
            "Classes of a step: auto, {} (default: auto, which is near if there are {MANY} classes or more for an example of the batch and a full head has {DEAR} times the multiplications of the net, knn above {MOST_BY_FEATURES} and sampled above {MOST_IN_GRAPHS} classes, and full otherwise); near draws classes by how likely they are for the batch, knn takes the K nearest of its own classes; ACTIVE is the part of all that takes part (default: 0.1), DRAWN the part of those that knn keeps for draws (default: 0.5)",
            listed(HeadKind::FORMS)
        )
    }

    /// The kind for this many classes and labels in a batch, and for a full head with `cost` times the multiplications
    /// of the net.
    pub fn of(self, classes: u64, batch: u64, cost: f64) -> HeadKind {
        match self {
            HeadChoice::Kind(kind) => kind,
            HeadChoice::Auto if classes < MANY.saturating_mul(batch) || cost < DEAR => {
                HeadKind::Full
            }
            HeadChoice::Auto => {
                let active = ACTIVE * batch as f64 / classes as f64;
                let active = active.clamp(LEAST_PART, MOST_PART);
                let active = (1000.0 * active).round() / 1000.0;
                if classes <= MOST_BY_FEATURES {
                    HeadKind::Near { active }
                } else if classes <= MOST_IN_GRAPHS {
                    HeadKind::Knn {
                        neighbours: 10,
                        active,
                        drawn: 0.5,
                    }
                } else {
                    HeadKind::Sampled { active }
                }
            }
        }
    }
}

impl FromStr for HeadChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<HeadChoice, String> {
        match text {
            "auto" => Ok(HeadChoice::Auto),
            _ => text.parse().map(HeadChoice::Kind),
        }
    }
}

impl fmt::Display for HeadChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeadChoice::Auto => f.write_str("auto"),
            HeadChoice::Kind(kind) => kind.fmt(f),
        }
    }
}

settings! {
    /// A head over very many classes.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct HeadConfig: "Head" {
        #[serde(with = "as_text")]
        kind: HeadChoice = HeadChoice::Auto, flag(One, value, as "head", help HeadChoice::help()), "How the classes of a step are chosen.";
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
        #[serde(skip_serializing_if = "Option::is_none")]
        test_examples: Option<u64> = None, flag(One, some, of "COUNT"),
            "Most examples that the test, and each validation, measures: random ones (default: all, up to 2·10¹⁰ comparisons of an example with a class)";
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
        (kind, classes): (HeadKind, u64),
        fit: &FitConfig,
        comm: Comm,
    ) -> Result<Box<dyn Trainer>, TrainError> {
        self.check(fit)?;
        let head = HeadOptions {
            kind,
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

    /// How the classes of a step are chosen, of so many, if an example has this many labels on average.
    pub(crate) fn kind_of(
        &self,
        fit: &FitConfig,
        net: &Net,
        classes: u64,
        labels_each: f64,
    ) -> HeadKind {
        let of_head = classes as f64 * net.classes as f64 * labels_each.max(1.0);
        let cost = of_head / net.summary.multiplications.max(1) as f64;
        let labels = (fit.batch * fit.accumulate) as f64 * labels_each.max(1.0);
        self.kind.of(classes, labels.ceil() as u64, cost)
    }

    /// A note for the user on what the budget of a step amounts to, if there is one.
    ///
    /// Errors: a budget that the classes of the batch may nearly fill.
    pub(crate) fn budget_note(
        &self,
        fit: &FitConfig,
        kind: HeadKind,
        classes: u64,
        labels_each: f64,
    ) -> Result<Option<String>, TrainError> {
        let budget = kind.budget(classes, self.correct);
        // A micro-batch of `near` has classes of its own.
        let parts = match kind {
            HeadKind::Near { .. } => 1,
            _ => fit.accumulate,
        };
        let examples = (fit.batch * parts) as f64 * labels_each;
        // Of labels that are each class with the same chance.
        let n = classes as f64;
        let own = n * (1.0 - (1.0 - 1.0 / n).powf(examples));
        if budget.all < classes && own > 0.8 * budget.all as f64 {
            let part = (400.0 * own / n).ceil() / 100.0;
            let larger = match part < 1.0 {
                true => kind.with_share(part),
                false => HeadKind::Full,
            };
            return Err(TrainError::config(format!(
                "a step takes {} of {classes} classes, and its batch has about {own:.0}: hardly any are left for others, which would not be learnt; take `head` {larger} or a smaller `batch`",
                budget.all
            )));
        }
        let (near, drawn) = (budget.near, budget.all - budget.near);
        Ok(match kind {
            HeadKind::Knn { neighbours, .. } => {
                let fit = (near as f64 / own).min(neighbours as f64);
                let mut note = format!(
                    "a step takes {} of {classes} classes: {fit:.1} of the {neighbours} nearest of each class of the batch fit into {near}, and {drawn} are kept for draws",
                    budget.all
                );
                if fit < 0.5 * neighbours as f64 {
                    note += "; most neighbours are left out: give `head` a larger part or fewer neighbours, or a smaller `batch`";
                }
                Some(note)
            }
            _ => None,
        })
    }

    /// Most examples that are measured in a test of so many classes.
    pub(crate) fn most_tested(&self, classes: u64) -> u64 {
        let affordable = || (COMPARISONS / classes.max(1)).max(LEAST_TESTED);
        self.test_examples.unwrap_or_else(affordable)
    }

    pub(crate) fn check(&self, fit: &FitConfig) -> Result<(), TrainError> {
        if let Some(examples) = self.test_examples {
            check_range("test_examples", examples, 1..=u64::MAX)?;
        }
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
