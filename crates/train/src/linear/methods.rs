//! The methods of training.

use super::method::Method;
use super::passes::PassSession;
use super::resident::ResidentSession;
use super::session::Session;
use super::task::Task;

/// The method that a task is trained by.
pub(super) fn method_for<'a>(task: &'a Task<'a>) -> Box<dyn Method + 'a> {
    match (task.is_held(), task.config.solver) {
        (true, _) => Box::new(ResidentSession::new(task)),
        (_, solver) if solver.is_by_passes() => {
            Box::new(PassSession::new(task, task.config.target))
        }
        _ => Box::new(Session::new(task)),
    }
}
