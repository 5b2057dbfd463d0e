//! The interface of training a net, for any division over ranks.

use pelton_softmax::{Observed, ReadRows, RowBlock};
use serde::{Deserialize, Serialize};

use crate::error::NnError;
use crate::input::Input;
use crate::nets::Net;
use crate::operands::{Counts, LossOptions};
use crate::optimiser::Update;
use crate::parameters::NamedArray;
use crate::views::Views;

/// How gradients are made.
#[derive(Clone, Copy, Debug)]
pub struct StepOptions<'a> {
    /// The loss.
    pub loss: LossOptions<'a>,
    /// Key of dropout and of everything else that is random in a step.
    pub key: u64,
}

impl StepOptions<'_> {
    /// The key of one part of the step, counted from 0.
    pub(crate) fn key_of(&self, part: usize) -> u64 {
        pelton_key::mix(self.key ^ part as u64)
    }
}

/// Figures of a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeadFigures {
    /// Classes of all ranks.
    pub classes: u64,
    /// Batches that were scored, of all ranks together.
    pub scored: u64,
    /// Classes that took part, added up over them.
    pub active: u64,
    /// Nearest classes that the lists of `near` found, and missed.
    pub recall: [u64; 2],
    /// Seconds of the head in steps, its communication aside.
    pub head_s: f64,
    /// Seconds of the feature net in steps; the sums of its gradients over the ranks are part of them.
    pub features_s: f64,
    /// Seconds spent waiting for features, sums and gradients of the head.
    pub communication_s: f64,
    /// Seconds of building graphs or forests.
    pub graph_s: f64,
}

impl HeadFigures {
    /// Mean part of the classes that took part.
    pub fn active_fraction(&self) -> f64 {
        self.active as f64 / (self.scored * self.classes).max(1) as f64
    }

    /// Part of the nearest classes that lists found; none without lists.
    pub fn list_recall(&self) -> Option<f64> {
        let [found, missed] = self.recall;
        (found + missed > 0).then(|| found as f64 / (found + missed) as f64)
    }

    /// The figures of a run that was resumed: these, after those of its earlier part.
    pub fn after(self, before: HeadFigures) -> HeadFigures {
        HeadFigures {
            classes: self.classes,
            scored: before.scored + self.scored,
            active: before.active + self.active,
            recall: [0, 1].map(|at| before.recall[at] + self.recall[at]),
            head_s: before.head_s + self.head_s,
            features_s: before.features_s + self.features_s,
            communication_s: before.communication_s + self.communication_s,
            graph_s: before.graph_s + self.graph_s,
        }
    }
}

/// What an evaluation tells.
#[derive(Clone, Debug, Default)]
pub struct Evaluated {
    /// Losses and hits.
    pub counts: Counts,
    /// Of each example of this rank whether its best class is one of its own; of a head over many classes.
    pub right: Vec<bool>,
    /// Its best classes, the best first, as many as were asked for.
    pub best: Vec<Vec<u64>>,
}

/// A net that trains, evaluates and predicts. Gradients add up from [`gradients`](Trainer::gradients) to
/// [`update`](Trainer::update).
pub trait Trainer: Send {
    /// The net.
    fn net(&self) -> &Net;

    /// Observes a batch before training, for the initial weights of a head over many classes, as far as
    /// `views` accepts its examples. All ranks call it, with a batch or without.
    fn observe(
        &mut self,
        _what: Observed,
        _input: Option<Input<'_>>,
        _views: &mut Views,
    ) -> Result<(), NnError> {
        Ok(())
    }

    /// Sets each class vector in the head to the class's mean features; returns how many classes have no mean. All
    /// ranks call it.
    fn begin_at_means(&mut self) -> Result<u64, NnError> {
        Ok(0)
    }

    /// State that is renewed between epochs. All ranks call it before the first step of each; `stop` ends it.
    fn begin_epoch(
        &mut self,
        _epoch: u64,
        _stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), NnError> {
        Ok(())
    }

    /// Work postponed to the end of an epoch. All ranks call it after the last step of each.
    fn end_epoch(&mut self) {}

    /// Forward and backward over the parts of one step; sums their gradients over the ranks. A rank without a batch
    /// still takes part in the sums; all ranks have the same number of parts.
    fn gradients(
        &mut self,
        parts: &[Option<Input<'_>>],
        options: &StepOptions<'_>,
    ) -> Result<Counts, NnError>;

    /// The 2-norm of all gradients; not finite if one of them is not. All ranks call it.
    fn gradient_norm(&mut self) -> Result<f64, NnError>;

    /// Changes the parameters by the gradients, which are zero afterwards.
    fn update(&mut self, update: &Update) -> Result<(), NnError>;

    /// Forgets the gradients.
    fn forget(&mut self);

    /// Losses without training. All ranks call it, with a batch or without.
    fn evaluate(&mut self, input: Option<Input<'_>>) -> Result<Counts, NnError>;

    /// The same, and what a head over many classes tells of each example of this rank, with its `best` best classes.
    fn evaluate_each(
        &mut self,
        input: Option<Input<'_>>,
        _best: usize,
    ) -> Result<Evaluated, NnError> {
        Ok(Evaluated {
            counts: self.evaluate(input)?,
            ..Evaluated::default()
        })
    }

    /// Logits [rows, classes] without training; of words step by step.
    fn logits(&mut self, input: Input<'_>) -> Result<Vec<f32>, NnError>;

    /// The `k` best classes of each row with their scores, the best first; of a head over many classes.
    fn top(&mut self, _input: Input<'_>, _k: usize) -> Result<Vec<Vec<(u64, f32)>>, NnError> {
        Err(NnError::Net(
            "the net has no head over many classes".to_string(),
        ))
    }

    /// Statistics of the head over many classes, if there is one.
    fn head(&self) -> Option<HeadFigures> {
        None
    }

    /// Rows that each rank saves separately; without `state` those that evaluating needs, after an epoch has
    /// [ended](Trainer::end_epoch).
    fn row_blocks(&self, _state: bool) -> Vec<RowBlock<'_>> {
        vec![]
    }

    /// Replaces those by the rows that `read` returns for a block. All ranks call it.
    fn set_row_blocks(&mut self, _read: &mut ReadRows<'_>) -> Result<(), NnError> {
        Ok(())
    }

    /// The parameters, by PyTorch's names and in its layouts. All ranks call it.
    fn parameters(&self) -> Result<Vec<NamedArray>, NnError>;

    /// Replaces the parameters.
    fn set_parameters(&mut self, saved: Vec<NamedArray>) -> Result<(), NnError>;

    /// The rest of the state: that of the optimiser and of LSTM layers in all rows. All ranks
    /// call it.
    fn state(&self) -> Result<Vec<NamedArray>, NnError>;

    /// Replaces that; `saved` may be empty.
    fn set_state(&mut self, saved: Vec<NamedArray>) -> Result<(), NnError>;
}
