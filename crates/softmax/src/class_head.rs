//! The interface of a head over very many classes for a trainer.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use pelton_kernels::Precision;
use pelton_key::listed;

use crate::error::HeadError;
use crate::graph::Budget;
use crate::head::{Measured, Sums};
use crate::labels::Labels;
use crate::logits::Logits;
use crate::rows::Update;

/// How the classes that take part in a step are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HeadKind {
    /// All of them.
    Full,
    /// The nearest classes of those of the batch, by an exact graph (Song et al., KDD 2020, Algorithm 1).
    Knn {
        /// Nearest classes of each in the graph, including itself; all if there are fewer.
        neighbours: usize,
        /// Part of the classes that take part.
        active: f64,
        /// Part of those that is kept for drawn ones, below 1.
        drawn: f64,
    },
    /// Drawn by how likely they are for any example of the batch by its features.
    Near {
        /// Part of the classes that take part.
        active: f64,
    },
    /// Those of the batch, and others drawn evenly (Partial FC: An et al., 2022).
    Sampled {
        /// Part of the classes that take part.
        active: f64,
    },
    /// Those that fall into the same leaf as a class of the batch in one of several random trees (selective softmax:
    /// Zhang et al., 2018).
    Selective {
        /// Trees.
        trees: usize,
        /// Part of the classes that take part.
        active: f64,
    },
    /// Several small softmaxes over hashed classes (MACH: Medini et al., 2019).
    Mach {
        /// Classes of each, the buckets.
        buckets: usize,
        /// How many.
        repetitions: usize,
    },
}

impl HeadKind {
    /// How each is written.
    pub const FORMS: &[&str] = &[
        "full",
        "near[:ACTIVE]",
        "knn[:K[:ACTIVE[:DRAWN]]]",
        "sampled[:ACTIVE]",
        "selective[:TREES[:ACTIVE]]",
        "mach[:BUCKETS[:REPETITIONS]]",
    ];

    /// Part of the classes that takes part in a step.
    pub fn share(self) -> f64 {
        match self {
            HeadKind::Full | HeadKind::Mach { .. } => 1.0,
            HeadKind::Near { active }
            | HeadKind::Knn { active, .. }
            | HeadKind::Sampled { active }
            | HeadKind::Selective { active, .. } => active,
        }
    }

    /// The same with another part of the classes.
    pub fn with_share(mut self, share: f64) -> HeadKind {
        match &mut self {
            HeadKind::Full | HeadKind::Mach { .. } => (),
            HeadKind::Near { active }
            | HeadKind::Knn { active, .. }
            | HeadKind::Sampled { active }
            | HeadKind::Selective { active, .. } => *active = share,
        }
        self
    }

    /// How many of `classes` may take part in a step.
    pub fn budget(self, classes: u64, corrected: bool) -> Budget {
        let drawn = match self {
            HeadKind::Knn { drawn, .. } => drawn,
            _ => 0.0,
        };
        let all = (self.share() * classes as f64).round();
        Budget {
            near: ((1.0 - drawn) * all).round() as u64,
            all: all as u64,
            corrected,
        }
    }
}

impl FromStr for HeadKind {
    type Err = String;

    fn from_str(text: &str) -> Result<HeadKind, String> {
        let bad = || {
            format!(
                "`{text}` is not a head: use {}, such as knn:10:0.1",
                listed(HeadKind::FORMS)
            )
        };
        let mut parts = text.split(':');
        let kind = parts.next().unwrap_or_default();
        let mut next = |default: f64| match parts.next() {
            None => Ok(default),
            Some(part) => {
                let number = part.parse::<f64>().ok();
                number.filter(|x| *x >= 0.0).ok_or_else(bad)
            }
        };
        let whole = |x: f64| {
            if x.fract() == 0.0 && (1.0..=65_535.0).contains(&x) {
                Ok(x as usize)
            } else {
                Err(bad())
            }
        };
        let part = |x: f64| {
            if x > 0.0 && x <= 1.0 {
                Ok(x)
            } else {
                Err(bad())
            }
        };
        let below_1 = |x: f64| Some(x).filter(|x| *x < 1.0).ok_or_else(bad);
        let found = match kind {
            "full" => HeadKind::Full,
            "near" => HeadKind::Near {
                active: part(next(0.1)?)?,
            },
            "knn" => HeadKind::Knn {
                neighbours: whole(next(10.0)?)?,
                active: part(next(0.1)?)?,
                drawn: below_1(next(0.5)?)?,
            },
            "sampled" => HeadKind::Sampled {
                active: part(next(0.1)?)?,
            },
            "selective" => HeadKind::Selective {
                trees: whole(next(8.0)?)?,
                active: part(next(0.1)?)?,
            },
            "mach" => HeadKind::Mach {
                buckets: whole(next(1000.0)?)?,
                repetitions: whole(next(8.0)?)?,
            },
            _ => return Err(bad()),
        };
        match parts.next() {
            None => Ok(found),
            Some(_) => Err(bad()),
        }
    }
}

impl fmt::Display for HeadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeadKind::Full => f.write_str("full"),
            HeadKind::Knn {
                neighbours,
                active,
                drawn,
            } => write!(f, "knn:{neighbours}:{active}:{drawn}"),
            HeadKind::Near { active } => write!(f, "near:{active}"),
            HeadKind::Sampled { active } => write!(f, "sampled:{active}"),
            HeadKind::Selective { trees, active } => write!(f, "selective:{trees}:{active}"),
            HeadKind::Mach {
                buckets,
                repetitions,
            } => write!(f, "mach:{buckets}:{repetitions}"),
        }
    }
}

/// The options of a new head.
#[derive(Clone, Copy, Debug)]
pub struct HeadOptions {
    /// How classes are chosen.
    pub kind: HeadKind,
    /// How features and classes are compared.
    pub logits: Logits,
    /// Classes of all ranks.
    pub classes: u64,
    /// Features of an example.
    pub d: usize,
    /// Whether drawn classes stand for all classes outside the batch and its neighbours, so that the sum over the
    /// active classes is an unbiased estimate of that over all.
    pub correct: bool,
    /// Whether the mean is subtracted from the features first.
    pub centre: bool,
    /// Of the products of a step, and of those that recall neighbours. Weights and evaluation are f32.
    pub precision: Precision,
    /// Seed of the initial weights and of draws.
    pub seed: u64,
    /// Bytes that may keep products between scoring and updating.
    pub scratch_bytes: usize,
}

impl HeadOptions {
    /// Errors: no classes, or more than 2³² − 1.
    pub fn check(&self) -> Result<(), HeadError> {
        let classes = self.classes;
        match u32::try_from(classes) {
            Ok(1..) => Ok(()),
            _ => Err(HeadError::Classes { classes }),
        }
    }

    /// Bytes that keep the products of a batch of 256 with 65 536 classes.
    pub const SCRATCH_BYTES: usize = 64 << 20;
}

/// Rows that one rank keeps of a block of all ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct RowBlock<'a> {
    /// Name of the block.
    pub name: String,
    /// Its first row here.
    pub first: u64,
    /// Rows of all ranks.
    pub total: u64,
    /// Numbers in a row.
    pub width: usize,
    /// The rows.
    pub values: Cow<'a, [f32]>,
}

impl<'a> RowBlock<'a> {
    /// The rows `values` of `width` numbers, from row `first` of `total` on.
    pub fn new(
        name: &str,
        (first, total): (u64, u64),
        width: usize,
        values: impl Into<Cow<'a, [f32]>>,
    ) -> RowBlock<'a> {
        RowBlock {
            name: name.to_string(),
            first,
            total,
            width,
            values: values.into(),
        }
    }

    /// The same with a copy of the rows.
    pub fn into_owned(self) -> RowBlock<'static> {
        RowBlock {
            values: Cow::Owned(self.values.into_owned()),
            ..self
        }
    }
}

/// Finds rows of a block by its name; `None` if the block does not exist or ends before them.
pub type ReadRows<'a> = dyn FnMut(&str, Range<u64>) -> Option<Vec<f32>> + 'a;

/// Statistics of examples before training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// The mean of all features, for heads that subtract it.
    Mean,
    /// The mean features of each class.
    Classes,
}

/// A head over very many classes, divided over the ranks. All ranks call each function with the same features, labels
/// and keys, unless it says otherwise.
pub trait ClassHead: Send {
    /// Classes of all ranks.
    fn classes(&self) -> u64;

    /// Features of an example.
    fn d(&self) -> usize;

    /// Looks at `features` and `labels` before training: first, of a head that centres, for their mean, then for
    /// the means of their classes, without that.
    ///
    /// Errors: features that are not finite.
    fn observe(
        &mut self,
        what: Observed,
        features: &[f32],
        labels: &[u64],
    ) -> Result<(), HeadError>;

    /// Sets the weights of each class to its mean features of length 1. Returns how many classes have no mean, since no
    /// example of them was [observed](ClassHead::observe) or those had no direction; they keep their weights.
    fn begin_at_means(&mut self) -> Result<u64, HeadError>;

    /// The mean subtracted from features before they are compared with class vectors, if any.
    fn mean(&self) -> Option<Vec<f32>>;

    /// Rebuilds the graph or forest from the weights between epochs. Random weights have no neighbours in epoch 0; all
    /// classes other than the batch's own are then drawn. Calls `stop` now and then.
    ///
    /// Errors: [`HeadError::Interrupted`]; weights that are not finite; a lost rank.
    fn renew(&mut self, epoch: u64, stop: &(dyn Fn() -> bool + Sync)) -> Result<(), HeadError>;

    /// Chooses the classes of a step, by the labels of all its micro-batches. `near` chooses when a micro-batch is
    /// scored, for this alone.
    ///
    /// Errors: a label that is not a class.
    fn select(&mut self, labels: &[u64], key: u64) -> Result<(), HeadError>;

    /// Classes of all ranks that were chosen last.
    fn active(&self) -> u64;

    /// Of `near` with lists, how many of the nearest classes of a batch they found, and missed, just before they were
    /// made again.
    fn recall(&self) -> [u64; 2] {
        [0; 2]
    }

    /// Scores a micro-batch of all ranks: `features` \[batch, d\], the classes of each, and the factor on the loss of
    /// each class, by default 1. Returns the sums of all ranks, with the loss Σ factor · loss, and this rank's
    /// part of the gradient of `weight` times that by the features, \[batch, d\]; keeps the batch for the update.
    ///
    /// Errors: features that are not finite; labels of classes that were not chosen, or given twice.
    fn score(
        &mut self,
        features: &[f32],
        labels: Labels<'_>,
        weight: f32,
        factors: Option<&[f32]>,
    ) -> Result<(Sums, Vec<f32>), HeadError>;

    /// Multiplies the weight of one of the micro-batches scored since the last update by `factor`; `micro_batch` is its
    /// index among them.
    fn weigh(&mut self, micro_batch: usize, factor: f32);

    /// The sum of squares of the gradient of all ranks' weights by the micro-batches that were scored since the last
    /// update.
    fn gradient_square(&mut self) -> Result<f64, HeadError>;

    /// Takes one step for all micro-batches that were scored since the last.
    fn update(&mut self, update: &Update) -> Result<(), HeadError>;

    /// Forgets those.
    fn forget(&mut self);

    /// Moves classes that took no part in the last steps by their pending momentum. Call it at the end of an epoch;
    /// functions over all classes call it themselves.
    fn settle(&mut self);

    /// Losses, with these factors, by default 1, and hits over all classes, without training.
    fn evaluate(
        &mut self,
        features: &[f32],
        labels: Labels<'_>,
        factors: Option<&[f32]>,
    ) -> Result<Measured, HeadError>;

    /// The `k` best classes of each row with their scores, the best first, over all ranks: cosines or products; of
    /// MACH mean probabilities.
    fn top(&mut self, features: &[f32], k: usize) -> Result<Vec<Vec<(u64, f32)>>, HeadError>;

    /// This rank's rows: with `state` everything in a checkpoint, otherwise only the rows for evaluation, once the head
    /// has [settled](ClassHead::settle).
    fn save(&self, state: bool) -> Vec<RowBlock<'_>>;

    /// Loads this rank's rows from a checkpoint of any number of ranks.
    ///
    /// Errors: blocks that are missing.
    fn load(&mut self, read: &mut ReadRows<'_>) -> Result<(), HeadError>;

    /// Bytes of weights, momentum and graph on this rank.
    fn bytes(&self) -> u64;

    /// Seconds spent in [`renew`](ClassHead::renew).
    fn graph_seconds(&self) -> f64;

    /// Seconds spent waiting for other ranks in steps.
    fn communication_seconds(&self) -> f64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_lists_every_head() {
        let page = include_str!("../../../docs/classes.md");
        for form in HeadKind::FORMS {
            assert!(page.contains(&format!("`{form}`")), "{form}");
            let name = form.split('[').next().unwrap();
            assert!(name.parse::<HeadKind>().is_ok(), "{name}");
        }
    }

    #[test]
    fn heads_are_text_and_back() {
        for text in [
            "full",
            "near:0.25",
            "knn:12:0.1:0.25",
            "knn:12:0.1:0",
            "sampled:0.5",
            "selective:4:0.25",
            "mach:500:4",
        ] {
            let kind: HeadKind = text.parse().expect("a head");
            assert_eq!(kind.to_string(), text);
        }
        for wrong in [
            "",
            "knn:0",
            "near:0",
            "near:0.1:1",
            "knn:1.5",
            "knn:3:2",
            "knn:3:0.1:1",
            "knn:3:0.1:0.5:1",
            "knn:3:nan",
            "full:1",
            "mach:x",
            "sampled:-1",
        ] {
            let error = wrong.parse::<HeadKind>().unwrap_err();
            assert!(error.contains("such as knn:10:0.1"), "{error}");
        }
    }
}
