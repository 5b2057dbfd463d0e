//! The interface of training methods.

use pelton_comm::Alike;
use pelton_run::Observer;

use super::journal::{Journal, Trained};
use super::resume::Before;
use crate::checkpoint::Progress;
use crate::error::TrainError;

/// A method of training.
pub(super) trait Method {
    /// Restores the state of the run before, and returns how far that was; `None` where no checkpoint was written yet.
    ///
    /// Errors: a checkpoint that is damaged or of another run. Nothing in the folder is changed.
    fn resume(
        &mut self,
        before: &Before,
        observer: Observer<'_>,
    ) -> Result<Option<Progress>, TrainError>;

    /// Where training begins, which all ranks have alike.
    fn place(&self) -> Alike;

    /// Trains to the end. An interruption saves the state and is an error.
    fn train(self: Box<Self>, journal: &mut Journal<'_>) -> Result<Trained, TrainError>;
}
