//! Entry points over plain bytes, for fuzzing; no part of the interface.

use std::path::Path;
use std::sync::Arc;

use pelton_linear::{OutOfCore, Peers};

use crate::buckets::{LengthSource, lengths_of};
use crate::checkpoint::{self, Progress, State};
use crate::error::TrainError;

/// The bytes of a checkpoint of `solver`.
pub fn encode_checkpoint(solver: &OutOfCore) -> Vec<u8> {
    let mut bytes = Vec::new();
    let progress = Progress::default();
    let mut alone = Peers::<TrainError>::alone();
    let state = solver
        .save(&|_| 0, &mut alone)
        .expect("nothing is exchanged");
    let state = State::Descent(Box::new(state));
    checkpoint::encode(&mut bytes, &progress, &state).expect("memory takes any bytes");
    bytes
}

/// Restores `solver` from a checkpoint whose checksum need not fit.
pub fn restore_checkpoint(bytes: &[u8], solver: &mut OutOfCore) -> Result<(), TrainError> {
    let (_, state) = checkpoint::decode(bytes, Path::new("memory"), false)?;
    let State::Descent(state) = state else {
        return Err(TrainError::Config("another solver's state".to_string()));
    };
    Ok(solver.restore(*state, &|_| true)?)
}

/// The lengths that the bytes of a file say.
pub fn parse_lengths(mut bytes: &[u8], source: &LengthSource) -> Result<Vec<u32>, TrainError> {
    lengths_of(Path::new("memory"), &mut bytes, source, &Arc::default())
}
