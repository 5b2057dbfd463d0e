//! The steps of an augmentation, one file each, and their list.
//!
//! A step is a [`Step`] that says everything about it; help, errors, pipelines and tests read the list.
//! To add one: its file, with its `mod` line, and a line in `list.rs`.

mod affine;
mod crop;
mod cutout;
mod effect;
mod flip;
mod grey;
mod jitter;
mod list;
mod normalise;
mod parameters;
mod policies;
mod random_crop;
mod random_resized_crop;
mod resize;
mod step;
mod tones;

pub(crate) use effect::{Effect, Move, Moves, Size};
pub(crate) use parameters::{MOST_SIDE, Numbers, Parameter, SIDE, number, whole};
pub use step::{Augment, Step};
