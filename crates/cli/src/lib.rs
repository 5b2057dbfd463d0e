//! The `pelton` command: arguments become one configuration, a job runs, its figures are printed.
//!
//! ```
//! use pelton_cli::bytes::{human, size};
//!
//! assert_eq!(size("64MiB"), Ok(64 << 20));
//! assert_eq!(human(1_500_000), "1.4 MiB");
//! ```
//!
//! `arguments` declares every flag and writes those given over a configuration, `commands` runs the job, `console`
//! shows the job's events on standard error with settings as [`flags`], `logging` the decisions of libraries.
//! Standard output carries results only, so that it can be piped; with `--json` they are one object on one line.
//!
//! Exit codes: 0 done; 1 a run failed; 2 bad usage or bad input; 130 interrupted by Ctrl-C.
//!
//! It is a library so that other programs can run the same jobs ([`run`]).

// Defines `say!`.
#[macro_use]
mod console;

mod allocation;
mod arguments;
pub mod bytes;
mod commands;
mod data_arguments;
pub mod flags;
mod linear_values;
mod logging;
mod negative_values;
#[cfg(feature = "nets")]
mod net_arguments;
pub mod output;
mod peer_arguments;
mod ranks;
mod stage_arguments;

use std::ffi::OsString;

use clap::Parser;

use output::Failure;

/// The command `pelton`: runs the words of a command line, the first of which names the program, and returns the exit
/// code. Call it once in a process, which it sets up for itself: memory, signals, log.
pub fn pelton(words: impl IntoIterator<Item = OsString>) -> u8 {
    run(words, commands::run)
}

/// Parses the words of a command line, runs `command`, and reports errors as one sentence. Returns the exit code.
pub fn run<A: Parser>(
    words: impl IntoIterator<Item = OsString>,
    command: impl FnOnce(A) -> Result<(), Failure>,
) -> u8 {
    allocation::give_back_large_blocks();
    console::outlive_large_files();
    #[cfg(debug_assertions)]
    pelton_train::forbid_rayons_pool();
    flags::know::<A>();
    let arguments = match A::try_parse_from(negative_values::joined(words)) {
        Ok(arguments) => arguments,
        // Help and version are asked for, and go to standard output.
        Err(error) if error.exit_code() == 0 => {
            // A reader that closed the pipe has what it wanted.
            let _ = error.print();
            return 0;
        }
        Err(error) => {
            console::say_usage_error(&error);
            return 2;
        }
    };
    let begun =
        logging::begin().and_then(|()| pelton_cpu::limit().map(drop).map_err(anyhow::Error::msg));
    if let Err(error) = begun {
        console::say_error(&error);
        return 2;
    }
    match command(arguments) {
        Ok(()) => 0,
        Err(failure) => {
            console::say_error(&failure.error);
            failure.code
        }
    }
}
