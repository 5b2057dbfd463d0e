//! Errors.

use thiserror::Error;

/// Errors of nets.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NnError {
    /// Layers that do not fit one another or the data.
    #[error("{0}")]
    Net(String),
    /// Saved parameters that are not those of the net.
    #[error("{what}; {remedy}")]
    Parameters {
        /// The problem.
        what: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// A head over many classes.
    #[error(transparent)]
    Head(#[from] pelton_softmax::HeadError),
    /// The ranks could not talk to one another.
    #[error(transparent)]
    Comm(#[from] pelton_comm::CommError),
}
