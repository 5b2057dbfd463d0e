//! Errors of heads, and their remedies.

use pelton_comm::CommError;

/// A step of a head that could not be taken; the weights are as they were.
#[derive(Debug, thiserror::Error)]
pub enum HeadError {
    /// No number of classes for a head.
    #[error("{classes} classes are none for a head; there are 1 to 4294967295")]
    Classes {
        /// Classes that were asked for.
        classes: u64,
    },
    /// A step before the first graph or forest.
    #[error("the head has no graph yet; renew it before the first step")]
    NotRenewed,
    /// A block of rows that is not there, or has another size.
    #[error("the {name} of the head are missing or of another size")]
    Missing {
        /// Name of the block.
        name: &'static str,
    },
    /// Stopped on request.
    #[error("interrupted")]
    Interrupted,
    /// A label names no class.
    #[error("example {example} of the batch has label {label}, but there are {classes} classes")]
    Label {
        /// Index in the batch.
        example: usize,
        /// Its label.
        label: u64,
        /// Classes of all ranks.
        classes: u64,
    },
    /// A label that an example has twice.
    #[error("example {example} of the batch has the label {label} twice; give it once")]
    Twice {
        /// Index in the batch.
        example: usize,
        /// The label.
        label: u64,
    },
    /// An active set that lacks a class of the batch's own.
    #[error(
        "class {label} of example {example} is not in the active set; an active set holds the classes of its batch"
    )]
    Inactive {
        /// Index in the batch.
        example: usize,
        /// Its label.
        label: u64,
    },
    /// Features or logits that are NaN, or too large for f32.
    #[error(
        "the features or the logits of example {example} of the batch are not finite; lower the learning rate"
    )]
    NotFinite {
        /// Index in the batch.
        example: usize,
    },
    /// Weights that are NaN, or too large for f32.
    #[error(
        "the weights of class {class} of the head are not a number or too large; lower the learning rate"
    )]
    Weights {
        /// The class.
        class: u64,
    },
    /// Another rank failed.
    #[error(transparent)]
    Comm(#[from] CommError),
}
