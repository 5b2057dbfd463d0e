//! What trains a net, whatever it runs on.

use crate::error::NnError;
use crate::input::Input;
use crate::nets::Net;
use crate::operands::{Counts, LossOptions};
use crate::optimiser::Update;
use crate::parameters::NamedArray;

/// How gradients are made.
#[derive(Clone, Copy, Debug)]
pub struct StepOptions {
    /// The loss.
    pub loss: LossOptions,
    /// Decides what dropout takes.
    pub key: u64,
    /// Whether the gradients of this batch complete a step: they are summed over the ranks.
    pub last: bool,
}

/// A net that trains, evaluates and predicts. Gradients add up from [`gradients`](Trainer::gradients) to
/// [`update`](Trainer::update).
pub trait Trainer: Send {
    /// The net.
    fn net(&self) -> &Net;

    /// Forward and backward; gradients are added to those there are. A rank without a batch takes part in the sums all
    /// the same.
    fn gradients(
        &mut self,
        input: Option<Input<'_>>,
        options: &StepOptions,
    ) -> Result<Counts, NnError>;

    /// The 2-norm of all gradients; not finite where one of them is not. All ranks call it.
    fn gradient_norm(&self) -> Result<f64, NnError>;

    /// Changes the parameters by the gradients, which are zero afterwards.
    fn update(&mut self, update: &Update);

    /// Forgets the gradients.
    fn forget(&mut self);

    /// Losses without training. All ranks call it, with a batch or without.
    fn evaluate(&mut self, input: Option<Input<'_>>) -> Result<Counts, NnError>;

    /// Logits [rows, classes] without training; of words step by step.
    fn logits(&mut self, input: Input<'_>) -> Result<Vec<f32>, NnError>;

    /// The parameters, by PyTorch's names and in its layouts. All ranks call it.
    fn parameters(&self) -> Result<Vec<NamedArray>, NnError>;

    /// Replaces the parameters.
    fn set_parameters(&mut self, saved: Vec<NamedArray>) -> Result<(), NnError>;

    /// What else the next step depends on: the optimiser's state and that of LSTM layers in all rows. All ranks call it.
    fn state(&self) -> Result<Vec<NamedArray>, NnError>;

    /// Replaces that; `saved` may be empty.
    fn set_state(&mut self, saved: Vec<NamedArray>) -> Result<(), NnError>;
}
