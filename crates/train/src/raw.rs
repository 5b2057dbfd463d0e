//! Entry points over plain bytes, for fuzzing; no part of the interface.

use std::path::Path;

use pelton_linear::OutOfCore;

use crate::checkpoint::{self, Progress, State};
use crate::error::TrainError;

/// The bytes of a checkpoint of `solver`.
pub fn encode_checkpoint(solver: &OutOfCore) -> Vec<u8> {
    let mut bytes = Vec::new();
    let progress = Progress::default();
    let state = State::Descent(Box::new(solver.save()));
    let (text, tensors) = checkpoint::parts(&progress, &state);
    pelton_run::encode_checkpoint(&mut bytes, &text, tensors).expect("memory takes any bytes");
    bytes
}

/// Reads an index of classes, and returns how many it has.
#[cfg(feature = "nets")]
pub fn read_index(file: std::fs::File) -> Option<pelton_softmax::ClassIndex<u16>> {
    let index = crate::class_index::read_index(file, Path::new("memory"));
    index.ok().map(|(index, _)| index)
}

/// Restores `solver` from a checkpoint without verifying its checksum.
pub fn restore_checkpoint(bytes: &[u8], solver: &mut OutOfCore) -> Result<(), TrainError> {
    let (_, state) = checkpoint::decode(bytes, Path::new("memory"), false)?;
    let State::Descent(state) = state else {
        return Err(TrainError::config("another solver's state".to_string()));
    };
    Ok(solver.restore(*state)?)
}
