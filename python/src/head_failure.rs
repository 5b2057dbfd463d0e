//! Errors of heads as exceptions.

use std::fmt;
use std::ops::Range;

use pelton_comm::CommError;
use pelton_softmax::HeadError;
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::error::{StateError, configuration};

/// What is wrong with a call, or with another rank.
pub(crate) enum HeadFailure {
    Head(HeadError),
    Label {
        place: ExamplePosition,
        label: i64,
        classes: u64,
    },
    NotFinite(ExamplePosition),
    NotSelected(ExamplePosition, u64),
    NoExamples,
    /// The classes of a batch leave few of those that may take part to others.
    Budget {
        own: usize,
        all: u64,
    },
    /// A loss went backward and no step was taken.
    Pending,
    /// A loss of a batch that was forgotten goes backward.
    Forgotten,
    /// A loss goes backward again.
    Backward,
    /// A step without a loss that went backward.
    NotBackward,
    /// Rows of a block that no piece has.
    Rows(String, Range<u64>),
}

/// Where an example is.
pub(crate) struct ExamplePosition {
    example: usize,
    /// Where there are several.
    rank: Option<usize>,
}

impl ExamplePosition {
    /// For an example among those of all ranks, with the number from each rank.
    pub(crate) fn new(mut example: usize, counts: &[usize]) -> ExamplePosition {
        let mut rank = 0;
        while rank + 1 < counts.len() && example >= counts[rank] {
            example -= counts[rank];
            rank += 1;
        }
        let rank = (counts.len() > 1).then_some(rank);
        ExamplePosition { example, rank }
    }
}

impl fmt::Display for ExamplePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]", self.example)?;
        match self.rank {
            None => Ok(()),
            Some(rank) => write!(f, " of rank {rank}"),
        }
    }
}

impl From<HeadError> for HeadFailure {
    fn from(error: HeadError) -> HeadFailure {
        HeadFailure::Head(error)
    }
}

impl From<CommError> for HeadFailure {
    fn from(error: CommError) -> HeadFailure {
        HeadFailure::Head(error.into())
    }
}

impl From<HeadFailure> for PyErr {
    fn from(failure: HeadFailure) -> PyErr {
        let now = |sentence: &'static str| PyRuntimeError::new_err(sentence);
        match failure {
            HeadFailure::Label {
                place,
                label,
                classes,
            } => PyIndexError::new_err(format!(
                "labels{place} is {label}; there are {classes} classes, 0 to {}",
                classes - 1
            )),
            HeadFailure::NotFinite(place) => PyValueError::new_err(format!(
                "features{place} or their logits are not finite; lower the learning rate"
            )),
            HeadFailure::NotSelected(place, label) => PyValueError::new_err(format!(
                "labels{place} is {label}, which select() was not given; give it the labels of all batches of the step"
            )),
            HeadFailure::NoExamples => PyValueError::new_err("there are no examples in the batch"),
            HeadFailure::Budget { own, all } => configuration(format!(
                "a batch of {own} classes leaves few of the {all} that take part in a step to others, which would not be learned: raise budget=, or take smaller batches"
            )),
            HeadFailure::Pending => now(
                "backward() was called on a loss of this head: call step() first, or choose the classes of all batches of a step together with select()",
            ),
            HeadFailure::Forgotten => now(
                "this loss belongs to a batch that the head no longer has: call backward() before scoring the next batch, or choose the classes of all batches of a step together with select()",
            ),
            HeadFailure::Backward => {
                now("backward() was already called on this loss, and it counts once in a step")
            }
            HeadFailure::NotBackward => now(
                "backward() was not called on a loss of this head since its last step; call it first",
            ),
            HeadFailure::Rows(name, rows) => StateError::new_err(format!(
                "the state lacks rows {} to {} of the {name}; put the states of all ranks together with pelton.heads.join_states",
                rows.start,
                rows.end - 1
            )),
            HeadFailure::Head(error) => match error {
                HeadError::Missing { .. } => StateError::new_err(error.to_string()),
                HeadError::Classes { .. }
                | HeadError::Comm(CommError::RanksDiffer { .. } | CommError::Setting { .. }) => {
                    configuration(error)
                }
                HeadError::Weights { .. } => PyValueError::new_err(error.to_string()),
                error => PyRuntimeError::new_err(error.to_string()),
            },
        }
    }
}
