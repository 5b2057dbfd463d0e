//! Runs and models at addresses: what a job or a command does with one is done with a folder on this machine.

use std::path::{Path, PathBuf};

use pelton_data::{RunCopy, config_of, fetched_model};
use pelton_format::is_remote;
use pelton_run::{Event, Interrupt, RunContext, RunOptions};

use crate::error::TrainError;

/// Runs a job in a run folder, which may be in an object store: `s3://bucket/run`, `gs://…`, `az://…`. All ranks call
/// it; the first one writes.
///
/// Errors: those of the job; a run folder that cannot be used; files that could not be sent, which are then kept on
/// this machine.
pub fn in_run_folder<T>(
    context: RunContext<'_>,
    options: &RunOptions,
    job: impl FnOnce(RunContext<'_>) -> Result<T, TrainError>,
) -> Result<T, TrainError> {
    if !is_remote(&options.out) || context.comm.rank() > 0 {
        return job(context.in_folder(options));
    }
    let RunContext {
        comm,
        interrupt,
        observer,
        ..
    } = context;
    let copy = RunCopy::begin(options, interrupt)?;
    let note = copy.note();
    let result = {
        let observer = &mut |event: Event<'_>| {
            if let Some(note) = note() {
                observer(Event::Note(&note));
            }
            observer(event);
        };
        job(RunContext::new(comm, interrupt, observer).in_folder(&copy.options()))
    };
    match (result, copy.end()) {
        (Ok(done), Ok(())) => Ok(done),
        (Err(TrainError::Interrupted { saved, .. }), Ok(())) => Err(TrainError::Interrupted {
            folder: options.out.display().to_string(),
            saved,
        }),
        (Err(error), Ok(())) => Err(error),
        (Ok(_) | Err(TrainError::Interrupted { .. }), Err(not_sent)) => Err(not_sent.into()),
        (Err(error), Err(not_sent)) => {
            observer(Event::Note(&not_sent.to_string()));
            Err(error)
        }
    }
}

/// The folder or file on this machine that has a finished model: itself, or a copy of that at an address.
///
/// Errors: an address without a model; a store that refuses.
pub fn model_here(model: &Path, interrupt: &Interrupt) -> Result<PathBuf, TrainError> {
    if is_remote(model) {
        Ok(fetched_model(model, interrupt)?)
    } else {
        Ok(model.to_path_buf())
    }
}

/// The configuration of the run in a folder or at an address; the file may be absent.
///
/// Errors: a store that refuses.
pub fn config_here(run: &Path, interrupt: &Interrupt) -> Result<PathBuf, TrainError> {
    let config = run.join("run.toml");
    if is_remote(run) {
        Ok(config_of(run, interrupt)?.unwrap_or(config))
    } else {
        Ok(config)
    }
}
