//! Entry points over plain bytes, for fuzzing; not part of the interface.

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

/// Reads an index of classes; `None` if it is damaged.
#[cfg(feature = "nets")]
pub fn read_index(path: &Path) -> Option<pelton_softmax::ClassIndex<u16>> {
    let entry = pelton_run::Entry::read(path).ok()?;
    let file = pelton_run::CheckpointFile::new(std::fs::File::open(path).ok()?, path, entry);
    crate::class_index::parse_index(&file.ok()?).ok()
}

/// Restores `solver` from a checkpoint.
pub fn restore_checkpoint(bytes: &[u8], solver: &mut OutOfCore) -> Result<(), TrainError> {
    let (_, state) = checkpoint::decode(bytes, Path::new("memory"))?;
    let State::Descent(state) = state else {
        return Err(TrainError::config("another solver's state".to_string()));
    };
    Ok(solver.restore(*state)?)
}
