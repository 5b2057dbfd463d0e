//! Runs the job of a command, prints its figures, and maps errors to exit codes.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use pelton_comm::Comm;
use pelton_train::{DataError, Event, RunContext, TrainError, check_positive};
use serde::Serialize;

use crate::bytes::Memory;
pub use crate::console::say;
use crate::console::{Console, interrupt_flag};

/// An error with the exit code it ends the process with.
#[derive(Debug)]
pub struct Failure {
    /// Its message.
    pub error: anyhow::Error,
    /// The exit code.
    pub code: u8,
}

impl From<TrainError> for Failure {
    fn from(error: TrainError) -> Failure {
        Failure {
            code: error.exit_code(),
            error: error.into(),
        }
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Failure {
        TrainError::from(error).into()
    }
}

/// Bad usage: exit code 2.
pub fn usage(error: anyhow::Error) -> Failure {
    Failure { error, code: 2 }
}

/// Checks that a setting is above 0.
pub fn positive(value: f64, setting: &str) -> Result<f64, Failure> {
    check_positive(setting, value)?;
    Ok(value)
}

/// Runs a job on one rank with its events on the console.
pub fn with_console<T, E: Into<Failure>>(
    job: impl FnOnce(RunContext<'_>) -> Result<T, E>,
) -> Result<T, Failure> {
    let (comm, interrupt) = (Comm::alone(), interrupt_flag());
    let mut console = Console::new();
    let observer = &mut |event: Event<'_>| console.show(event);
    let result = job(RunContext::new(&comm, &interrupt, observer));
    console.finish();
    result.map_err(Into::into)
}

/// A size in bytes; shares are refused, since there is no data to take a share of.
pub fn bytes_of(memory: Memory, flag: &str) -> Result<u64, Failure> {
    memory.bytes().ok_or_else(|| {
        usage(anyhow::anyhow!(
            "{flag} takes a size such as 256MiB, not a share"
        ))
    })
}

/// The folder or file on this machine that has a finished model, fetched if it is an address.
pub fn model_here(model: &Path) -> Result<PathBuf, Failure> {
    Ok(pelton_train::model_here(model, &interrupt_flag())?)
}

/// Prints figures as one JSON object on standard output.
pub fn print_json(figures: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(figures).context("figures as JSON");
    let text = text.map_err(|error| Failure { error, code: 1 })?;
    print_with(|out| writeln!(out, "{text}"))
}

/// Prints figures on standard output. A closed pipe is not a failure; any other write error is.
pub fn print_with(
    write: impl FnOnce(&mut BufWriter<StdoutLock<'static>>) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let text = format!(
                "the results cannot be written ({error}); make room or send the output elsewhere"
            );
            let error = anyhow::anyhow!(text);
            Err(Failure { error, code: 1 })
        }
        _ => Ok(()),
    }
}
