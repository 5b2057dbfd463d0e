//! The `pelton` command: arguments become one configuration, a job runs, its figures are printed.
//!
//! ```
//! use pelton_cli::bytes::{Memory, human};
//!
//! assert_eq!("64MiB".parse(), Ok(Memory::Bytes(64 << 20)));
//! assert_eq!(human(1_500_000), "1.4 MiB");
//! ```
//!
//! `given` makes flags of the settings of configurations, `arguments` has those of commands, `commands` runs the job,
//! `console` shows the job's events on standard error with settings as [`flags`], `logging` shows the decisions of
//! libraries. Standard output contains only results, so that it can be piped; with `--json` they are one object on one
//! line.
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
mod given;
mod linear_values;
mod logging;
mod negative_values;
#[cfg(feature = "nets")]
mod net_arguments;
pub mod output;
mod peer_arguments;
mod ranks;
mod run_arguments;
mod stage_arguments;

use std::ffi::OsString;

use clap::Parser;

#[cfg(feature = "nets")]
pub use allocation::keep_large_blocks;
use output::Failure;

/// The command `pelton`: runs the words of a command line (the first names the program) and returns the exit code. Call
/// it once per process, since it sets up memory, signals and log.
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
        // Help and version go to standard output.
        Err(error) if error.exit_code() == 0 => {
            // A closed pipe is not an error.
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
