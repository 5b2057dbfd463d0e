//! What cannot be done, and what to do instead.

use pelton_comm::CommError;

/// A step of a head that could not be taken; the weights are as they were.
#[derive(Debug, thiserror::Error)]
pub enum HeadError {
    /// A label names no class.
    #[error("example {example} of the batch has label {label}, but there are {classes} classes")]
    Label {
        /// Place in the batch.
        example: usize,
        /// Its label.
        label: u64,
        /// Classes of all ranks.
        classes: u64,
    },
    /// An active set that lacks a class of the batch's own.
    #[error(
        "class {label} of example {example} is not in the active set; an active set holds the classes of its batch"
    )]
    Inactive {
        /// Place in the batch.
        example: usize,
        /// Its label.
        label: u64,
    },
    /// Not a number, or without a direction.
    #[error(
        "the features of example {example} of the batch are not finite; lower the learning rate"
    )]
    NotFinite {
        /// Place in the batch.
        example: usize,
    },
    /// Another rank failed.
    #[error(transparent)]
    Comm(#[from] CommError),
}
