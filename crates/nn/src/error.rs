//! What can go wrong.

use thiserror::Error;

/// What can go wrong with a net.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NnError {
    /// Layers that do not fit one another or the data.
    #[error("{0}")]
    Net(String),
    /// Saved parameters that are not those of the net.
    #[error("{what}; {remedy}")]
    Parameters {
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A head over many classes.
    #[error(transparent)]
    Head(#[from] pelton_softmax::HeadError),
    /// The ranks could not talk to one another.
    #[error(transparent)]
    Comm(#[from] pelton_comm::CommError),
}
