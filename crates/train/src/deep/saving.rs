//! Checkpoints of a net: parameters under PyTorch's names, and what else the next step depends on.

use std::path::Path;

use pelton_nn::{NamedArray, NnError, Trainer};
use pelton_run::{Checkpoint, Dtype, RunError, Tensor, read_checkpoint, write_checkpoint};

use super::progress::Progress;
use crate::error::TrainError;

/// Begins the names of what is no parameter.
const STATE: &str = "state.";

fn tensors<'a>(prefix: &str, arrays: &'a [NamedArray]) -> Vec<Tensor<'a>> {
    let tensor = |array: &'a NamedArray| {
        let name = format!("{prefix}{}", array.name);
        Tensor::new(name, Dtype::F32, &array.values).shaped(&array.shape)
    };
    arrays.iter().map(tensor).collect()
}

fn text(progress: &Progress) -> String {
    serde_json::to_string(progress).expect("numbers and text")
}

/// Writes parameters, and what else a run goes on from.
pub(super) fn save(
    path: &Path,
    progress: &Progress,
    parameters: &[NamedArray],
    state: &[NamedArray],
) -> Result<(), TrainError> {
    let mut all = tensors("", parameters);
    all.extend(tensors(STATE, state));
    Ok(write_checkpoint(path, &text(progress), all)?)
}

fn arrays(checkpoint: &Checkpoint<'_>) -> Result<(Vec<NamedArray>, Vec<NamedArray>), TrainError> {
    let (mut parameters, mut state) = (Vec::new(), Vec::new());
    for (name, shape) in checkpoint.names() {
        let values = checkpoint.required(&name, Dtype::F32)?;
        match name.strip_prefix(STATE) {
            Some(rest) => state.push(NamedArray {
                name: rest.to_string(),
                shape,
                values,
            }),
            None => parameters.push(NamedArray {
                name,
                shape,
                values,
            }),
        }
    }
    Ok((parameters, state))
}

/// Goes on from a checkpoint; `None` where there is none.
pub(super) fn resume(
    path: &Path,
    trainer: &mut dyn Trainer,
) -> Result<Option<Progress>, TrainError> {
    if !path.exists() {
        return Ok(None);
    }
    let bytes = read_checkpoint(path)?;
    let checkpoint = Checkpoint::parse(&bytes, path)?;
    checkpoint.check()?;
    let progress =
        serde_json::from_str(checkpoint.text()).map_err(|_| checkpoint.damaged("progress"))?;
    let (parameters, state) = arrays(&checkpoint)?;
    let misfit = |error| misfit(&checkpoint, &error);
    trainer.set_parameters(parameters).map_err(misfit)?;
    trainer.set_state(state).map_err(misfit)?;
    Ok(Some(progress))
}

/// Takes the parameters of a checkpoint, or of a model file.
pub(crate) fn load_parameters(path: &Path, trainer: &mut dyn Trainer) -> Result<(), TrainError> {
    let bytes = read_checkpoint(path)?;
    let checkpoint = Checkpoint::parse(&bytes, path)?;
    checkpoint.check()?;
    let (parameters, _) = arrays(&checkpoint)?;
    let misfit = |error| misfit(&checkpoint, &error);
    Ok(trainer.set_parameters(parameters).map_err(misfit)?)
}

fn misfit(checkpoint: &Checkpoint<'_>, error: &NnError) -> RunError {
    checkpoint.wrong(&format!("does not fit: {error}"))
}
