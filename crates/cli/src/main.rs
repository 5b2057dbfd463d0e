//! The `pelton` command: arguments become one configuration, a job runs, its figures are printed.
//!
//! `arguments` declares every flag and writes those given over a configuration, `commands` runs the
//! job, `console` shows on standard error what the job tells with settings as `flags`, `logging` what the libraries decide. Standard output carries results only,
//! so that it can be piped; with `--json` they are one object on one line.
//!
//! Exit codes: 0 done; 1 a run failed; 2 bad usage or bad input; 130 interrupted by Ctrl-C.

mod allocation;
mod arguments;
mod bytes;
mod capacity_arguments;
mod commands;
mod console;
mod data_arguments;
mod flags;
mod logging;
mod negative_values;
#[cfg(feature = "nets")]
mod net_arguments;
mod output;
mod peer_arguments;
mod ranks;
mod stage_arguments;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    allocation::give_back_large_blocks();
    let words = negative_values::joined(std::env::args_os());
    let arguments = match arguments::Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        // Help and version are asked for, and go to standard output.
        Err(error) if error.exit_code() == 0 => error.exit(),
        Err(error) => {
            console::say_usage_error(&error);
            return ExitCode::from(2);
        }
    };
    let begun =
        logging::begin().and_then(|()| pelton_cpu::limit().map(drop).map_err(anyhow::Error::msg));
    if let Err(error) = begun {
        console::say_error(&error);
        return ExitCode::from(2);
    }
    match commands::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            console::say_error(&failure.error);
            ExitCode::from(failure.code)
        }
    }
}
