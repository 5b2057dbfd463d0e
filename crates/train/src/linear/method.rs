//! The interface of training methods.

use pelton_comm::Alike;

use super::journal::{Journal, Trained};
use super::resume::Before;
use crate::checkpoint::{Progress, State};
use crate::error::TrainError;

/// A method of training.
pub(super) trait Method {
    /// Restores the state of the run before, and returns the position at which training continues, as text.
    ///
    /// Errors: a checkpoint that is damaged or of another run. Nothing in the folder is changed.
    fn restore(
        &mut self,
        before: &Before,
        progress: &Progress,
        state: State<'static>,
    ) -> Result<String, TrainError>;

    /// Position at which training begins, which must be equal on all ranks.
    fn place(&self) -> Alike;

    /// Trains to the end. An interruption saves the state and is an error.
    fn train(self: Box<Self>, journal: &mut Journal<'_>) -> Result<Trained, TrainError>;
}
