//! The `pelton` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    pelton_cli::pelton()
}
