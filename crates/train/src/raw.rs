//! Entry points over plain bytes, for fuzzing; no part of the interface.

use std::path::Path;

use pelton_format::Rows;
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

/// Restores `solver` from a checkpoint whose checksum need not fit; `rows` makes the rows with the
/// given ids, which are refused beyond `records`.
pub fn restore_checkpoint(
    bytes: &[u8],
    solver: &mut OutOfCore,
    records: u64,
    rows: impl FnOnce(&[u64]) -> Rows,
) -> Result<(), TrainError> {
    let (_, state) = checkpoint::decode(bytes, Path::new("memory"), false)?;
    let State::Descent(state) = state else {
        return Err(TrainError::config("another solver's state".to_string()));
    };
    if state.cached.iter().any(|&id| id >= records) {
        return Err(TrainError::config("a row that is not there".to_string()));
    }
    let cached = rows(&state.cached);
    Ok(solver.restore(*state, cached)?)
}
