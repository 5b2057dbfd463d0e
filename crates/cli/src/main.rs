//! The `pelton` command: arguments become one configuration, a job runs, its figures are printed.
//!
//! Exit codes: 0 done; 1 a run failed; 2 bad usage or bad input; 130 interrupted by Ctrl-C.

mod arguments;
mod bytes;
mod commands;
mod console;
mod reproduce;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("PELTON_LOG"))
        .with_writer(std::io::stderr)
        .init();
    let arguments = arguments::Arguments::parse();
    match commands::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            console::say_error(&failure.error);
            ExitCode::from(failure.code)
        }
    }
}
